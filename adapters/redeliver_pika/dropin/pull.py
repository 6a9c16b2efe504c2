# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The pull style on a BlockingChannel, where a callback never was: `consume`, and the loop of a wrapped channel.

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

from redeliver_mw.context import reset, set_delivery
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
    """One delivery in the loop's hand; false, and `(None, None, None)`, when there was none within the timeout."""

    def __init__(self, turn: CallbackRun | None, hands: PikaCallbackRunner | None) -> None:
        self._turn, self._hands = turn, hands
        self._token: Any = None
        self._shown: Message = NO_MESSAGE if turn is None else shown(turn.delivery)

    def __bool__(self) -> bool:
        return self._turn is not None

    def __enter__(self) -> Message:
        """Method, properties and body, as a callback would see them."""
        if self._turn is not None:
            self._turn.inside, self._turn.before = True, sys.exc_info()[1]
            self._token = set_delivery(self._turn.delivery)
        return self._shown

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        turn, hands = self._turn, self._hands
        if turn is None or hands is None:
            return False
        reset(self._token)
        if error is not None and not isinstance(error, Exception):
            hands.leave(turn)
            return False
        hands.ended(turn, error)
        return True

    @property
    def delivery(self) -> Delivery | None:
        return None if self._turn is None else self._turn.delivery

    def ack(self) -> None:
        """Success, now."""
        self._word(ACK)

    def reject(self, reason: str = "rejected by the consumer") -> None:
        """To the dead letters."""
        self._word(Reject(reason))

    def requeue(self) -> None:
        """A failure: again, when the policy says."""
        self._word(Requeued("requeue"))

    def _word(self, word: Exception) -> None:
        if self._turn is not None and self._hands is not None:
            self._hands.word(self._turn, because_of(word, self._turn.before))


class _PullRunner(PikaCallbackRunner):
    """What would be called is laid ready for the loop."""

    driver_settles = True  # leaving the block is success

    def call(self, turn: CallbackRun) -> None:
        self._wrapper.callback(turn, self)


class _Pulling(Redelivering):
    hands_class = _PullRunner


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
    """Deliveries of `queue`, one at a time, on a BlockingChannel of pika's; options as of `redelivering`.

    After `inactivity_timeout` seconds without one comes an empty `PulledMessage`. The loop ends when the broker cancels
    the consumer; a closed channel or connection raises pika's exception. Closing the generator cancels the
    consumer and leaves what it has not handled unsettled. One thread, the connection's.
    """
    terms = DropinOptions(publisher=publisher, **options)
    if terms.settle == "callback":
        raise ConfigError("a pull loop has no callback to settle", cure="Leave settle out: use ack() and its like")
    if not hasattr(channel, "_process_data_events"):
        raise ConfigError(f"{channel!r:.100} is no BlockingChannel", cure="Use redelivering() with basic_consume")
    ready: deque[tuple[CallbackRun, PikaCallbackRunner]] = deque()

    def lay(turn: CallbackRun, hands: PikaCallbackRunner) -> None:
        ready.append((turn, hands))

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
                turn, hands = ready.popleft()
                if turn.seat.lives(turn.delivery.generation):
                    hands.begin(turn)
                    turn.inside = False  # until the block is entered
                    yield PulledMessage(turn, hands)
            elif timeout is not None:
                yield PulledMessage(None, None)
    finally:
        if channel.is_open:
            ChannelScope.of(channel).abandon(consumer_tag)
            channel.basic_cancel(consumer_tag)


def _wait(
    channel: Any, consumer_tag: str, ready: deque[tuple[CallbackRun, PikaCallbackRunner]], timeout: float | None
) -> bool:
    """Until something is ready, `timeout` seconds at most, or the consumer is no more. What pika raises, raises."""
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
        for turn in waiting:
            self.leave(turn)
            turn.seat.settle(turn.delivery, "released")

    def passed(self, turn: CallbackRun) -> None:
        """The loop asks for the next message; this one may still be unsettled."""
        if turn.in_hand and turn.word is None:
            self.ended(turn, None)


class LoopMessages(Redelivering):
    """The messages of one queue for the loops over a wrapped channel's `consume`, one loop after the other."""

    hands_class = _LoopRunner

    def __init__(self, terms: DropinOptions, queue: Destination, companion: PikaCompanion | None) -> None:
        self._ready: deque[tuple[CallbackRun, _LoopRunner]] = deque()
        super().__init__(self._lay, terms, queue, companion)

    def _lay(self, turn: CallbackRun, hands: _LoopRunner) -> None:
        self._ready.append((turn, hands))

    def take_back(self, generation: int) -> list[CallbackRun]:
        """Return the messages of a cancelled consumer that no loop has been given; none of them will be."""
        found = [turn for turn, _ in self._ready if turn.delivery.generation == generation]
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
            turn, hands = self._ready.popleft()
            if turn.seat.lives(turn.delivery.generation):
                hands.begin(turn)
                turn.inside = False  # nothing tells when the loop is done with it
                yield shown(turn.delivery)
                hands.passed(turn)
