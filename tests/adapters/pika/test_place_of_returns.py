# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests where RabbitMQ puts what comes back: the table of `docs/rabbitmq.md`, and what its record says of releases."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pika
import pytest

from redeliver_pika.capabilities import capabilities, version_of
from tests.bench.rabbitmq import parameters
from tests.brokers import Broker
from tests.faults.load import channel_on, until

pytestmark = pytest.mark.broker

QUEUE, WINDOW = "place.of.returns", 4
QUORUM = {"x-queue-type": "quorum"}
KINDS: dict[str, dict[str, Any]] = {"classic": {}, "quorum": QUORUM, "limited": QUORUM | {"x-delivery-limit": 1000}}
IN_FRONT = ["0", "2", "3", "4", "5", "6", "7"]
AT_THE_END = ["4", "5", "6", "7", "0", "2", "3"]


def after(broker: Broker, arguments: dict[str, Any], give_back: Callable[[Any, list[int]], None]) -> list[str]:
    """Return what is in a queue of eight messages after some of them came back.

    Four messages were delivered. The second was accepted, and `give_back` gave back the others.
    """
    got: list[tuple[int, str]] = []
    with channel_on(broker) as channel:
        channel.queue_delete(QUEUE)
        channel.queue_declare(QUEUE, durable=True, arguments=arguments)
        channel.confirm_delivery()
        for n in range(8):
            channel.basic_publish("", QUEUE, b"%d" % n, pika.BasicProperties(delivery_mode=2))
        connection = pika.BlockingConnection(parameters(broker.url))
        consuming = connection.channel()
        consuming.basic_qos(prefetch_count=WINDOW)
        consumer = consuming.basic_consume(QUEUE, lambda c, m, p, body: got.append((m.delivery_tag, body.decode())))
        deadline = time.monotonic() + 20
        while len(got) < WINDOW and time.monotonic() < deadline:
            connection.process_data_events(0.05)
        assert [text for _, text in got] == ["0", "1", "2", "3"]
        consuming.basic_cancel(consumer)
        consuming.basic_ack(got[1][0])
        give_back(consuming, [tag for tag, text in got if text != "1"])
        connection.close()
        until(
            lambda: channel.queue_declare(QUEUE, passive=True).method.message_count == 7,
            20,
            "not all of them are back",
        )
        found = [channel.basic_get(QUEUE, auto_ack=True)[2].decode() for _ in range(7)]
        channel.queue_delete(QUEUE)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_closed_channel_gives_back_is_in_front(rabbitmq: Broker, kind: str) -> None:
    assert after(rabbitmq, KINDS[kind], lambda channel, tags: channel.close()) == IN_FRONT


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_nack_gives_back_is_in_front_wherever_the_record_says_so(rabbitmq: Broker, kind: str) -> None:
    def nack(channel: Any, tags: list[int]) -> None:
        for tag in tags:
            channel.basic_nack(tag, requeue=True)

    record = capabilities(rabbitmq.version, 131072, exact_headers=True)
    assert record.keeps_order_on_release == (version_of(rabbitmq.version) >= (4, 3))
    loses = kind == "quorum" and not record.keeps_order_on_release
    assert after(rabbitmq, KINDS[kind], nack) == (AT_THE_END if loses else IN_FRONT)
