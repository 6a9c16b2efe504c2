# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Retries a task of Celery once, which then rejects its message; or, with `handle`, handles a message that is there.

The last argument is the version of the message protocol.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

from celery import Celery
from celery.exceptions import Reject
from celery.worker import state
from kombu import Exchange, Queue
from kombu.asynchronous import get_event_loop

url, source, dead, mode, protocol = sys.argv[1:6]

app = Celery("shop", broker=url)
arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
app.conf.update(
    task_protocol=int(protocol),
    task_default_queue=source,
    task_queues=[Queue(source, Exchange(source), routing_key=source, durable=True, queue_arguments=arguments)],
    task_acks_late=True,
    task_ignore_result=True,
    worker_enable_remote_control=False,
    worker_hijack_root_logger=False,
    worker_redirect_stdouts=False,
)


@app.task(name="shop.tasks.charge", bind=True)
def charge(self: Any, order: int, *, currency: str) -> None:
    if mode == "fail" and not self.request.retries:
        raise self.retry(countdown=0)
    state.should_stop = 0  # an exit code: the worker ends once it has settled the message
    get_event_loop().call_later(0.01, lambda: None)
    if mode == "fail":
        raise Reject("no such order", requeue=False)
    print("handled", order, currency, self.request.id)


if mode == "fail":
    charge.delay(7, currency="EUR")
quiet: list[Any] = ["--loglevel", "ERROR", "--without-gossip", "--without-mingle", "--without-heartbeat"]
with suppress(SystemExit):
    app.worker_main(["--quiet", "worker", "--pool", "solo", *quiet])
