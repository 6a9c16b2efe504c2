# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests a message above RabbitMQ's present limit: it came when more was allowed, as before an upgrade to 4.0."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from redeliver_mw.policy import RedeliveryPolicy
from redeliver_mw.testing.contract.handlers import fail_if
from tests.brokers import Broker
from tests.brokers.rabbitmq import RabbitMQ
from tests.brokers.skips import only_if
from tests.contract.broker_world import BrokerWorld
from tests.contract.pika_world import PikaWorld, Pool
from tests.contract.rabbit_proton_world import RabbitProtonWorld
from tests.contract.uncopyable import counts, ends
from tests.faults.proxy import Proxy

pytestmark = pytest.mark.broker

LARGE, ALLOWED = b"x" * 300_000, 100_000
FAILING = [b"failing %d" % n for n in range(5)]


@contextmanager
def pika_world(broker: Broker) -> Iterator[PikaWorld]:
    pool = Pool(broker, quorum=0)
    world = PikaWorld(broker, pool)
    yield world
    world.close()
    pool.close()


@contextmanager
def proton_world(broker: Broker) -> Iterator[RabbitProtonWorld]:
    proxy = Proxy(broker.host, broker.port, roles=("(publish)", "(consume)"))
    world = RabbitProtonWorld(broker, proxy)
    yield world
    world.close()
    proxy.close()


@contextmanager
def allowing(broker: Broker, size: int) -> Iterator[None]:
    """Let new connections send messages of so many bytes, until the block ends."""
    only_if(isinstance(broker, RabbitMQ), "configure")
    assert isinstance(broker, RabbitMQ)
    ours = f"application:set_env(rabbit, max_message_size, {size}), persistent_term:put(max_message_size, {size})."
    most = broker.evaluate("{ok, N} = application:get_env(rabbit, max_message_size), N.")
    broker.evaluate(ours)
    try:
        yield
    finally:
        broker.evaluate(ours.replace(str(size), most))


@pytest.mark.parametrize("limbo", [False, True], ids=["without a limbo", "with a limbo"])
@pytest.mark.parametrize(
    ("version", "opened"),
    [("3.10", pika_world), ("4.3", pika_world), ("4.3", proton_world)],
    ids=["3.10-pika", "4.3-pika", "4.3-proton"],
)
def test_a_message_above_the_brokers_size_keeps_nobody_elses_dead_letter_from_its_queue(
    request: pytest.FixtureRequest, version: str, opened: Callable[[Broker], Any], limbo: bool, tmp_path: Path
) -> None:
    broker: Broker = request.getfixturevalue(f"rabbitmq{version.replace('.', '')}")
    url = f"sqlite:///{tmp_path}/limbo.db"
    with opened(broker) as world:
        assert isinstance(world, BrokerWorld)
        queue, dead = world.new_queue(), world.new_queue()
        world.send(queue, LARGE)
        for body in (*FAILING, b"healthy"):
            world.send(queue, body)
        world._drop()
        with allowing(broker, ALLOWED):
            policy = RedeliveryPolicy(2, 0.1, f"queue:{dead}")
            options = {"limbo": url} if limbo else {}
            act = fail_if(lambda d: d.body != b"healthy")
            consumer = world.consume(queue, act, policy, records=True, **options)
            # Copies that the closed channel left without an answer are sent again after half a second.
            assert world.wait_until(lambda: len(ends(consumer.records)) == len(FAILING) + limbo)
            assert world.wait_until(lambda: consumer.uncopyable == 1 or (limbo and counts(url)["dead letter"] == 1))
            assert world.wait_until(lambda: not consumer.handler.of(LARGE)[2:] and consumer.paused is None)
            world.send(queue, b"healthy")
            assert world.wait_until(lambda: len(consumer.handler.of(b"healthy")) == 2)
            consumer.stop(0.5)
        assert {raw.body for raw in world.take_all(dead)} == set(FAILING)
        assert [raw.body for raw in world.take_all(queue)] == ([] if limbo else [LARGE])
