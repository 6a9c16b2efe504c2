# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests failure, delay and success; and what must not wait meanwhile."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest

from ...errors import Reject, RetryAfter
from ...journal.writer import read_segments
from ...message import Delivery
from ...policy import Backoff
from .case import Case, needs_ability
from .handlers import Handler, Trouble, fail, fail_first, fail_if
from .world import World


class Retries(Case):
    """Checks the main function of the library."""

    def test_a_message_that_succeeds_is_handled_once_and_gone(self, world: World) -> None:
        queue = world.new_queue()
        consumer = world.consume(queue)
        world.send(queue, b"one")
        assert world.wait_until(lambda: consumer.handler.done[b"one"] == 1)
        world.advance(world.tick)
        assert consumer.counts == [1]
        consumer.stop()
        assert world.depth(queue) == 0

    def test_a_failure_comes_back_after_its_delay_and_then_succeeds(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        consumer = world.consume(queue, fail_first(1), self.policy(world, dead))
        world.send(queue, b"one", message_id="m1")
        assert world.wait_until(lambda: consumer.handler.done[b"one"] == 1)
        assert consumer.counts == [1, 2]
        first, second = consumer.handler.runs
        assert second.at - first.at >= world.tick - 1e-6
        consumer.stop()
        assert world.depth(queue) == world.depth(dead) == 0

    @pytest.mark.parametrize("dead_after", [1, 2, 4])
    def test_it_is_tried_exactly_as_often_as_the_policy_says(self, world: World, dead_after: int) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        consumer = world.consume(queue, fail, self.policy(world, dead, dead_after, backoff=0.02))
        world.send(queue, b"one")
        assert world.wait_until(lambda: world.depth(dead) == 1)
        world.advance(world.tick)
        assert consumer.counts == list(range(1, dead_after + 1))

    def test_delays_grow_by_a_fraction_and_are_never_cut_short(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        policy = self.policy(world, dead, 4, backoff=Backoff.exponential(0.2, 1.5))
        consumer = world.consume(queue, fail, policy, records=True)
        world.send(queue, b"one")
        assert world.wait_until(lambda: len(consumer.records) == 4)
        delays = [record.delay_us for record in consumer.records]
        assert delays == [200_000, 300_000, 450_000, None]
        times = [run.at for run in consumer.handler.runs]
        gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert all(gap >= wanted - 1e-6 for gap, wanted in zip(gaps, (0.2, 0.3, 0.45), strict=True)), gaps

    def test_a_policy_without_delays_counts_too(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        consumer = world.consume(queue, fail_first(2), self.policy(world, dead, 5, backoff=0.0))
        world.send(queue, b"one")
        assert world.wait_until(lambda: consumer.handler.done[b"one"] == 1)
        assert consumer.counts == [1, 2, 3]

    def test_a_message_without_an_id_counts_too(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        consumer = world.consume(queue, fail, self.policy(world, dead))
        world.send(queue, b"anonymous")
        assert world.wait_until(lambda: world.depth(dead) == 1)
        assert consumer.counts == [1, 2, 3]

    def test_two_messages_with_one_id_are_two_messages(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        consumer = world.consume(queue, fail, self.policy(world, dead, 2))
        world.send(queue, b"same", message_id="twin")
        world.send(queue, b"same", message_id="twin")
        assert world.wait_until(lambda: world.depth(dead) == 2)
        assert sorted(consumer.counts) == [1, 1, 2, 2]

    def test_what_the_handler_sees_of_its_earlier_attempts(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        seen: list[tuple[int, str | None, bool, dict[str, str]]] = []

        def act(delivery: Delivery) -> None:
            failed_before = delivery.first_failed_at is not None
            seen.append((delivery.failures, delivery.last_error, failed_before, dict(delivery.state)))
            delivery.state["step"] = str(delivery.failures)
            raise Trouble(f"attempt {delivery.delivery_count}")

        world.consume(queue, act, self.policy(world, dead, 2))
        world.send(queue, b"one")
        assert world.wait_until(lambda: world.depth(dead) == 1)
        assert seen == [(0, None, False, {}), (1, "Trouble: attempt 1", True, {"step": "0"})]

    def test_reject_is_a_dead_letter_at_once(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()

        def act(delivery: Delivery) -> None:
            raise Reject("no such customer")

        consumer = world.consume(queue, act, self.policy(world, dead))
        world.send(queue, b"one")
        assert world.wait_until(lambda: world.depth(dead) == 1)
        assert consumer.counts == [1]
        assert world.take_all(dead)[0].headers["redeliver_reason"] == "rejected"

    def test_a_handler_may_ask_for_a_longer_delay_and_for_one_that_does_not_count(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        asked = [RetryAfter(world.tick * 2), RetryAfter(0.01, count=False)]

        def act(delivery: Delivery) -> None:
            if asked:
                raise asked.pop(0)

        consumer = world.consume(queue, act, self.policy(world, dead))
        world.send(queue, b"one")
        assert world.wait_until(lambda: consumer.handler.done[b"one"] == 1)
        assert consumer.counts == [1, 2, 2]
        assert consumer.handler.runs[1].at - consumer.handler.runs[0].at >= world.tick * 2 - 1e-6

    @pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()], ids=repr)
    def test_what_ends_programs_is_a_failure_here(self, world: World, raised: BaseException) -> None:
        queue, dead = world.new_queue(), world.new_queue()

        def act(delivery: Delivery) -> None:
            if delivery.body == b"failing":
                raise raised

        consumer = world.consume(queue, act, self.policy(world, dead, 2))
        world.send(queue, b"failing")
        assert world.wait_until(lambda: world.depth(dead) == 1)
        world.send(queue, b"well")
        assert world.wait_until(lambda: consumer.handler.done[b"well"] == 1)
        assert world.take_all(dead)[0].headers["redeliver_error_type"] == type(raised).__name__

    def test_an_async_handler_gets_the_same(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        app, runs = world.app(), Handler(world.now)
        failing = fail_first(1)

        async def handle(delivery: Delivery) -> None:
            await asyncio.sleep(0)
            runs._ran(delivery)
            if delivery.body == b"cancelled":
                raise asyncio.CancelledError
            failing(delivery)

        app.handler(queue, policy=self.policy(world, dead, 2))(handle)
        world.started(app)
        for body in (b"one", b"cancelled"):
            world.send(queue, body)
        assert world.wait_until(lambda: len(runs.runs) == 4 and world.depth(dead) == 1)
        assert [run.count for run in runs.of(b"one")] == [1, 2]
        assert [letter.body for letter in world.take_all(dead)] == [b"cancelled"]

    def test_an_app_with_two_sources_keeps_them_apart(self, world: World) -> None:
        left, right, dead = world.new_queue(), world.new_queue(), world.new_queue()
        app = world.app()
        failing, well = Handler(world.now, fail), Handler(world.now)
        app.handler(left, policy=self.policy(world, dead, 2))(failing)
        app.handler(right, policy=self.policy(world, dead, 5))(well)
        world.started(app)
        for queue in (left, right):
            world.send(queue, b"same", message_id="same")
        assert world.wait_until(lambda: world.depth(dead) == 1 and well.done[b"same"] == 1)
        assert [run.count for run in failing.runs] == [1, 2]
        assert [run.count for run in well.runs] == [1]
        assert world.take_all(dead)[0].headers["redeliver_original_destination"] == left

    def test_two_consumers_on_one_queue_handle_each_message_once(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        # one handler for both consumers: a copy may reach the other one
        policy, failing = self.policy(world, dead), fail_first(1)
        both = [world.consume(queue, failing, policy, prefetch=4) for _ in range(2)]
        bodies = [f"m{n}".encode() for n in range(40)]
        for body in bodies:
            world.send(queue, body, message_id=body.decode())
        assert world.wait_until(lambda: sum(c.handler.done.total() for c in both) == len(bodies))
        done = both[0].handler.done + both[1].handler.done
        assert done == dict.fromkeys(bodies, 1)
        for body in bodies:
            assert sorted(run.count for c in both for run in c.handler.of(body)) == [1, 2]
        for consumer in both:
            consumer.stop()
        assert world.depth(queue) == world.depth(dead) == 0

    def test_healthy_messages_do_not_wait_behind_those_that_are_held(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        failing = fail_if(lambda delivery: delivery.body.startswith(b"failing"))
        consumer = world.consume(queue, failing, self.policy(world, dead, backoff=8.0), prefetch=50)
        for n in range(20):
            world.send(queue, f"failing{n}".encode())
        for n in range(150):  # three times the prefetch window, and still sent long before the retries are due
            world.send(queue, f"well{n}".encode())
        begun = world.now()
        assert world.wait_until(lambda: consumer.handler.done.total() == 150, 8.0)
        assert world.now() - begun < 8.0
        assert all(len(consumer.handler.of(f"failing{n}".encode())) == 1 for n in range(20))
        assert max(consumer.handler.done.values()) == 1

    def test_a_full_budget_of_holds_pauses_and_goes_on_by_itself(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        consumer = world.consume(queue, fail_first(1), self.policy(world, dead), prefetch=2)
        for n in range(6):
            world.send(queue, f"m{n}".encode())
        assert world.wait_until(lambda: consumer.handler.done.total() == 6)
        assert sorted(consumer.counts) == [1] * 6 + [2] * 6
        assert world.wait_until(lambda: consumer.paused is None)

    def test_the_journal_has_one_line_for_each_attempt(self, world: World, tmp_path: Path) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        act = fail_if(lambda d: d.body == b"failing" or (d.body == b"recovers" and d.failures == 0))
        consumer = world.consume(queue, act, self.policy(world, dead, 2), journal=tmp_path)
        for body in (b"well", b"recovers", b"failing"):
            world.send(queue, body, message_id=body.decode())
        assert world.wait_until(lambda: consumer.handler.done.total() == 2 and world.depth(dead) == 1)
        consumer.stop()
        lines = sorted((r.message_id or "", r.delivery_count, r.outcome) for r in read_segments(tmp_path))
        expected = [
            ("failing", 1, "redelivered"),
            ("failing", 2, "dead_lettered"),
            ("recovers", 1, "redelivered"),
            ("recovers", 2, "accepted"),
            ("well", 1, "accepted"),
        ]
        if world.keeps_message_ids:
            assert lines == expected
        else:
            assert sorted(line[1:] for line in lines) == sorted(line[1:] for line in expected)

    @needs_ability("threads")
    def test_workers_run_side_by_side(self, world: World) -> None:
        from threading import Barrier

        queue = world.new_queue()
        together = Barrier(3, timeout=world.patience)
        consumer = world.consume(queue, lambda _: together.wait() and None, workers=3)
        for n in range(3):
            world.send(queue, f"m{n}".encode())
        assert world.wait_until(lambda: consumer.handler.done.total() == 3)
