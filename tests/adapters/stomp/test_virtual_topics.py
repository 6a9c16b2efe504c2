# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests consumer queues of a virtual topic: retries and replays reach the one queue that failed, and no other."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from redeliver_mw.adapter.registry import adapter_for
from redeliver_mw.dead_letters import Replay
from redeliver_mw.message import Destination
from redeliver_mw.policy import RedeliveryPolicy
from redeliver_mw.testing.contract.handlers import fail
from tests.adapters.stomp.dropins import Listener, connect, consuming, settled, until
from tests.contract.stomp_world import StompWorld

pytestmark = pytest.mark.broker

# The second delay is long enough for the broker's scheduler, so that a copy is sent to the consumer queue.
DELAYS = (0.1, 2.0)


def queues(world: StompWorld) -> tuple[str, str, str]:
    """Return a virtual topic's name, and two consumer queues of it, which are there from now on."""
    topic = f"VirtualTopic.{world.new_name()}"
    ours, theirs = (f"Consumer.{who}.{topic}" for who in ("ours", "theirs"))
    for queue in (ours, theirs):
        world.declare(queue)
    return topic, ours, theirs


def publish(world: StompWorld, topic: str, body: bytes) -> None:
    assert world._open().send(f"/topic/{topic}", body) == ""


def test_an_app_retries_and_dead_letters_for_its_own_queue_alone(world: StompWorld) -> None:
    topic, ours, theirs = queues(world)
    policy = RedeliveryPolicy(3, DELAYS, f"queue:dead.{ours}")
    consumer = world.consume(ours, fail, policy, delay="schedule")
    publish(world, topic, b"one")
    assert world.wait_until(lambda: world.depth(f"dead.{ours}") == 1)
    consumer.stop()
    assert consumer.counts == [1, 2, 3]
    assert [raw.body for raw in world.take_all(theirs)] == [b"one"]
    [letter] = world.take_all(f"dead.{ours}")
    assert letter.headers["original-destination"] == f"/queue/{ours}"
    assert (letter.headers["redeliver_original_destination"], letter.headers["redeliver_original_kind"]) == (
        ours,
        "queue",
    )
    assert letter.headers["redeliver_original_topic"] == topic


def test_a_replay_goes_back_to_the_consumer_queue_and_not_to_the_topic(world: StompWorld) -> None:
    topic, ours, theirs = queues(world)
    dead = f"dead.{ours}"
    consumer = world.consume(ours, fail, RedeliveryPolicy(1, 0.0, f"queue:{dead}"))
    publish(world, topic, b"one")
    assert world.wait_until(lambda: world.depth(dead) == 1)
    consumer.stop()
    report = Replay(adapter_for(world.url), Destination(dead)).run()
    assert report.count("replayed") == 1
    assert [raw.body for raw in world.take_all(ours)] == [b"one"]
    assert [raw.body for raw in world.take_all(theirs)] == [b"one"]  # its own copy, from the beginning
    assert world.depth(dead) == 0


def test_a_drop_in_does_the_same(world: StompWorld) -> None:
    topic, ours, theirs = queues(world)

    def act(listener: Listener, frame: Any) -> None:
        raise ValueError("no")

    listener, broker = Listener(act), world.broker
    policy = RedeliveryPolicy(3, DELAYS, f"queue:dead.{ours}")
    with consuming(broker, f"/queue/{ours}", listener, connection=connect(broker), policy=policy) as conn:
        publish(world, topic, b"one")
        until(lambda: world.depth(f"dead.{ours}") == 1 and settled(conn))
    assert listener.counts == {"one": ["1", "2", "3"]}
    assert Counter(raw.body for raw in world.take_all(theirs)) == {b"one": 1}
    assert world.depth(ours) == 0
