# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests targets that refuse, vanish or never answer.

The message stays, the source pauses, and work resumes by itself.
"""

from __future__ import annotations

import pytest

from .case import Case, needs_ability
from .handlers import fail
from .world import World


class TargetCases(Case):
    """Checks the rule failed-target."""

    def test_a_refusing_target_pauses_the_source_until_it_takes_again(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue(refusing=True)
        consumer = world.consume(
            queue, lambda d: fail(d) if d.body == b"failing" else None, self.policy(world, dead, 1)
        )
        world.send(queue, b"failing", message_id="m1")
        assert world.wait_until(lambda: consumer.paused is not None)
        assert dead in (consumer.paused or "")
        world.send(queue, b"well")
        world.advance(world.tick)
        assert consumer.bodies == [b"failing"]
        world.relent(dead)
        assert world.wait_until(lambda: consumer.handler.done[b"well"] == 1)
        assert consumer.paused is None
        assert [letter.body for letter in world.take_all(dead)] == [b"failing"]
        assert consumer.bodies == [b"failing", b"well"]
        consumer.stop()
        assert world.depth(queue) == 0

    def test_a_target_that_refuses_several_messages_is_logged_once_and_eventually_gets_all_of_them(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        queue, dead = world.new_queue(), world.new_queue(refusing=True)
        failing = {b"failing 1", b"failing 2", b"failing 3"}
        consumer = world.consume(queue, lambda d: fail(d) if d.body in failing else None, self.policy(world, dead, 1))
        for body in sorted(failing):
            world.send(queue, body, message_id=body.decode())
        assert world.wait_until(lambda: consumer.paused is not None)
        world.advance(12 * world.tick)  # each of them has been refused three times, and then once more
        world.send(queue, b"well")
        world.advance(world.tick)
        assert set(consumer.bodies) == failing
        world.relent(dead)
        letters: list[bytes] = []

        def over() -> bool:
            letters.extend(raw.body for raw in world.take_all(dead))  # there may be room for only one at a time
            return set(letters) == failing and consumer.handler.done[b"well"] == 1

        assert world.wait_until(over, 4 * world.patience)
        consumer.stop()
        assert (len(consumer.bodies), world.depth(queue)) == (4, 0)
        spoken = [record.getMessage() for record in caplog.records if "is paused" in record.getMessage()]
        assert len(spoken) == 1

    def test_a_target_that_vanished_loses_nothing(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        # No other process makes the target again.
        consumer = world.consume(queue, fail, self.policy(world, dead, 1), declare="none")
        world.delete(dead)
        world.send(queue, b"one", message_id="m1")
        assert world.wait_until(lambda: consumer.counts == [1])
        world.advance(0.3)
        world.declare(dead)
        assert world.wait_until(lambda: world.depth(dead) == 1)
        world.advance(world.tick)
        consumer.stop()
        assert consumer.counts == [1]
        assert (world.depth(queue), world.depth(dead)) == (0, 1)

    def test_a_publish_that_is_never_answered_is_sent_again_on_another_link(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        consumer = world.consume(
            queue, lambda d: fail(d) if d.body == b"failing" else None, self.policy(world, dead, 1)
        )
        world.silence()
        world.send(queue, b"failing", message_id="m1")
        assert world.wait_until(lambda: consumer.counts == [1])
        world.send(queue, b"well")
        assert world.wait_until(lambda: consumer.handler.done[b"well"] == 1)  # consuming continues
        world.advance(2.5)
        world.unsilence()
        assert world.wait_until(lambda: world.depth(dead) == 1)
        world.advance(world.tick)
        consumer.stop()
        assert consumer.handler.of(b"failing")[1:] == []
        assert (world.depth(queue), world.depth(dead)) == (0, 1)

    @needs_ability("alarm")
    def test_a_broker_without_memory_is_waited_for(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        policy = self.policy(world, dead, 2, backoff=2.0)
        consumer = world.consume(queue, lambda d: fail(d) if d.body == b"failing" else None, policy)
        for body in (b"failing", b"well"):
            world.send(queue, body, message_id=body.decode())
        assert world.wait_until(lambda: len(consumer.bodies) == 2)
        world.raise_alarm()
        assert world.wait_until(lambda: consumer.counts == [1, 1, 2])
        world.advance(2.5)  # longer than the timeout for a silent link
        assert consumer.paused is None
        world.lift_alarm()
        assert world.wait_until(lambda: world.depth(dead) == 1)
        world.advance(world.tick)
        consumer.stop()
        assert (world.depth(queue), world.depth(dead)) == (0, 1)
