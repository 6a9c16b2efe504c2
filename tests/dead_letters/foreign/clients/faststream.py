# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""FastStream: a subscriber fails, and its policy rejects the message."""

from __future__ import annotations

import asyncio
import sys

from faststream import AckPolicy
from faststream.rabbit import RabbitBroker, RabbitQueue

url, source, dead = sys.argv[1:4]
broker = RabbitBroker(url, logger=None)
arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
failed = asyncio.Event()


@broker.subscriber(RabbitQueue(source, durable=True, arguments=arguments), ack_policy=AckPolicy.REJECT_ON_ERROR)
async def charge(order: dict[str, int]) -> None:
    failed.set()
    raise LookupError("no such order")


async def main() -> None:
    async with broker:
        await broker.start()
        await broker.publish({"order": 7}, queue=source, persist=True)
        await asyncio.wait_for(failed.wait(), 20)


asyncio.run(main())
