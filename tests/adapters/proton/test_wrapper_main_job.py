# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the drop-in's main job on a real Artemis.

Of 300 messages 30 always fail, and 60 recover at the second or third attempt.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from redeliver_mw import RedeliveryPolicy
from tests.adapters.proton.dropins import Consumer, Queues, drive, unsettled
from tests.brokers import Broker

pytestmark = pytest.mark.broker
DELAYS = (0.15, 0.3)
POLICY = RedeliveryPolicy(dead_after=3, backoff=DELAYS)
FAILING, HEALING, ALL = range(30), range(30, 90), range(300)
RUNS = 30 * 3 + 30 * 2 + 30 * 3 + 210


def expected(number: int) -> list[int]:
    if number in FAILING:
        return [1, 2, 3]
    return list(range(1, 3 + number % 2)) if number in HEALING else [1]


@pytest.mark.parametrize("auto_accept", [True, False])
@pytest.mark.parametrize("delay", ["auto", "schedule"])
def test_every_message_is_handled_or_dead_lettered_exactly_once(artemis: Broker, delay: str, auto_accept: bool) -> None:
    q = Queues(artemis)

    def act(event: Any) -> None:
        number, runs = int(event.message.body), len(consumer.counts[event.message.body])
        if number in FAILING or (number in HEALING and runs < 2 + number % 2):
            raise ValueError(f"attempt {runs}")
        if not auto_accept:
            consumer.accept(event.delivery)

    consumer = Consumer(artemis, q.name, act, auto_accept=auto_accept)
    q.put(*(str(number) for number in ALL))

    def done() -> bool:
        return sum(map(len, consumer.counts.values())) >= RUNS and not unsettled(consumer)

    drive(consumer, done, policy=POLICY, delay=delay)
    assert {int(body): counts for body, counts in consumer.counts.items()} == {n: expected(n) for n in ALL}
    assert sorted(map(int, consumer.handled)) == [n for n in ALL if n not in FAILING]
    for spans in consumer.spans.values():
        for pause, ((_, failed), (again, _)) in zip(DELAYS, pairwise(spans), strict=False):
            assert again - failed >= pause - 0.002
    dead = q.dead()
    assert sorted(int(m.body) for m in dead) == list(FAILING)
    for m in dead:
        assert m.id == m.body
        assert m.durable
        assert m.properties["original-destination"] == q.name
        assert m.properties["redeliver_failures"] == "3"
        assert m.properties["redeliver_failures_for"] == q.name
        assert m.properties["redeliver_reason"] == "exhausted"
        assert m.properties["redeliver_error_message"] == "attempt 3"
        assert "JMSXDeliveryCount" not in m.properties
        assert m.annotations["x-opt-ORIG-ADDRESS"] == q.name
        assert m.annotations["x-opt-ORIG-QUEUE"] == q.name
    assert q.left() == []


def test_healthy_messages_pass_while_a_failing_one_is_held(artemis: Broker) -> None:
    q = Queues(artemis)

    def act(event: Any) -> None:
        if event.message.body == "failing" and len(consumer.counts["failing"]) == 1:
            q.put(*(f"well {n}" for n in range(50)))
            raise ValueError("no")

    consumer = Consumer(artemis, q.name, act, prefetch=5)
    q.put("failing")
    policy = RedeliveryPolicy(dead_after=3, backoff=2.0)
    drive(consumer, lambda: len(consumer.handled) == 51 and not unsettled(consumer), policy=policy)
    assert consumer.handled[-1] == "failing"
    assert consumer.counts["failing"] == [1, 2]
    assert q.left() == []


def test_a_missing_dead_letter_queue_is_made(artemis: Broker) -> None:
    q = Queues(artemis)

    def act(event: Any) -> None:
        raise ValueError("no")

    consumer = Consumer(artemis, q.name, act)
    q.put("one")
    policy = RedeliveryPolicy(dead_after=1, dead_letter=f"new.{q.name}")
    drive(consumer, lambda: bool(consumer.counts) and not unsettled(consumer), policy=policy)
    assert q.left(f"new.{q.name}") == ["one"]


def test_copies_may_go_out_on_a_companion_connection(artemis: Broker) -> None:
    q = Queues(artemis)

    def act(event: Any) -> None:
        raise ValueError("no")

    consumer = Consumer(artemis, q.name, act)
    q.put("1", "2")
    policy = RedeliveryPolicy(dead_after=2, backoff=0.1)
    drive(consumer, lambda: len(consumer.counts) == 2 and not unsettled(consumer), policy=policy, publisher=artemis.url)
    assert dict(consumer.counts) == {"1": [1, 2], "2": [1, 2]}
    assert sorted(m.body for m in q.dead()) == ["1", "2"]
    assert q.left() == []


def test_a_retry_copy_reaches_its_own_subscription_only(artemis: Broker) -> None:
    q = Queues(artemis)
    topic = f"prices.{q.name}"
    for name in ("audit", "stock"):
        q.make(f"{name}.{q.name}", topic, "MULTICAST")

    def act(event: Any) -> None:
        if len(consumer.counts[event.message.body]) < 2:
            raise ValueError("no")

    consumer = Consumer(artemis, f"{topic}::audit.{q.name}", act)
    q.put("tick", address=topic)
    policy = RedeliveryPolicy(dead_after=3, backoff=0.5)
    drive(consumer, lambda: bool(consumer.handled) and not unsettled(consumer), policy=policy, delay="schedule")
    assert dict(consumer.counts) == {"tick": [1, 2]}
    assert q.left(f"{topic}::audit.{q.name}") == []
    assert q.left(f"{topic}::stock.{q.name}") == ["tick"]
