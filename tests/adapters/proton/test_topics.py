# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests durable subscriptions to topics, and selectors, on the real broker."""

from __future__ import annotations

import proton
import pytest

from redeliver_mw.errors import ConfigError, DestinationMissing
from redeliver_mw.testing.contract.handlers import Handler, fail_first
from tests.contract.proton_world import ProtonWorld

pytestmark = pytest.mark.broker


def subscribed(world: ProtonWorld, topic: str, name: str, handler: Handler, **options: object) -> None:
    app = world.app(delay=options.pop("delay", "auto"))
    policy = f"1:300; 3:move(queue:{topic}.dead)"
    app.handler(f"topic:{topic}", subscription=name, policy=policy, **options)(handler)
    world.started(app)


@pytest.mark.parametrize("delay", ["hold", "schedule"])
def test_the_retries_of_one_subscription_reach_no_other(world: ProtonWorld, delay: str) -> None:
    topic = world.new_name()
    failing, well = Handler(world.now, fail_first(1)), Handler(world.now)
    subscribed(world, topic, f"{topic}.failing", failing, delay=delay)
    subscribed(world, topic, f"{topic}.well", well)
    world.raw.send(topic, proton.Message(body=b"price", id="m1", inferred=True), "topic")
    assert world.wait_until(lambda: failing.done[b"price"] == 1 and well.done[b"price"] == 1)
    world.advance(0.5)
    assert [run.count for run in failing.runs] == [1, 2]
    assert [run.count for run in well.runs] == [1]


def test_a_subscription_keeps_what_comes_while_nobody_consumes(world: ProtonWorld) -> None:
    topic = world.new_name()
    first, second = Handler(world.now), Handler(world.now)
    subscribed(world, topic, f"{topic}.audit", first)
    world.close()
    world.raw.send(topic, proton.Message(body=b"missed", inferred=True), "topic")
    subscribed(world, topic, f"{topic}.audit", second)
    assert world.wait_until(lambda: second.done[b"missed"] == 1)


def test_a_subscription_that_may_not_be_made_is_named(world: ProtonWorld) -> None:
    topic, dead = world.new_name(), world.new_queue()
    with pytest.raises(DestinationMissing, match=topic):
        world.consume(f"topic:{topic}::{topic}.audit", policy=f"1:100; 2:move(queue:{dead})", declare="none")
    assert world.raw.queues("address", topic) == []


def test_a_subscription_whose_name_another_topic_has_taken_is_refused(world: ProtonWorld) -> None:
    topic, other = world.new_name(), world.new_name()
    world.raw.create(f"{topic}.audit", other, "MULTICAST")
    with pytest.raises(DestinationMissing, match=topic):
        world.consume(f"topic:{topic}::{topic}.audit")


def test_a_selector_lets_only_its_messages_come(world: ProtonWorld) -> None:
    queue = world.new_queue()
    app, handler = world.app(), Handler(world.now)
    app.handler(queue, selector="region = 'eu' AND size > 2")(handler)
    world.started(app)
    for n, (region, size) in enumerate([("eu", 3), ("us", 3), ("eu", 1)]):
        headers = {"region": region, "size": size}
        world.send(queue, b"%d" % n, headers)
    assert world.wait_until(lambda: handler.done.total() == 1)
    world.advance(0.3)
    app.stop()
    assert dict(handler.done) == {b"0": 1}
    assert [raw.body for raw in world.take_all(queue)] == [b"1", b"2"]


def test_an_invalid_selector_is_reported_at_start(world: ProtonWorld) -> None:
    queue = world.new_queue()
    app = world.app()
    app.handler(queue, selector="region = = 'eu'")(Handler(world.now))
    with pytest.raises(ConfigError, match="selector") as caught:
        world.start(app)
    assert caught.value.cure
