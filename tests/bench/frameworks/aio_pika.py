# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the loop of aio-pika's README: an iterator over the queue and `message.process()`, on asyncio's event loop."""

from __future__ import annotations

import asyncio

import aio_pika

from tests.bench.side import Count, Task, play


async def _consume(task: Task) -> None:
    done: list[bool] = []
    count = Count(task, lambda: done.append(True))
    async with await aio_pika.connect_robust(task.amqp) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=task.prefetch)
        queue = await channel.get_queue(task.queue, ensure=False)
        async with queue.iterator() as messages:
            async for message in messages:
                async with message.process():
                    count.one()
                if done:
                    break
    count.report()


def consume(task: Task) -> None:
    asyncio.run(_consume(task))


if __name__ == "__main__":
    play({"consume": consume})
