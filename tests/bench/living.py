# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the sides that begin, end, do nothing and go on for long, on RabbitMQ."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from tests.bench.side import Side, Task, memory, play, tell

IDLE, SETTLED = 5.0, 2.0  # seconds that an idle one is watched, after so many
IN_HAND = 100  # messages that are handled before it stops


def _app(task: Task, handle: Callable[[], object]) -> Any:
    from redeliver_mw import App, Delivery

    app = App(task.url, prefetch=task.prefetch, journal=task.journal)

    @app.handler(task.queue)
    def handler(delivery: Delivery) -> None:
        handle()

    return app


def app_begins(task: Task) -> None:
    """Measure a start and a stop of an App.

    The start is from before its modules are imported to the first message. Then the App handles all messages, and stops
    with nothing in hand.
    """
    began, first, seen = time.perf_counter(), threading.Event(), threading.Semaphore(0)

    def handle() -> None:
        first.set()
        seen.release()

    app = _app(task, handle)
    app.start()
    first.wait()
    started = time.perf_counter() - began
    for _ in range(task.messages):
        seen.acquire()
    ended = time.perf_counter()
    app.stop()
    tell(start=started * 1000, stop=(time.perf_counter() - ended) * 1000)


def hand_begins(task: Task) -> None:
    began = time.perf_counter()
    import pika

    connection = pika.BlockingConnection(pika.URLParameters(task.amqp))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=task.prefetch)
    arrivals: list[float] = []

    def on_message(ch: Any, method: Any, properties: Any, body: bytes) -> None:
        arrivals.append(time.perf_counter())
        ch.basic_ack(method.delivery_tag)
        if len(arrivals) == task.messages:
            ch.stop_consuming()

    channel.basic_consume(task.queue, on_message)
    channel.start_consuming()
    ended = time.perf_counter()
    connection.close()
    tell(start=(arrivals[0] - began) * 1000, stop=(time.perf_counter() - ended) * 1000)


def app_ends(task: Task) -> None:
    """Measure a stop in the midst of work: what is in hand is finished, and the broker still has all else."""
    enough, seen = threading.Event(), list[None]()

    def handle() -> None:
        time.sleep(task.work)
        seen.append(None)
        if len(seen) == IN_HAND:
            enough.set()

    app = _app(task, handle)
    app.start()
    enough.wait()
    ended = time.perf_counter()
    app.stop()
    stopped = time.perf_counter() - ended
    import pika

    channel = pika.BlockingConnection(pika.URLParameters(task.amqp)).channel()
    left = channel.queue_purge(task.queue).method.message_count
    channel.connection.close()
    assert left + len(seen) == task.messages, f"{len(seen)} were handled, {left} are left"
    tell(stop=stopped * 1000)


def app_idles(task: Task) -> None:
    app = _app(task, lambda: None)
    app.start()
    time.sleep(SETTLED)
    worked = time.process_time()
    time.sleep(IDLE)
    tell(idle=(time.process_time() - worked) / IDLE * 100)
    app.stop()


def app_grows(task: Task) -> None:
    """Measure the memory of this process after 10 000 messages, and how much more it has after the last."""
    sizes, over, count = [], threading.Event(), iter(range(1, task.messages + 1))

    def handle() -> None:
        number = next(count)
        if number in (min(10_000, task.messages), task.messages):
            sizes.append(memory())
            if number == task.messages:
                over.set()

    app = _app(task, handle)
    app.start()
    over.wait()
    tell(rss=sizes[0], grown=sizes[-1] - sizes[0])
    app.stop()


SIDES: dict[str, Side] = {
    "App begins": app_begins,
    "by hand begins": hand_begins,
    "App ends": app_ends,
    "App idles": app_idles,
    "App grows": app_grows,
}

if __name__ == "__main__":
    play(SIDES)
