# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests dead letters and their replay."""

from __future__ import annotations

import json
import re
from datetime import datetime

import pytest

from ...message import Delivery
from ...redelivery.delays import Option
from .case import Case
from .handlers import Handler, Trouble, fail, fail_first
from .world import World


class Letters(Case):
    """Checks dead letters, and copies that come back."""

    def test_after_the_last_failure_it_lies_in_the_dead_letter_queue(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        consumer = world.consume(queue, fail, self.policy(world, dead))
        world.send(queue, b"one", message_id="m1")
        assert world.wait_until(lambda: world.depth(dead) == 1)
        consumer.stop()
        assert world.depth(queue) == 0
        (letter,) = world.take_all(dead)
        headers = letter.headers
        assert letter.body == b"one"
        assert headers["original-destination"] == world.capabilities.queue_address.format(name=queue)
        assert headers["redeliver_original_destination"] == queue
        assert (headers["redeliver_original_kind"], headers["redeliver_failures_for"]) == ("queue", queue)
        assert (headers["redeliver_failures"], headers["redeliver_reason"]) == ("3", "exhausted")
        assert (headers["redeliver_generation"], headers["redeliver_hop"]) == ("0", "1")
        assert (headers["redeliver_error_type"], headers["redeliver_app"]) == ("Trouble", "contract")
        assert headers["redeliver_error_message"] == "it never works"
        assert re.fullmatch("[0-9a-f]{16}", headers["redeliver_error_fingerprint"])
        times = [headers[f"redeliver_{name}_at"] for name in ("first_attempt", "first_failed", "last_failed")]
        assert [datetime.fromisoformat(time).utcoffset() is not None for time in times] == [True] * 3
        assert times == sorted(times)
        assert times[1] < times[2]
        assert "redeliver_not_before" not in headers

    @pytest.mark.parametrize("delay", ["hold", "auto"])
    def test_a_dead_letter_tells_of_its_last_ten_attempts(self, world: World, delay: Option) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        policy = self.policy(world, dead, 12, backoff=[0.01] * 10 + [1.2])  # the last delay may be waited at the broker
        consumer = world.consume(queue, fail, policy, records=True, delay=delay)
        world.send(queue, b"one", {"redeliver_history": "[" * 3_000}, message_id="m1")
        assert world.wait_until(lambda: world.depth(dead) == 1 and len(consumer.records) == 12)
        (letter,) = world.take_all(dead)
        found = json.loads(letter.headers["redeliver_history"])
        assert [item.get("d") for item in found] == [0.01] * 8 + [1.2, None]
        assert {item["f"] for item in found} == {letter.headers["redeliver_error_fingerprint"]}
        assert {item["h"] for item in found} == {letter.headers["redeliver_host"][:64]}
        at = [round(datetime.fromisoformat(item["t"]).timestamp() * 1000) for item in found]
        assert at == [record.ts_us // 1000 for record in consumer.records[2:]]
        assert at[-1] - at[-2] >= 1_200 - 1

    def test_dead_letters_go_to_every_target(self, world: World) -> None:
        queue, left, right = (world.new_queue() for _ in range(3))
        world.consume(queue, fail, self.policy(world, [left, right], 1))
        world.send(queue, b"one", message_id="m1")
        assert world.wait_until(lambda: world.depth(left) == world.depth(right) == 1)
        (first,), (second,) = world.take_all(left), world.take_all(right)
        assert first.body == second.body == b"one"
        assert first.headers["redeliver_lineage"] == second.headers["redeliver_lineage"]
        assert first.headers["redeliver_copy_id"] != second.headers["redeliver_copy_id"]

    def test_a_dead_letter_carries_the_marks_that_the_brokers_own_tools_look_for(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        world.consume(queue, fail, self.policy(world, dead, 1))
        world.send(queue, b"one")
        assert world.wait_until(lambda: world.depth(dead) == 1)
        (letter,) = world.take_all(dead)
        assert set(world.capabilities.death_marks) <= set(letter.headers)

    def test_discard_leaves_nothing_and_keep_leaves_all(self, world: World) -> None:
        queue, other = world.new_queue(), world.new_queue()
        gone = world.consume(queue, fail, self.policy(world, None, 2, on_dead="discard"), records=True)
        kept = world.consume(other, fail, self.policy(world, None, 2, on_dead="keep"), records=True, delay="hold")
        for name in (queue, other):
            world.send(name, b"one")
        assert world.wait_until(lambda: len(gone.records) == 2 and len(kept.records) >= 3)
        assert [record.outcome for record in gone.records] == ["redelivered", "discarded"]
        assert [record.outcome for record in kept.records][:3] == ["redelivered", "kept", "kept"]
        for consumer in (gone, kept):
            consumer.stop()
        assert (world.depth(queue), world.depth(other)) == (0, 1)

    def test_a_message_that_expires_during_its_delay_is_not_run_again(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        consumer = world.consume(queue, fail, self.policy(world, dead, 5, backoff=1.0))
        world.send(queue, b"one", lifetime=0.4)
        assert world.wait_until(lambda: world.depth(dead) == 1)
        assert consumer.counts == [1]
        assert world.take_all(dead)[0].headers["redeliver_reason"] == "expired"

    def test_a_dead_letter_sent_back_by_a_strangers_tool_lives_again(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        consumer = world.consume(queue, fail, self.policy(world, dead, 2))
        world.send(queue, b"one", message_id="m1")
        assert world.wait_until(lambda: world.depth(dead) == 1)
        (letter,) = world.take_all(dead)
        world.send(queue, letter.body, letter.headers, message_id="m1")
        assert world.wait_until(lambda: world.depth(dead) == 1)
        assert consumer.counts == [1, 2, 1, 2]
        (again,) = world.take_all(dead)
        assert (again.headers["redeliver_generation"], again.headers["redeliver_failures"]) == ("1", "2")
        assert again.headers["redeliver_lineage"] == letter.headers["redeliver_lineage"]
        assert again.headers["redeliver_copy_id"] != letter.headers["redeliver_copy_id"]

    def test_headers_that_a_handler_forwards_count_for_nothing_elsewhere(self, world: World) -> None:
        queue, onward, dead = (world.new_queue() for _ in range(3))
        first = world.consume(queue, fail, self.policy(world, dead, 2))
        world.send(queue, b"one", message_id="m1")
        assert world.wait_until(lambda: world.depth(dead) == 1)
        (letter,) = world.take_all(dead)
        retried = {name: value for name, value in letter.headers.items() if name != "redeliver_reason"}
        second = world.consume(onward, fail, self.policy(world, dead, 3))
        world.send(onward, b"derived", retried)
        assert world.wait_until(lambda: world.depth(dead) == 1)
        assert (first.counts, second.counts) == ([1, 2], [1, 2, 3])
        (other,) = world.take_all(dead)
        assert other.headers["redeliver_original_destination"] == onward
        assert other.headers["redeliver_lineage"] != letter.headers["redeliver_lineage"]

    def test_copies_keep_the_first_id_and_pile_nothing_up(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        policy = self.policy(world, dead, 3, backoff=5.0)
        sizes: list[int] = []
        for _ in range(2):  # each stop makes a copy of the held message
            consumer = world.consume(queue, fail, policy, delay="hold")
            if not sizes:
                world.send(queue, b"one", {"traceparent": "t-1"}, message_id="m1")
            world.advance(world.tick * 2)
            consumer.stop()
            self.forget_everything()
            (copy,) = world.take_all(queue)
            sizes.append(len(copy.headers))
            assert (copy.headers["traceparent"], copy.headers["redeliver_failures"]) == ("t-1", "1")
            assert not {"redeliver_reason", "original-destination", *world.capabilities.death_marks} & set(copy.headers)
            if world.keeps_message_ids:
                assert copy.headers["redeliver_original_message_id"] == "m1"
            world.send(queue, copy.body, copy.headers, message_id="m1")
        assert sizes[0] == sizes[1]

    def test_a_recovered_message_leaves_no_letter_and_a_failing_one_exactly_one(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        failing = fail_first(1)

        def act(delivery: Delivery) -> None:
            if delivery.body.startswith(b"failing"):
                raise Trouble("failing")
            failing(delivery)

        consumer = world.consume(queue, Handler(world.now, act), self.policy(world, dead, 2, backoff=0.05), prefetch=20)
        for n in range(60):
            world.send(queue, f"{'failing' if n % 3 == 0 else 'recovers'}{n}".encode(), message_id=str(n))
        assert world.wait_until(lambda: consumer.handler.done.total() == 40 and world.depth(dead) == 20)
        consumer.stop()
        assert world.depth(queue) == 0
        letters = world.take_all(dead)
        assert len({letter.body for letter in letters}) == 20
        assert {letter.headers["redeliver_failures"] for letter in letters} == {"2"}
        assert set(consumer.handler.done.values()) == {1}
