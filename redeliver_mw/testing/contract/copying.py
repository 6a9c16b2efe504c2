# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests what a copy carries: body, headers and properties unchanged, and no header that the broker would act on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ...message import Delivery
from .case import Case
from .handlers import Handler, Trouble, fail, fail_if
from .world import Consumer, Raw, World

NO_LIFETIME = ("expiration", "expires_at_us")  # a copy with these could expire a second time


class Copying(Case):
    """Checks that copies are exact and fit the budget of headers."""

    def die(
        self,
        world: World,
        body: bytes = b"one",
        headers: Mapping[str, Any] | None = None,
        lifetime: float | None = None,
        **properties: object,
    ) -> Raw:
        """Return the dead letter of a message that failed at once."""
        queue, dead = world.new_queue(), world.new_queue()
        world.consume(queue, fail, self.policy(world, dead, 1))
        world.send(queue, body, headers, lifetime=lifetime, **properties)
        assert world.wait_until(lambda: world.depth(dead) == 1)
        (letter,) = world.take_all(dead)
        return letter

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
        given: dict[str, Any] = {
            "correlation_id": "c-1",
            "content_type": "application/json",
            "content_encoding": "utf-8",
            "reply_to": "answers",
            "type": "order.placed",
            "priority": 4,
        }
        letter = self.die(world, message_id="m-1", **given)
        assert {name: letter.props.get(name) for name in given} == given
        assert letter.headers["redeliver_original_correlation_id"] == "c-1"
        if world.keeps_message_ids:
            assert letter.headers["redeliver_original_message_id"] == letter.props["message_id"] == "m-1"

    def test_a_copy_has_no_lifetime_and_no_user_of_its_own(self, world: World) -> None:
        user: dict[str, Any] = {"user_id": world.user} if world.user else {}
        letter = self.die(world, lifetime=60.0, **user)
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
        found = "".join(str(value) for value in letter.headers.values())
        assert "db.example" in found
        assert "hunter2" not in found
        assert "abcdef123456" not in found

    def test_headers_just_within_the_budget_are_copied(self, world: World) -> None:
        letter = self.die(world, headers=filling(world, 6_000))
        assert {name: letter.headers[name] for name in filling(world, 6_000)} == filling(world, 6_000)

    def test_a_message_with_headers_beyond_the_budget_is_retried_and_kept_here_and_others_go_on(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        consumer = world.consume(queue, fail_if(lambda d: d.body == b"one"), self.policy(world, dead, 3))
        world.send(queue, b"one", filling(world, 200))
        assert world.wait_until(lambda: len(consumer.counts) >= 1)
        others = [b"other %d" % n for n in range(20)]
        for body in others[:10]:
            world.send(queue, body)
        assert world.wait_until(lambda: set(others[:10]) <= set(consumer.bodies))
        assert world.wait_until(lambda: consumer.uncopyable == 1 and len(consumer.handler.of(b"one")) == 3)
        for body in others[10:]:
            world.send(queue, body)
        assert world.wait_until(lambda: set(others) <= set(consumer.bodies))
        assert consumer.paused is None
        world.advance(world.tick * 2)
        assert [run.count for run in consumer.handler.of(b"one")] == [1, 2, 3]
        found = [r.getMessage() for r in caplog.records if "cannot be copied" in r.getMessage()]
        assert len(found) == 1, found
        assert all(word in found[0] for word in (queue, "bytes", "limbo")), found
        consumer.stop(0.5)
        assert world.depth(dead) == 0
        assert world.wait_until(lambda: world.depth(queue) == 1)
        assert [raw.body for raw in world.take_all(queue)] == [b"one"]

    def test_in_a_window_of_one_a_message_that_cannot_be_copied_pauses_its_source(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        app, handler = world.app(), Handler(world.now, fail)
        app.handler(queue, policy=self.policy(world, dead, 2), prefetch=1)(handler)
        consumer = Consumer(world.started(app), handler)
        world.send(queue, b"one", filling(world, 200))
        assert world.wait_until(lambda: consumer.paused is not None)
        assert (consumer.counts, consumer.uncopyable) == ([1, 2], 1)
        assert "copied" in (consumer.paused or "")
        world.send(queue, b"two")
        world.advance(world.tick)
        assert consumer.bodies == [b"one", b"one"]
        consumer.stop(0.5)
        assert world.depth(dead) == 0
        assert world.wait_until(lambda: world.depth(queue) == 2)
        assert sorted(raw.body for raw in world.take_all(queue)) == [b"one", b"two"]


def filling(world: World, room: int) -> dict[str, str]:
    """Return headers that leave `room` bytes of the budget, none of them longer than a value may be."""
    left, each = world.capabilities.header_bytes - room, min(4_000, world.capabilities.value_bytes // 2)
    headers: dict[str, str] = {}
    while left > 0:
        name = f"filling{len(headers):03d}"
        size = max(1, min(each, left) - len(name) - 8)
        headers[name] = "x" * size
        left -= size + len(name) + 8
    return headers
