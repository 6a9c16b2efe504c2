# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Where all that happens in an App becomes inputs of its interceptor: arrivals, runs, answers, losses, the end.

Three kinds of threads meet here: the adapter's, which tells of deliveries and answers; the workers', which
run handlers; and the caller's. Whatever is more than a first delivery that was handled becomes an input, and
inputs are fed one after the other under one lock. A healthy message takes none of that: its handler runs,
its settle joins the adapter's batch.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..adapter.protocol import Adapter
from ..clock import Clock, Stamps, ticker
from ..errors import Undecodable
from ..failure import describe
from ..flow.sequencer import KeySequencer
from ..journal.consumer_info import ConsumerInfo
from ..journal.recorder import Recorder
from ..message import Delivery, Destination
from ..redelivery.commands import GenerationLost, HandlerFailed, HandlerSucceeded, NotRun, StopRequested, TimerFired
from ..redelivery.dispatcher import EventDispatcher
from ..redelivery.interceptor import Interceptor
from ..redelivery.interop import JmsjcaProperties
from ..redelivery.outbox import CLOSED, QueuedSend, SendRules, outbox_for
from ..telemetry.failure_log import FailureLog
from ..timers import Timers
from .admission import DeliveryGate
from .command_executor import CommandExecution, CopyStore
from .target_maker import TargetMaker
from .workers import WorkerPool

log = logging.getLogger("redeliver_mw")


class StartGivenUp(BaseException):
    """A start was ended before it was over."""


@dataclass(frozen=True, slots=True)
class StopReport:
    """How a stop went. `unsettled` deliveries were in hand or held, and are the broker's again."""

    seconds: float
    unsettled: int
    clean: bool  # everything that was begun was brought to its end in time


class Runner(CommandExecution):
    """Sink of the adapter, hands of the interceptor, boss of the crews."""

    def __init__(
        self,
        adapter: Adapter,
        interceptor: Interceptor,
        crews: Mapping[Destination, WorkerPool],
        recorder: Recorder,
        scene: ConsumerInfo,
        clock: Clock,
        rng: random.Random,
        limbo: CopyStore | None = None,
        gate: DeliveryGate | None = None,
        usher: KeySequencer | None = None,
        failures: FailureLog | None = None,
        maker: TargetMaker | None = None,
    ) -> None:
        self._adapter, self._interceptor, self._crews = adapter, interceptor, crews
        self._recorder, self._scene, self._clock, self._rng = recorder, scene, clock, rng
        self._limbo, self._gate, self._usher, self._failures = limbo, gate, usher, failures
        self._maker = maker
        if usher is not None:
            usher.start(self)
        self._plans = interceptor.plans  # they may be renewed, by the thread that tells of deliveries
        self._feeder = EventDispatcher(interceptor.feed, self, self._fed)
        self.feed = self._feeder.feed
        self._lock = self._feeder.lock
        self._live: set[int] = set()
        self.running: dict[Delivery, float] = {}  # in a handler, since; taken out by whoever ends or loses it
        self._timers = Timers(
            lambda seconds, _: adapter.call_later(seconds, self._ring),
            lambda: clock.now().mono,
            lambda token: self.feed(TimerFired(token, clock.now())),
        )
        self._outbox = outbox_for(SendRules(adapter.capabilities, limbo is not None))
        self._spoken = JmsjcaProperties()
        self._quiet = threading.Condition(self._lock)
        self._timed = recorder.wanted
        self._tick, self._stamps = ticker(clock), Stamps(clock)
        self.stopping = False
        self._hurried = False
        self.halted: dict[Destination, str] = {}
        self.handled = 0

    # -- what the adapter tells --------------------------------------------------------------------

    def ready(self, source: Destination, generation: int, /) -> None:
        self._live.add(generation)

    def lost(self, generation: int, error: BaseException | None, /) -> None:
        self._live.discard(generation)
        running = [d for d in list(self.running) if d.generation == generation and self._claim(d)]
        if self._usher is not None:
            self._usher.lost(generation, running)  # before the stories end, and let others go on
        self.feed(GenerationLost(generation, running))

    def _claim(self, delivery: Delivery) -> bool:
        """Take a run away from the fast path: exactly one of the worker and the loss gets it."""
        return self.running.pop(delivery, None) is not None

    # -- what the crews tell -----------------------------------------------------------------------

    def begin(self, delivery: Delivery, /) -> bool:
        self.running[delivery] = self._tick() if self._timed else 0.0
        if not self.stopping and delivery.generation in self._live:
            delivery.plan = self._plans[delivery.destination]
            if delivery.plan.policy.language == "jmsjca":
                self._spoken.begin(delivery)
            delivery.outbox = self._outbox()
            return True
        # Looked at only now, so that a loss in between finds it in `running` and not on its way there.
        if not self._claim(delivery) or delivery.known:
            self.feed(NotRun(delivery, self._clock.now()))
        self._is_over(delivery)
        return False

    def _is_over(self, delivery: Delivery) -> None:
        """It is in no handler any more, nor will be soon."""
        if self._gate is not None:
            self._gate.ended(delivery)
        if self._usher is not None and not self.stopping:  # what is left at a stop has its place when it comes again
            self._usher.ended(delivery)

    def ended(self, delivery: Delivery, error: BaseException | None, /, *, counted: bool = True) -> None:
        self._ended(delivery, error, counted)
        if self._gate is not None:
            self._gate.ended(delivery)
        if self._usher is not None and error is None:  # of a failure the interceptor tells what follows
            self._usher.ended(delivery)

    def ended_as_one(self, batch: Sequence[Delivery], error: BaseException | None, /, *, counted: bool = True) -> None:
        """Each has its own count, and goes its own way."""
        for delivery in batch:
            self.ended(delivery, error, counted=counted)

    def _ended(self, delivery: Delivery, error: BaseException | None, counted: bool) -> None:
        if self._spoken:
            self._listen(delivery)
        sends, delivery.outbox = delivery.outbox.close(), CLOSED
        if error is not None:
            self._failed(delivery, error, counted)
            return self._nudge() if self.stopping else None
        if sends:
            self._sent(delivery, sends)
            return self._nudge() if self.stopping else None
        since, tick = self.running.pop(delivery, None), self._tick() if self._timed else 0.0
        if since is not None and not delivery.known:
            if self._usher is None:
                self._adapter.settle(((delivery, "accepted"),))
            else:
                self._without_its_place(delivery, lambda: self._adapter.settle(((delivery, "accepted"),)))
            self.handled += 1
            if self._timed:
                ran_us = round((tick - since) * 1e6)
                self._recorder.healthy(delivery, self._scene, delivery.plan, self._stamps.us(tick), ran_us)
        else:
            self.handled += 1
            self.feed(HandlerSucceeded(delivery, self._clock.now(), tick - since if since else 0.0))
        if self.stopping:
            self._nudge()

    def _sent(self, delivery: Delivery, sends: tuple[QueuedSend, ...]) -> None:
        """A success is as much the interceptor's as a failure when something goes out with it."""
        at, tick = self._clock.now(), self._tick()
        with self._lock:  # as for a failure
            since = self.running.pop(delivery, None)
            self.handled += 1
            self.feed(HandlerSucceeded(delivery, at, tick - since if since else 0.0, sends))

    def _listen(self, delivery: Delivery) -> None:
        """What the handler said in JMSJCA's way, before its run counts as ended."""
        stop, wrong = self._spoken.ended(delivery)
        if wrong:
            log.warning("%r: %r is no redelivery string of JMSJCA; the message keeps the one it had", delivery, wrong)
        if stop:
            log.warning("%s is paused: its handler asked for that. App.resume() goes on", delivery.destination)
            self._crews[delivery.destination].pause()

    def _failed(self, delivery: Delivery, error: BaseException, counted: bool) -> None:
        undecodable = isinstance(error, Undecodable)
        cause = error.error if isinstance(error, Undecodable) else error
        at, tick, failure = self._clock.now(), self._tick(), describe(cause)
        with self._lock:  # no loss comes in between: it finds either a run, or its result
            since = self.running.pop(delivery, None)
            ran = tick - since if since else 0.0
            self.feed(HandlerFailed(delivery, cause, failure, at, self._rng.random(), ran, undecodable, counted))

    def cancelled(self, delivery: Delivery, /) -> None:
        self.running.pop(delivery, None)
        delivery.outbox = CLOSED
        if self._spoken:
            self._spoken.ended(delivery)
        self.feed(NotRun(delivery, self._clock.now()))
        self._is_over(delivery)

    def _fed(self) -> None:
        if self._gate is not None:
            self._gate.fed()
        if self.stopping:
            self._quiet.notify_all()

    # -- stopping ---------------------------------------------------------------------

    def begin_stop(self) -> None:
        """No new message is begun; what is held leaves with its count or stays the broker's."""
        with self._lock:
            self.stopping = True
            for crew in self._crews.values():
                crew.stop()
            now = self._clock.now()
            self.feed(StopRequested(now))
            waiting = [] if self._gate is None else self._gate.stop()
            for crew in self._crews.values():
                waiting += crew.take_waiting()
            for delivery in waiting:
                if delivery.known:
                    self.feed(NotRun(delivery, now))

    def finish(self, timeout: float) -> int:
        """Wait until handlers and copies are done, `timeout` seconds at most. What is left unsettled then."""
        deadline = time.monotonic() + timeout
        with self._lock:
            while (left := self.busy) and not self._hurried and (rest := deadline - time.monotonic()) > 0:
                self._quiet.wait(min(rest, 0.5))
            return left

    def hurry(self) -> None:
        """Do not wait any longer. Safe in a signal handler: takes no lock."""
        self._hurried = True

    @property
    def busy(self) -> int:
        """Deliveries in a handler, and stories that wait for an answer."""
        return len(self.running) + self._interceptor.waiting_for_answers

    def _nudge(self) -> None:
        with self._lock:
            self._quiet.notify_all()
