# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Logs that policies may not be what their author meant."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ..redaction import redact

log = logging.getLogger("redeliver_mw")


def log_findings(findings: Iterable[str]) -> None:
    """Log each finding once, as a warning."""
    for text in dict.fromkeys(findings):
        log.warning("a policy may not be what was meant: %s", redact(text))
