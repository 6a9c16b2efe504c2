# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What becomes of the dead, and what a copy carries."""

from __future__ import annotations

import re
from datetime import datetime

import pytest

from ...message import Delivery
from .case import Case
from .handlers import Handler, Trouble, fail, fail_first
from .world import Raw, World

NO_LIFETIME = ("expiration", "expires_at_us")  # by which a copy would die a second time


class Letters(Case):
    """Dead letters and retry copies."""

    def die(self, world: World, body: bytes = b"one", headers: object = None, **more: object) -> Raw:
        """The dead letter of a message that failed at once."""
        queue, dead = world.new_queue(), world.new_queue()
        world.consume(queue, fail, self.policy(world, dead, 1))
        world.send(queue, body, headers, **more)  # type: ignore[arg-type]
        assert world.wait_until(lambda: world.depth(dead) == 1)
        (letter,) = world.take_all(dead)
        return letter

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
        letter = self.die(world)
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

    def test_a_body_with_every_byte_value_is_copied_byte_for_byte(self, world: World) -> None:
        body = bytes(range(256)) + b"\x00\xff\r\n\x00"
        assert self.die(world, body).body == body

    def test_an_empty_body_is_copied(self, world: World) -> None:
        assert self.die(world, b"").body == b""

    def test_a_body_of_one_mebibyte_is_copied(self, world: World) -> None:
        body = bytes(i * 7 & 255 for i in range(1024)) * 1024
        assert self.die(world, body).body == body

    def test_headers_keep_their_types_and_values(self, world: World) -> None:
        given = dict(world.foreign_headers)
        letter = self.die(world, headers=given)
        exact = world.capabilities.exact_headers
        for name, value in given.items():
            if exact or not isinstance(value, float):
                assert letter.headers[name] == value, name
                assert type(letter.headers[name]) is type(value), name

    def test_standard_properties_are_kept(self, world: World) -> None:
        given = {
            "correlation_id": "c-1", "content_type": "application/json", "content_encoding": "utf-8",
            "reply_to": "answers", "type": "order.placed", "priority": 4,
        }  # fmt: skip
        letter = self.die(world, message_id="m-1", **given)
        assert {name: letter.props.get(name) for name in given} == given
        assert letter.headers["redeliver_original_correlation_id"] == "c-1"
        if world.keeps_message_ids:
            assert letter.headers["redeliver_original_message_id"] == letter.props["message_id"] == "m-1"

    def test_a_copy_has_no_lifetime_and_no_user_of_its_own(self, world: World) -> None:
        letter = self.die(world, lifetime=60.0, **({"user_id": world.user} if world.user else {}))
        assert not {"user_id", *NO_LIFETIME} & set(letter.props)
        if world.user:
            assert letter.headers["redeliver_original_user_id"] == world.user

    @pytest.mark.parametrize("size", [9_000, 200_000])
    def test_a_long_error_text_is_trimmed_to_what_fits(self, world: World, size: int) -> None:
        queue, dead = world.new_queue(), world.new_queue()

        def act(delivery: Delivery) -> None:
            raise Trouble("ü" * (size // 2))

        consumer = world.consume(queue, act, self.policy(world, dead, 2), records=True)
        world.send(queue, b"one")
        assert world.wait_until(lambda: world.depth(dead) == 1)
        text = world.take_all(dead)[0].headers["redeliver_error_message"]
        assert 100 < len(text.encode()) <= world.capabilities.value_bytes
        assert text.startswith("üüü")
        assert world.wait_until(lambda: len(consumer.records) == 2)
        assert len((consumer.records[1].error_text or "").encode()) > 2 * len(text.encode())

    def test_secrets_in_an_error_do_not_travel(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()

        def act(delivery: Delivery) -> None:
            raise Trouble("cannot reach https://bob:hunter2@db.example/x?token=abcdef123456")

        world.consume(queue, act, self.policy(world, dead, 1))
        world.send(queue, b"one")
        assert world.wait_until(lambda: world.depth(dead) == 1)
        (letter,) = world.take_all(dead)
        told = "".join(str(value) for value in letter.headers.values())
        assert "db.example" in told
        assert "hunter2" not in told
        assert "abcdef123456" not in told

    def test_headers_just_within_the_budget_are_copied(self, world: World) -> None:
        letter = self.die(world, headers=filling(world, 6_000))
        assert {name: letter.headers[name] for name in filling(world, 6_000)} == filling(world, 6_000)

    def test_headers_beyond_the_budget_are_retried_here_and_never_lost(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        consumer = world.consume(queue, fail, self.policy(world, dead, 2))
        world.send(queue, b"one", filling(world, 200))
        assert world.wait_until(lambda: consumer.paused is not None)
        assert consumer.counts == [1, 2]
        assert "copied" in (consumer.paused or "")
        world.send(queue, b"two")
        world.advance(world.tick)
        assert consumer.bodies == [b"one", b"one"]  # paused: it does not spin, and takes no other
        consumer.stop(0.5)
        assert world.depth(dead) == 0
        assert sorted(raw.body for raw in world.take_all(queue)) == [b"one", b"two"]

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
        sizes = []
        for _ in range(2):  # each stop makes a copy of what is held
            consumer = world.consume(queue, fail, policy, delay="hold")
            if not sizes:
                world.send(queue, b"one", {"traceparent": "t-1"}, message_id="m1")
            assert world.wait_until(lambda: bool(consumer.counts) or bool(sizes))
            world.advance(world.tick)
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

    def test_a_healed_message_leaves_no_letter_and_a_sick_one_just_one(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        sick = fail_first(1)

        def act(delivery: Delivery) -> None:
            if delivery.body.startswith(b"sick"):
                raise Trouble("sick")
            sick(delivery)

        consumer = world.consume(queue, Handler(world.now, act), self.policy(world, dead, 2, backoff=0.05), prefetch=20)
        for n in range(60):
            world.send(queue, f"{'sick' if n % 3 == 0 else 'heals'}{n}".encode(), message_id=str(n))
        assert world.wait_until(lambda: consumer.handler.done.total() == 40 and world.depth(dead) == 20)
        consumer.stop()
        assert world.depth(queue) == 0
        letters = world.take_all(dead)
        assert len({letter.body for letter in letters}) == 20
        assert {letter.headers["redeliver_failures"] for letter in letters} == {"2"}
        assert set(consumer.handler.done.values()) == {1}


def filling(world: World, room: int) -> dict[str, str]:
    """Headers that leave `room` bytes of the budget, none of them longer than a value may be."""
    left, each = world.capabilities.header_bytes - room, min(4_000, world.capabilities.value_bytes // 2)
    headers: dict[str, str] = {}
    while left > 0:
        name = f"filling{len(headers):03d}"
        size = max(1, min(each, left) - len(name) - 8)
        headers[name] = "x" * size
        left -= size + len(name) + 8
    return headers
