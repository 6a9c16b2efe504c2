# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Looks into a queue as well as RabbitMQ allows: get, and give back. On the adapter's I/O thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from redeliver_mw.errors import BrokerError, RedeliverError
from redeliver_mw.message import Delivery, Destination
from redeliver_pika.capabilities import queue_of
from redeliver_pika.messages import delivery_of


def browse(
    connection: Any, source: Destination, limit: int, answer: Callable[[Sequence[Delivery] | RedeliverError], None]
) -> None:
    """Answer up to `limit` messages, oldest first; all are held unsettled until the end and given back at once.

    They come back marked as redelivered, and are back before the answer is given. Generation -1: none of them can be
    settled. Without an open `connection` the answer says so.
    """
    if connection is None or not connection.is_open:
        answer(BrokerError("there is no connection just now", code="connection-lost"))
        return
    found: list[Delivery] = []
    given_back = False

    def step(channel: Any) -> None:
        if len(found) >= limit:
            give_back(channel)
        else:
            channel.basic_get(queue_of(source), got)

    def got(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        found.append(delivery_of(source, -1, (method, properties, body)))
        step(channel)

    def give_back(channel: Any) -> None:
        nonlocal given_back
        given_back = True
        if found:
            channel.basic_nack(0, multiple=True, requeue=True)
        channel.close()

    def closed(channel: Any, why: Exception) -> None:
        """Answer. The broker confirms the end of a channel after it has taken the nack."""
        if given_back:
            answer(found)
        else:
            answer(BrokerError(f"{source} cannot be browsed: {why}", code="browse-failed"))

    def opened(channel: Any) -> None:
        channel.add_on_close_callback(closed)
        channel.add_callback(lambda _: give_back(channel), [_get_empty()])
        step(channel)

    connection.channel(on_open_callback=opened)


def _get_empty() -> Any:
    from pika import spec

    return spec.Basic.GetEmpty
