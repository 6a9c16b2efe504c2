# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Settles a driver's deliveries, through its generations: says who may write a settlement, and of which delivery."""

from __future__ import annotations

import itertools
import logging
import sys
from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Protocol

from ..adapter.capabilities import Settlement
from ..context import current_delivery
from ..message import Delivery

log = logging.getLogger("redeliver_mw.dropin")
_generations = itertools.count(1)  # of this process: a number is never used twice


class RunListener(Protocol):
    """Hears what becomes of a run: implemented by `CallbackRunner`. Called on the driver's thread."""

    def code_settled(self, run: CallbackRun, settlement: Exception, /) -> None: ...
    def closing(self, run: CallbackRun, /) -> None: ...
    def lost(self, generation: int, runs: list[CallbackRun], /) -> None: ...
    def retired(self, generation: int, /) -> None: ...


@dataclass(slots=True, eq=False)
class CallbackRun:
    """Follows one delivery from its arrival until it is settled."""

    delivery: Delivery
    scope: SettlementScope
    listener: RunListener
    given: Any = ()  # what the callback is called with beside the message: the driver's event, a method's self
    in_hand: bool = False  # the callback has it, or has had it and its settlement is still to come
    inside: bool = False  # within the call, or the coroutine
    announced: bool = False  # its begin, and not yet its end
    settlement: Exception | None = None
    returning_settles: bool = True  # else only the code's own settlement does
    order: int = 0  # in which the deliveries were handed to the code; a re-run has a later one
    promised: bool = False  # joined to a transaction of the code's own, whose outcome is not known
    before: BaseException | None = None  # what was being handled when the callback was called
    since: float = 0.0


class SettlementScope(ABC):
    """Keeps the deliveries of a channel, link or connection of the user's. Used on the driver's thread.

    Tags are unique in a scope. Several consumers may share it; each is a generation of its own, from its first delivery
    until it is cancelled or the scope is closed. A subclass writes settlements, calls `abandon` when a consumer or the
    scope is gone, and hands the callback's own settlements to `run.listener.code_settled`.
    """

    learns_window = False  # where the window is not known: it is as large as the most that were unsettled at once

    def __init__(self) -> None:
        self._open: dict[Any, CallbackRun] = {}  # by tag; also of lost generations, so that late settlements are known
        self._live: dict[Hashable, int] = {}  # consumer -> generation
        self._listeners: dict[int, RunListener] = {}
        self._retired: set[int] = set()  # generations whose consumer the code cancelled, until they are lost
        self._most = 0  # deliveries that were unsettled here at once
        self._most_of: dict[int, int] = {}  # generation -> the same of its own
        self.settled = 0  # deliveries, so that it can be seen whether anything goes on

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Return whether a settlement that is written now would go out."""

    @abstractmethod
    def write(self, delivery: Delivery, settlement: Settlement) -> None:
        """Write a settlement of a live delivery to the broker, past what captures the callback's own settlements."""

    def window(self, consumer: Hashable) -> int | None:
        """Return how many deliveries the broker lets this consumer have unsettled; None if that is not known."""
        return None

    def withdraw(self, run: CallbackRun) -> bool:
        """Take a run out of the code's open transaction, because its callback raised.

        Return False where the broker has its settlement already: the transaction decides then.
        """
        run.promised = False
        return True

    # -- generations ------------------------------------------------------------------------------

    def generation(self, consumer: Hashable, listener: RunListener) -> int:
        """Return the generation of this consumer as it is now; a new one after the consumer was abandoned."""
        found = self._live.get(consumer)
        if found is None:
            found = self._live[consumer] = next(_generations)
            self._listeners[found] = listener
        return found

    def lives(self, generation: int) -> bool:
        """Return whether a settlement in it would reach the delivery that is meant (settle-once)."""
        return generation in self._listeners and self.is_open

    def abandon(self, consumer: Hashable) -> None:
        """Note that a consumer was cancelled, by the broker or for good: its deliveries are not settled any more."""
        generation = self._live.pop(consumer, None)
        if generation is not None:
            self._lose(generation)

    def _lose(self, generation: int) -> None:
        self._most_of.pop(generation, None)
        self._retired.discard(generation)
        self._listeners.pop(generation).lost(generation, self.unsettled(generation))

    def abandon_all(self) -> None:
        """Lose all generations: the scope is closed."""
        for consumer in list(self._live):
            self.abandon(consumer)
        for generation in list(self._retired):
            self._lose(generation)

    def retire(self, consumer: Hashable) -> None:
        """Note that the code cancelled a consumer.

        Deliveries that the code has in hand can still be settled, and deliveries that are held here go back.
        """
        generation = self._live.pop(consumer, None)
        if generation is not None:
            self._retired.add(generation)
            self._listeners[generation].retired(generation)

    def is_retired(self, generation: int) -> bool:
        """Return whether the code has cancelled the consumer of this generation."""
        return generation in self._retired

    def clear(self) -> None:
        """Forget all deliveries, because tags begin anew.

        Late settlements of lost generations could mean other messages now.
        """
        self._open, self._most = {}, 0

    def unsettled(self, generation: int) -> list[CallbackRun]:
        """Return the runs of a generation that are not settled. Any thread."""
        return [t for t in list(self._open.values()) if t.delivery.generation == generation]

    def most_unsettled(self, generation: int) -> int:
        """Return how many deliveries of a generation were unsettled at once; its window is at least that large."""
        return max(1, self._most_of.get(generation, 1))

    def window_of(self, generation: int) -> int | None:
        """Return the known window of a generation's consumer, or None."""
        consumer = next((c for c, live in self._live.items() if live == generation), None)
        return None if consumer is None else self.window(consumer)

    # -- runs -------------------------------------------------------------------------------------

    def take(self, run: CallbackRun) -> None:
        self._open[run.delivery.tag] = run
        if len(self._open) > self._most:
            self._most = len(self._open)
            generation = run.delivery.generation
            here = len(self.unsettled(generation))
            self._most_of[generation] = max(here, self._most_of.get(generation, 1))

    def run_of(self, delivery: Delivery) -> CallbackRun | None:
        """Return the run of this very delivery, or None once the delivery is settled."""
        found = self._open.get(delivery.tag)
        return found if found is not None and found.delivery is delivery else None

    def settle(self, delivery: Delivery, settlement: Settlement) -> bool:
        """Write it. False, and nothing written, when the generation is over or it was settled before."""
        if not self.settleable(delivery):
            log.debug("%r is of a lost generation, or settled: not settled", delivery)
            return False
        del self._open[delivery.tag]
        self.settled += 1
        self.write(delivery, settlement)
        return True

    def settleable(self, delivery: Delivery) -> bool:
        """Return whether a delivery is still ours to settle: asked before a transaction that accepts the delivery."""
        return self.lives(delivery.generation) and self.run_of(delivery) is not None

    def gone(self, delivery: Delivery) -> None:
        """Note that a transaction has accepted a delivery, or that the transaction's abort has given it back."""
        if self.run_of(delivery) is not None:
            del self._open[delivery.tag]
            self.settled += 1

    # -- what the callback does -------------------------------------------------------------------

    def closing(self) -> None:
        """Settle the message in hand: the user closes this scope, and calls this before.

        A callback that does so right after its message gets that message settled first; one that does so because of an
        exception does not.
        """
        try:
            run = self.run_of(current_delivery())
        except LookupError:
            return
        if run is not None and run.inside and run.settlement is None and sys.exc_info()[1] is run.before:
            run.listener.closing(run)
