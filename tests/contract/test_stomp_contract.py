# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The adapter for ActiveMQ through stomp.py keeps the contract: on 5.18 and 6.3."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redeliver_mw.policy import RedeliveryPolicy
from redeliver_mw.testing.contract import AdapterContract, World
from redeliver_mw.testing.contract.handlers import fail
from tests.contract.stomp_world import Site, StompWorld, running

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def site518() -> Iterator[Site]:
    with running("5.18") as broker:
        site = Site(broker)
        yield site
        site.close()


@pytest.fixture(scope="module")
def site63() -> Iterator[Site]:
    with running("6.3") as broker:
        site = Site(broker)
        yield site
        site.close()


class _OnActiveMQ:
    """What only this broker can be asked."""

    def test_frames_that_come_in_crumbs_are_put_together(self, world: StompWorld) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        consumer = world.consume(queue, fail, RedeliveryPolicy(2, 0.05, f"queue:{dead}"))
        world.crumble(7)
        for n in range(5):
            world.send(queue, b"%d\0" % n * 200, {"h": "x" * 100})
        assert world.wait_until(lambda: world.depth(dead) == 5)
        assert sorted(letter.body for letter in world.take_all(dead)) == [b"%d\0" % n * 200 for n in range(5)]
        assert sorted(consumer.counts) == [1] * 5 + [2] * 5


class TestOnActiveMQ518(AdapterContract, _OnActiveMQ):
    @pytest.fixture
    def world(self, site518: Site) -> Iterator[World]:
        mine = StompWorld(site518)
        yield mine
        mine.close()


class TestOnActiveMQ63(AdapterContract, _OnActiveMQ):
    @pytest.fixture
    def world(self, site63: Site) -> Iterator[World]:
        mine = StompWorld(site63)
        yield mine
        mine.close()
