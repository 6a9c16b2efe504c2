# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Fails an actor of Dramatiq twice, with one retry between; or, with `handle`, handles a message that is there."""

from __future__ import annotations

import logging
import sys
import threading

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.errors import QueueJoinTimeout

url, source, _, mode = sys.argv[1:5]
logging.disable(logging.CRITICAL)
broker = RabbitmqBroker(url=url)
dramatiq.set_broker(broker)


@dramatiq.actor(queue_name=source, actor_name="charge", max_retries=1, min_backoff=1, max_backoff=1)
def charge(order: int, currency: str) -> None:
    if mode == "fail":
        raise LookupError(f"no such order: {order}")
    print("handled", order, currency)
    handled.set()


handled = threading.Event()
if mode == "fail":
    charge.send(7, currency="EUR")
worker = dramatiq.Worker(broker, worker_threads=1, worker_timeout=50)
worker.start()
try:
    if mode == "handle":
        handled.wait(20)
        broker.join(source, timeout=20_000)
    for _ in range(100 if mode == "fail" else 0):  # a join looks at the queues; a retry is in none of them for a moment
        broker.join(source, timeout=20_000)
        if broker.get_queue_message_counts(source)[2]:
            break
    else:
        if mode == "fail":
            raise QueueJoinTimeout("the message is not dead")
finally:
    worker.stop()
