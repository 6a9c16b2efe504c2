# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests bad input, and a broker that is not as expected: reported at start, at once, with a cure."""

from __future__ import annotations

from typing import Any

import pytest

from ...errors import BrokerError, BrokerUnavailable, ConfigError, CredentialsRefused, DestinationMissing, PolicyError
from ...session import connect
from .case import Case, needs, needs_ability, needs_missing
from .handlers import Trouble
from .world import World


class Starting(Case):
    """Checks what is refused before the first message, and what an adapter declares of its broker."""

    @needs_missing
    def test_a_missing_target_is_made_or_named(self, world: World) -> None:
        queue, missing = world.new_queue(), world.new_queue(declare=False)
        with pytest.raises(DestinationMissing, match=missing):
            world.consume(queue, policy=self.policy(world, missing), declare="none")
        assert not world.exists(missing)
        world.consume(queue, policy=self.policy(world, missing)).stop()
        assert world.exists(missing)

    def test_a_dead_letter_target_that_is_the_source_is_refused(self, world: World) -> None:
        queue = world.new_queue()
        with pytest.raises(ConfigError, match=queue):
            world.consume(queue, policy=self.policy(world, queue))

    def test_a_delay_that_cannot_be_had_is_refused(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        with pytest.raises(PolicyError, match="60"):
            world.consume(queue, policy=self.policy(world, dead, backoff=60.0), delay="hold")

    def test_after_a_refused_start_the_queue_is_as_it_was(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        world.send(queue, b"one")
        with pytest.raises(PolicyError):
            world.consume(queue, policy=self.policy(world, dead, backoff=60.0), delay="hold")
        assert [(raw.body, raw.redelivered) for raw in world.take_all(queue)] == [(b"one", False)]

    def test_an_undecodable_message_is_a_dead_letter_at_once(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        consumer = world.consume(queue, policy=self.policy(world, dead), decode=lambda body: int(body))
        for body in (b"1", b"one", b"2"):
            world.send(queue, body)
        assert world.wait_until(lambda: world.depth(dead) == 1 and consumer.handler.done.total() == 2)
        assert consumer.bodies == [b"1", b"2"]
        (letter,) = world.take_all(dead)
        assert letter.body == b"one"
        headers = letter.headers
        assert (headers["redeliver_reason"], headers["redeliver_error_type"]) == ("undecodable", "ValueError")
        assert headers["redeliver_failures"] == "1"

    def test_an_undecodable_message_is_retried_where_the_policy_names_its_error(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        calls: list[bytes] = []

        def decode(body: bytes) -> bytes:
            calls.append(body)
            if len(calls) == 1:
                raise Trouble("the schema registry is away")
            return body

        consumer = world.consume(queue, policy=self.policy(world, dead, retry_on=Trouble), decode=decode)
        world.send(queue, b"one")
        assert world.wait_until(lambda: consumer.handler.done[b"one"] == 1)
        assert (len(calls), consumer.counts) == (2, [2])

    def test_a_hook_that_fails_changes_nothing(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        app = world.app()

        @app.on_attempt
        def broken(record: object) -> None:
            raise Trouble("a broken hook")

        @app.handler(queue, policy=self.policy(world, dead, 2))
        def handle(delivery: object) -> None:
            raise Trouble("failing")

        world.started(app)
        world.send(queue, b"one")
        assert world.wait_until(lambda: world.depth(dead) == 1)

    @needs_ability("credentials")
    def test_a_wrong_password_is_an_error_that_does_not_show_it(self, world: World) -> None:
        begun = world.now()
        with pytest.raises(CredentialsRefused) as caught:
            world.consume(world.new_queue(), url=world.other_url(password="not-the-right-one"))
        assert world.now() - begun < world.start_limit
        assert "not-the-right-one" not in str(caught.value)
        assert caught.value.cure

    @needs_ability("network")
    def test_an_absent_broker_is_an_error_soon(self, world: World) -> None:
        begun = world.now()
        with pytest.raises(BrokerUnavailable) as caught:
            world.consume(world.new_queue(), url=world.other_url(hosts=[world.dead_host()]))
        assert world.now() - begun < world.start_limit
        assert caught.value.cure

    @needs_ability("network")
    def test_a_dead_first_host_is_passed_over(self, world: World) -> None:
        queue = world.new_queue()
        consumer = world.consume(queue, url=world.other_url(hosts=[world.dead_host(), None]))
        world.send(queue, b"one")
        assert world.wait_until(lambda: consumer.handler.done[b"one"] == 1)

    @needs_ability("threads")
    def test_a_session_receives_and_settles_as_asked(self, world: World) -> None:
        queue = world.new_queue()
        world.send(queue, b"one")
        with connect(world.url) as session:
            delivery = session.receive(queue, 10.0)
            assert delivery is not None
            assert delivery.body == b"one"
            if "released" in world.capabilities.honours:
                session.settle(delivery, "released")
                again = session.receive(queue, 10.0)
                assert again is not None
                assert (again.body, again.tag == delivery.tag) == (b"one", False)
                delivery = again
            session.settle(delivery)
            assert session.receive(queue, 0.2) is None
        assert world.depth(queue) == 0

    @needs_ability("threads")
    def test_a_session_publishes_durably_and_says_what_was_not_kept(self, world: World) -> None:
        queue = world.new_queue()
        given = {name: value for name, value in world.foreign_headers.items() if name in ("text", "fraction")}
        with connect(world.url) as session:
            session.publish(queue, b"one", given, correlation_id="c1")
        (raw,) = world.take_all(queue)
        assert (raw.body, dict(raw.headers), raw.props["correlation_id"]) == (b"one", given, "c1")

    @needs_ability("threads")
    def test_a_session_encodes_a_text_and_refuses_at_once_what_can_never_be_sent(self, world: World) -> None:
        queue = world.new_queue()
        never: list[tuple[Any, Any]] = [({"a": 1}, None), (b"x", [1]), (b"x", {7: "x"}), (b"x", {"h": object()})]
        with connect(world.url) as session:
            for body, headers in never:
                with pytest.raises((ConfigError, BrokerError), match=queue):
                    session.publish(queue, body, headers)
            session.publish(queue, "gr\u00fc\u00dfe")
        (raw,) = world.take_all(queue)
        assert raw.body == "gr\u00fc\u00dfe".encode()

    @needs_ability("threads")
    def test_a_loop_that_pulls_gets_the_same_redelivery(self, world: World) -> None:
        queue, dead = world.new_queue(), world.new_queue()
        for body in (b"well", b"failing"):
            world.send(queue, body, message_id=body.decode())
        seen = []
        with connect(world.url) as session:
            for pulled in session.deliveries(queue, policy=self.policy(world, dead, 2), timeout=world.tick + 1.0):
                with pulled as delivery:
                    seen.append((delivery.body, delivery.delivery_count))
                    if delivery.body == b"failing":
                        raise Trouble("failing")
        assert seen == [(b"well", 1), (b"failing", 1), (b"failing", 2)]
        assert [letter.body for letter in world.take_all(dead)] == [b"failing"]

    @needs_ability("threads")
    @needs(lambda c: c.depth, "it does not tell how deep a queue is")
    def test_the_depth_is_what_waits(self, world: World) -> None:
        queue = world.new_queue()
        for n in range(3):
            world.send(queue, f"m{n}".encode())
        with connect(world.url) as session:
            assert session.depth(queue) == 3

    @needs_ability("threads")
    @needs(lambda c: c.browse != "none", "it cannot browse")
    def test_browsing_leaves_every_message_where_it_was(self, world: World) -> None:
        queue = world.new_queue()
        bodies = [f"m{n}".encode() for n in range(5)]
        for body in bodies:
            world.send(queue, body)
        with connect(world.url) as session:
            assert [seen.body for seen in session.browse(queue, 3)] == bodies[:3]
            assert world.wait_until(lambda: world.depth(queue) == 5)
        left = world.take_all(queue)
        assert sorted(raw.body for raw in left) == bodies
        marked = {raw.body for raw in left if raw.redelivered}
        assert marked == (set(bodies[:3]) if world.capabilities.browse == "requeue" else set())
