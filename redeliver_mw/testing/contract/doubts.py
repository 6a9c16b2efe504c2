# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests cut connections, killed brokers and lost answers: no message is lost, and the count stays right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...app import App
from ...message import Delivery
from .case import Case, needs_ability, needs_marks
from .handlers import Handler, Trouble, fail, fail_first
from .world import Consumer, World


class Doubts(Case):
    """Checks that a message in doubt stays at the broker."""

    def test_the_brokers_own_limit_does_not_fire_before_ours(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        consumer = world.consume(queue, fail, self.policy(world, dead, 25, backoff=0.01))
        world.send(queue, b"one", message_id="m1")
        assert world.wait_until(lambda: world.depth(dead) == 1)
        assert consumer.counts == list(range(1, 26))
        assert world.take_all(dead)[0].headers["redeliver_failures"] == "25"

    @needs_marks
    def test_the_count_survives_a_cut_while_it_is_held(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        consumer = world.consume(queue, fail_first(2), self.policy(world, dead, 4, backoff=0.8))
        world.send(queue, b"one", message_id="m1", timestamp_us=1_700_000_000_000_000)
        assert world.wait_until(lambda: consumer.counts == [1])
        world.advance(0.1)
        world.cut_connections()
        assert world.wait_until(lambda: consumer.handler.done[b"one"] == 1)
        assert consumer.counts == [1, 2, 3]
        gap = consumer.handler.runs[1].at - consumer.handler.runs[0].at
        assert gap >= 0.8 - 1e-6  # the delay is kept too
        consumer.stop()
        assert world.depth(queue) == world.depth(dead) == 0

    @needs_ability("kill")
    def test_the_count_survives_the_brokers_death(self, world: World) -> None:
        queue, dead = world.new_queue(lasting=True), world.new_queue(lasting=True)
        consumer = world.consume(queue, fail_first(2), self.policy(world, dead, 5, backoff=1.0))
        for n in range(5):
            world.send(queue, f"m{n}".encode(), message_id=f"m{n}")
        assert world.wait_until(lambda: consumer.counts == [1] * 5)
        world.kill_broker()
        world.advance(world.tick)
        world.restart_broker()
        assert world.wait_until(lambda: consumer.handler.done.total() == 5, 60.0)
        for n in range(5):
            body = f"m{n}".encode()
            assert consumer.handler.done[body] == 1
            if "kill" in world.marks:
                assert [run.count for run in consumer.handler.of(body)] == [1, 2, 3]
        consumer.stop()
        assert world.depth(queue) == world.depth(dead) == 0

    @needs_marks
    def test_a_result_that_comes_after_the_cut_still_counts(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()

        def act(delivery: Delivery) -> None:
            if delivery.delivery_count == 1:
                world.cut_connections()
                raise Trouble("failed while the connection was lost")

        consumer = world.consume(queue, act, self.policy(world, dead))
        world.send(queue, b"one", message_id="m1")
        assert world.wait_until(lambda: consumer.handler.done[b"one"] == 1)
        assert consumer.counts == [1, 2]

    def test_a_success_that_comes_after_the_cut_is_not_run_again(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        act = fail_once_then(world.cut_connections)
        consumer = world.consume(queue, act, self.policy(world, dead))
        world.send(queue, b"one", message_id="m1")
        assert world.wait_until(lambda: consumer.handler.done[b"one"] >= 1)
        world.send(queue, b"two", message_id="m2")
        assert world.wait_until(lambda: consumer.handler.done[b"two"] == 1)
        world.advance(world.tick)
        consumer.stop()
        assert world.depth(queue) == world.depth(dead) == 0
        if "cut" in world.marks:
            assert consumer.bodies == [b"one", b"one", b"two"]

    def test_a_copy_confirmed_and_its_settle_lost_makes_no_second_one(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        consumer = world.consume(queue, fail, self.policy(world, dead, 1))
        lose_a_settle(world, consumer, lambda: world.send(queue, b"one", message_id="m1"))
        assert world.wait_until(lambda: world.depth(dead) == 1)
        world.send(queue, b"two", message_id="m2")
        assert world.wait_until(lambda: world.depth(dead) >= 2)
        world.advance(world.tick)
        consumer.stop()
        assert world.depth(queue) == 0
        if "cut" in world.marks:
            assert consumer.bodies == [b"one", b"two"]
            assert sorted(letter.body for letter in world.take_all(dead)) == [b"one", b"two"]

    def test_a_success_whose_settle_was_lost_is_settled_at_once(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        act = fail_once_then(world.lose_next_settle)
        consumer = world.consume(queue, act, self.policy(world, dead))
        live = engine(consumer.app).runner._live
        before = set(live)
        world.send(queue, b"one", message_id="m1")
        assert world.wait_until(lambda: consumer.handler.done[b"one"] >= 1 and bool(live - before))
        world.send(queue, b"two", message_id="m2")
        assert world.wait_until(lambda: consumer.handler.done[b"two"] == 1)
        world.advance(world.tick)
        consumer.stop()
        assert world.depth(queue) == world.depth(dead) == 0
        if "cut" in world.marks:
            assert consumer.handler.done[b"one"] == 1

    def test_one_target_confirmed_and_then_the_cut_only_the_other_is_sent(self, world: World) -> None:
        queue, open_, shut = world.new_queue(), world.new_queue(), world.new_queue(refusing=True)
        consumer = world.consume(queue, fail, self.policy(world, [open_, shut], 1))
        world.send(queue, b"one", message_id="m1")
        assert world.wait_until(lambda: world.depth(open_) == 1)
        world.advance(0.2)
        world.cut_connections()
        world.advance(0.5)
        world.relent(shut)
        assert world.wait_until(lambda: world.depth(shut) == 1)
        world.advance(world.tick)
        consumer.stop()
        assert (world.depth(queue), world.depth(shut)) == (0, 1)
        if "cut" in world.marks:
            assert consumer.counts == [1]
            assert world.depth(open_) == 1

    def test_settling_twice_is_settling_once(self, world: World) -> None:
        queue = world.new_queue()
        app, handler = world.app(), Handler(world.now)

        def act(delivery: Delivery) -> None:
            handler(delivery)
            for _ in range(2):
                engine(app).adapter.settle(((delivery, "accepted"),))

        app.handler(queue)(act)
        world.started(app)
        for n in range(20):
            world.send(queue, f"m{n}".encode())
        assert world.wait_until(lambda: handler.done.total() == 20)
        world.advance(world.tick)
        app.stop()
        assert set(handler.done.values()) == {1}  # a broker that closed the channel would have redelivered some
        assert world.depth(queue) == 0

    def test_a_settle_after_the_reconnect_removes_no_other_message(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        policy = self.policy(world, dead, 9, backoff=1.5)
        consumer = world.consume(queue, lambda d: fail(d) if d.body == b"kept" else None, policy)
        world.send(queue, b"done", message_id="m1")
        assert world.wait_until(lambda: consumer.handler.done[b"done"] == 1)
        world.send(queue, b"kept", message_id="m2")
        assert world.wait_until(lambda: consumer.bodies == [b"done", b"kept"])
        old = [run.delivery for run in consumer.handler.runs]
        world.advance(0.1)
        self.cut_and_reconnect(world, consumer.app)
        adapter = engine(consumer.app).adapter
        for delivery in old:  # the tag of the first is now the tag of the second
            adapter.settle(((delivery, "accepted"),))
        world.advance(0.1)
        self.cut_and_reconnect(world, consumer.app)
        # The messages that the broker still has return after this second cut, and are run again when they are due.
        assert world.wait_until(lambda: len(consumer.handler.of(b"kept")) == 2)

    def cut_and_reconnect(self, world: World, app: App) -> None:
        before = set(engine(app).runner._live)
        world.cut_connections()
        assert world.wait_until(lambda: bool(engine(app).runner._live - before))
        world.advance(0.1)

    def test_an_accepted_neighbour_does_not_take_a_held_one_with_it(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        policy = self.policy(world, dead, 9, backoff=5.0)
        consumer = world.consume(queue, lambda d: fail(d) if d.body == b"held" else None, policy, delay="hold")
        for body in (b"before", b"held", b"after1", b"after2"):
            world.send(queue, body, message_id=body.decode())
        assert world.wait_until(lambda: consumer.handler.done.total() == 3)
        world.advance(0.2)
        self.cut_and_reconnect(world, consumer.app)
        consumer.stop()
        left = world.take_all(queue)
        assert [raw.body for raw in left] == [b"held"]


def engine(app: App) -> Any:
    """Return the engine of an App, the only way to its adapter."""
    return app._engine


def fail_once_then(do: Callable[[], None]) -> Callable[[Delivery], None]:
    """Return a handler that fails in its first run, and calls `do` in its second one, whatever the messages are."""
    runs = 0

    def act(delivery: Delivery) -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise Trouble("once")
        if runs == 2:
            do()

    return act


def lose_a_settle(world: World, consumer: Consumer, send: Callable[[], None]) -> None:
    """Lose the settlement of the message that `send` sends; the connection is lost too, and restored."""
    live = engine(consumer.app).runner._live
    before = set(live)
    world.lose_next_settle()
    send()
    if not world.wait_until(lambda: bool(live - before), 3.0) and world.capabilities.atomic_move:
        world.cut_connections()  # a transaction has no separate settlement that could be lost
    assert world.wait_until(lambda: bool(live - before))
    world.advance(world.tick)
