# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Logs errors that may come by the thousand, at most ten times a second."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

MOST = 10  # lines a second


class BoundedLog:
    """Logs errors, and counts those beyond ten a second instead. Thread-safe."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._since, self._lines, self._left_out = 0.0, 0, 0

    def error(self, text: str, *args: Any) -> None:
        """Log the text, or count it; the next line that is logged says how many were left out."""
        with self._lock:
            now = time.monotonic()
            if now - self._since >= 1.0:
                self._since, self._lines = now, 0
            self._lines += 1
            if self._lines > MOST:
                self._left_out += 1
                return
            left_out, self._left_out = self._left_out, 0
        if left_out:
            self._log.error("%d errors of this kind were left out", left_out)
        self._log.error(text, *args)
