# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests that sending an impossible message is an error in the handler, and does not block the source for ever."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ...errors import ConfigError
from ...message import Delivery
from .case import Case, needs
from .world import World


class Unsendable(Case):
    """Checks `Delivery.send` with invalid messages, and when it is too late."""

    @needs(lambda can: can.schedule is None or can.schedule.rungs, "it delays copies itself")
    def test_a_delay_that_nobody_can_keep_is_an_error_in_the_handler(self, world: World) -> None:
        errors = self.errors_of(world, lambda delivery: delivery.send("elsewhere", b"x", after=3.0))
        assert "cannot delay" in str(errors[0])
        assert "limbo=" in str(errors[0])

    @pytest.mark.parametrize(
        ("arguments", "more", "says"),
        [
            (("elsewhere", {"a": 1}), {}, "body is a dict"),
            (("elsewhere", b"x", [1]), {}, "headers are a list"),
            (("elsewhere", b"x", {7: "x"}), {}, "7 is no name"),
            (("elsewhere", b"x", {"h": object()}), {}, "object"),
            (("elsewhere", b"x", {"h": "x" * 2_000_000}), {}, "bytes"),
            ((" ", b"x"), {}, "names no destination"),
            (("elsewhere", b"x"), {"after": -1}, "after=-1"),
            (("elsewhere", b"x"), {"after": float("nan")}, "after=nan"),
            (("elsewhere", b"x"), {"colour": "red"}, "colour is no property"),
            (("elsewhere", b"x"), {"priority": "high"}, "priority='high'"),
            (("elsewhere", b"x"), {"content_type": 7}, "content_type=7"),
        ],
    )
    def test_what_can_never_be_sent_is_an_error_in_the_handler(
        self, world: World, arguments: tuple[Any, ...], more: dict[str, Any], says: str
    ) -> None:
        errors = self.errors_of(world, lambda delivery: delivery.send(*arguments, **more))
        assert says in str(errors[0])

    def errors_of(self, world: World, send: Callable[[Delivery], None]) -> list[ConfigError]:
        errors: list[ConfigError] = []

        def act(delivery: Delivery) -> None:
            try:
                send(delivery)
            except ConfigError as error:
                errors.append(error)

        queue = world.new_queue()
        consumer = world.consume(queue, act, self.policy(world, None))
        world.send(queue, b"one", message_id="m1")
        assert world.wait_until(lambda: consumer.handler.done[b"one"] == 1)
        consumer.stop()
        assert world.depth(queue) == 0
        assert len(errors) == 1
        return errors

    def test_a_send_after_the_handlers_end_is_an_error(self, world: World) -> None:
        queue, target = world.new_queue(), world.new_queue()
        consumer = world.consume(queue, None, self.policy(world, None))
        world.send(queue, b"one", message_id="m1")
        assert world.wait_until(lambda: consumer.handler.done[b"one"] == 1)
        world.advance(world.tick)
        with pytest.raises(ConfigError, match="after its handler was over"):
            consumer.handler.runs[0].delivery.send(target, b"late")
        consumer.stop()
        assert world.depth(target) == 0
