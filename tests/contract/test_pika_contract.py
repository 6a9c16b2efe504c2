# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The adapter for RabbitMQ through pika keeps the contract: on 3.10 and 4.3, with classic and quorum queues."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redeliver_mw.errors import ConfigError
from redeliver_mw.testing.contract import AdapterContract, Doubts, Stopping, World
from redeliver_mw.testing.contract.copying import filling
from redeliver_mw.testing.contract.handlers import Handler, fail, fail_if
from tests.brokers import Broker
from tests.contract.on_brokers import OnBrokers, WithDeclaredQueues
from tests.contract.pika_world import PikaWorld, Pool

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def pool310(rabbitmq310: Broker) -> Iterator[Pool]:
    pool = Pool(rabbitmq310, quorum=2)
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def pool43(rabbitmq43: Broker) -> Iterator[Pool]:
    pool = Pool(rabbitmq43, quorum=2)
    yield pool
    pool.close()


class _OnRabbitMQ(OnBrokers, WithDeclaredQueues):
    """Asks what only this broker can be asked."""

    def test_a_topic_is_consumed_through_a_queue_whose_retries_reach_nobody_else(self, world: PikaWorld) -> None:
        topic, name, other, dead = (world.new_name() for _ in range(4))
        app, audit, billing = world.app(), Handler(world.now, fail), Handler(world.now)
        app.handler(f"topic:{topic}", subscription=name, policy=self.policy(world, dead))(audit)
        app.handler(f"topic:{topic}", subscription=other)(billing)
        world.started(app)
        world.publish("amq.topic", topic, b"one")
        assert world.wait_until(lambda: world.exists(dead) and world.depth(dead) == 1)
        assert [run.count for run in audit.runs] == [1, 2, 3]
        assert [run.count for run in billing.runs] == [1]
        (letter,) = world.take_all(dead)
        assert letter.headers["original-destination"] == letter.headers["x-first-death-queue"] == name
        assert letter.headers["redeliver_original_destination"] == topic

    def test_what_cannot_be_copied_is_given_back_alone_before_the_ack_timeout(self, world: PikaWorld) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        policy = self.policy(world, dead, 2)
        consumer = world.consume(queue, fail_if(lambda d: d.body == b"one"), policy, ack_timeout=4.0)
        world.send(queue, b"one", filling(world, 200))
        assert world.wait_until(lambda: consumer.uncopyable == 1 and consumer.counts == [1, 2])
        with world._channel() as channel:  # another consumer, which gets every second message
            channel.basic_qos(prefetch_count=1)
            method, properties, body = next(channel.consume(queue, inactivity_timeout=20))
            assert method is not None
            assert properties is not None
            assert (body, method.redelivered) == (b"one", True)
            assert properties.headers == filling(world, 200)
            assert world.wait_until(lambda: consumer.uncopyable == 0)
            world.send(queue, b"two")
            world.send(queue, b"three")
            assert world.wait_until(lambda: b"three" in consumer.bodies or b"two" in consumer.bodies)
            assert [run.count for run in consumer.handler.of(b"one")] == [1, 2], (
                "its generation lives, and it is not run"
            )
            channel.basic_ack(method.delivery_tag)

    def test_a_selector_is_refused_at_start(self, world: PikaWorld) -> None:
        app = world.app()
        app.handler(world.new_queue(), selector="n = 1")(Handler(world.now))
        with pytest.raises(ConfigError, match="knows no selectors"):
            world.started(app)


class TestOnRabbitMQ310(AdapterContract, _OnRabbitMQ):
    further = True

    @pytest.fixture
    def world(self, rabbitmq310: Broker, pool310: Pool) -> Iterator[World]:
        mine = PikaWorld(rabbitmq310, pool310)
        yield mine
        mine.close()


class TestOnRabbitMQ43(AdapterContract, _OnRabbitMQ):
    @pytest.fixture
    def world(self, rabbitmq43: Broker, pool43: Pool) -> Iterator[World]:
        mine = PikaWorld(rabbitmq43, pool43)
        yield mine
        mine.close()


class TestQuorumQueuesOn310(Doubts):
    """Tests what depends on how a queue counts and returns."""

    @pytest.fixture
    def world(self, rabbitmq310: Broker, pool310: Pool) -> Iterator[World]:
        mine = PikaWorld(rabbitmq310, pool310, kind="quorum")
        yield mine
        mine.close()


class TestQuorumQueuesOn43(Doubts):
    test_a_nacked_message_comes_back_later_with_its_count = (
        Stopping.test_a_nacked_message_comes_back_later_with_its_count
    )
    test_more_nacks_than_the_broker_would_count_do_no_harm = (
        Stopping.test_more_nacks_than_the_broker_would_count_do_no_harm
    )

    @pytest.fixture
    def world(self, rabbitmq43: Broker, pool43: Pool) -> Iterator[World]:
        mine = PikaWorld(rabbitmq43, pool43, kind="quorum")
        yield mine
        mine.close()
