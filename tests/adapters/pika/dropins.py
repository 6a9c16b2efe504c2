# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds consumers as they are written by hand for each kind of connection, each driven until a test has seen enough."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pika
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.adapters.blocking_connection import BlockingChannel

from redeliver_pika import consume, redelivering
from tests.brokers import Broker

KINDS = ("blocking", "select", "asyncio", "pull")
_names = itertools.count(1)
Dead = list[tuple[bytes, dict[str, Any]]]


def parameters(broker: Broker, **more: Any) -> pika.ConnectionParameters:
    return pika.ConnectionParameters(
        broker.host, broker.port, credentials=pika.PlainCredentials(broker.user, broker.password), **more
    )


class Queues:
    """Holds the queues of one test, and reads what is in them, on a connection of its own."""

    def __init__(self, broker: Broker, kind: str = "classic") -> None:
        self.broker = broker
        self.connection = pika.BlockingConnection(parameters(broker))
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()
        self.name = f"dropin.{os.getpid()}.{next(_names)}"
        self.channel.queue_declare(self.name, durable=True, arguments={"x-queue-type": kind})
        self.dlq = f"DLQ.{self.name}"

    def put(self, *bodies: str, exchange: str = "", key: str | None = None, **properties: Any) -> None:
        """Publish each body in a message whose id is that body, too."""
        for body in bodies:
            given = pika.BasicProperties(**{"message_id": body, "delivery_mode": 2} | properties)
            key_used = self.name if key is None else key
            self.channel.basic_publish(exchange, key_used, body.encode(), given, mandatory=True)

    def dead(self) -> Dead:
        """Take the dead letters, and return them."""
        return list(self._taken(self.dlq)) if self.there(self.dlq) else []

    def left(self, least: int = 0) -> list[str]:
        """Take what is still in the source, and return the bodies.

        The broker notices a closed channel in its own time, so this waits up to 10 s until `least` messages have come
        back.
        """
        found: list[str] = []
        deadline = time.monotonic() + (10 if least else 0.1)
        while len(found) < max(1, least) and time.monotonic() < deadline:
            self.connection.process_data_events(0.02)
            found += [body.decode() for body, _ in self._taken(self.name)]
        return found

    def there(self, queue: str) -> bool:
        channel = self.connection.channel()
        try:
            channel.queue_declare(queue, passive=True)
        except pika.exceptions.ChannelClosedByBroker:
            return False
        channel.close()
        return True

    def _taken(self, queue: str) -> Iterator[tuple[bytes, dict[str, Any]]]:
        while True:
            method, properties, body = self.channel.basic_get(queue, auto_ack=True)
            if method is None:
                return
            yield body, properties.headers or {}

    def reconnect(self) -> None:
        """Connect again after the broker was killed."""
        with contextlib.suppress(pika.exceptions.AMQPError, OSError):
            while True:  # until it notices, and lets go of its socket
                self.connection.process_data_events(0.02)
        self.connection = pika.BlockingConnection(parameters(self.broker))
        self.channel = self.connection.channel()

    def delete(self) -> None:
        for queue in (self.name, self.dlq):
            self.channel.queue_delete(queue)
        self.connection.close()


@contextlib.contextmanager
def queues(broker: Broker, kind: str = "classic") -> Iterator[Queues]:
    found = Queues(broker, kind)
    try:
        yield found
    finally:
        found.delete()


@contextlib.contextmanager
def channel_on(broker: Broker, prefetch: int = 50, **more: Any) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(parameters(broker, **more))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=prefetch)
    try:
        yield channel
    finally:
        if connection.is_open:
            connection.close()


def until(connection: pika.BlockingConnection, done: Callable[[], bool], timeout: float = 60.0) -> None:
    """Turn the user's own loop on a BlockingConnection until `done()` is true."""
    deadline = time.monotonic() + timeout
    while not done():
        assert time.monotonic() < deadline, "it took too long"
        connection.process_data_events(0.02)


def drive(
    kind: str, broker: Broker, queue: str, callback: Callable[..., Any], done: Callable[[], bool], **options: Any
) -> None:
    """Consume `queue` on one kind of connection until `done()`, then close everything as a user would."""
    deadline = time.monotonic() + 60

    def over() -> bool:
        return done() or time.monotonic() > deadline

    {"blocking": _blocking, "select": _select, "asyncio": _asyncio, "pull": _pull}[kind](
        broker, queue, callback, over, options
    )
    assert done(), "it took too long"


def _blocking(broker: Broker, queue: str, callback: Any, over: Callable[[], bool], options: dict[str, Any]) -> None:
    with channel_on(broker) as channel:
        channel.basic_consume(queue, redelivering(callback, **{"settle": "return", **options}))
        while not over():
            channel.connection.process_data_events(0.02)


def _pull(broker: Broker, queue: str, callback: Any, over: Callable[[], bool], options: dict[str, Any]) -> None:
    with channel_on(broker) as channel:
        for d in consume(channel, queue, inactivity_timeout=0.02, **options):
            if d:
                with d as (method, properties, body):
                    callback(channel, method, properties, body)
            if over():
                break


def _select(broker: Broker, queue: str, callback: Any, over: Callable[[], bool], options: dict[str, Any]) -> None:
    wrapped = redelivering(callback, **{"settle": "return", **options})

    def opened(channel: Any) -> None:
        channel.basic_qos(prefetch_count=50, callback=lambda _: channel.basic_consume(queue, wrapped))

    def look() -> None:
        if over():
            connection.close()
        else:
            connection.ioloop.call_later(0.02, look)

    connection = pika.SelectConnection(
        parameters(broker),
        on_open_callback=lambda c: c.channel(on_open_callback=opened),
        on_close_callback=lambda c, _: c.ioloop.stop(),
    )
    connection.ioloop.call_later(0.02, look)
    connection.ioloop.start()
    connection.ioloop.close()


def _asyncio(broker: Broker, queue: str, callback: Any, over: Callable[[], bool], options: dict[str, Any]) -> None:
    async def main() -> None:
        closed, wrapped = asyncio.Event(), redelivering(callback, **{"settle": "return", **options})

        def opened(channel: Any) -> None:
            channel.basic_qos(prefetch_count=50, callback=lambda _: channel.basic_consume(queue, wrapped))

        connection = AsyncioConnection(
            parameters(broker),
            on_open_callback=lambda c: c.channel(on_open_callback=opened),
            on_close_callback=lambda *_: closed.set(),
        )
        while not over():
            await asyncio.sleep(0.02)
        connection.close()
        await closed.wait()

    asyncio.run(main())
