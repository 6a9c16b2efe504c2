# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a Consumer of kombu with a callback, which acks each message.

The messages are decoded as kombu does it by itself. `qos` sets the prefetch.
"""

from __future__ import annotations

from typing import Any

from kombu import Connection, Consumer, Queue

from tests.bench.side import Count, Task, play


def consume(task: Task) -> None:
    done: list[bool] = []
    count = Count(task, lambda: done.append(True))

    def on_message(body: Any, message: Any) -> None:
        count.one()
        message.ack()

    queue = Queue(task.queue, no_declare=True)
    with Connection(task.amqp) as connection, Consumer(connection, [queue], callbacks=[on_message]) as consumer:
        consumer.qos(prefetch_count=task.prefetch)
        while not done:
            connection.drain_events()
        count.report()


if __name__ == "__main__":
    play({"consume": consume})
