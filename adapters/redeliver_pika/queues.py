# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Looks up and makes queues, each on a channel of its own: a refusal closes the channel it was asked on.

On the thread of the adapter's I/O loop.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from typing import Any

from pika import exceptions

from redeliver_mw.adapter import Subscription
from redeliver_mw.adapter.capabilities import BrokerLimit, Trust
from redeliver_mw.errors import BrokerError, BrokerUnavailable, DestinationMissing, RedeliverError
from redeliver_pika.capabilities import CLASSIC, queue_of, unread_retry
from redeliver_pika.messages import TOPIC_EXCHANGE

OnQueue = Callable[[int | RedeliverError], None]  # messages ready in it, or why it cannot be had


class OwnRefusals(logging.Filter):
    """Drops the driver's warnings of refusals on our asking channels: there a refusal is an answer. Others pass."""

    def __init__(self) -> None:
        super().__init__()
        self._channels: weakref.WeakSet[Any] = weakref.WeakSet()

    def add(self, channel: Any) -> None:
        self._channels.add(channel)

    def filter(self, record: logging.LogRecord) -> bool:
        args = record.args
        if not isinstance(args, tuple) or not args or type(args[0]) is not int:
            return True  # the driver's own objects raise an error when they are compared with a number
        return not (args[0] in REFUSALS and args[-1] in self._channels)


REFUSALS = (404, 405, 406)  # not there, another connection's own, of other arguments
_own_refusals = OwnRefusals()
logging.getLogger("pika.channel").addFilter(_own_refusals)


class Queues:
    """Asks one connection about queues of its broker."""

    def __init__(self) -> None:
        self._connection: Any = None
        self._waiting: set[OnQueue] = set()

    def connected(self, connection: Any) -> None:
        self._connection = connection

    def disconnected(self, error: BaseException) -> None:
        """Answer every open question: the connection was lost."""
        self._connection = None
        waiting, self._waiting = self._waiting, set()
        for answer in waiting:
            answer(BrokerUnavailable(f"the connection was lost: {error}", code="connection-lost"))

    def look_up(self, queue: str, answer: OnQueue) -> None:
        """Answer whether the queue is there, without making anything."""
        self._ask(queue, answer, lambda channel, ok: channel.queue_declare(queue, passive=True, callback=ok))

    def ensure(self, queue: str, arguments: dict[str, Any], answer: OnQueue) -> None:
        """Take it as it is, or make it: durable, with these arguments."""

        def looked(found: int | RedeliverError) -> None:
            if isinstance(found, DestinationMissing):
                self.make(queue, arguments, answer)
            else:
                answer(found)

        self.look_up(queue, looked)

    def consumers_of(self, queue: str, answer: OnQueue) -> None:
        """Answer how many consumers the queue has."""
        self._ask(
            queue,
            answer,
            lambda channel, ok: channel.queue_declare(queue, passive=True, callback=ok),
            counted="consumer_count",
        )

    def limit_of(self, queue: str, version: str, answer: Callable[[BrokerLimit], None]) -> None:
        """Answer the limit as far as AMQP shows it: a missing queue, or a plain durable classic one, has none.

        The queue is declared again as such: that changes nothing where it is one, and is refused where it is not.
        """

        def looked(found: int | RedeliverError) -> None:
            if isinstance(found, RedeliverError):
                known(found)
            else:
                self.make(queue, CLASSIC, known)

        def known(found: int | RedeliverError) -> None:
            if isinstance(found, RedeliverError) and not isinstance(found, DestinationMissing):
                why = "AMQP does not tell; ?management=http://host:15672 would"
                answer(BrokerLimit(trust=Trust.UNKNOWN, why=why, returned_after=unread_retry(version)))
            else:
                answer(BrokerLimit())

        self.look_up(queue, looked)

    def prepare(self, wanted: Subscription, answer: OnQueue) -> None:
        """Make sure of the queue to be consumed, bound to its topic if it has one."""
        source, queue = wanted.source, queue_of(wanted.source)
        binds = source.kind == "topic" and wanted.helpers

        def there(found: int | RedeliverError) -> None:
            if binds and not isinstance(found, RedeliverError):
                self.bind(queue, TOPIC_EXCHANGE, source.name, answer)
            else:
                answer(found)

        if wanted.declare or binds:
            self.ensure(queue, CLASSIC, there)
        else:
            self.look_up(queue, there)

    def bind(self, queue: str, exchange: str, key: str, answer: OnQueue) -> None:
        """Let the queue have what is published to `exchange` with `key`; nothing to do the second time."""
        self._ask(queue, answer, lambda channel, ok: channel.queue_bind(queue, exchange, routing_key=key, callback=ok))

    def make(self, queue: str, arguments: dict[str, Any], answer: OnQueue) -> None:
        """Declare it, durable: an error where one of other arguments is there."""
        self._ask(
            queue,
            answer,
            lambda channel, ok: channel.queue_declare(queue, durable=True, arguments=arguments, callback=ok),
        )

    def _ask(
        self,
        queue: str,
        answer: OnQueue,
        declare: Callable[[Any, Callable[[Any], None]], None],
        counted: str = "message_count",
    ) -> None:
        """Ask one question on one channel. Exactly one answer comes: an error, or the number `counted`."""
        if self._connection is None or not self._connection.is_open:
            answer(BrokerUnavailable("there is no connection just now", code="connection-lost"))
            return
        self._waiting.add(answer)

        def once(result: int | RedeliverError) -> None:
            if answer in self._waiting:
                self._waiting.discard(answer)
                answer(result)

        def opened(channel: Any) -> None:
            _own_refusals.add(channel)

            def declared(frame: Any) -> None:
                if channel.is_open:  # else the connection is being closed
                    channel.close()
                once(int(getattr(frame.method, counted, 0)))

            channel.add_on_close_callback(lambda _, reason: once(_meaning(queue, reason)))
            declare(channel, declared)

        self._connection.channel(on_open_callback=opened)


def _meaning(queue: str, reason: BaseException) -> RedeliverError:
    code = getattr(reason, "reply_code", 0)
    text = getattr(reason, "reply_text", str(reason))
    if code == 404:
        return DestinationMissing(f"queue {queue!r} is not there", cure="Declare it, or let us: declare='all'")
    if isinstance(reason, exceptions.ChannelClosedByBroker):
        return BrokerError(f"queue {queue!r}: {text}", code="queue-refused")
    return BrokerUnavailable(f"queue {queue!r} could not be asked for: {text}", code="connection-lost")
