# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Which delivery is in hand: known to a handler, and to all that it calls, without being passed along.

Each worker thread and each asyncio task has its own. A task that a handler starts inherits it; a thread that
it starts does not, unless it runs in `contextvars.copy_context()`.
"""

from __future__ import annotations

from contextvars import ContextVar, Token

from .message import Delivery

_in_hand: ContextVar[Delivery] = ContextVar("redeliver_mw.current_delivery")


def current_delivery() -> Delivery:
    """The delivery that the running handler was given. LookupError outside a handler."""
    try:
        return _in_hand.get()
    except LookupError:
        raise LookupError("no delivery is in hand: current_delivery() works inside a handler only") from None


def set_delivery(delivery: Delivery) -> Token[Delivery]:
    """Put a delivery in hand, in this thread or task; `reset()` takes it out again. For those who run handlers."""
    return _in_hand.set(delivery)


def reset(token: Token[Delivery]) -> None:
    """Back to what was in hand before the `set_delivery()` that returned `token`; in the same thread or task."""
    _in_hand.reset(token)
