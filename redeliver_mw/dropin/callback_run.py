# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""One delivery in a callback's hands, and who hears what becomes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ..message import Delivery

if TYPE_CHECKING:
    from .settlement_scope import SettlementScope


class RunListener(Protocol):
    """Who hears what becomes of a turn: its `Caller`. On the driver's thread."""

    def word(self, turn: CallbackRun, word: Exception, /) -> None: ...
    def closing(self, turn: CallbackRun, /) -> None: ...
    def lost(self, generation: int, turns: list[CallbackRun], /) -> None: ...
    def retired(self, generation: int, /) -> None: ...


@dataclass(slots=True, eq=False)
class CallbackRun:
    """One delivery, from its arrival until it is settled."""

    delivery: Delivery
    seat: SettlementScope
    keeper: RunListener
    given: Any = ()  # what the callback is called with beside the message: the driver's event, a method's self
    in_hand: bool = False  # the callback has it, or has had it and its word is still to come
    inside: bool = False  # within the call, or the coroutine
    word: Exception | None = None
    returning_settles: bool = True  # else only the code's own settlement does
    order: int = 0  # in which the deliveries were handed to the code; a re-run has a later one
    promised: bool = False  # joined to a transaction of the code's own, whose outcome is not known
    before: BaseException | None = None  # what was being handled when the callback was called
    since: float = 0.0
