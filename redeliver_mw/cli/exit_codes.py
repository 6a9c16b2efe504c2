# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What an exception that ends a command is told as: an exit code, and one message for people."""

from __future__ import annotations

import os
import tempfile
import traceback

from ..errors import RedeliverError
from ..redaction import redact, visible

BUG = 70
INTERRUPTED = 130


def verdict(error: BaseException) -> tuple[int, str]:
    """Exit code and message; empty: there is nothing to say."""
    if isinstance(error, RedeliverError):
        return error.exit_code, visible(redact(str(error)), lines=True)
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, ""
    # Whatever it is: one message, and the traceback where one can find it.
    what = visible(redact(f"{type(error).__name__}: {error}"), lines=True)
    kept = _keep("".join(traceback.format_exception(error)))
    return BUG, f"a bug in redeliver: {what}\nPlease report it with its traceback, which is {kept}"


def _keep(text: str) -> str:
    text = visible(redact(text), lines=True)
    try:
        handle, path = tempfile.mkstemp(prefix="redeliver-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError:
        return f"here:\n{text}"
    return f"in {path}"
