# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Executes the commands of an App's interceptor: with its worker pools, its adapter, its limbo, timers and records."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

from ..adapter.protocol import Adapter, OnAnswer, SupportsDelayedRelease, TransferVerdict, Verdict
from ..clock import Clock, Moment
from ..errors import EVENT_CODE
from ..flow.sequencer import KeySequencer
from ..journal.consumer_info import ConsumerInfo
from ..journal.recorder import Recorder, attempt_record
from ..message import Delivery, Destination, Outgoing
from ..redelivery.commands import (
    CancelTimer,
    CopyAnswered,
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
)
from ..redelivery.copies import RetryTerms
from ..redelivery.dispatcher import EventDispatcher
from ..redelivery.headers import PREFIX
from ..redelivery.order_places import OrderPlace
from ..telemetry.failure_log import FailureLog
from ..telemetry.hook import NO_TELEMETRY, TelemetryHook
from ..telemetry.transfers import announcing_copy, announcing_settlement, announcing_transaction
from ..timers import SLACK, Cancel
from .target_maker import TargetMaker
from .workers import WorkerPool

log = logging.getLogger("redeliver_mw")


class CopyStore(Protocol):
    """Keeps copies that neither we nor the broker should hold. Implemented by `limbo.service.LimboService`."""

    def park(
        self,
        out: Outgoing,
        due: float,
        answer: Callable[[Any, str], None],
        /,
        terms: RetryTerms | None = None,
        places: Sequence[OrderPlace] = (),
    ) -> None: ...  # one answer, once
    def forget_places(
        self, source: Destination, places: Sequence[tuple[str, int]], then: Callable[[], None] | None = None, /
    ) -> None: ...


class DeliveryGate(Protocol):
    """Lets deliveries through to their handlers once it is on record that they are there.

    Called from any thread; none of these waits.
    """

    def arrived(self, batch: Sequence[Delivery], /) -> None: ...
    def run(self, delivery: Delivery, /) -> None: ...
    def ended(self, delivery: Delivery, /) -> None: ...  # its run, or it will not be run
    def fed(self) -> None: ...  # the interceptor has dealt with an input; its lock is held
    def stop(self) -> list[Delivery]: ...  # lets nothing through from now on; answers what waited


class ReplayListener(Protocol):
    """Learns of the attempts of replayed messages. Implemented by `operations_link.OperationsLink`."""

    def attempt(self, attempt: RecordAttempt, /) -> None: ...  # the interceptor's lock is held


class Timers:
    """Waits for many tokens at once, on one timer of the adapter. Not thread-safe.

    `fire(token, at)` is called once for each token whose time has come; `at` is the reading of the clock by which it
    has. `call_later(seconds)` sets the adapter's timer, which calls `run_out`. A cancelled wait stays in the heap until
    its time and is skipped then.
    """

    def __init__(
        self, call_later: Callable[[float], Cancel], clock: Clock, fire: Callable[[int, Moment], None]
    ) -> None:
        self._call_later, self._clock, self._fire = call_later, clock, fire
        self._heap: list[tuple[float, int]] = []
        self._due: dict[int, float] = {}
        self._next = float("inf")  # when the adapter's timer fires
        self._cancel: Cancel | None = None

    def wait(self, token: int, seconds: float) -> None:
        """Fire after this many seconds; replaces an earlier wait of this token."""
        now = self._clock.now().mono
        due = self._due[token] = now + seconds
        heapq.heappush(self._heap, (due, token))
        self._arm(now)

    def forget(self, token: int) -> None:
        self._due.pop(token, None)

    def run_out(self) -> None:
        """Fire every token that is due. Called by the adapter's timer.

        A wait that is set meanwhile is for the next call, however short it is: so each call comes to its end.
        """
        self._next, self._cancel = float("inf"), None
        at = self._clock.now()
        over: list[tuple[float, int]] = []
        while self._heap and self._heap[0][0] <= at.mono + SLACK:
            over.append(heapq.heappop(self._heap))
        for due, token in over:
            if self._due.get(token) == due:
                del self._due[token]
                self._fire(token, at)
        if self._heap:
            self._arm(self._clock.now().mono)

    def _arm(self, now: float) -> None:
        """Set the adapter's timer to the earliest wait that is not cancelled."""
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        if self._heap and self._heap[0][0] < self._next:
            if self._cancel is not None:
                self._cancel()
            self._next = self._heap[0][0]
            self._cancel = self._call_later(max(0.0, self._next - now))


class CommandExecutor:
    """Executes commands: one method for each. Called with the dispatcher's lock held; none of the methods blocks.

    `halted` are the sources that are paused, each with the reason.
    """

    _dispatcher: EventDispatcher

    def __init__(
        self,
        adapter: Adapter,
        pools: Mapping[Destination, WorkerPool],
        recorder: Recorder,
        consumer: ConsumerInfo,
        clock: Clock,
        limbo: CopyStore | None = None,
        gate: DeliveryGate | None = None,
        sequencer: KeySequencer | None = None,
        failures: FailureLog | None = None,
        maker: TargetMaker | None = None,
        telemetry: TelemetryHook = NO_TELEMETRY,
    ) -> None:
        self._adapter, self._pools = adapter, pools
        self._recorder, self._consumer, self._clock = recorder, consumer, clock
        self._limbo, self._gate, self._sequencer = limbo, gate, sequencer
        self._failures, self._maker, self._telemetry = failures, maker, telemetry
        self._announces_copies = telemetry.copy_sent is not None or telemetry.copy_answered is not None
        self.halted: dict[Destination, str] = {}
        self.replays: ReplayListener | None = None
        self._timers = Timers(lambda seconds: adapter.call_later(seconds, self._run_timers), clock, self._fire)

    def start(self, dispatcher: EventDispatcher) -> None:
        """Feed answers and timers to this dispatcher from now on."""
        self._dispatcher = dispatcher

    def run(self, c: RunHandler) -> None:
        if self._sequencer is not None and not self._sequencer.may_run(c.delivery):
            return
        if self._gate is not None:
            return self._gate.run(c.delivery)
        self._pools[c.delivery.destination].put((c.delivery,), first=True)

    def wait(self, c: StartTimer) -> None:
        self._timers.wait(c.token, c.seconds)

    def forget(self, c: CancelTimer) -> None:
        self._timers.forget(c.token)

    def _run_timers(self) -> None:
        with self._dispatcher.lock:
            self._timers.run_out()

    def _fire(self, token: int, at: Moment) -> None:
        self._dispatcher.feed(TimerFired(token, at))

    def store(self, c: PublishCopy) -> None:
        places = () if c.due_us is None else self._places_with(c)

        def answered(verdict: Verdict, why: str) -> None:
            if places and verdict != "ok" and self._sequencer is not None and c.out.origin is not None:
                self._sequencer.not_noted(c.out.origin.destination, places)
            self._dispatcher.feed(CopyAnswered(c.token, c.out.copy_id, verdict, why, self._clock.now()))
            if verdict == "refused" and c.due_us is None and self._maker is not None:
                self._maker.refused(c.out.target)

        answer: OnAnswer = answered
        if self._announces_copies:
            answer = announcing_copy(self._telemetry, self._clock, c, answered)
        if c.due_us is None:
            self._adapter.publish(c.out, answer, after=c.after)
        elif self._limbo is not None:
            self._limbo.park(c.out, c.due_us / 1e6, answer, c.terms, places)

    def _places_with(self, c: PublishCopy) -> Sequence[OrderPlace]:
        """Return the places that the limbo is to remember with a retry copy."""
        origin = c.out.origin
        if self._sequencer is None or c.terms is None or origin is None:
            return ()
        return self._sequencer.note(origin, str(c.out.headers[f"{PREFIX}lineage"]), c.due_us or 0)

    def transact(self, c: PublishAndSettle) -> None:
        def answered(verdict: TransferVerdict, why: str) -> None:
            self._dispatcher.feed(TransactionAnswered(c.token, verdict, why, self._clock.now()))
            if verdict == "refused" and self._maker is not None:
                for out, _ in c.outs:
                    self._maker.refused(out.target)

        self._adapter.move(c.delivery, c.outs, announcing_transaction(self._telemetry, self._clock, c, answered))

    def settle(self, c: Settle) -> None:
        def send() -> None:
            def written() -> None:
                self._dispatcher.feed(SettleWritten(c.token))

            then = written
            if self._telemetry.settled is not None:
                then = announcing_settlement(self._telemetry.settled, self._clock, c, written)
            if c.marks is None:
                self._adapter.settle(((c.delivery, c.settlement),), written=then)
            else:
                cast(SupportsDelayedRelease, self._adapter).postpone(c.delivery, c.marks, c.after, written=then)

        if c.settlement == "accepted" and not c.returns:
            return self.without_its_place(c.delivery, send)
        send()

    def without_its_place(self, delivery: Delivery, then: Callable[[], None]) -> None:
        """Let the limbo forget its place first: without its message nobody would come and take that."""
        place = self._sequencer.noted(delivery) if self._sequencer is not None else None
        if place is None or self._limbo is None:
            return then()
        self._limbo.forget_places(delivery.destination, (place,), then)

    def forget_places(self, source: Destination, places: Sequence[tuple[str, int]], /) -> None:
        """Let the limbo forget places that it keeps. Any thread."""
        if self._limbo is not None:
            self._limbo.forget_places(source, places)

    def record(self, c: RecordAttempt) -> None:
        if self._failures is not None:
            self._failures.attempt(c, self._adapter.call_later)
        if self._recorder.wanted:
            self._recorder.append(attempt_record, c, self._consumer)
        if self.replays is not None and c.past.replay_id:
            self.replays.attempt(c)
        if self._telemetry.attempt_recorded is not None:
            self._telemetry.attempt_recorded(c)

    def halt(self, c: PauseSource) -> None:
        self._pools[c.source].pause("us")
        self.halted[c.source] = c.reason
        if self._telemetry.source_paused is not None:
            self._telemetry.source_paused(c.source, c.reason, c.loud)
        if c.loud:
            log.error("%s is paused: %s. Nothing is lost; it goes on once that is over", c.source, c.reason)

    def resume(self, c: ResumeSource) -> None:
        if self.halted.pop(c.source, None) is not None:
            self._pools[c.source].resume("us")
            if self._telemetry.source_resumed is not None:
                self._telemetry.source_resumed(c.source)

    def say(self, c: Log) -> None:
        log.log(logging.getLevelNamesMapping()[c.level.upper()], c.text, extra={EVENT_CODE: c.event})

    def place(self, c: OrderUpdate) -> None:
        if self._sequencer is not None:
            self._sequencer.place(c)
