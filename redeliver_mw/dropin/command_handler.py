# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Carries out, inside the user's own loop, what the interceptor commands.

One for each wrapper and connection. All of it runs on the driver's thread; only answers of a companion connection
come from elsewhere, and only once that thread is gone. A callback is called from where the driver calls
callbacks, never from within a command: what is to be run again waits for the loop's next turn.
"""

from __future__ import annotations

import itertools
import logging
import random
import uuid
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import replace

from ..adapter.capabilities import Capabilities
from ..adapter.protocol import TransferVerdict, Verdict
from ..clock import Clock, Moment, Stamps, SystemClock
from ..journal.consumer_info import ConsumerInfo
from ..journal.recorder import attempt_record
from ..message import Delivery, Destination
from ..redelivery.commands import (
    CancelTimer,
    Log,
    OrderUpdate,
    PauseSource,
    PublishAndSettle,
    PublishCopy,
    RecordAttempt,
    ResumeSource,
    RunHandler,
    Settle,
    SettleWritten,
    StartTimer,
    TimerFired,
    TransactionAnswered,
    copy_answered,
)
from ..redelivery.dispatcher import EventDispatcher
from ..redelivery.interceptor import Interceptor
from ..redelivery.ledger import Ledger
from ..redelivery.outbox import SendRules, outbox_for
from ..redelivery.plan import SourcePlan
from .bounded_log import BoundedLog
from .copy_publisher import CopyPublisher, UserConnection
from .options import DropinOptions
from .settlement_scope import CallbackRun, SettlementScope
from .window_watch import WindowWatch

log = logging.getLogger("redeliver_mw.dropin")


class CommandHandling(ABC):
    """Feeds the interceptor, and does what it commands. Who calls the callback is `Caller`."""

    def __init__(
        self,
        terms: DropinOptions,
        ground: UserConnection,
        post: CopyPublisher,
        capabilities: Capabilities,
        clock: Clock | None = None,
    ) -> None:
        self.terms = terms
        self._ground, self._post = ground, post
        # A transaction needs the link that the delivery came through.
        self.capabilities = (
            replace(capabilities, atomic_move=False, atomic_schedule=False) if post.elsewhere else capabilities
        )
        self.outbox = outbox_for(SendRules(self.capabilities, limbo=terms.limbo is not None))
        self._plans: dict[Destination, SourcePlan] = {}
        self._ledgers: dict[Destination, Ledger] = {}
        # An id of its own: tokens begin anew with each interceptor, and both together are a message's lineage.
        self._interceptor = Interceptor(
            self._plans, self._ledgers, self.capabilities, uuid.uuid4().hex[:16], self._schedule_wait
        )
        self._feeder = EventDispatcher(self._interceptor.feed, self)
        self._feed = self._feeder.feed
        self._scene = ConsumerInfo(terms.app_name, terms.host, ground.broker, capabilities.broker_kind)
        self._recorder = terms.recorder
        self._clock, self._rng = clock or SystemClock(), random.Random()
        self._stamps = Stamps(self._clock)
        self._seats: dict[int, SettlementScope] = {}  # by generation
        self._timers: dict[int, int] = {}  # token -> the number of its timer: an older one is out of date
        self._numbers = itertools.count(1)
        self._again: deque[CallbackRun] = deque()  # to be run again, at the loop's next turn
        self._ready: deque[CallbackRun] = deque()  # not run yet: they came while their source was halted
        self._going = False
        self._halted: set[Destination] = set()
        self._refusals: set[str] = set()  # that were logged
        self._late = BoundedLog(log)
        self._windows = WindowWatch(self._seats, lambda seconds, fn: self._ground.later(seconds, fn))

    @property
    def over(self) -> bool:
        """Its connection is closed."""
        return not self._ground.is_open

    def move_to(self, ground: UserConnection, post: CopyPublisher) -> None:
        """To the connection that took the place of the closed one: what still runs is known here."""
        self._ground, self._post = ground, post
        self._halted, self._going = set(), False
        self._windows.stop()

    def _schedule_wait(self, source: Destination, seconds: float) -> float:
        return self._post.schedule_wait(source, seconds)

    def _now(self) -> Moment:
        return self._clock.now()

    @abstractmethod
    def call(self, turn: CallbackRun) -> None:
        """Hand it to the callback."""

    # -- running ----------------------------------------------------------------------------------

    def run(self, c: RunHandler) -> None:
        seat = self._seats.get(c.delivery.generation)
        turn = seat.turn(c.delivery) if seat is not None else None
        if turn is not None:
            self._again.append(turn)
            self._go_on()

    def _go_on(self) -> None:
        if not self._going and (self._again or self._ready):
            self._going = True
            self._ground.later(0, self._work)

    def _work(self) -> None:
        """Call the callback with one that waits, at each turn of the loop: the driver gets to its own work between."""
        self._going = False
        turn = self._next()
        try:
            if turn is not None:
                self.call(turn)
        finally:
            if turn is not None:
                self._go_on()

    def _next(self) -> CallbackRun | None:
        """What is run again comes before what has not been run; what is halted stays."""
        for queue in (self._again, self._ready):
            for turn in queue:
                if turn.delivery.destination not in self._halted:
                    queue.remove(turn)
                    return turn
        return None

    def _drop(self, generation: int) -> None:
        """What waits to be run in a lost generation is not run."""
        self._again = deque(t for t in self._again if t.delivery.generation != generation)
        self._ready = deque(t for t in self._ready if t.delivery.generation != generation)

    # -- timers -----------------------------------------------------------------------------------

    def wait(self, c: StartTimer) -> None:
        number = self._timers[c.token] = next(self._numbers)

        def due() -> None:
            if self._timers.get(c.token) == number:
                del self._timers[c.token]
                self._feed(TimerFired(c.token, self._now()))

        self._ground.later(c.seconds, due)

    def forget(self, c: CancelTimer) -> None:
        self._timers.pop(c.token, None)

    # -- copies and settles -----------------------------------------------------------------------

    def store(self, c: PublishCopy) -> None:
        generation = c.out.generation

        def alive() -> bool:
            return generation is None or generation in self._seats

        def answered(verdict: Verdict, why: str) -> None:
            self._feed(copy_answered(c, verdict, why, self._now()))

        def hop(verdict: Verdict, why: str) -> None:
            self._ground.hop(lambda: answered(verdict, why))  # of the connection that is there by then

        if c.due_us is None:
            self._post.store(c.out, c.after, hop if self._post.elsewhere else answered, alive)
        elif self.terms.limbo is not None:
            self.terms.limbo.park(c.out, c.due_us / 1e6, hop, c.terms)

    def transact(self, c: PublishAndSettle) -> None:
        """Only where the capabilities have `atomic_move`, which a post elsewhere takes away."""
        seat = self._seats.get(c.delivery.generation)

        def answered(verdict: TransferVerdict, why: str) -> None:
            if verdict != "refused" and seat is not None:
                seat.gone(c.delivery)
            self._feed(TransactionAnswered(c.token, verdict, why, self._now()))

        if seat is None or not seat.settleable(c.delivery):
            answered("abandoned", "the original was lost meanwhile")
        else:
            self._post.move(c.delivery, c.outs, answered)

    def settle(self, c: Settle) -> None:
        seat = self._seats.get(c.delivery.generation)
        if seat is not None and seat.settle(c.delivery, c.word):
            self._feed(SettleWritten(c.token))

    # -- the rest ---------------------------------------------------------------------------------

    def record(self, c: RecordAttempt) -> None:
        if self.terms.failures is not None:
            self.terms.failures.attempt(c, self._ground.later)
        if self._recorder.wanted:
            self._recorder.append(attempt_record, c, self._scene)

    def halt(self, c: PauseSource) -> None:
        self._halted.add(c.source)
        if c.loud:
            log.error("%s is paused: %s. Nothing is lost; it goes on once that is over", c.source, c.reason)

    def resume(self, c: ResumeSource) -> None:
        self._halted.discard(c.source)
        self._go_on()

    def say(self, c: Log) -> None:
        log.log(logging.getLevelNamesMapping()[c.level.upper()], c.text)

    def place(self, c: OrderUpdate) -> None:
        return  # nothing is ordered by key in somebody else's driver

    def _has_past(self, delivery: Delivery) -> bool:
        """Whether it may have one: a redelivery, a copy of ours, or one whose return carries no mark."""
        marked = delivery.redelivered or delivery.reader.marked(delivery.native)
        return marked or self._interceptor.awaits(delivery)
