# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The adapter for Artemis through proton keeps the contract, on 2.44."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redeliver_mw.errors import BrokerError, DestinationMissing
from redeliver_mw.policy import RedeliveryPolicy
from redeliver_mw.session import connect
from redeliver_mw.testing.contract import AdapterContract, World
from redeliver_mw.testing.contract.handlers import fail
from tests.brokers import Broker
from tests.contract.proton_world import ProtonWorld
from tests.faults.proxy import Proxy

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def proxy(artemis244: Broker) -> Iterator[Proxy]:
    found = Proxy(artemis244.host, artemis244.port, roles=("(publish)", "(consume)"))
    yield found
    found.close()


class TestOnArtemis244(AdapterContract):
    @pytest.fixture
    def world(self, artemis244: Broker, proxy: Proxy) -> Iterator[World]:
        mine = ProtonWorld(artemis244, proxy)
        yield mine
        mine.close()

    def test_frames_that_come_in_crumbs_are_put_together(self, world: ProtonWorld, proxy: Proxy) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        consumer = world.consume(queue, fail, RedeliveryPolicy(2, 0.05, f"queue:{dead}"))
        proxy.crumb = 7
        try:
            for n in range(5):
                world.send(queue, b"%d" % n * 200, {"h": "x" * 100})
            assert world.wait_until(lambda: world.depth(dead) == 5)
        finally:
            proxy.crumb = 0
        assert sorted(letter.body for letter in world.take_all(dead)) == [b"%d" % n * 200 for n in range(5)]
        assert sorted(consumer.counts) == [1] * 5 + [2] * 5

    def test_a_source_that_is_deleted_and_made_again_is_consumed_again(self, world: ProtonWorld) -> None:
        queue = world.new_queue()
        consumer = world.consume(queue)
        world.delete(queue)
        world.advance(0.2)
        world.declare(queue)
        world.send(queue, b"one")
        assert world.wait_until(lambda: consumer.handler.done[b"one"] == 1)

    def test_a_session_publishes_only_where_it_is_kept(self, world: ProtonWorld) -> None:
        missing = world.new_queue(declare=False)
        with connect(world.url) as session, pytest.raises(BrokerError, match=missing):
            session.publish(missing, b"one")
        assert not world.exists(missing)

    def test_a_source_that_is_missing_is_named_or_made(self, world: ProtonWorld) -> None:
        missing = world.new_queue(declare=False)
        with pytest.raises(DestinationMissing, match=missing):
            world.consume(missing)
        assert not world.exists(missing)
        consumer = world.consume(missing, declare="all")
        world.send(missing, b"one")
        assert world.wait_until(lambda: consumer.handler.done[b"one"] == 1)
