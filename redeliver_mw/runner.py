# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Carries out, for an App, what the interceptor commands: workers, adapter, timers, records.

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

from .adapter import Adapter, MoveVerdict, Verdict
from .admission import Admission
from .commands import (
    Answer,
    Arrived,
    Due,
    Failed,
    Forget,
    Halt,
    Handled,
    Left,
    Lost,
    Moved,
    Record,
    Resume,
    Run,
    Say,
    Settle,
    Stopping,
    Store,
    Transact,
    Wait,
    Written,
    tell,
)  # fmt: skip
from .failure import describe
from .feeding import Feeder
from .idioms import Spoken
from .interceptor import Interceptor
from .message import Delivery, Destination
from .ports import Clock, Gate, Moment, Park
from .recording import Recorder, Scene, attempt_record, healthy_record
from .timers import Timers
from .walltime import ticker
from .workers import Crew, Undecodable

log = logging.getLogger("redeliver_mw")


class StartGivenUp(BaseException):
    """A start was ended before it was over."""


@dataclass(frozen=True, slots=True)
class StopReport:
    """How a stop went. `unsettled` deliveries were in hand or held, and are the broker's again."""

    seconds: float
    unsettled: int
    clean: bool  # everything that was begun was brought to its end in time


class Runner(Admission):
    """Sink of the adapter, hands of the interceptor, boss of the crews."""

    def __init__(
        self, adapter: Adapter, interceptor: Interceptor, crews: Mapping[Destination, Crew], recorder: Recorder,
        scene: Scene, clock: Clock, rng: random.Random, limbo: Park | None = None, gate: Gate | None = None,
    ) -> None:  # fmt: skip
        self._adapter, self._interceptor, self._crews = adapter, interceptor, crews
        self._recorder, self._scene, self._clock, self._rng = recorder, scene, clock, rng
        self._limbo, self._gate = limbo, gate
        self._plans = interceptor.plans  # they may be renewed, by the thread that tells of deliveries
        self._feeder = Feeder(interceptor.feed, self, self._fed)
        self.feed = self._feeder.feed
        self._lock = self._feeder.lock
        self._live: set[int] = set()
        self._running: dict[Delivery, float] = {}  # in a handler, since; taken out by whoever ends or loses it
        self._timers = Timers(
            lambda seconds, _: adapter.call_later(seconds, self._ring),
            lambda: clock.now().mono,
            lambda token: self.feed(Due(token, clock.now())),
        )
        self._spoken = Spoken()
        self._warned: set[Delivery] = set()
        self._quiet = threading.Condition(self._lock)
        self._timed = recorder.wanted
        self._tick = ticker(clock)
        self.stopping = False
        self._hurried = False
        self.halted: dict[Destination, str] = {}
        self.handled = 0

    # -- what the adapter tells --------------------------------------------------------------------

    def ready(self, source: Destination, generation: int, /) -> None:
        self._live.add(generation)

    def arrived(self, batch: Sequence[Delivery], /) -> None:
        if self.stopping:
            return  # they stay unsettled, and are the broker's again when we close
        if self._gate is not None:
            return self._gate.arrived(batch)
        fresh: dict[Destination, list[Delivery]] = {}
        for d in batch:
            if d.redelivered or d.reader.marked(d.native) or self._interceptor.awaits(d):
                d.plan = self._plans[d.destination]
                self.feed(Arrived(d, self._clock.now()))
            else:
                fresh.setdefault(d.destination, []).append(d)
        for source, deliveries in fresh.items():
            plan = self._plans[source]
            for d in deliveries:
                d.plan = plan
            self._crews[source].put(deliveries)

    def lost(self, generation: int, error: BaseException | None, /) -> None:
        self._live.discard(generation)
        running = [d for d in list(self._running) if d.generation == generation and self._claim(d)]
        self.feed(Lost(generation, running))

    def _claim(self, delivery: Delivery) -> bool:
        """Take a run away from the fast path: exactly one of the worker and the loss gets it."""
        return self._running.pop(delivery, None) is not None

    # -- what the crews tell -----------------------------------------------------------------------

    def begin(self, delivery: Delivery, /) -> bool:
        self._running[delivery] = self._tick() if self._timed else 0.0
        if not self.stopping and delivery.generation in self._live:
            if delivery.plan.policy.language == "jmsjca":
                self._spoken.begin(delivery)
            return True
        # Looked at only now, so that a loss in between finds it in `_running` and not on its way there.
        if not self._claim(delivery) or delivery.known:
            self.feed(Left(delivery, self._clock.now()))
        if self._gate is not None:
            self._gate.ended(delivery)
        return False

    def ended(self, delivery: Delivery, error: BaseException | None, /, *, counted: bool = True) -> None:
        self._ended(delivery, error, counted)
        if self._gate is not None:
            self._gate.ended(delivery)

    def _ended(self, delivery: Delivery, error: BaseException | None, counted: bool) -> None:
        if self._spoken:
            self._listen(delivery)
        if error is not None:
            self._failed(delivery, error, counted)
            return self._nudge() if self.stopping else None
        since = self._running.pop(delivery, None)
        ran = self._tick() - since if since else 0.0
        if since is not None and not delivery.known:
            self._adapter.settle(((delivery, "accepted"),))
            self.handled += 1
            if self._timed:
                policy = delivery.plan.policy
                at = self._clock.now().us
                self._recorder.append(healthy_record, delivery, self._scene, policy, at, round(ran * 1e6))
        else:
            self.handled += 1
            self.feed(Handled(delivery, self._clock.now(), ran))
        if self.stopping:
            self._nudge()

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
            since = self._running.pop(delivery, None)
            ran = tick - since if since else 0.0
            self.feed(Failed(delivery, cause, failure, at, self._rng.random(), ran, undecodable, counted))

    def cancelled(self, delivery: Delivery, /) -> None:
        self._running.pop(delivery, None)
        if self._spoken:
            self._spoken.ended(delivery)
        self.feed(Left(delivery, self._clock.now()))
        if self._gate is not None:
            self._gate.ended(delivery)

    def _fed(self) -> None:
        if self._gate is not None:
            self._gate.fed()
        if self.stopping:
            self._quiet.notify_all()

    # -- what the interceptor commands: the hands --------------------------------------------------

    def run(self, c: Run) -> None:
        if self._gate is not None:
            return self._gate.run(c.delivery)
        self._crews[c.delivery.destination].put((c.delivery,), first=True)

    def wait(self, c: Wait) -> None:
        self._timers.wait(c.token, c.seconds)

    def forget(self, c: Forget) -> None:
        self._timers.forget(c.token)

    def _ring(self) -> None:
        with self._lock:
            self._timers.run_out()

    def store(self, c: Store) -> None:
        def answered(verdict: Verdict, why: str) -> None:
            self.feed(Answer(c.token, c.out.copy_id, verdict == "ok", why, self._clock.now(), verdict == "silent"))

        if c.due_us is None:
            self._adapter.publish(c.out, answered, after=c.after)
        elif self._limbo is not None:
            self._limbo.park(c.out, c.due_us / 1e6, answered)

    def transact(self, c: Transact) -> None:
        def answered(verdict: MoveVerdict, why: str) -> None:
            self.feed(Moved(c.token, verdict, why, self._clock.now()))

        self._adapter.move(c.delivery, c.outs, answered)

    def settle(self, c: Settle) -> None:
        tell(self._adapter, c, lambda: self.feed(Written(c.token)))

    def record(self, c: Record) -> None:
        if self._recorder.wanted:
            self._recorder.append(attempt_record, c, self._scene)

    def halt(self, c: Halt) -> None:
        self._crews[c.source].pause("us")
        self.halted[c.source] = c.reason
        if c.loud:
            log.error("%s is paused: %s. Nothing is lost; it goes on once that is over", c.source, c.reason)

    def resume(self, c: Resume) -> None:
        if self.halted.pop(c.source, None) is not None:
            self._crews[c.source].resume("us")

    def say(self, c: Say) -> None:
        log.log(logging.getLevelNamesMapping()[c.level.upper()], c.text)

    # -- watching and stopping ---------------------------------------------------------------------

    def watch_handlers(self, ack_timeout: float) -> None:
        """Warn once of a handler that has run for half the broker's ack timeout."""
        every = ack_timeout / 8
        seen: dict[Delivery, Moment] = {}

        def look() -> None:
            now = self._clock.now()
            running = set(self._running)
            for delivery in [d for d in seen if d not in running]:
                del seen[delivery]
            for delivery in running:
                since = seen.setdefault(delivery, now)
                if now.mono - since.mono >= ack_timeout / 2 - every and delivery not in self._warned:
                    self._warned.add(delivery)
                    log.warning(
                        "a handler has had %r for %.0f s, half of the broker's ack timeout: it stays unsettled, and "
                        "a redelivery of it here waits for this run", delivery, ack_timeout / 2,
                    )  # fmt: skip
            self._warned &= running
            if not self.stopping:
                self._adapter.call_later(every, look)

        self._adapter.call_later(every, look)

    def begin_stop(self) -> None:
        """No new message is begun; what is held leaves with its count or stays the broker's."""
        with self._lock:
            self.stopping = True
            for crew in self._crews.values():
                crew.stop()
            now = self._clock.now()
            self.feed(Stopping(now))
            waiting = [] if self._gate is None else self._gate.stop()
            for crew in self._crews.values():
                waiting += crew.take_waiting()
            for delivery in waiting:
                if delivery.known:
                    self.feed(Left(delivery, now))

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
        return len(self._running) + self._interceptor.waiting_for_answers

    def _nudge(self) -> None:
        with self._lock:
            self._quiet.notify_all()
