# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests that a handler's messages are sent with the settlement if it succeeds, and not at all if it fails."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ...message import Delivery
from .case import Case, needs, needs_ability, needs_marks
from .doubts import lose_a_settle
from .handlers import Trouble
from .world import World


def sender(*targets: str, fails: int = 0) -> Callable[[Delivery], None]:
    """Return a handler that sends the body to each target; its first `fails` runs fail afterwards."""
    runs: list[bytes] = []

    def act(delivery: Delivery) -> None:
        runs.append(delivery.body)
        for target in targets:
            delivery.send(target, b"sent by " + delivery.body)
        if len(runs) <= fails:
            raise Trouble("it has sent, and fails")

    return act


class Sending(Case):
    """Checks `Delivery.send`."""

    def test_a_success_sends_once_and_settles(self, world: World) -> None:
        queue, left, right = world.new_queue(), world.new_queue(), world.new_queue()
        consumer = world.consume(queue, sender(left, right, left), self.policy(world, None))
        for n in range(20):
            world.send(queue, b"m%d" % n, message_id=f"m{n}")
        assert world.wait_until(lambda: world.depth(left) == 40)
        assert world.wait_until(lambda: world.depth(right) == 20)
        world.advance(world.tick)
        consumer.stop()
        assert world.depth(queue) == 0
        expected = sorted(b"sent by m%d" % n for n in range(20))
        assert sorted(raw.body for raw in world.take_all(right)) == expected
        assert sorted(raw.body for raw in world.take_all(left)) == sorted(expected * 2)
        assert set(consumer.handler.done.values()) == {1}

    def test_what_is_sent_is_a_new_message(self, world: World) -> None:
        queue, target = world.new_queue(), world.new_queue()

        def act(delivery: Delivery) -> None:
            delivery.send(
                f"queue:{target}", "grüße", {"kind": "greeting"}, content_type="text/plain", correlation_id="c1"
            )
            if delivery.delivery_count == 1:
                raise Trouble("so that it has a past")

        consumer = world.consume(queue, act, self.policy(world, None))
        world.send(queue, b"one", {"own": "header"}, message_id="m1", correlation_id="other")
        assert world.wait_until(lambda: world.depth(target) == 1)
        world.advance(world.tick)
        consumer.stop()
        (sent,) = world.take_all(target)
        assert (sent.body, sent.headers["kind"], sent.redelivered) == ("grüße".encode(), "greeting", False)
        assert (sent.props["content_type"], sent.props["correlation_id"]) == ("text/plain", "c1")
        assert sent.props.get("message_id") != "m1"
        assert [name for name in sent.headers if name.startswith("redeliver_") or name == "own"] == []

    def test_headers_can_be_forwarded_and_those_of_ours_stay_behind(self, world: World) -> None:
        queue, target = world.new_queue(), world.new_queue()

        def act(delivery: Delivery) -> None:
            delivery.send(target, delivery.body, delivery.headers)

        consumer = world.consume(queue, act, self.policy(world, None))
        world.send(queue, b"one", {"own": "header", "redeliver_failures": "2", "redeliver_failures_for": queue})
        assert world.wait_until(lambda: world.depth(target) == 1)
        consumer.stop()
        (sent,) = world.take_all(target)
        assert sent.headers["own"] == "header"
        assert [name for name in sent.headers if name.startswith("redeliver_")] == []

    def test_a_failure_sends_nothing(self, world: World) -> None:
        queue, target, dead = world.new_queue(), world.new_queue(), world.new_queue()
        consumer = world.consume(queue, sender(target, fails=2), self.policy(world, dead, 2))
        world.send(queue, b"one", message_id="m1")
        assert world.wait_until(lambda: world.depth(dead) == 1)
        world.send(queue, b"two", message_id="m2")
        assert world.wait_until(lambda: world.depth(target) == 1)
        world.advance(world.tick)
        consumer.stop()
        assert [raw.body for raw in world.take_all(target)] == [b"sent by two"]
        assert consumer.counts == [1, 2, 1]

    def test_a_retry_that_succeeds_sends_what_it_sent_itself(self, world: World) -> None:
        queue, target = world.new_queue(), world.new_queue()
        consumer = world.consume(queue, sender(target, fails=2), self.policy(world, None, 5), records=True)
        world.send(queue, b"one", message_id="m1")
        assert world.wait_until(lambda: world.depth(target) == 1)
        world.advance(world.tick)
        consumer.stop()
        assert (world.depth(queue), world.depth(target)) == (0, 1)
        assert [record.outcome for record in consumer.records] == ["redelivered", "redelivered", "accepted"]

    def test_a_full_target_keeps_its_message_and_pauses_the_source(self, world: World) -> None:
        queue, target = world.new_queue(), world.new_queue(refusing=True)
        consumer = world.consume(queue, sender(target), self.policy(world, None))
        world.send(queue, b"one", message_id="m1")
        assert world.wait_until(lambda: consumer.paused is not None)
        assert target in (consumer.paused or "")
        world.send(queue, b"two", message_id="m2")
        world.advance(world.tick)
        assert consumer.bodies == [b"one"]
        world.relent(target)
        assert world.wait_until(lambda: world.depth(target) == 2)
        world.advance(world.tick)
        consumer.stop()
        assert consumer.bodies == [b"one", b"two"]
        assert sorted(raw.body for raw in world.take_all(target)) == [b"sent by one", b"sent by two"]
        assert world.depth(queue) == 0

    def test_a_missing_target_is_waited_for_where_the_broker_makes_none(self, world: World) -> None:
        queue, good, missing = world.new_queue(), world.new_queue(), world.new_queue(declare=False)
        consumer = world.consume(queue, sender(good, missing), self.policy(world, None))
        world.send(queue, b"one", message_id="m1")
        assert world.wait_until(lambda: consumer.paused is not None or world.exists(missing))
        if not world.exists(missing):
            world.declare(missing)
        assert world.wait_until(lambda: world.depth(missing) == 1)
        world.advance(world.tick)
        consumer.stop()
        assert consumer.bodies == [b"one"]
        assert (world.depth(queue), world.depth(good), world.depth(missing)) == (0, 1, 1)

    def test_a_settle_that_is_lost_makes_no_second_message(self, world: World) -> None:
        queue, target = world.new_queue(), world.new_queue()
        consumer = world.consume(queue, sender(target), self.policy(world, None))
        lose_a_settle(world, consumer, lambda: world.send(queue, b"one", message_id="m1"))
        world.send(queue, b"two", message_id="m2")
        assert world.wait_until(lambda: consumer.handler.done[b"two"] == 1)
        assert world.wait_until(lambda: world.depth(target) >= 2)
        world.advance(world.tick)
        consumer.stop()
        assert world.depth(queue) == 0
        if "cut" in world.marks:
            assert consumer.bodies == [b"one", b"two"]
        if "cut" in world.marks or world.capabilities.atomic_move:
            assert sorted(raw.body for raw in world.take_all(target)) == [b"sent by one", b"sent by two"]

    @needs_marks
    def test_after_a_cut_only_what_is_missing_is_sent_and_the_handler_not_run(self, world: World) -> None:
        queue, open_, shut = world.new_queue(), world.new_queue(), world.new_queue(refusing=True)
        consumer = world.consume(queue, sender(open_, shut), self.policy(world, None))
        world.send(queue, b"one", message_id="m1")
        assert world.wait_until(lambda: world.depth(open_) == 1)
        world.advance(0.2)
        world.cut_connections()
        world.advance(0.5)
        world.relent(shut)
        assert world.wait_until(lambda: world.depth(shut) == 1)
        world.advance(world.tick)
        consumer.stop()
        assert consumer.bodies == [b"one"]
        assert (world.depth(queue), world.depth(open_), world.depth(shut)) == (0, 1, 1)

    @needs_marks
    def test_a_success_that_comes_after_the_cut_sends_through_the_redelivery(self, world: World) -> None:
        queue, target = world.new_queue(), world.new_queue()
        cut: list[bool] = []

        def act(delivery: Delivery) -> None:
            if not cut:
                cut.append(True)
                world.cut_connections()
            delivery.send(target, b"sent")

        consumer = world.consume(queue, act, self.policy(world, None))
        world.send(queue, b"one", message_id="m1")
        assert world.wait_until(lambda: world.depth(target) >= 1)
        world.advance(world.tick)
        consumer.stop()
        assert (world.depth(queue), world.depth(target)) == (0, 1)
        assert consumer.bodies == [b"one"]

    def test_a_message_without_an_id_loses_nothing_either(self, world: World) -> None:
        queue, target = world.new_queue(), world.new_queue()
        consumer = world.consume(queue, sender(target), self.policy(world, None))
        lose_a_settle(world, consumer, lambda: world.send(queue, b"one"))
        assert world.wait_until(lambda: world.depth(target) >= 1)
        world.send(queue, b"one")  # behind the message that returns
        assert world.wait_until(lambda: consumer.handler.done[b"one"] >= 2)
        world.advance(world.tick)
        consumer.stop()
        assert world.depth(queue) == 0
        assert {raw.body for raw in world.take_all(target)} == {b"sent by one"}

    def test_a_stop_while_a_target_is_full_leaves_the_message_to_the_broker(self, world: World) -> None:
        queue, target = world.new_queue(), world.new_queue(refusing=True)
        consumer = world.consume(queue, sender(target), self.policy(world, None))
        world.send(queue, b"one", message_id="m1")
        assert world.wait_until(lambda: consumer.paused is not None)
        consumer.stop(1.0)
        self.forget_everything()
        world.relent(target)
        following = world.consume(queue, sender(target), self.policy(world, None))
        assert world.wait_until(lambda: world.depth(target) == 1)
        world.advance(world.tick)
        following.stop()
        assert (world.depth(queue), following.bodies) == (0, [b"one"])

    @needs_ability("kill")
    def test_nothing_is_lost_when_the_broker_is_killed_while_it_delivers_many(self, world: World) -> None:
        queue, target = world.new_queue(lasting=True), world.new_queue(lasting=True)
        consumer = world.consume(queue, sender(target), self.policy(world, None))
        for n in range(30):
            world.send(queue, b"m%d" % n, message_id=f"m{n}")
        world.kill_broker()
        world.advance(world.tick)
        world.restart_broker()
        everything = {b"sent by m%d" % n for n in range(30)}
        seen: list[bytes] = []

        def arrived() -> bool:
            seen.extend(raw.body for raw in world.take_all(target))
            return set(seen) == everything

        assert world.wait_until(arrived, 60.0)
        consumer.stop()
        following = world.consume(queue, sender(target), self.policy(world, None))  # consumes the unsettled message
        assert world.wait_until(lambda: world.depth(queue) == 0)
        world.advance(world.tick)
        following.stop()
        assert world.depth(queue) == 0
        assert {raw.body for raw in world.take_all(target)} <= everything

    @needs(lambda can: can.schedule is not None and not can.schedule.rungs, "it delays no copy to any queue")
    def test_a_delayed_message_goes_out_later_and_the_others_at_once(self, world: World) -> None:
        queue, now, later = world.new_queue(), world.new_queue(), world.new_queue()

        def act(delivery: Delivery) -> None:
            delivery.send(later, b"later", after=3.0)
            delivery.send(now, b"now")

        consumer = world.consume(queue, act, self.policy(world, None))
        world.send(queue, b"one", message_id="m1")
        sent = world.now()
        assert world.wait_until(lambda: world.depth(now) == 1)
        assert world.depth(later) == 0
        assert world.wait_until(lambda: world.depth(later) == 1)
        assert world.now() - sent >= 3.0 - 0.05
        consumer.stop()
        assert (world.depth(queue), world.depth(now), world.depth(later)) == (0, 1, 1)

    def test_threads_of_a_handler_may_send(self, world: World) -> None:
        queue, target = world.new_queue(), world.new_queue()

        def act(delivery: Delivery) -> None:
            threads = [threading.Thread(target=delivery.send, args=(target, b"%d" % n)) for n in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        consumer = world.consume(queue, act, self.policy(world, None))
        world.send(queue, b"one", message_id="m1")
        assert world.wait_until(lambda: world.depth(target) == 8)
        consumer.stop()
        assert sorted(raw.body for raw in world.take_all(target)) == [b"%d" % n for n in range(8)]

    def test_an_async_handler_sends(self, world: World) -> None:
        queue, target = world.new_queue(), world.new_queue()
        app = world.app()

        @app.handler(queue)
        async def on_message(delivery: Delivery) -> None:
            delivery.send(target, b"sent by " + delivery.body)

        world.started(app)
        world.send(queue, b"one", message_id="m1")
        assert world.wait_until(lambda: world.depth(target) == 1)
        world.advance(world.tick)
        app.stop(5.0)
        assert (world.depth(queue), world.depth(target)) == (0, 1)
