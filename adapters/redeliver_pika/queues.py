# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Queues looked up and made, each on a channel of its own: a refusal closes the channel it was asked on.

On the thread of the adapter's I/O loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pika import exceptions

from redeliver_mw.adapter import Subscription
from redeliver_mw.adapter.capabilities import BrokerLimit, Trust
from redeliver_mw.errors import BrokerError, BrokerUnavailable, DestinationMissing, RedeliverError
from redeliver_mw.message import Destination
from redeliver_pika.capabilities import CLASSIC, YOUNG, queue_of, rung_arguments, rung_queue, rungs_for
from redeliver_pika.messages import TOPIC_EXCHANGE

OnQueue = Callable[[int | RedeliverError], None]  # messages ready in it, or why it cannot be had


# When this process first saw a quorum queue of ours: how old it is nobody tells, so it counts as new then.
_first_seen: dict[tuple[str, str], float] = {}


class Queues:
    """Asks one connection about queues of the broker `name`. Remembers since when it knows a helper queue."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._connection: Any = None
        self._waiting: set[OnQueue] = set()

    def connected(self, connection: Any) -> None:
        self._connection = connection

    def disconnected(self, error: BaseException) -> None:
        """Every open question is answered: the connection was lost."""
        self._connection = None
        waiting, self._waiting = self._waiting, set()
        for answer in waiting:
            answer(BrokerUnavailable(f"the connection was lost: {error}"))

    def age_left(self, queue: str) -> float:
        """Seconds until this queue may be trusted with a copy; 0 for one that is none of our helpers."""
        seen = _first_seen.get((self._name, queue))
        return max(0.0, seen + YOUNG - time.monotonic()) if seen is not None else 0.0

    def look_up(self, queue: str, answer: OnQueue) -> None:
        """Is it there? Nothing is made."""
        self._ask(queue, answer, lambda channel, ok: channel.queue_declare(queue, passive=True, callback=ok))

    def ensure(self, queue: str, arguments: dict[str, Any], answer: OnQueue) -> None:
        """Take it as it is, or make it: durable, with these arguments."""

        def looked(found: int | RedeliverError) -> None:
            if isinstance(found, DestinationMissing):
                self._make(queue, arguments, known)
            else:
                known(found)

        def known(outcome: int | RedeliverError) -> None:
            if arguments.get("x-queue-type") == "quorum" and not isinstance(outcome, RedeliverError):
                _first_seen.setdefault((self._name, queue), time.monotonic())
            answer(outcome)

        self.look_up(queue, looked)

    def limit_of(self, queue: str, answer: Callable[[BrokerLimit], None]) -> None:
        """As far as AMQP shows it: a durable classic queue without arguments has none, nor has one that is missing.

        The queue is declared again as such: that changes nothing where it is one, and is refused where it is not.
        """

        def looked(found: int | RedeliverError) -> None:
            if isinstance(found, RedeliverError):
                known(found)
            else:
                self._make(queue, CLASSIC, known)

        def known(found: int | RedeliverError) -> None:
            if isinstance(found, RedeliverError) and not isinstance(found, DestinationMissing):
                answer(BrokerLimit(trust=Trust.UNKNOWN, why="AMQP does not tell; ?management=http://host:15672 would"))
            else:
                answer(BrokerLimit())

        self.look_up(queue, looked)

    def prepare(self, wanted: Subscription, answer: OnQueue, *, scheduled: bool) -> None:
        """The queue to be consumed, bound to its topic if it has one, then its ladder if copies can be `scheduled`."""
        source, queue = wanted.source, queue_of(wanted.source)
        binds = source.kind == "topic" and wanted.helpers

        def there(found: int | RedeliverError) -> None:
            if binds and not isinstance(found, RedeliverError):
                self.bind(queue, TOPIC_EXCHANGE, source.name, bound)
            else:
                bound(found)

        def bound(found: int | RedeliverError) -> None:
            if scheduled and wanted.helpers and not isinstance(found, RedeliverError):
                self.ladder(source, wanted.ladder, answer)
            else:
                answer(found)

        if wanted.declare or binds:
            self.ensure(queue, CLASSIC, there)
        else:
            self.look_up(queue, there)

    def ladder(self, source: Destination, longest: float, answer: OnQueue) -> None:
        """The rungs that delays of `longest` seconds and less can use, as `ensure` has them; 0 if there are none."""
        rungs = list(rungs_for(longest))

        def had(found: int | RedeliverError) -> None:
            if isinstance(found, RedeliverError) or not rungs:
                return answer(found)
            rung = rungs.pop(0)
            self.ensure(rung_queue(source, rung), rung_arguments(source, rung), had)

        had(0)

    def bind(self, queue: str, exchange: str, key: str, answer: OnQueue) -> None:
        """Let the queue have what is published to `exchange` with `key`; nothing to do the second time."""
        self._ask(queue, answer, lambda channel, ok: channel.queue_bind(queue, exchange, routing_key=key, callback=ok))

    def _make(self, queue: str, arguments: dict[str, Any], answer: OnQueue) -> None:
        self._ask(
            queue,
            answer,
            lambda channel, ok: channel.queue_declare(queue, durable=True, arguments=arguments, callback=ok),
        )

    def _ask(self, queue: str, answer: OnQueue, declare: Callable[[Any, Callable[[Any], None]], None]) -> None:
        """One question on one channel; exactly one answer."""
        if self._connection is None or not self._connection.is_open:
            answer(BrokerUnavailable("there is no connection just now"))
            return
        self._waiting.add(answer)

        def once(result: int | RedeliverError) -> None:
            if answer in self._waiting:
                self._waiting.discard(answer)
                answer(result)

        def opened(channel: Any) -> None:
            def declared(frame: Any) -> None:
                if channel.is_open:  # else the connection is being closed
                    channel.close()
                once(int(getattr(frame.method, "message_count", 0)))

            channel.add_on_close_callback(lambda _, reason: once(_meaning(queue, reason)))
            declare(channel, declared)

        self._connection.channel(on_open_callback=opened)


def _meaning(queue: str, reason: BaseException) -> RedeliverError:
    code = getattr(reason, "reply_code", 0)
    text = getattr(reason, "reply_text", str(reason))
    if code == 404:
        return DestinationMissing(f"queue {queue!r} is not there", cure="Declare it, or let us: declare='all'")
    if isinstance(reason, exceptions.ChannelClosedByBroker):
        return BrokerError(f"queue {queue!r}: {text}")
    return BrokerUnavailable(f"queue {queue!r} could not be asked for: {text}")
