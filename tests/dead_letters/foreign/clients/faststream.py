# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Fails a subscriber of FastStream, whose policy rejects the message; or, with `handle`, handles one that is there."""

from __future__ import annotations

import asyncio
import sys

from faststream import AckPolicy
from faststream.rabbit import RabbitBroker, RabbitQueue

url, source, dead, mode = sys.argv[1:5]
broker = RabbitBroker(url, logger=None)
arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
called = asyncio.Event()


@broker.subscriber(RabbitQueue(source, durable=True, arguments=arguments), ack_policy=AckPolicy.REJECT_ON_ERROR)
async def charge(order: dict[str, int]) -> None:
    called.set()
    if mode == "fail":
        raise LookupError("no such order")
    print("handled", order)


async def main() -> None:
    async with broker:
        await broker.start()
        if mode == "fail":
            await broker.publish({"order": 7}, queue=source, persist=True)
        await asyncio.wait_for(called.wait(), 20)


asyncio.run(main())
