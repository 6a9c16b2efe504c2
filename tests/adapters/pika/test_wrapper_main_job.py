# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the drop-in's main job on real brokers.

Of 300 messages 30 always fail, and 60 recover at the second or third attempt.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest

from redeliver_mw import RedeliveryPolicy
from redeliver_mw.journal.records import AttemptRecord
from redeliver_pika import redelivering
from redeliver_pika.retry_ladder import MARKER_TTL
from tests.adapters.pika.dropins import KINDS, channel_on, drive, queues, until
from tests.brokers import Broker

DELAYS = (0.15, 0.3)
POLICY = RedeliveryPolicy(dead_after=3, backoff=DELAYS)
FAILING, HEALING, ALL = range(30), range(30, 90), range(300)


class Consumer:
    """Keeps a protocol of its messages, as a user's callback."""

    def __init__(self) -> None:
        self.counts: dict[int, list[int]] = defaultdict(list)
        self.spans: dict[int, list[tuple[float, float]]] = defaultdict(list)
        self.handled: list[int] = []
        self.channel: Any = None

    def __call__(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self.channel = channel
        number, began = int(body), time.monotonic()
        self.counts[number].append(properties.headers["JMSXDeliveryCount"])
        try:
            if number in FAILING or (number in HEALING and len(self.counts[number]) < 2 + number % 2):
                raise ValueError(f"attempt {len(self.counts[number])}")
            self.handled.append(number)
        finally:
            self.spans[number].append((began, time.monotonic()))

    def expected(self, number: int) -> list[int]:
        if number in FAILING:
            return [1, 2, 3]
        return list(range(1, 3 + number % 2)) if number in HEALING else [1]


def show_the_main_job(kind: str, broker: Broker, queue_type: str, consumer: Any, record: Consumer) -> None:
    with queues(broker, queue_type) as q:
        q.put(*(str(number) for number in ALL))

        def done() -> bool:
            if len(record.handled) < 270 or sum(map(len, record.counts.values())) < 30 * 3 + 30 * 2 + 30 * 3 + 210:
                return False
            return not vars(record.channel)["_redeliver_scope"]._open

        drive(kind, broker, q.name, consumer, done, policy=POLICY)
        assert {number: record.counts[number] for number in ALL} == {n: record.expected(n) for n in ALL}
        assert sorted(record.handled) == [n for n in ALL if n not in FAILING]
        for spans in record.spans.values():
            for delay, ((_, failed), (again, _)) in zip(DELAYS, pairwise(spans), strict=False):
                assert again - failed >= delay - 0.002
        dead = q.dead()
        assert sorted(int(body) for body, _ in dead) == list(FAILING)
        for body, headers in dead:
            assert headers["original-destination"] == q.name
            assert headers["redeliver_failures"] == "3"
            assert headers["redeliver_failures_for"] == q.name
            assert headers["redeliver_reason"] == "exhausted"
            assert headers["redeliver_error_message"] == "attempt 3"
            assert headers["redeliver_original_message_id"] == body.decode()
            assert "JMSXDeliveryCount" not in headers
        assert q.left() == []


@pytest.mark.broker
@pytest.mark.parametrize("kind", KINDS)
def test_every_message_is_handled_or_dead_lettered_exactly_once(kind: str, rabbitmq: Broker) -> None:
    consumer = Consumer()
    show_the_main_job(kind, rabbitmq, "classic", consumer, consumer)


@pytest.mark.broker
def test_the_same_holds_on_a_quorum_queue(rabbitmq: Broker) -> None:
    consumer = Consumer()
    show_the_main_job("blocking", rabbitmq, "quorum", consumer, consumer)


@pytest.mark.broker
def test_the_first_letters_to_a_queue_that_is_not_there_arrive_once_each(rabbitmq: Broker) -> None:
    def on_message(*_: Any) -> None:
        raise ValueError("no")

    with queues(rabbitmq) as q, channel_on(rabbitmq) as channel:
        q.put(*map(str, range(40)), headers={"price": Decimal("1.75")})  # shown otherwise than it is sent
        channel.basic_consume(q.name, redelivering(on_message, policy=RedeliveryPolicy(dead_after=1)))
        channel.connection.process_data_events(0.1)
        until(channel.connection, lambda: not vars(channel)["_redeliver_scope"]._open)
        assert sorted(int(body) for body, _ in q.dead()) == list(range(40))


@pytest.mark.broker
def test_the_same_holds_for_a_coroutine_callback(rabbitmq43: Broker) -> None:
    record = Consumer()

    async def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        await asyncio.sleep(0)
        record(channel, method, properties, body)

    show_the_main_job("asyncio", rabbitmq43, "classic", on_message, record)


@pytest.mark.broker
def test_copies_may_go_out_on_a_companion_connection(rabbitmq43: Broker) -> None:
    def on_message(*_: Any) -> None:
        raise ValueError("no")

    with queues(rabbitmq43) as q, channel_on(rabbitmq43) as channel:
        q.put("1", "2")
        before = {t.name for t in threading.enumerate()}
        policy = RedeliveryPolicy(dead_after=1, backoff=0.1)
        channel.basic_consume(
            q.name, redelivering(on_message, policy=policy, publisher=rabbitmq43.url, settle="return")
        )
        until(channel.connection, lambda: q.channel.queue_declare(q.dlq, durable=True).method.message_count == 2)
        assert {t.name for t in threading.enumerate()} - before == {"redeliver-pika-publisher"}
        until(channel.connection, lambda: not vars(channel)["_redeliver_scope"]._open)
        assert sorted(body for body, _ in q.dead()) == [b"1", b"2"]


@pytest.mark.broker
@pytest.mark.slow
def test_a_longer_delay_is_waited_out_on_the_ladder_and_the_copy_shows_how_the_original_came(rabbitmq: Broker) -> None:
    seen: dict[bytes, list[tuple[float, int, str, str, bool]]] = defaultdict(list)

    def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        how = (method.exchange, method.routing_key, method.redelivered)
        seen[body].append((time.time(), properties.headers["JMSXDeliveryCount"], *how))
        if len(seen[body]) == 1:
            raise ValueError("no")

    with queues(rabbitmq) as q, channel_on(rabbitmq) as channel:
        q.channel.queue_bind(q.name, "amq.topic", "shop.*")
        q.put("early", exchange="amq.topic", key="shop.eu", headers={"shop": 7})
        policy = RedeliveryPolicy(dead_after=3, backoff=1.0)
        channel.basic_consume(
            q.name, redelivering(on_message, policy=policy, queue=q.name, delay="schedule", settle="return")
        )
        rung = f"redeliver.retry.{q.name}.1s"
        # A new quorum queue is not trusted for ten seconds: until then the first one waits here.
        until(channel.connection, lambda: len(seen[b"early"]) == 2)
        assert 1.0 <= seen[b"early"][1][0] - seen[b"early"][0][0] < 4
        old = time.monotonic() + MARKER_TTL
        until(channel.connection, lambda: time.monotonic() > old)
        q.put("late", exchange="amq.topic", key="shop.us")
        until(channel.connection, lambda: len(seen[b"late"]) == 2)
        first, second = seen[b"late"]
        assert 1.0 <= second[0] - first[0] < 4
        assert first[1:] == (1, "amq.topic", "shop.us", False)
        assert second[1:] == (2, "amq.topic", "shop.us", True)
        until(channel.connection, lambda: not vars(channel)["_redeliver_scope"]._open)
        q.channel.queue_delete(rung)
        assert (q.left(), q.dead()) == ([], [])


@pytest.mark.broker
def test_a_journal_tells_of_each_attempt(rabbitmq43: Broker, tmp_path: Any) -> None:
    class Kept:
        def __init__(self) -> None:
            self.records: list[AttemptRecord] = []

        def append(self, work: Any, /) -> None:
            self.records.append(work[0](*work[1:]))

        def close(self, timeout: float = 5.0) -> None: ...

    journal, runs = Kept(), []

    def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        runs.append(body)
        if runs.count(body) < 2 and body == b"failing":
            raise ValueError("no")

    with queues(rabbitmq43) as q, channel_on(rabbitmq43) as channel:
        q.put("well", "failing")
        policy = RedeliveryPolicy(dead_after=3, backoff=0.1)
        channel.basic_consume(
            q.name, redelivering(on_message, policy=policy, journal=journal, app_name="shop", settle="return")
        )
        until(channel.connection, lambda: len(journal.records) == 3)
        told = [(r.message_id, r.delivery_count, r.outcome, r.mechanism) for r in journal.records]
        assert told[0] == ("well", 1, "accepted", None)
        assert told[1:] == [("failing", 1, "redelivered", "hold"), ("failing", 2, "accepted", None)]
        assert {(r.app, r.destination, r.broker_kind) for r in journal.records} == {("shop", q.name, "rabbitmq")}
        assert abs(journal.records[0].ts_us / 1e6 - time.time()) < 60
