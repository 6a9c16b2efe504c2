# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Knows who waits for which RECEIPT of one connection. ActiveMQ names the receipt on the ERROR that comes instead."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from redeliver_stomp.frames import RawFrame

ERROR_CHARS = 500  # of what an ERROR says
OnReceipt = Callable[[str], None]  # empty: processed; else the ERROR's text


class Receipts:
    """Keeps who waits for a receipt. On the loop's thread. No id is used twice, so that a late answer hits nobody."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._waiting: dict[bytes, OnReceipt] = {}

    def expect(self, answer: OnReceipt) -> str:
        """Return the id for a `receipt` header."""
        name = f"r{next(self._numbers)}"
        self._waiting[name.encode()] = answer
        return name

    def take(self, frame: RawFrame) -> bool:
        """Take a RECEIPT, or an ERROR that names one. Return False if nobody waits for it."""
        answer = self._waiting.pop(frame.raw(b"receipt-id"), None)
        if answer is None:
            return False
        answer("" if frame.head.startswith(b"RECEIPT") else error_text(frame))
        return True

    def forget(self) -> None:
        """Forget who waits, after a lost connection; nobody is called."""
        self._waiting.clear()


def error_text(error: RawFrame) -> str:
    """Return the text of an ERROR in one line."""
    text = error.headers.get("message") or error.body.decode("utf-8", "replace").partition("\n")[0]
    return text.strip()[:ERROR_CHARS] or "an ERROR without a word"
