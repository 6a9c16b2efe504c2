# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Dramatiq: an actor fails twice, with one retry between."""

from __future__ import annotations

import logging
import sys

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.errors import QueueJoinTimeout

url, source = sys.argv[1:3]
logging.disable(logging.CRITICAL)
broker = RabbitmqBroker(url=url)
dramatiq.set_broker(broker)


@dramatiq.actor(queue_name=source, actor_name="charge", max_retries=1, min_backoff=1, max_backoff=1)
def charge(order: int, currency: str) -> None:
    raise LookupError(f"no such order: {order}")


charge.send(7, currency="EUR")
worker = dramatiq.Worker(broker, worker_threads=1, worker_timeout=50)
worker.start()
try:
    for _ in range(100):  # a join looks at the queues; a retry is in none of them for a moment
        broker.join(source, timeout=20_000)
        if broker.get_queue_message_counts(source)[2]:
            break
    else:
        raise QueueJoinTimeout("the message is not dead")
finally:
    worker.stop()
