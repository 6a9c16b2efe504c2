# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Executes, inside the user's own loop, the commands of a drop-in's interceptor.

All of it runs on the driver's thread; only answers of a companion connection come from elsewhere, and only once that
thread is gone. A callback is called from where the driver calls callbacks, never from within a command: what is to be
run again waits in the `RunQueue` for the loop's next turn.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping

from ..adapter.protocol import TransferVerdict, Verdict
from ..clock import Clock
from ..errors import EVENT_CODE
from ..journal.consumer_info import ConsumerInfo
from ..journal.recorder import attempt_record
from ..message import Destination
from ..redelivery.commands import (
    CancelTimer,
    CopyAnswered,
    Input,
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
from ..telemetry.transfers import announcing_copy, announcing_settlement, announcing_transaction
from .copy_publisher import CopyPublisher, UserConnection
from .options import DropinOptions
from .run_queue import RunQueue
from .settlement_scope import SettlementScope

log = logging.getLogger("redeliver_mw.dropin")


class DropinCommandExecutor:
    """Executes commands: one method for each. One for each wrapper and connection.

    - `scopes`: the live generations, each with its scope.
    - `halted`, `resumed`: called with a source after it was paused or resumed.
    - `feed`: takes answers and timers to the interceptor.
    """

    def __init__(
        self,
        terms: DropinOptions,
        connection: UserConnection,
        publisher: CopyPublisher,
        queue: RunQueue,
        scopes: Mapping[int, SettlementScope],
        consumer: ConsumerInfo,
        clock: Clock,
        feed: Callable[[Input], None],
        halted: Callable[[Destination], None],
        resumed: Callable[[Destination], None],
    ) -> None:
        self._terms, self._queue, self._scopes = terms, queue, scopes
        self._connection, self._publisher = connection, publisher
        self._consumer, self._clock, self._feed = consumer, clock, feed
        self._halted, self._resumed = halted, resumed
        self._timers: dict[int, int] = {}  # token -> the number of its timer: an older one is out of date
        self._numbers = itertools.count(1)

    def move_to(self, connection: UserConnection, publisher: CopyPublisher) -> None:
        """Use the connection that took the place of the closed one."""
        self._connection, self._publisher = connection, publisher

    def run(self, c: RunHandler) -> None:
        scope = self._scopes.get(c.delivery.generation)
        run = scope.run_of(c.delivery) if scope is not None else None
        if run is not None:
            self._queue.run_again(run)

    def wait(self, c: StartTimer) -> None:
        number = self._timers[c.token] = next(self._numbers)

        def due() -> None:
            if self._timers.get(c.token) == number:
                del self._timers[c.token]
                self._feed(TimerFired(c.token, self._clock.now()))

        self._connection.later(c.seconds, due)

    def forget(self, c: CancelTimer) -> None:
        self._timers.pop(c.token, None)

    def store(self, c: PublishCopy) -> None:
        generation = c.out.generation

        def alive() -> bool:
            return generation is None or generation in self._scopes

        def answered(verdict: Verdict, why: str) -> None:
            self._feed(CopyAnswered(c.token, c.out.copy_id, verdict, why, self._clock.now()))

        def hop(verdict: Verdict, why: str) -> None:
            self._connection.hop(lambda: answered(verdict, why))  # of the connection that is there by then

        off_thread = c.due_us is not None or self._publisher.off_thread
        answer = announcing_copy(self._terms.telemetry, self._clock, c, hop if off_thread else answered)
        if c.due_us is None:
            self._publisher.store(c.out, c.after, answer, alive)
        elif self._terms.limbo is not None:
            self._terms.limbo.park(c.out, c.due_us / 1e6, answer, c.terms)

    def transact(self, c: PublishAndSettle) -> None:
        """Send the copies and settle the original in one transaction.

        This happens only where the capabilities have `atomic_move`, which a companion connection takes away.
        """
        scope = self._scopes.get(c.delivery.generation)

        def answered(verdict: TransferVerdict, why: str) -> None:
            if verdict != "refused" and scope is not None:
                scope.gone(c.delivery)
            self._feed(TransactionAnswered(c.token, verdict, why, self._clock.now()))

        if scope is None or not scope.settleable(c.delivery):
            answered("abandoned", "the original was lost meanwhile")
        else:
            answer = announcing_transaction(self._terms.telemetry, self._clock, c, answered)
            self._publisher.move(c.delivery, c.outs, answer)

    def settle(self, c: Settle) -> None:
        scope = self._scopes.get(c.delivery.generation)
        settled = self._terms.telemetry.settled

        def written() -> None:
            self._feed(SettleWritten(c.token))

        announce = written if settled is None else announcing_settlement(settled, self._clock, c, written)
        if scope is not None and scope.settle(c.delivery, c.settlement):
            announce()

    def record(self, c: RecordAttempt) -> None:
        if self._terms.failures is not None:
            self._terms.failures.attempt(c, self._connection.later)
        if self._terms.recorder.wanted:
            self._terms.recorder.append(attempt_record, c, self._consumer)
        if self._terms.telemetry.attempt_recorded is not None:
            self._terms.telemetry.attempt_recorded(c)

    def halt(self, c: PauseSource) -> None:
        self._queue.halted.add(c.source)
        if self._terms.telemetry.source_paused is not None:
            self._terms.telemetry.source_paused(c.source, c.reason, c.loud)
        if c.loud:
            log.error("%s is paused: %s. Nothing is lost; it goes on once that is over", c.source, c.reason)
        self._halted(c.source)

    def resume(self, c: ResumeSource) -> None:
        self._queue.halted.discard(c.source)
        self._queue.go_on()
        if self._terms.telemetry.source_resumed is not None:
            self._terms.telemetry.source_resumed(c.source)
        self._resumed(c.source)

    def say(self, c: Log) -> None:
        log.log(logging.getLevelNamesMapping()[c.level.upper()], c.text, extra={EVENT_CODE: c.event})

    def place(self, c: OrderUpdate) -> None:
        return  # nothing is ordered by key in somebody else's driver
