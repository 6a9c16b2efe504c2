# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Turns what happens in an App into inputs of its interceptor: arrivals, results of handlers, losses, the stop.

Three kinds of threads meet here: the adapter's, which tells of deliveries and losses; the workers', which run handlers;
and the caller's. A delivery that is more than a first one that was handled becomes an input, and inputs are fed one
after the other under one lock. A healthy message needs none of that: its handler runs, and its settlement joins the
adapter's batch.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..adapter.protocol import Adapter
from ..clock import Clock, Moment
from ..errors import Undecodable
from ..failure import describe
from ..flow.sequencer import KeySequencer
from ..journal.consumer_info import ConsumerInfo
from ..journal.recorder import Recorder
from ..message import Delivery, Destination
from ..redelivery.commands import Arrived, GenerationLost, HandlerFailed, HandlerSucceeded, NotRun, StopRequested
from ..redelivery.dispatcher import EventDispatcher
from ..redelivery.interceptor import Interceptor
from ..redelivery.interop import JmsjcaProperties
from ..redelivery.outbox import CLOSED, Outbox, QueuedSend, SendRules, close_outbox
from ..redelivery.plan import SourcePlan, attempt_plan
from ..telemetry.failure_log import FailureLog
from ..telemetry.hook import NO_TELEMETRY, TelemetryHook
from ..telemetry.state import SourceState
from .command_executor import CommandExecutor, CopyStore, DeliveryGate, ReplayListener
from .target_maker import TargetMaker
from .workers import WorkerPool

log = logging.getLogger("redeliver_mw")

UNTIMED: Final = Moment(0.0, 0.0)  # of a run that nobody measures


class StartGivenUp(BaseException):
    """Means that a start was ended before it was over."""


@dataclass(frozen=True, slots=True)
class StopReport:
    """Says how a stop went. `unsettled` deliveries were in hand or held; the broker has them again."""

    seconds: float
    unsettled: int
    clean: bool  # everything that was begun was brought to its end in time


class Runner:
    """Turns arrivals, results of handlers and losses into inputs of the interceptor.

    One for an App. It is the adapter's sink, the worker pools' listener, and the client of the crash-safety gate and of
    the key sequencer. A `CommandExecutor` executes what the interceptor commands.
    """

    def __init__(
        self,
        adapter: Adapter,
        interceptor: Interceptor,
        pools: Mapping[Destination, WorkerPool],
        recorder: Recorder,
        consumer: ConsumerInfo,
        clock: Clock,
        rng: random.Random,
        limbo: CopyStore | None = None,
        gate: DeliveryGate | None = None,
        sequencer: KeySequencer | None = None,
        failures: FailureLog | None = None,
        maker: TargetMaker | None = None,
        telemetry: TelemetryHook = NO_TELEMETRY,
    ) -> None:
        self._adapter, self._interceptor, self._pools = adapter, interceptor, pools
        self._recorder, self._consumer, self._clock, self._rng = recorder, consumer, clock, rng
        self._gate, self._sequencer = gate, sequencer
        self._plans = interceptor.plans  # they may be renewed, by the thread that tells of deliveries
        self._executor = CommandExecutor(
            adapter, pools, recorder, consumer, clock, limbo, gate, sequencer, failures, maker, telemetry
        )
        self._dispatcher = EventDispatcher(interceptor.feed, self._executor, None if gate is None else gate.fed)
        self._executor.start(self._dispatcher)
        if sequencer is not None:
            sequencer.start(self)
        self.feed, self.awaits = self._dispatcher.feed, interceptor.awaits
        self._lock, self._idle = self._dispatcher.lock, self._dispatcher.idle
        self._live: set[int] = set()
        self.running: dict[Delivery, float] = {}  # in a handler, since; taken out by whoever ends or loses it
        self._ending: set[Delivery] = set()  # out of `running`, and not yet settled: a stop waits for these, too
        self._send_rules = SendRules(adapter.capabilities, limbo is not None)
        self._jmsjca = JmsjcaProperties()
        # None unless a sink wants to know
        self._run_begins, self._run_ended, self._handled = telemetry.run_begins, telemetry.run_ended, telemetry.handled
        self._run_cancelled, self._healthy_run_ended = telemetry.run_cancelled, telemetry.healthy_run_ended
        self._timed = recorder.wanted or telemetry.times_runs
        self.stopping = False
        self._hurried = False
        self.trouble = ""  # why no source is handed anything; empty: there is none
        self.handled = 0

    # -- what the adapter tells --------------------------------------------------------------------

    def ready(self, source: Destination, generation: int, /) -> None:
        self._live.add(generation)

    def lost(self, generation: int, error: BaseException | None, /) -> None:
        self._live.discard(generation)
        running = [d for d in list(self.running) if d.generation == generation and self._claim(d)]
        if self._sequencer is not None:
            self._sequencer.lost(generation, running)  # before the deliveries end, and let others go on
        self.feed(GenerationLost(generation, running))

    def _claim(self, delivery: Delivery) -> bool:
        """Take a run away from the fast path: exactly one of the worker and the loss gets it."""
        return self.running.pop(delivery, None) is not None

    # -- arrivals, on the adapter's thread ----------------------------------------------------------

    def arrived(self, batch: Sequence[Delivery], /) -> None:
        if self.stopping:
            return  # they stay unsettled, and the broker has them again when we close
        self.pass_on(batch if self._sequencer is None else self._sequencer.come(batch))

    def pass_on(self, batch: Sequence[Delivery], /) -> None:
        """Hand deliveries whose turn it is to their handlers, or to the interceptor if they have a past. Any thread."""
        if self._gate is not None:
            return self._gate.arrived(batch)
        fresh: dict[Destination, list[Delivery]] = {}
        for d in batch:
            if d.redelivered or d.reader.marked(d.native) or self._interceptor.awaits(d):
                self._take_on(d)
            else:
                fresh.setdefault(d.destination, []).append(d)
        for source, deliveries in fresh.items():
            self._pools[source].put(deliveries)

    def set_aside(self, delivery: Delivery, due_us: int, /) -> None:
        """Park a delivery whose turn does not come soon, until `due_us` (microseconds since 1970). Any thread."""
        self._take_on(delivery, aside_us=due_us)

    def forget_places(self, source: Destination, places: Sequence[tuple[str, int]], /) -> None:
        """Let the limbo forget places that it keeps. Any thread."""
        self._executor.forget_places(source, places)

    def run_now(self, delivery: Delivery, /) -> None:
        """Run a message that could not be parked and whose turn it is. Any thread."""
        with self._lock:
            if not self.stopping and delivery.generation in self._live:
                self._pools[delivery.destination].put((delivery,), first=True)

    def _take_on(self, delivery: Delivery, *, aside_us: int = 0) -> None:
        """Let the interceptor have a delivery, unless its generation was lost meanwhile: then it comes again."""
        with self._lock:
            if not self.stopping and delivery.generation in self._live:
                self.feed(Arrived(delivery, self._clock.now(), aside_us))

    def watch_replays(self, listener: ReplayListener) -> None:
        """Let the listener learn of each attempt of a message that a replay has sent. Called before the first one."""
        self._executor.replays = listener

    def why_paused(self, source: Destination) -> str:
        """Return why a source is paused; empty if it is not, or the application paused it."""
        return self._executor.halted.get(source) or self.trouble

    def waiting(self, source: Destination) -> int:
        """Return how many messages of a source wait for one of their key."""
        return 0 if self._sequencer is None else self._sequencer.waiting(source)

    @property
    def plans(self) -> Mapping[Destination, SourcePlan]:
        """Return the present plan of each source. Any thread."""
        return dict(self._plans)

    def state_of(self, source: Destination, paused: str, breaker: str) -> SourceState:
        """Return the present state of a source: what is `paused`, the state of its breaker, and what is known here."""
        running = sum(delivery.destination == source for delivery in list(self.running))
        counts = self._interceptor.budget_of(source).counts()
        version = self._plans[source].signature.policy_version
        return SourceState(self._pools[source].waiting + running, *counts, paused, breaker, version)

    def uncopyable(self, source: Destination) -> int:
        """Return how many messages of a source stay unsettled here since no exact copy of them can be made."""
        return len(self._interceptor.budget_of(source).apart)

    def is_ordered(self, source: Destination, /) -> bool:
        """Return whether messages of this source are kept in order by key."""
        return self._sequencer is not None and self._sequencer.orders(source)

    def give_back(self, source: Destination, leaving: Sequence[Delivery], /) -> list[Delivery]:
        """Note that deliveries go back to the broker; return those that waited for their turn, and go with them."""
        return [] if self._sequencer is None else self._sequencer.give_back(source, leaving)

    # -- what the gate lets through, on its thread --------------------------------------------------

    def admit(self, batch: Sequence[Delivery], /) -> None:
        """Let the interceptor have deliveries with a past."""
        for delivery in batch:
            self._take_on(delivery)

    def hand(self, batch: Sequence[Delivery], /, *, first: bool) -> None:
        """Hand deliveries to their handler; the database knows by now that it has them."""
        source = batch[0].destination
        self._pools[source].put(batch, first=first)

    def can_run(self, source: Destination, /) -> bool:
        return not self._pools[source].paused

    def in_trouble(self, why: str, /) -> None:
        self.trouble = why

    # -- what the worker pools tell -----------------------------------------------------------------------

    def begin(self, delivery: Delivery, /) -> bool:
        self.running[delivery] = self._clock.now().mono if self._timed else 0.0
        if not self.stopping and delivery.generation in self._live:
            plan = delivery.plan = self._plans[delivery.destination]
            if plan.policy.language == "jmsjca":
                self._jmsjca.begin(delivery)
            delivery.outbox = Outbox(self._send_rules)
            if self._run_begins is not None:
                self._run_begins(delivery)
            return True
        # Looked at only now, so that a loss in between finds it in `running` and not on its way there.
        with self._lock:
            if not self._claim(delivery) or delivery.known:
                self.feed(NotRun(delivery, self._clock.now()))
        self._is_over(delivery)
        return False

    def _is_over(self, delivery: Delivery) -> None:
        """Note that the delivery is in no handler any more, and will not be soon."""
        if self._gate is not None:
            self._gate.ended(delivery)
        # What is left at a stop has its place when it comes again.
        if self._sequencer is not None and not self.stopping:
            self._sequencer.ended(delivery)

    def ended(self, delivery: Delivery, error: BaseException | None, /, *, counted: bool = True) -> None:
        self._ended(delivery, error, counted)
        if self._gate is not None:
            self._gate.ended(delivery)
        if self._sequencer is not None and error is None:  # of a failure the interceptor tells what follows
            self._sequencer.ended(delivery)

    def ended_as_one(self, batch: Sequence[Delivery], error: BaseException | None, /, *, counted: bool = True) -> None:
        """End the run of a whole batch; each delivery has its own count."""
        for delivery in batch:
            self.ended(delivery, error, counted=counted)

    def _ended(self, delivery: Delivery, error: BaseException | None, counted: bool) -> None:
        if self._jmsjca.begun:
            self._listen(delivery)
        sends, delivery.outbox = close_outbox(delivery), CLOSED
        if error is not None:
            self._failed(delivery, error, counted)
            return self._nudge() if self.stopping else None
        if sends:
            self._sent(delivery, sends)
            return self._nudge() if self.stopping else None
        self._ending.add(delivery)
        try:
            self._succeeded(delivery)
        finally:
            self._ending.discard(delivery)
        if self.stopping:
            self._nudge()

    def _succeeded(self, delivery: Delivery) -> None:
        """Settle a delivery whose handler has returned; one with a past is the interceptor's."""
        since, at = self.running.pop(delivery, None), self._clock.now() if self._timed else UNTIMED
        if since is not None and not delivery.known:
            if self._healthy_run_ended is not None:
                self._healthy_run_ended(delivery, None, at, at.mono - since)
            if self._sequencer is None:
                self._adapter.settle(((delivery, "accepted"),))
            else:
                self._executor.without_its_place(delivery, lambda: self._adapter.settle(((delivery, "accepted"),)))
            self.handled += 1
            if self._timed or self._handled is not None:
                self._record_healthy(delivery, at, at.mono - since)
        else:
            self.handled += 1
            at = at if self._timed else self._clock.now()
            ran = at.mono - since if since else 0.0
            if self._run_ended is not None:
                self._run_ended(delivery, None, at, ran)
            self.feed(HandlerSucceeded(delivery, at, ran))

    def _record_healthy(self, delivery: Delivery, at: Moment, ran: float) -> None:
        if self._handled is not None:
            self._handled(delivery, at, ran)
        if self._recorder.wanted:
            self._recorder.healthy(delivery, self._consumer, attempt_plan(delivery), at.us, round(ran * 1e6))

    def _sent(self, delivery: Delivery, sends: tuple[QueuedSend, ...]) -> None:
        """Let the interceptor have a success that sends messages."""
        at = self._clock.now()
        with self._lock:  # as for a failure
            since = self.running.pop(delivery, None)
            ran = at.mono - since if since else 0.0
            if self._run_ended is not None:
                self._run_ended(delivery, None, at, ran)
            self.handled += 1
            self.feed(HandlerSucceeded(delivery, at, ran, sends))

    def _listen(self, delivery: Delivery) -> None:
        """Take what the handler set in JMSJCA's properties, before its run counts as ended."""
        stop, wrong = self._jmsjca.ended(delivery)
        if wrong:
            log.warning("%r: %r is no redelivery string of JMSJCA; the message keeps the one it had", delivery, wrong)
        if stop:
            log.warning("%s is paused: its handler asked for that. App.resume() goes on", delivery.destination)
            self._pools[delivery.destination].pause()

    def _failed(self, delivery: Delivery, error: BaseException, counted: bool) -> None:
        undecodable = isinstance(error, Undecodable)
        cause = error.error if isinstance(error, Undecodable) else error
        at, failure = self._clock.now(), describe(cause)
        with self._lock:  # no loss comes in between: it finds either a run, or its result
            since = self.running.pop(delivery, None)
            ran = at.mono - since if since else 0.0
            if self._run_ended is not None:
                self._run_ended(delivery, error, at, ran)
            self.feed(HandlerFailed(delivery, cause, failure, at, self._rng.random(), ran, undecodable, counted))

    def cancelled(self, delivery: Delivery, /) -> None:
        if self._run_cancelled is not None and delivery.outbox not in (None, CLOSED):  # its run had begun
            self._run_cancelled(delivery)
        delivery.outbox = CLOSED
        if self._jmsjca.begun:
            self._jmsjca.ended(delivery)
        with self._lock:
            self.running.pop(delivery, None)
            self.feed(NotRun(delivery, self._clock.now()))
        self._is_over(delivery)

    # -- stopping ---------------------------------------------------------------------

    def begin_stop(self) -> None:
        """Begin no new message; what is held leaves with its count, or stays at the broker."""
        with self._lock:
            self.stopping = True
            for pool in self._pools.values():
                pool.stop()
            now = self._clock.now()
            self.feed(StopRequested(now))
            waiting = [] if self._gate is None else self._gate.stop()
            for pool in self._pools.values():
                waiting += pool.take_waiting()
            for delivery in waiting:
                if delivery.known:
                    self.feed(NotRun(delivery, now))

    def finish(self, timeout: float) -> int:
        """Wait until handlers and copies are done, at most `timeout` seconds; return how many are left unsettled."""
        deadline = time.monotonic() + timeout
        with self._lock:
            while (left := self.busy) and not self._hurried and (rest := deadline - time.monotonic()) > 0:
                self._idle.wait(min(rest, 0.5))
            return left

    def hurry(self) -> None:
        """Do not wait any longer. Safe in a signal handler: takes no lock."""
        self._hurried = True

    @property
    def busy(self) -> int:
        """Return how many deliveries are in a handler, or wait for an answer of the broker."""
        return len({*list(self.running), *self._ending.copy()}) + self._interceptor.waiting_for_answers

    def _nudge(self) -> None:
        with self._lock:
            self._idle.notify_all()
