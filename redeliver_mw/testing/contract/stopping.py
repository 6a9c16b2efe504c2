# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests stopping: bounded in time, with no message and no count lost."""

from __future__ import annotations

import itertools
import threading

import pytest

from ...adapter.capabilities import Capabilities
from ...app import App
from ...message import Delivery
from ...redelivery.states import State
from .case import Case, needs, needs_ability, needs_marks
from .handlers import fail, fail_first
from .world import World

_NO_NACK = "a return counts towards a limit of its own, or is not honoured"


def _nackable(capabilities: Capabilities) -> bool:
    return capabilities.released_uncounted and "released" in capabilities.honours


def _has_the_redelivery(app: App) -> bool:
    """Return whether a delivery waits for the run that the delivery before it has begun."""
    runner = app._engine.runner if app._engine is not None else None
    if runner is None:
        return False
    tracked = list(runner._interceptor._deliveries.by_token.values())
    return any(one.state is State.RUNNING and one.delivery.generation in runner._live for one in tracked)


class Stopping(Case):
    """Checks an App that ends."""

    def test_what_is_held_at_a_stop_keeps_its_count_for_the_next_app(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        policy = self.policy(world, dead, 3, backoff=0.6)
        first = world.consume(queue, fail, policy)
        world.send(queue, b"one", message_id="m1")
        assert world.wait_until(lambda: first.counts == [1])
        world.advance(0.1)
        report = first.stop()
        assert report.clean
        self.forget_everything()  # a new process knows only what the copy carries
        second = world.consume(queue, fail, policy)
        assert world.wait_until(lambda: world.depth(dead) == 1)
        assert second.counts == [2, 3]
        assert second.handler.runs[0].at - first.handler.runs[0].at >= 0.6 - 1e-3
        assert world.take_all(dead)[0].headers["redeliver_failures"] == "3"
        second.stop()
        assert world.depth(queue) == 0

    def test_a_stop_while_a_copy_is_refused_leaves_the_message_to_the_broker(self, world: World) -> None:
        queue, open_, shut = world.new_queue(), world.new_queue(), world.new_queue(refusing=True)
        policy = self.policy(world, [open_, shut], 1)
        first = world.consume(queue, fail, policy)
        world.send(queue, b"one", message_id="m1")
        assert world.wait_until(lambda: world.depth(open_) == 1)
        world.advance(0.2)
        begun = world.now()
        first.stop(2.0)
        assert world.now() - begun < 4.0
        assert world.wait_until(lambda: world.depth(queue) == 1)
        world.relent(shut)
        second = world.consume(queue, fail, policy)
        assert world.wait_until(lambda: world.depth(shut) == 1)
        world.advance(world.tick)
        second.stop()
        assert (world.depth(queue), world.depth(shut)) == (0, 1)
        if "cut" in world.marks:
            assert (second.counts, world.depth(open_)) == ([], 1)

    def test_a_stop_takes_nothing_new_and_leaves_the_rest(self, world: World) -> None:
        queue = world.new_queue()
        consumer = world.consume(queue, lambda d: consumer.app.pause(queue))
        for n in range(10):
            world.send(queue, f"m{n}".encode())
        assert world.wait_until(lambda: consumer.handler.done.total() >= 1)
        world.advance(0.1)
        consumer.stop()
        assert world.wait_until(lambda: consumer.handler.done.total() + world.depth(queue) == 10)
        assert world.depth(queue) >= 8

    def test_a_second_stop_says_the_same(self, world: World) -> None:
        consumer = world.consume(world.new_queue())
        assert consumer.stop() is consumer.stop()

    @needs_ability("threads")
    def test_a_stop_waits_for_the_handler_that_runs(self, world: World) -> None:
        queue, begun, go_on = world.new_queue(), threading.Event(), threading.Event()

        def act(delivery: Delivery) -> None:
            begun.set()
            go_on.wait(world.patience)

        consumer = world.consume(queue, act)
        world.send(queue, b"one")
        assert begun.wait(world.patience)
        threading.Timer(0.3, go_on.set).start()
        report = consumer.stop(10.0)
        assert (report.clean, report.unsettled) == (True, 0)
        assert 0.2 < report.seconds < 5.0
        assert world.depth(queue) == 0

    @needs_ability("threads")
    def test_a_handler_that_never_returns_is_left_unsettled_when_the_time_is_over(self, world: World) -> None:
        queue, begun, never = world.new_queue(), threading.Event(), threading.Event()

        def act(delivery: Delivery) -> None:
            begun.set()
            never.wait(60)

        consumer = world.consume(queue, act)
        world.send(queue, b"one")
        assert begun.wait(world.patience)
        report = consumer.stop(0.5)
        assert (report.clean, report.unsettled) == (False, 1)
        assert report.seconds < 5.0
        assert world.wait_until(lambda: world.depth(queue) == 1)
        never.set()

    @needs_marks
    @needs_ability("threads")
    def test_a_redelivery_waits_for_the_run_that_has_the_message(self, world: World) -> None:
        queue, begun, go_on = world.new_queue(), threading.Event(), threading.Event()

        def act(delivery: Delivery) -> None:
            begun.set()
            go_on.wait(world.patience)

        consumer = world.consume(queue, act, workers=2)
        world.send(queue, b"one", message_id="m1")
        assert begun.wait(world.patience)
        world.cut_connections()
        assert world.wait_until(lambda: _has_the_redelivery(consumer.app))
        world.advance(0.3)
        assert consumer.counts == [1]
        go_on.set()
        world.advance(0.3)
        consumer.stop()
        assert consumer.counts == [1]
        assert world.depth(queue) == 0

    @needs(lambda c: c.schedule is not None, "it cannot delay a copy")
    def test_a_long_delay_is_waited_out_by_copies_at_the_broker(self, world: World) -> None:
        queue, dead = world.seasoned_queue(1.5), world.new_queue()
        policy = self.policy(world, dead, 2, backoff=1.5)
        consumer = world.consume(queue, fail_first(1), policy, delay="schedule", records=True)
        world.send(queue, b"one", message_id="m1")
        assert world.wait_until(lambda: consumer.handler.done[b"one"] == 1)
        first, second = consumer.handler.runs
        assert 1.5 - 1e-3 <= second.at - first.at < 4.0
        assert (first.count, second.count) == (1, 2)
        assert world.wait_until(lambda: len(consumer.records) == 2)
        assert [record.mechanism for record in consumer.records] == ["schedule", None]
        assert len({record.message_key for record in consumer.records}) == 1
        consumer.stop()
        assert world.depth(queue) == world.depth(dead) == 0

    @needs_marks
    @needs(_nackable, _NO_NACK)
    def test_a_nacked_message_comes_back_later_with_its_count(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        consumer = world.consume(queue, fail, self.policy(world, dead, 4), delay="nack", records=True)
        world.send(queue, b"one", message_id="m1")
        assert world.wait_until(lambda: world.depth(dead) == 1)
        assert consumer.counts == [1, 2, 3, 4]
        assert not consumer.handler.runs[0].redelivered
        assert world.wait_until(lambda: len(consumer.records) == 4)
        assert [record.mechanism for record in consumer.records] == ["nack"] * 3 + [None]
        runs = consumer.handler.runs
        assert all(b.at - a.at >= world.tick - 1e-3 for a, b in itertools.pairwise(runs))

    @needs_marks
    @needs(_nackable, _NO_NACK)
    def test_more_nacks_than_the_broker_would_count_do_no_harm(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        consumer = world.consume(queue, fail, self.policy(world, dead, 25, backoff=0.01), delay="nack")
        world.send(queue, b"one", message_id="m1")
        assert world.wait_until(lambda: world.depth(dead) == 1)
        assert consumer.counts == list(range(1, 26))

    @needs_ability("threads")
    def test_a_handler_that_takes_very_long_is_warned_of_once(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        queue, go_on = world.new_queue(), threading.Event()
        consumer = world.consume(queue, lambda _: go_on.wait(world.patience) and None, ack_timeout=1.0)
        world.send(queue, b"one")

        def warnings() -> int:
            return sum("ack timeout" in record.getMessage() for record in caplog.records)

        assert world.wait_until(lambda: warnings() > 0)
        world.advance(0.5)
        go_on.set()
        assert world.wait_until(lambda: consumer.handler.done[b"one"] == 1)
        assert warnings() == 1
