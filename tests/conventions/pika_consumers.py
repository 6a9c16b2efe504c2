# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs one consumer in the shape of pika's own examples, plain or wrapped, as a process that a test may kill.

::

    python -m tests.conventions.pika_consumers consume --url amqp://… --queue orders --middle 3 [--wrapped]

Each consumer says on stdout what happens, one line each: `got 3` (its code has the message), `acked 3` (its own ack,
and commit if it has one, returned), and `middle 3`: it is in the middle of its work on message 3, and stays there for
ever. Where several threads go on meanwhile, `acking 3` comes before an ack.
`--wrapped` is the one line that an application would change: `channel` wraps the channel, `callback` the callback.

The first six are pika's examples of the same names; the others are variants that applications are known to use.
"""

from __future__ import annotations

import argparse
import functools
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal

import pika
from pika.adapters.asyncio_connection import AsyncioConnection

Wrapping = Literal["plain", "channel", "callback"]
Say = Callable[[str, bytes], None]


def say(what: str, body: bytes = b"") -> None:
    """Print one line, whole, from any thread."""
    sys.stdout.write(f"{what} {body.decode()}\n")
    sys.stdout.flush()


@dataclass
class Shop:
    """Holds the application around a consumer: its connection, its queue, its work, and whether it is wrapped."""

    parameters: Any
    queue: str
    middle: int = -1
    wrapped: Wrapping = "plain"
    options: dict[str, Any] = field(default_factory=dict)  # of redelivering()
    say: Say = say

    def work(self, body: bytes) -> None:
        """Handle one message; stay in the middle of it for ever if it is the chosen one."""
        self.say("got", body)
        if int(body) == self.middle:
            self.say("middle", body)
            threading.Event().wait()

    def channel(self, channel: Any) -> Any:
        """Return the channel to consume on: the line that changes."""
        if self.wrapped != "channel":
            return channel
        from redeliver_pika import redelivering

        wrap: Any = redelivering
        return wrap(channel, **self.options)

    def callback(self, callback: Any) -> Any:
        """Return the callback to consume with: the line that changes in the older form."""
        if self.wrapped != "callback":
            return callback
        from redeliver_pika import redelivering

        return redelivering(callback, **self.options)


# -- the examples -----------------------------------------------------------------------------------------


def consume(shop: Shop) -> None:
    """Run a blocking consumer whose callback gets an argument of its own by functools.partial."""

    def on_message(channel: Any, method: Any, properties: Any, body: bytes, userdata: str | None = None) -> None:
        shop.work(body)
        channel.basic_ack(delivery_tag=method.delivery_tag)
        shop.say("acked", body)

    connection = pika.BlockingConnection(shop.parameters)
    channel = shop.channel(connection.channel())
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume(shop.queue, shop.callback(functools.partial(on_message, userdata="on_message_userdata")))
    try:
        channel.start_consuming()
    except KeyboardInterrupt:
        channel.stop_consuming()
    connection.close()


class LoopConsumer:
    """Consumes as the asynchronous consumers of pika's examples: callbacks all the way, on a SelectConnection."""

    connection_class: Any = pika.SelectConnection

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        self.should_reconnect = False
        self.connection: Any = None
        self._channel: Any = None

    def run(self) -> None:
        self.connection = self.connection_class(
            parameters=self.shop.parameters,
            on_open_callback=self.on_connection_open,
            on_open_error_callback=self.on_connection_open_error,
            on_close_callback=self.on_connection_closed,
        )
        self.loop()

    def loop(self) -> None:
        self.connection.ioloop.start()

    def end(self) -> None:
        self.connection.ioloop.stop()

    def close_loop(self) -> None:
        """Let the loop finish what an exception out of it left undone, and close it."""
        if self.connection is not None:
            self.connection.ioloop.call_later(0.05, self.connection.ioloop.stop)
            self.loop()
            self.connection.ioloop.close()

    def on_connection_open(self, _connection: Any) -> None:
        self.shop.say("connected", b"")
        self.connection.channel(on_open_callback=self.on_channel_open)

    def on_connection_open_error(self, _connection: Any, _error: Any) -> None:
        self.reconnect()

    def on_connection_closed(self, _connection: Any, _reason: Any) -> None:
        self._channel = None
        self.end()

    def reconnect(self) -> None:
        self.should_reconnect = True
        self.stop()

    def stop(self) -> None:
        if self.connection.is_open:
            self.connection.close()
        elif self.connection.is_closed:
            self.end()

    def on_channel_open(self, channel: Any) -> None:
        self._channel = self.shop.channel(channel)
        self._channel.add_on_close_callback(self.on_channel_closed)
        self._channel.basic_qos(prefetch_count=1, callback=self.on_basic_qos_ok)

    def on_channel_closed(self, _channel: Any, _reason: Any) -> None:
        if not (self.connection.is_closing or self.connection.is_closed):
            self.connection.close()

    def on_basic_qos_ok(self, _frame: Any) -> None:
        self._channel.add_on_cancel_callback(self.on_consumer_cancelled)
        self._channel.basic_consume(self.shop.queue, self.shop.callback(self.on_message))

    def on_consumer_cancelled(self, _frame: Any) -> None:
        if self._channel:
            self._channel.close()

    def on_message(self, _channel: Any, basic_deliver: Any, properties: Any, body: bytes) -> None:
        self.shop.work(body)
        self._channel.basic_ack(basic_deliver.delivery_tag)
        self.shop.say("acked", body)


class AsyncioConsumer(LoopConsumer):
    """Consumes in the same way on an asyncio loop."""

    connection_class = AsyncioConnection

    def loop(self) -> None:
        self.connection.ioloop.run_forever()


class Reconnecting:
    """Makes a new consumer each time the old one ends and wants that, or ends by an exception."""

    def __init__(self, make: Callable[[], LoopConsumer], rounds: int = 1000) -> None:
        self.make = make
        self.rounds = rounds
        self.consumer = make()

    def run(self) -> None:
        for _ in range(self.rounds):
            try:
                self.consumer.run()
            except KeyboardInterrupt:
                self.consumer.stop()
                return
            except Exception as error:
                self.consumer.shop.say("raised", type(error).__name__.encode())
                self.consumer.should_reconnect = True
            if not self.consumer.should_reconnect:
                return
            self.consumer = self.make()


def asynchronous_consumer(shop: Shop) -> None:
    """Run the reconnecting consumer on a SelectConnection."""
    Reconnecting(lambda: LoopConsumer(shop)).run()


def asyncio_consumer(shop: Shop) -> None:
    """Run the reconnecting consumer on an AsyncioConnection."""
    Reconnecting(lambda: AsyncioConsumer(shop)).run()


def basic_consumer_threaded(shop: Shop) -> None:
    """Work on each message in a thread of its own; the ack comes from there, by add_callback_threadsafe."""
    threads: list[threading.Thread] = []

    def ack_message(channel: Any, tag: int, body: bytes) -> None:
        if channel.is_open:
            channel.basic_ack(tag)
            shop.say("acked", body)

    def do_work(connection: Any, channel: Any, tag: int, body: bytes) -> None:
        shop.work(body)
        connection.add_callback_threadsafe(functools.partial(ack_message, channel, tag, body))

    def on_message(channel: Any, method: Any, properties: Any, body: bytes, args: Any) -> None:
        connection, workers = args
        thread = threading.Thread(target=do_work, args=(connection, channel, method.delivery_tag, body), daemon=True)
        thread.start()
        workers.append(thread)

    connection = pika.BlockingConnection(shop.parameters)
    channel = shop.channel(connection.channel())
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume(shop.queue, shop.callback(functools.partial(on_message, args=(connection, threads))))
    try:
        channel.start_consuming()
    except KeyboardInterrupt:
        channel.stop_consuming()
    for thread in threads:
        thread.join()
    connection.close()


def blocking_consumer_generator(shop: Shop) -> None:
    """Loop over the channel's own generator, which has no callback to wrap."""
    connection = pika.BlockingConnection(shop.parameters)
    channel = shop.channel(connection.channel())
    for method, _properties, body in channel.consume(shop.queue):
        shop.work(body)
        channel.basic_ack(method.delivery_tag)
        shop.say("acked", body)
        if body == b"-1":
            break
    channel.cancel()
    connection.close()


def heartbeat_and_blocked_timeouts(shop: Shop) -> None:
    """Set timeouts of its own, and publish a result on the channel that is consumed from."""
    shop.parameters.heartbeat = 600
    shop.parameters.blocked_connection_timeout = 300
    connection = pika.BlockingConnection(shop.parameters)
    channel = shop.channel(connection.channel())

    def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        shop.work(body)
        channel.basic_publish("", f"{shop.queue}.results", body)
        channel.basic_ack(method.delivery_tag)
        shop.say("acked", body)

    channel.basic_consume(shop.queue, shop.callback(on_message))
    channel.start_consuming()
    connection.close()


# -- variants ---------------------------------------------------------------------------------------------


def thread_pool(shop: Shop) -> None:
    """Run four workers with a window of four; each message is acked when its worker is done."""
    connection = pika.BlockingConnection(shop.parameters)
    channel = shop.channel(connection.channel())
    pool = ThreadPoolExecutor(4)

    def ack(tag: int, body: bytes) -> None:
        shop.say("acking", body)
        channel.basic_ack(tag)
        shop.say("acked", body)

    def work(tag: int, body: bytes) -> None:
        shop.work(body)
        connection.add_callback_threadsafe(functools.partial(ack, tag, body))

    def on_message(_channel: Any, method: Any, properties: Any, body: bytes) -> None:
        pool.submit(work, method.delivery_tag, body)

    channel.basic_qos(prefetch_count=4)
    channel.basic_consume(shop.queue, shop.callback(on_message))
    channel.start_consuming()


def every_fifth(shop: Shop) -> None:
    """Send one cumulative ack for five messages."""
    connection = pika.BlockingConnection(shop.parameters)
    channel = shop.channel(connection.channel())
    since: list[bytes] = []

    def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        shop.work(body)
        since.append(body)
        if len(since) == 5:
            channel.basic_ack(method.delivery_tag, multiple=True)
            for handled in since:
                shop.say("acked", handled)
            since.clear()

    channel.basic_qos(prefetch_count=20)
    channel.basic_consume(shop.queue, shop.callback(on_message))
    channel.start_consuming()


def without_ack_on_purpose(shop: Shop) -> None:
    """Leave odd messages unacked, which are somebody else's: they are back when this consumer is gone."""
    connection = pika.BlockingConnection(shop.parameters)
    channel = shop.channel(connection.channel())

    def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        shop.work(body)
        if int(body) % 2:
            return
        channel.basic_ack(method.delivery_tag)
        shop.say("acked", body)

    channel.basic_qos(prefetch_count=20)
    channel.basic_consume(shop.queue, shop.callback(on_message))
    channel.start_consuming()


def nack_in_except(shop: Shop) -> None:
    """Catch every exception, and give the message back."""
    connection = pika.BlockingConnection(shop.parameters)
    channel = shop.channel(connection.channel())

    def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        try:
            shop.work(body)
        except Exception:
            channel.basic_nack(method.delivery_tag, requeue=True)
        else:
            channel.basic_ack(method.delivery_tag)
            shop.say("acked", body)

    channel.basic_qos(prefetch_count=1)
    channel.basic_consume(shop.queue, shop.callback(on_message))
    channel.start_consuming()


def transactional(shop: Shop) -> None:
    """Publish the result and ack in one transaction of the channel; the process hangs between ack and commit."""
    connection = pika.BlockingConnection(shop.parameters)
    channel = shop.channel(connection.channel())
    channel.tx_select()

    def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        channel.basic_publish("", f"{shop.queue}.results", body)
        channel.basic_ack(method.delivery_tag)
        try:
            shop.work(body)
        except Exception:
            channel.tx_rollback()
            raise
        channel.tx_commit()
        shop.say("acked", body)

    channel.basic_qos(prefetch_count=1)
    channel.basic_consume(shop.queue, shop.callback(on_message))
    channel.start_consuming()


EXAMPLES: dict[str, Callable[[Shop], None]] = {
    "consume": consume,
    "asynchronous_consumer": asynchronous_consumer,
    "asyncio_consumer": asyncio_consumer,
    "basic_consumer_threaded": basic_consumer_threaded,
    "blocking_consumer_generator": blocking_consumer_generator,
    "heartbeat_and_blocked_timeouts": heartbeat_and_blocked_timeouts,
}
VARIANTS: dict[str, Callable[[Shop], None]] = {
    "thread_pool": thread_pool,
    "every_fifth": every_fifth,
    "without_ack_on_purpose": without_ack_on_purpose,
    "nack_in_except": nack_in_except,
    "transactional": transactional,
}
CONSUMERS = EXAMPLES | VARIANTS


def main() -> None:
    """Run the consumer that is named on the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=CONSUMERS)
    parser.add_argument("--url", required=True)
    parser.add_argument("--queue", required=True)
    parser.add_argument("--middle", type=int, default=-1)
    parser.add_argument("--wrapped", nargs="?", const="channel", default="plain", choices=("channel", "callback"))
    given = parser.parse_args()
    options: dict[str, Any] = {}
    if given.wrapped != "plain":
        from redeliver_mw import RedeliveryPolicy

        options["policy"] = RedeliveryPolicy(dead_after=3, backoff=0.2)
    if given.wrapped == "callback":
        options["queue"] = given.queue
    shop = Shop(pika.URLParameters(given.url), given.queue, given.middle, given.wrapped, options)
    CONSUMERS[given.name](shop)


if __name__ == "__main__":
    main()
