# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Sends a task of taskiq; or, with `handle`, handles a message that is there.

taskiq acknowledges each message, so the caller of this program rejects the message in the worker's place.
"""

from __future__ import annotations

import asyncio
import sys

from taskiq.receiver import Receiver
from taskiq_aio_pika import AioPikaBroker, Exchange, Queue

url, source, dead, mode = sys.argv[1:5]
broker = AioPikaBroker(
    url,
    exchange=Exchange(name=source),
    task_queues=[Queue(name=source)],
    dead_letter_queue=Queue(name=dead),
)


@broker.task(task_name="shop.tasks:charge", retry_on_error=True)
async def charge(order: int, currency: str) -> None:
    print("handled", order, currency)


async def main() -> None:
    broker.is_worker_process = mode == "handle"
    await broker.startup()
    if mode == "fail":
        await charge.kiq(7, currency="EUR")
    else:
        receiver = Receiver(broker, run_startup=False, max_async_tasks=1)
        async for message in broker.listen():
            await receiver.callback(message)
            break
    await broker.shutdown()


asyncio.run(main())
