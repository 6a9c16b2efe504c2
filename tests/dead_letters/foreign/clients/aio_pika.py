# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Rejects a message with aio-pika: `message.process()` rejects a message whose block fails."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

import aio_pika

url, source, dead = sys.argv[1:4]


async def main() -> None:
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
        queue = await channel.declare_queue(source, durable=True, arguments=arguments)
        await channel.default_exchange.publish(aio_pika.Message(b'{"order": 7}'), routing_key=source)
        message = await queue.get(timeout=10)
        with suppress(LookupError):
            async with message.process():
                raise LookupError("no such order")


asyncio.run(main())
