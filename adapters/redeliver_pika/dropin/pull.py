# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Offers the pull style on a BlockingChannel, where a callback never was: `consume`, and the loop of a wrapped channel.

::

    for d in consume(channel, "orders", policy=p):
        with d as (method, properties, body):
            ...

Leaving the block is success, an exception a failure: it is swallowed, and the message comes round again in the
same loop when its delay is over. KeyboardInterrupt and SystemExit go through and leave the message unsettled.

`channel.consume(…)` of a wrapped channel stays what it is in plain pika: the loop's own `basic_ack`, `basic_nack` and
`basic_reject` count, and an exception that leaves the loop leaves its message unsettled.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Generator, Iterator
from types import TracebackType
from typing import Any, Unpack

from redeliver_mw.context import in_hand
from redeliver_mw.dropin import ACK, CallbackRun, DropinKeywords, DropinOptions, Requeued, because_of
from redeliver_mw.errors import ConfigError, Reject
from redeliver_mw.message import Delivery, Destination
from redeliver_pika.dropin.channel import ChannelScope
from redeliver_pika.dropin.copies import PikaCompanion, SharedConnection
from redeliver_pika.dropin.properties_shown import shown
from redeliver_pika.dropin.wrapper import PikaCallbackRunner, Redelivering

Message = tuple[Any, Any, Any]  # method, properties and body; three times None if there was none in time
NO_MESSAGE: Message = (None, None, None)


class PulledMessage:
    """Is a delivery in the loop's hand; false, and `(None, None, None)`, when there was none within the timeout."""

    def __init__(self, run: CallbackRun | None, runner: PikaCallbackRunner | None) -> None:
        """Hold the message of a run, or nothing. Made by the loop."""
        self._run, self._runner = run, runner
        self._token: Any = None
        self._shown: Message = NO_MESSAGE if run is None else shown(run.delivery)

    def __bool__(self) -> bool:
        return self._run is not None

    def __enter__(self) -> Message:
        """Return method, properties and body, as a callback would see them."""
        if self._run is not None:
            self._run.inside, self._run.before = True, sys.exc_info()[1]
            self._token = in_hand.set(self._run.delivery)
        return self._shown

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        run, runner = self._run, self._runner
        if run is None or runner is None:
            return False
        in_hand.reset(self._token)
        if error is not None and not isinstance(error, Exception):
            runner.leave(run)
            return False
        runner.ended(run, error)
        return True

    @property
    def delivery(self) -> Delivery | None:
        """Return the delivery in hand, with its count and its history; None when there was no message."""
        return None if self._run is None else self._run.delivery

    def ack(self) -> None:
        """Settle the message as handled, at once."""
        self._settle(ACK)

    def reject(self, reason: str = "rejected by the consumer") -> None:
        """Send the message to the dead letters."""
        self._settle(Reject(reason))

    def requeue(self) -> None:
        """Count a failure: the message comes again when the policy says."""
        self._settle(Requeued("requeue"))

    def _settle(self, settlement: Exception) -> None:
        if self._run is not None and self._runner is not None:
            self._runner.code_settled(self._run, because_of(settlement, self._run.before))


class _PullRunner(PikaCallbackRunner):
    """Lays messages ready for the loop, instead of calling a callback."""

    driver_settles = True  # leaving the block is success

    def call(self, run: CallbackRun) -> None:
        self._wrapper.callback(run, self)


class _Pulling(Redelivering):
    runner_class = _PullRunner


def consume(
    channel: Any,
    queue: str,
    *,
    inactivity_timeout: float | None = None,
    publisher: str | None = None,
    exclusive: bool = False,
    arguments: dict[str, Any] | None = None,
    **options: Unpack[DropinKeywords],
) -> Iterator[PulledMessage]:
    """Yield the deliveries of `queue`, one at a time, on a BlockingChannel of pika's. Options are as of `redelivering`.

    After `inactivity_timeout` seconds without one comes an empty `PulledMessage`. The loop ends when the broker cancels
    the consumer; a closed channel or connection raises pika's exception. Closing the generator cancels the
    consumer and leaves what it has not handled unsettled. Used on one thread, the connection's.
    """
    terms = DropinOptions(publisher=publisher, **options)
    if terms.settle == "callback":
        raise ConfigError(
            "a pull loop has no callback to settle",
            cure="Leave settle out: use ack() and its like",
            code="option-value",
        )
    if not hasattr(channel, "_process_data_events"):
        raise ConfigError(
            f"{channel!r:.100} is no BlockingChannel",
            cure="Use redelivering() with basic_consume",
            code="callback-not-usable",
        )
    ready: deque[tuple[CallbackRun, PikaCallbackRunner]] = deque()

    def lay(run: CallbackRun, runner: PikaCallbackRunner) -> None:
        ready.append((run, runner))

    pulling = _Pulling(lay, terms, queue, publisher)
    return _pull(channel, queue, pulling, ready, inactivity_timeout, exclusive, arguments)


def _pull(
    channel: Any,
    queue: str,
    pulling: _Pulling,
    ready: deque[tuple[CallbackRun, PikaCallbackRunner]],
    timeout: float | None,
    exclusive: bool,
    arguments: dict[str, Any] | None,
) -> Iterator[PulledMessage]:
    consumer_tag = channel.basic_consume(queue, pulling, exclusive=exclusive, arguments=arguments)
    try:
        while channel.is_open and consumer_tag in channel.consumer_tags:
            if _wait(channel, consumer_tag, ready, timeout):
                run, runner = ready.popleft()
                if run.scope.lives(run.delivery.generation):
                    runner.begin(run)
                    run.inside = False  # until the block is entered
                    yield PulledMessage(run, runner)
            elif timeout is not None:
                yield PulledMessage(None, None)
    finally:
        if channel.is_open:
            ChannelScope.of(channel).abandon(consumer_tag)
            channel.basic_cancel(consumer_tag)


def _wait(
    channel: Any, consumer_tag: str, ready: deque[tuple[CallbackRun, PikaCallbackRunner]], timeout: float | None
) -> bool:
    """Wait until something is ready, for `timeout` seconds at most, or until the consumer is no more.

    Return whether something is ready. Raises what pika raises.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    while not ready and consumer_tag in channel.consumer_tags:
        rest = None if deadline is None else deadline - time.monotonic()
        if rest is not None and rest <= 0:
            break
        channel._process_data_events(rest)
    return bool(ready)


class _LoopRunner(_PullRunner):
    """Lays messages ready for the loop of a wrapped channel, where only the code's own settlement counts."""

    _wrapper: LoopMessages

    def __init__(self, wrapper: LoopMessages, shared: SharedConnection) -> None:
        super().__init__(wrapper, shared)
        self.returning_settles = False

    def retired(self, generation: int) -> None:
        waiting = self._wrapper.take_back(generation)
        super().retired(generation)
        for run in waiting:
            self.leave(run)
            run.scope.settle(run.delivery, "released")

    def passed(self, run: CallbackRun) -> None:
        """End the run of a message whose loop has asked for the next one; it may still be unsettled."""
        if run.in_hand and run.settlement is None:
            self.ended(run, None)


class LoopMessages(Redelivering):
    """Gives the messages of one queue to the loops over a wrapped channel's `consume`, one loop after the other."""

    runner_class = _LoopRunner

    def __init__(self, terms: DropinOptions, queue: Destination, companion: PikaCompanion | None) -> None:
        """Collect the messages of one queue until a loop takes them."""
        self._ready: deque[tuple[CallbackRun, _LoopRunner]] = deque()
        super().__init__(self._lay, terms, queue, companion)

    def _lay(self, run: CallbackRun, runner: _LoopRunner) -> None:
        self._ready.append((run, runner))

    def take_back(self, generation: int) -> list[CallbackRun]:
        """Return the messages of a cancelled consumer that no loop has been given; none of them will be."""
        found = [run for run, _ in self._ready if run.delivery.generation == generation]
        self._ready = deque(waiting for waiting in self._ready if waiting[0] not in found)
        return found

    def messages(self, channel: Any, events: Iterator[Message], timeout: float | None) -> Generator[Message]:
        """Yield messages, new ones and those whose delay is over, until the consumer is cancelled.

        - `events`: the driver's own generator, which yields what has come, or `NO_MESSAGE` at once.
        - `timeout`: seconds after which `NO_MESSAGE` is yielded to the loop.
        """
        while True:
            deadline = None if timeout is None else time.monotonic() + timeout
            while not self._ready:
                found = next(events, None)
                if found is None:
                    return
                if found[0] is not None:
                    self(channel, *found)
                    continue
                rest = None if deadline is None else deadline - time.monotonic()
                if rest is not None and rest <= 0:
                    break
                channel._process_data_events(rest)
            if not self._ready:
                yield NO_MESSAGE
                continue
            run, runner = self._ready.popleft()
            if run.scope.lives(run.delivery.generation):
                runner.begin(run)
                run.inside = False  # nothing tells when the loop is done with it
                yield shown(run.delivery)
                runner.passed(run)
