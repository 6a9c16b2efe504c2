# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""taskiq: a task is sent. taskiq acknowledges each message, so whoever runs this rejects it in the worker's place."""

from __future__ import annotations

import asyncio
import sys

from taskiq_aio_pika import AioPikaBroker, Exchange, Queue

url, source, dead = sys.argv[1:4]
broker = AioPikaBroker(
    url,
    exchange=Exchange(name=source),
    task_queues=[Queue(name=source)],
    dead_letter_queue=Queue(name=dead),
)


@broker.task(task_name="shop.tasks:charge", retry_on_error=True)
async def charge(order: int, currency: str) -> None: ...


async def main() -> None:
    await broker.startup()
    await charge.kiq(7, currency="EUR")
    await broker.shutdown()


asyncio.run(main())
