# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Turns an exception that ends a command into an exit code and one message for people."""

from __future__ import annotations

import os
import tempfile
import traceback

from ..errors import RedeliverError
from ..redaction import redact, visible

BUG = 70
INTERRUPTED = 130


def verdict(error: BaseException) -> tuple[int, str]:
    """Return the exit code and the message; the message is empty if nothing has to be printed."""
    if isinstance(error, RedeliverError):
        return error.exit_code, visible(redact(str(error)), lines=True)
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, ""
    # Any other error: one message, and the traceback in a file that the message names.
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
