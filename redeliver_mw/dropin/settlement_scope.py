# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Where a driver's deliveries are settled, through its generations: who may write a word, and which one is meant."""

from __future__ import annotations

import itertools
import logging
import sys
from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Any

from ..adapter.capabilities import Settlement
from ..context import current_delivery
from ..message import Delivery
from .callback_run import CallbackRun, RunListener

log = logging.getLogger("redeliver_mw.dropin")
_generations = itertools.count(1)  # of this process: a number is never used twice


class SettlementScope(ABC):
    """A channel, link or connection of the user's. Tags are unique in it. On the driver's thread.

    Several consumers may share it; each is a generation of its own, from its first delivery until it is cancelled
    or the seat is closed. A subclass writes words, calls `abandon` when a consumer or the seat is gone, and hands
    the callback's own words to `turn.keeper.word`.
    """

    def __init__(self) -> None:
        self._open: dict[Any, CallbackRun] = {}  # by tag; also of lost generations, so that their late words are known
        self._live: dict[Hashable, int] = {}  # consumer -> generation
        self._keepers: dict[int, RunListener] = {}

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Whether a word that is written now would go out."""

    @abstractmethod
    def write(self, delivery: Delivery, word: Settlement) -> None:
        """Give the broker our word for a delivery that lives; past what captures the callback's words."""

    # -- generations ------------------------------------------------------------------------------

    def generation(self, consumer: Hashable, keeper: RunListener) -> int:
        """Of this consumer as it is now; a new one after it was abandoned."""
        found = self._live.get(consumer)
        if found is None:
            found = self._live[consumer] = next(_generations)
            self._keepers[found] = keeper
        return found

    def lives(self, generation: int) -> bool:
        """Whether what is settled in it would reach the delivery that is meant (rule 2)."""
        return generation in self._keepers and self.is_open

    def abandon(self, consumer: Hashable) -> None:
        """It was cancelled, by the broker or for good: what it was given is not settled any more."""
        generation = self._live.pop(consumer, None)
        if generation is not None:
            keeper = self._keepers.pop(generation)
            keeper.lost(generation, [t for t in self._open.values() if t.delivery.generation == generation])

    def abandon_all(self) -> None:
        """The seat is closed."""
        for consumer in list(self._live):
            self.abandon(consumer)

    def clear(self) -> None:
        """Tags begin anew: late words of lost generations could mean other messages now."""
        self._open = {}

    # -- turns ------------------------------------------------------------------------------------

    def take(self, turn: CallbackRun) -> None:
        self._open[turn.delivery.tag] = turn

    def turn(self, delivery: Delivery) -> CallbackRun | None:
        """The one of this very delivery, until it is settled."""
        found = self._open.get(delivery.tag)
        return found if found is not None and found.delivery is delivery else None

    def settle(self, delivery: Delivery, word: Settlement) -> bool:
        """Write it. False, and nothing written, when the generation is over or it was settled before."""
        if not self.settleable(delivery):
            log.debug("%r is of a lost generation, or settled: not settled", delivery)
            return False
        del self._open[delivery.tag]
        self.write(delivery, word)
        return True

    def settleable(self, delivery: Delivery) -> bool:
        """Whether it is still ours to settle: asked before a transaction that accepts it."""
        return self.lives(delivery.generation) and self.turn(delivery) is not None

    def gone(self, delivery: Delivery) -> None:
        """A transaction has accepted it, or its abort has given it back."""
        if self.turn(delivery) is not None:
            del self._open[delivery.tag]

    # -- what the callback does -------------------------------------------------------------------

    def closing(self) -> None:
        """To be called when the user closes this seat: a callback that does so right after its message gets that
        message settled first; one that does so because of an exception does not."""
        try:
            turn = self.turn(current_delivery())
        except LookupError:
            return
        if turn is not None and turn.inside and turn.word is None and sys.exc_info()[1] is turn.before:
            turn.keeper.closing(turn)
