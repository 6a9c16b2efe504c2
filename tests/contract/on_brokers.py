# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Asks questions beside the contract that only a real broker can be asked."""

from __future__ import annotations

import pytest

from redeliver_mw.errors import BrokerError, DestinationMissing
from redeliver_mw.policy import RedeliveryPolicy
from redeliver_mw.session import connect
from redeliver_mw.testing.contract.case import Case
from redeliver_mw.testing.contract.handlers import fail
from tests.contract.broker_world import BrokerWorld
from tests.contract.uncopyable import Uncopyable


def letters_of(world: BrokerWorld, dead: str, several: int) -> set[bytes]:
    """Take letters until so many different bodies were there, and return them.

    A copy whose answer is late, as on a busy machine, is sent again, because these tests wait for a second only.
    So many letters may still be fewer messages.
    """
    found: set[bytes] = set()

    def all_there() -> bool:
        found.update(letter.body for letter in world.take_all(dead))
        return len(found) >= several

    world.wait_until(all_there, 20)
    return found


class OnBrokers(Uncopyable):
    """Asks what can be asked of any real broker."""

    def test_frames_that_come_in_crumbs_are_put_together(self, world: BrokerWorld) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        consumer = world.consume(queue, fail, RedeliveryPolicy(2, 0.05, f"queue:{dead}"))
        world.crumble(7)
        for n in range(5):
            world.send(queue, b"%d\0" % n * 200, {"h": "x" * 100})
        assert letters_of(world, dead, 5) == {b"%d\0" % n * 200 for n in range(5)}
        assert world.wait_until(lambda: world.depth(queue) == 0)
        assert sorted(consumer.counts) == [1] * 5 + [2] * 5


class WithDeclaredQueues(Case):
    """Asks the brokers where a queue is there only after somebody has made it."""

    def test_a_source_that_is_deleted_and_made_again_is_consumed_again(self, world: BrokerWorld) -> None:
        queue = world.new_queue()
        consumer = world.consume(queue)
        world.delete(queue)
        world.advance(0.2)
        world.declare(queue)
        world.send(queue, b"one")
        assert world.wait_until(lambda: consumer.handler.done[b"one"] == 1)

    def test_a_dead_letter_queue_that_is_deleted_while_it_runs_is_made_again(self, world: BrokerWorld) -> None:
        queue, dead = world.new_queue(), world.new_queue(declare=False)
        world.consume(queue, fail, RedeliveryPolicy(2, 0.05, f"queue:{dead}"))  # which makes it
        world.delete(dead)
        for n in range(5):
            world.send(queue, b"%d" % n)
        assert world.wait_until(lambda: world.exists(dead), 20)
        assert letters_of(world, dead, 5) == {b"%d" % n for n in range(5)}
        assert world.wait_until(lambda: world.depth(queue) == 0)

    def test_a_session_publishes_only_where_it_is_kept(self, world: BrokerWorld) -> None:
        missing = world.new_queue(declare=False)
        with connect(world.url) as session, pytest.raises(BrokerError, match=missing):
            session.publish(missing, b"one")
        assert not world.exists(missing)

    def test_a_source_that_is_missing_is_named_or_made(self, world: BrokerWorld) -> None:
        missing = world.new_queue(declare=False)
        with pytest.raises(DestinationMissing, match=missing):
            world.consume(missing)
        assert not world.exists(missing)
        consumer = world.consume(missing, declare="all")
        world.send(missing, b"one")
        assert world.wait_until(lambda: consumer.handler.done[b"one"] == 1)
