# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the sides on RabbitMQ, through pika."""

from __future__ import annotations

from typing import Any

import pika

from tests.bench.app import by_app
from tests.bench.side import Count, Side, Task, play


def parameters(url: str) -> pika.URLParameters:
    """Return the parameters of a URL as App takes it."""
    return pika.URLParameters("amqp" + url[url.index("://") :])


def fill(task: Task) -> None:
    """Make a new queue with this many persistent messages, and a new dead-letter queue."""
    connection = pika.BlockingConnection(parameters(task.url))
    channel = connection.channel()
    for name, kind in ((task.queue, task.kind), (task.dead, "classic")):
        channel.queue_delete(name)
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind})
    for n in range(0 if task.pace else task.messages):
        channel.basic_publish("", task.queue, *message(task, n))
    connection.close()


def message(task: Task, number: int, more: str = "") -> tuple[bytes, pika.BasicProperties]:
    """Return a message to publish: its body begins with s if it fails, w if it is well, and goes on with `more`."""
    body = ("s" if task.fails(number) else "w") + more
    name = {"message_id": str(number)} if task.has_id(number) else {}
    return body.ljust(task.body, "x").encode(), pika.BasicProperties(delivery_mode=2, **name)


def by_hand(task: Task) -> None:
    """Run the tutorial's loop: a BlockingConnection, and an ack for each message."""
    connection = pika.BlockingConnection(parameters(task.url))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=task.prefetch)
    count = Count(task, channel.stop_consuming)

    def on_message(ch: Any, method: Any, properties: Any, body: bytes) -> None:
        count.one()
        ch.basic_ack(method.delivery_tag)

    channel.basic_consume(task.queue, on_message)
    channel.start_consuming()
    count.report()
    connection.close()


def drop_in(task: Task) -> None:
    """Run the same loop with its callback wrapped; the wrapper acks."""
    from redeliver_pika import redelivering

    connection = pika.BlockingConnection(parameters(task.url))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=task.prefetch)
    count = Count(task, channel.stop_consuming)

    def on_message(ch: Any, method: Any, properties: Any, body: bytes) -> None:
        count.one()

    channel.basic_consume(task.queue, redelivering(on_message, journal=task.journal, settle="return"))
    channel.start_consuming()
    count.report()
    connection.close()


SIDES: dict[str, Side] = {"by hand": by_hand, "drop-in": drop_in, "App": by_app}

if __name__ == "__main__":
    play(SIDES)
