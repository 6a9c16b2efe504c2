# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""On RabbitMQ: `python -m tests.bench.rabbitmq [--messages 10000] [--rounds 5] [--queues classic quorum] [--url …]`."""

from __future__ import annotations

from typing import Any

import pika

from redeliver_mw.registry import parse_url
from tests.bench.rounds import BODY, BY_HAND, PREFETCH, Bench, Count, by_app, run


def parameters(url: str) -> pika.ConnectionParameters:
    parsed = parse_url(url)
    host, port = parsed.hosts[0]
    credentials = pika.PlainCredentials(parsed.user or "guest", parsed.password or "guest")
    return pika.ConnectionParameters(host, port or 5672, parsed.path or "/", credentials)


def fill(url: str, queue: str, count: int, kind: str) -> None:
    connection = pika.BlockingConnection(parameters(url))
    channel = connection.channel()
    channel.queue_delete(queue)
    channel.queue_declare(queue, durable=True, arguments={"x-queue-type": kind})
    properties = pika.BasicProperties(delivery_mode=2)
    for n in range(count):
        channel.basic_publish(
            "", queue, BODY, pika.BasicProperties(delivery_mode=2, message_id=str(n)) if n % 2 else properties
        )
    while channel.queue_declare(queue, passive=True).method.message_count < count:
        connection.sleep(0.05)
    connection.close()


def by_hand(url: str, queue: str, count: int, journal: str | None) -> None:
    """The tutorial's loop: BlockingConnection, ack each."""
    connection = pika.BlockingConnection(parameters(url))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=PREFETCH)
    counter = Count(count, channel.stop_consuming)

    def on_message(ch: Any, method: Any, properties: Any, body: bytes) -> None:
        ch.basic_ack(method.delivery_tag)
        counter.one()

    channel.basic_consume(queue, on_message)
    channel.start_consuming()
    counter.report()
    connection.close()


def drop_in(url: str, queue: str, count: int, journal: str | None) -> None:
    """The same loop with its callback wrapped; the wrapper acks."""
    from redeliver_pika import redelivering

    connection = pika.BlockingConnection(parameters(url))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=PREFETCH)
    counter = Count(count, channel.stop_consuming)

    def on_message(ch: Any, method: Any, properties: Any, body: bytes) -> None:
        counter.one()

    channel.basic_consume(queue, redelivering(on_message, journal=journal))
    channel.start_consuming()
    counter.report()
    connection.close()


BENCH = Bench(
    "tests.bench.rabbitmq", "rabbitmq", "4.3", {}, ("classic", "quorum"), fill,
    {BY_HAND: by_hand, "drop-in": drop_in, "App": by_app},
)  # fmt: skip

if __name__ == "__main__":
    run(BENCH)
