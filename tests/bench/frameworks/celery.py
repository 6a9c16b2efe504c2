# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs Celery: a task and a worker in one process (`--pool solo`), which acks late, as others do.

Results are ignored and the prefetch multiplier is large, as Celery's documentation recommends for throughput. Workers
send no gossip, no mingle and no heart-beats.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from celery import Celery
from celery.worker import state
from kombu import Queue
from kombu.asynchronous import get_event_loop

from tests.bench.side import Count, Task, play


def _app(task: Task) -> Celery:
    app = Celery("bench", broker=task.amqp)
    app.conf.update(
        task_default_queue=task.queue,
        task_queues=[Queue(task.queue, durable=True)],
        task_acks_late=True,
        task_ignore_result=True,
        worker_prefetch_multiplier=task.prefetch,
        worker_concurrency=1,
        worker_disable_rate_limits=True,
        worker_enable_remote_control=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
    )
    return app


def fill(task: Task) -> None:
    app = _app(task)

    @app.task(name="handle")
    def handle(text: str) -> None: ...

    with app.producer_or_acquire() as producer:
        for _ in range(task.messages):
            handle.apply_async((task.text,), producer=producer)


def consume(task: Task) -> None:
    app = _app(task)

    def stop() -> None:
        state.should_stop = 0  # an exit code: the worker ends when it has acked
        get_event_loop().call_later(0.01, lambda: None)  # and looks up at once, not after ten seconds

    count = Count(task, stop)

    @app.task(name="handle")
    def handle(text: str) -> None:
        count.one()

    quiet: list[Any] = ["--loglevel", "ERROR", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    with suppress(SystemExit):
        app.worker_main(["--quiet", "worker", "--pool", "solo", *quiet])
    count.report()


if __name__ == "__main__":
    play({"fill": fill, "consume": consume})
