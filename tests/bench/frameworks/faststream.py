# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs FastStream: a subscriber on a durable queue, in a FastStream app; it acks a message when its handler returns."""

from __future__ import annotations

import asyncio

from faststream import FastStream
from faststream.rabbit import Channel, RabbitBroker, RabbitQueue

from tests.bench.side import Count, Task, play


def consume(task: Task) -> None:
    broker = RabbitBroker(task.amqp, default_channel=Channel(prefetch_count=task.prefetch), logger=None)
    app = FastStream(broker, logger=None)
    count = Count(task, app.exit)

    @broker.subscriber(RabbitQueue(task.queue, durable=True, declare=False))
    async def handle(body: bytes) -> None:
        count.one()

    asyncio.run(app.run())
    count.report()


if __name__ == "__main__":
    play({"consume": consume})
