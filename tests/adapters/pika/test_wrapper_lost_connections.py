# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the drop-in over several connections: copies that wait when one closes, and the counts on the next one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from pika.exceptions import StreamLostError

from redeliver_mw import RedeliveryPolicy
from redeliver_pika import redelivering
from tests.adapters.pika.dropins import Queues, channel_on, parameters, queues, until
from tests.brokers import Broker

pytestmark = pytest.mark.broker

OFTEN = RedeliveryPolicy(dead_after=9, backoff=5.0)  # the delivery is held until its connection is closed


@pytest.fixture
def q(rabbitmq: Broker) -> Iterator[Queues]:
    with queues(rabbitmq) as found:
        yield found


class Failing:
    """Fails the first `times` attempts of each message, and keeps what it was given."""

    def __init__(self, times: int) -> None:
        self.bodies: list[str] = []
        self.counts: list[int] = []
        self._times = times

    def __call__(self, _channel: Any, _method: Any, properties: Any, body: bytes) -> None:
        self.bodies.append(body.decode())
        self.counts.append((properties.headers or {}).get("JMSXDeliveryCount", 1))
        if self.bodies.count(body.decode()) <= self._times:
            raise KeyError("out of stock")

    def had(self, attempts: int) -> Callable[[], bool]:
        return lambda: len(self.bodies) == attempts


@pytest.mark.parametrize("elsewhere", [False, True], ids=["same-connection", "publisher"])
def test_copies_that_wait_for_the_ladder_do_not_hold_up_their_messages_after_the_connection_was_lost(
    elsewhere: bool, rabbitmq: Broker, q: Queues
) -> None:
    seen, messages = Failing(1), [str(n) for n in range(5)]
    options: dict[str, Any] = {"publisher": rabbitmq.url} if elsewhere else {}
    policy = RedeliveryPolicy(dead_after=3, backoff=1.0)
    wrapped = redelivering(seen, queue=q.name, policy=policy, delay="schedule", settle="return", **options)
    q.put(*messages)
    connection = pika.BlockingConnection(parameters(rabbitmq))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=5)
    channel.basic_consume(q.name, wrapped)
    until(connection, seen.had(5))
    connection.process_data_events(0.5)
    connection._impl._terminate_stream(StreamLostError("cut by the test"))
    with pytest.raises(StreamLostError):
        channel.start_consuming()
    try:
        with channel_on(rabbitmq, prefetch=5) as again:
            again.basic_consume(q.name, wrapped)
            until(again.connection, seen.had(10), 14)
            again.connection.process_data_events(0.2)
            again.connection.close()
        assert (sorted(seen.bodies[5:]), q.left(), q.dead()) == (messages, [], [])
    finally:
        q.channel.queue_delete(f"redeliver.retry.{q.name}.1s")


def test_the_count_is_kept_when_the_next_connection_goes_to_another_address_of_the_cluster(
    rabbitmq: Broker, q: Queues
) -> None:
    seen = Failing(9)
    wrapped = redelivering(seen, queue=q.name, policy=OFTEN)
    q.put("1")
    for attempts, host in ((1, "127.0.0.1"), (2, "localhost"), (3, "127.0.0.1")):
        given = parameters(rabbitmq)
        given.host = host
        with pika.BlockingConnection(given) as connection:
            connection.channel().basic_consume(q.name, wrapped)
            until(connection, seen.had(attempts))
    assert (seen.counts, q.left(1)) == ([1, 2, 3], ["1"])
