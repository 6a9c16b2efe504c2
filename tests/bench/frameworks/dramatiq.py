# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs Dramatiq: an actor and its Worker with the threads and the middleware that the broker has by itself.

The actor sends the messages.
"""

from __future__ import annotations

import threading
from typing import Any

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker

from tests.bench.side import Count, Task, play


def _actor(task: Task, count: Count | None) -> Any:
    broker = RabbitmqBroker(url=task.amqp)
    dramatiq.set_broker(broker)

    @dramatiq.actor(queue_name=task.queue)
    def handle(text: str) -> None:
        assert count is not None
        count.one()

    return handle


def fill(task: Task) -> None:
    actor = _actor(task, None)
    for _ in range(task.messages):
        actor.send(task.text)
    dramatiq.get_broker().close()


def consume(task: Task) -> None:
    done = threading.Event()
    count = Count(task, done.set)
    _actor(task, count)
    worker = dramatiq.Worker(dramatiq.get_broker())
    worker.queue_prefetch = task.prefetch  # as `dramatiq_queue_prefetch` in the environment, which it reads on import
    worker.start()
    done.wait()
    count.report()
    worker.stop()


if __name__ == "__main__":
    play({"fill": fill, "consume": consume})
