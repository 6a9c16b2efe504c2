# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds the current delivery, known to a handler and to everything that it calls, without being passed along.

Each worker thread and each asyncio task has its own. A task that a handler starts inherits the delivery; a thread that
a handler starts does not, unless it runs in `contextvars.copy_context()`.
"""

from __future__ import annotations

from contextvars import ContextVar

from .message import Delivery

# Code that runs a handler sets it before, and resets it afterwards, in the same thread or task.
in_hand: ContextVar[Delivery] = ContextVar("redeliver_mw.current_delivery")


def current_delivery() -> Delivery:
    """Return the delivery that the running handler was given. Raises LookupError outside of a handler."""
    try:
        return in_hand.get()
    except LookupError:
        raise LookupError("no delivery is in hand: current_delivery() works inside a handler only") from None
