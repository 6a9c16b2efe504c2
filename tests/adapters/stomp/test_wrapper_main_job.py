# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the drop-in's main job on a real ActiveMQ.

Of 300 messages 30 always fail, and 60 recover at the second or third attempt.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import stomp

from redeliver_mw import RedeliveryPolicy
from tests.adapters.stomp.dropins import Listener, connect, consuming, left, new_name, put, settled, until
from tests.brokers import Broker

pytestmark = pytest.mark.broker

DELAYS = (0.15, 0.3)
POLICY = RedeliveryPolicy(dead_after=3, backoff=DELAYS)
FAILING, HEALING, ALL = range(30), range(30, 90), range(300)


def expected(number: int) -> list[str]:
    if number in FAILING:
        return ["1", "2", "3"]
    return [str(n) for n in range(1, 3 + number % 2)] if number in HEALING else ["1"]


def work(listener: Listener, frame: Any) -> None:
    number, attempts = int(frame.body), listener.attempts(frame.body)
    if number in FAILING or (number in HEALING and attempts < 2 + number % 2):
        raise ValueError(f"attempt {attempts}")


@pytest.mark.parametrize("kind", [stomp.Connection11, stomp.Connection12], ids=["1.1", "1.2"])
def test_every_message_is_handled_or_dead_lettered_exactly_once(kind: Any, activemq63: Broker) -> None:
    queue, listener = new_name(), Listener(work)
    put(activemq63, queue, *map(str, ALL))
    connection = connect(activemq63, kind=kind)
    with consuming(activemq63, f"/queue/{queue}", listener, connection=connection, policy=POLICY) as conn:
        until(lambda: len(listener.done) == 270 and sum(map(len, listener.counts.values())) == 450)
        until(lambda: settled(conn))
    assert {n: listener.counts[str(n)] for n in ALL} == {n: expected(n) for n in ALL}
    for spans in listener.spans.values():
        for delay, ((_, failed), (again, _)) in zip(DELAYS, pairwise(spans), strict=False):
            assert again - failed >= delay - 0.002
    dead = left(activemq63, f"DLQ.{queue}", 30)
    assert sorted(int(letter.body) for letter in dead) == list(FAILING)
    for letter in dead:
        assert letter.headers["original-destination"] == f"/queue/{queue}"
        assert letter.headers["redeliver_failures"] == "3"
        assert letter.headers["redeliver_reason"] == "exhausted"
        assert letter.headers["redeliver_error_message"] == "attempt 3"
        assert "JMSXDeliveryCount" not in letter.headers
    assert left(activemq63, queue) == []
    assert sorted(listener.told) == ["disconnected", "receipt bye"]  # nothing of ours is shown


def test_a_longer_delay_is_waited_out_at_the_broker_and_a_body_that_is_no_text_comes_back_exactly(
    activemq63: Broker,
) -> None:
    def fail_twice(listener: Listener, frame: Any) -> None:
        if listener.attempts(frame.body) < 3:
            raise ValueError("no")

    queue, listener = new_name(), Listener(fail_twice)
    policy = RedeliveryPolicy(dead_after=2, backoff=1.2)
    put(activemq63, queue, "x", headers={"shop": "7"})
    body = b"\xff\x00bin"
    with consuming(activemq63, f"/queue/{queue}", listener, policy=policy, delay="schedule") as conn:
        conn.send(f"/queue/{queue}", body, headers={"content-length": len(body), "persistent": "true"})
        until(lambda: len(listener.spans["x"]) == 2 and listener.attempts("\ufffd\0bin") == 2)
        until(lambda: settled(conn))
    (_, failed), (again, _) = listener.spans["x"]
    assert 1.2 <= again - failed < 4
    assert listener.counts["x"] == ["1", "2"]
    dead = {letter.body: letter.headers for letter in left(activemq63, f"DLQ.{queue}", 2)}
    assert set(dead) == {b"x", body}
    assert dead[b"x"]["shop"] == "7"
    assert left(activemq63, queue) == []


def test_healthy_messages_pass_while_a_failing_one_is_held(activemq63: Broker) -> None:
    def fail_once(listener: Listener, frame: Any) -> None:
        if frame.body == "failing" and listener.attempts("failing") == 1:
            raise ValueError("no")

    queue, listener = new_name(), Listener(fail_once)
    put(activemq63, queue, "failing", *map(str, range(50)))
    policy = RedeliveryPolicy(dead_after=3, backoff=2.0)
    with consuming(activemq63, f"/queue/{queue}", listener, policy=policy) as conn:
        until(lambda: len(listener.done) == 51 and settled(conn))
    assert listener.done == [*map(str, range(50)), "failing"]
    assert left(activemq63, queue) == []


def test_a_message_held_for_ten_seconds_does_not_stop_heart_beats(activemq63: Broker) -> None:
    def fail_once(listener: Listener, frame: Any) -> None:
        if listener.attempts("failing") == 1:
            raise ValueError("no")

    queue, listener = new_name(), Listener(fail_once)
    put(activemq63, queue, "failing")
    connection = connect(activemq63, heartbeats=(2000, 2000))
    policy = RedeliveryPolicy(dead_after=3, backoff=9.9)
    with consuming(activemq63, f"/queue/{queue}", listener, connection=connection, policy=policy) as conn:
        until(lambda: listener.done == ["failing"] and settled(conn))
        assert listener.told == []
    assert listener.counts["failing"] == ["1", "2"]
    assert left(activemq63, queue) == []


def test_copies_may_go_out_on_a_companion_connection(activemq63: Broker) -> None:
    def fail(listener: Listener, frame: Any) -> None:
        raise ValueError("no")

    queue, listener = new_name(), Listener(fail)
    put(activemq63, queue, "1", "2")
    policy = RedeliveryPolicy(dead_after=1)
    with consuming(activemq63, f"/queue/{queue}", listener, policy=policy, publisher=activemq63.url) as conn:
        dead = left(activemq63, f"DLQ.{queue}", 2)
        until(lambda: settled(conn))
    assert sorted(letter.body for letter in dead) == [b"1", b"2"]
    assert left(activemq63, queue) == []
