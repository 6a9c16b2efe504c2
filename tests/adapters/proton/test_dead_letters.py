# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests that the broker's own tools understand our dead letters, and that we understand the broker's own."""

from __future__ import annotations

from collections.abc import Callable

import proton
import pytest
import stomp

from redeliver_mw.message import Death, Delivery, Destination
from redeliver_mw.session import connect
from redeliver_mw.testing.contract.handlers import Handler, fail
from tests.adapters.proton.dropins import Consumer, drive, unsettled
from tests.contract.proton_world import ProtonWorld

pytestmark = pytest.mark.broker


def dead_at_second(dead: str) -> str:
    return f"2:move(queue:{dead})"


def browsed(world: ProtonWorld, queue: str) -> list[Delivery]:
    with connect(world.url) as session:
        return list(session.browse(queue))


def test_the_brokers_retry_sends_ours_back_to_the_queue_they_came_from(world: ProtonWorld) -> None:
    queue, dead = world.new_queue(), world.new_queue()
    consumer = world.consume(queue, fail, dead_at_second(dead))
    world.send(queue, b"one", {"k": "v"}, message_id="m1")
    assert world.wait_until(lambda: world.depth(dead) == 1)
    consumer.stop()
    assert world.raw.ask(f"queue.{dead}", "retryMessages") == 1
    assert world.wait_until(lambda: world.depth(queue) == 1)
    handler = Handler(world.now)
    world.consume(queue, handler, dead_at_second(dead))
    assert world.wait_until(lambda: handler.done[b"one"] == 1)
    assert (world.depth(dead), handler.runs[0].delivery.past.generation) == (0, 1)


def die_in_a_transaction(world: ProtonWorld, queue: str) -> str:
    """Dead-letter a message by an App whose target takes it at once, and return that target."""
    dead = world.new_queue()
    consumer = world.consume(queue, fail, dead_at_second(dead))
    assert world.wait_until(lambda: world.depth(dead) == 1)
    consumer.stop()
    return dead


def die_by_a_publish_of_its_own(world: ProtonWorld, queue: str) -> str:
    """Dead-letter a message by an App whose target has refused it at first, and return that target.

    From the refusal on, the copy is sent first, and the original settled after that.
    """
    dead = world.new_queue(refusing=True)
    consumer = world.consume(queue, fail, dead_at_second(dead))
    assert world.wait_until(lambda: consumer.paused is not None)
    world.relent(dead)
    assert world.wait_until(lambda: world.depth(dead) == 1)
    consumer.stop()
    return dead


def die_under_a_drop_in(world: ProtonWorld, queue: str) -> str:
    dead = world.new_queue()
    runs = []

    def act(event: object) -> None:
        runs.append(event)
        raise ValueError("no")

    consumer = Consumer(world.broker, queue, act)
    drive(consumer, lambda: len(runs) == 2 and not unsettled(consumer), policy=dead_at_second(dead))
    return dead


WAYS = [die_in_a_transaction, die_by_a_publish_of_its_own, die_under_a_drop_in]


@pytest.mark.parametrize("die", WAYS)
def test_what_the_brokers_retry_sends_back_is_the_message_as_it_was_whichever_way_it_died(
    world: ProtonWorld, die: Callable[[ProtonWorld, str], str]
) -> None:
    queue = world.new_queue()
    sent = proton.Message(body="zwölf", id="m1", correlation_id="c1", subject="s", properties={"k": 1, "b": b"\xff"})
    world.raw.send(queue, sent)
    dead = die(world, queue)
    assert (world.depth(queue), world.depth(dead)) == (0, 1)
    assert world.raw.ask(f"queue.{dead}", "retryMessages") == 1
    assert world.wait_until(lambda: world.depth(queue) == 1)
    assert world.depth(dead) == 0
    (back,) = world.raw.take(queue, 1)
    assert (back.body, back.id, back.correlation_id, back.subject) == ("zwölf", "m1", "c1", "s")
    assert (back.properties["k"], bytes(back.properties["b"])) == (1, b"\xff")


def test_what_the_brokers_retry_sent_back_may_die_again_and_be_sent_back_again(world: ProtonWorld) -> None:
    queue, dead = world.new_queue(), world.new_queue()
    handler = Handler(world.now, lambda d: fail(d) if d.past.generation < 2 else None)
    world.consume(queue, handler, dead_at_second(dead))
    world.send(queue, b"one", message_id="m1")
    for _ in range(2):
        assert world.wait_until(lambda: world.depth(dead) == 1)
        assert world.raw.ask(f"queue.{dead}", "retryMessages") == 1
    assert world.wait_until(lambda: handler.done[b"one"] == 1)
    seen = [(run.delivery.past.generation, run.count) for run in handler.runs]
    assert seen == [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1)]
    assert world.wait_until(lambda: (world.depth(queue), world.depth(dead)) == (0, 0))


def test_the_brokers_retry_sends_ours_and_its_own_back_from_one_queue(world: ProtonWorld) -> None:
    """The queue holds the letters of two sources, of an App, of the broker, and of a STOMP client's message."""
    first, second, dead = world.new_queue(), world.new_queue(), world.new_queue()
    world.raw.settings(second, deadLetterAddress=dead, maxDeliveryAttempts=1)
    connection = stomp.Connection([(world.broker.host, world.broker.stomp_port)])
    connection.connect(world.broker.user, world.broker.password, wait=True)
    connection.send(first, "stomp", headers={"destination-type": "ANYCAST", "persistent": "true"})
    connection.disconnect()
    world.send(first, b"amqp")
    world.send(second, b"own")
    consumer = world.consume(first, fail, dead_at_second(dead))
    with connect(world.url) as session:
        delivery = session.receive(second, 10.0)
        assert delivery is not None
        session.settle(delivery, "returned")
    assert world.wait_until(lambda: world.depth(dead) == 3)
    consumer.stop()
    assert world.raw.ask(f"queue.{dead}", "retryMessages") == 3
    assert world.wait_until(lambda: (world.depth(first), world.depth(second), world.depth(dead)) == (2, 1, 0))
    assert {letter.body for letter in browsed(world, first)} == {b"stomp", b"amqp"}
    assert [letter.body for letter in browsed(world, second)] == [b"own"]


def test_the_brokers_retry_sends_ours_back_to_the_one_subscription_they_came_from(world: ProtonWorld) -> None:
    topic, dead = world.new_name(), world.new_queue()  # its own letters the broker would send to both
    app = world.app()
    failing, well = Handler(world.now, fail), Handler(world.now)
    app.handler(f"topic:{topic}", subscription=f"{topic}.failing", policy=dead_at_second(dead))(failing)
    app.handler(f"topic:{topic}", subscription=f"{topic}.well", policy=dead_at_second(dead))(well)
    world.started(app)
    world.raw.send(topic, proton.Message(body=b"price", inferred=True), "topic")
    assert world.wait_until(lambda: world.depth(dead) == 1)
    app.stop()
    (letter,) = browsed(world, dead)
    assert letter.headers["_AMQ_ORIG_ADDRESS"] == topic
    assert letter.reader.death(letter.native) == Death(Destination(topic, "topic", f"{topic}.failing"))
    assert world.raw.ask(f"queue.{dead}", "retryMessages") == 1
    assert world.wait_until(lambda: world.depth(f"{topic}.failing") == 1)
    assert (world.depth(f"{topic}.well"), world.depth(dead), well.done[b"price"]) == (0, 0, 1)


def test_a_message_that_the_broker_dead_lettered_is_read_with_its_source(world: ProtonWorld) -> None:
    queue, dead = world.new_queue(), world.new_queue()
    world.raw.settings(queue, deadLetterAddress=dead, maxDeliveryAttempts=1)
    world.send(queue, b"amqp", message_id="m1")
    with connect(world.url) as session:
        delivery = session.receive(queue, 10.0)
        assert delivery is not None
        session.settle(delivery, "returned")
        assert world.wait_until(lambda: world.depth(dead) == 1)
    (letter,) = browsed(world, dead)
    assert (letter.body, letter.message_id) == (b"amqp", "m1")
    assert letter.reader.death(letter.native) == Death(Destination(queue))
    assert not letter.reader.marked(letter.native)


def test_what_a_stomp_client_sent_and_the_broker_let_expire_is_read_too(world: ProtonWorld) -> None:
    queue, dead = world.new_queue(), world.new_queue()
    world.raw.settings(queue, expiryAddress=dead)
    connection = stomp.Connection([(world.broker.host, world.broker.stomp_port)])
    connection.connect(world.broker.user, world.broker.password, wait=True)
    headers = {"destination-type": "ANYCAST", "persistent": "true", "expires": "1000"}
    connection.send(queue, "stomp", headers=headers)
    connection.disconnect()
    assert world.wait_until(lambda: world.depth(dead) == 1)
    (letter,) = browsed(world, dead)
    assert letter.body == b"stomp"
    assert letter.reader.death(letter.native) == Death(Destination(queue), "expired")


def test_a_dead_letter_of_ours_that_is_dead_lettered_again_carries_no_marks_of_the_broker(world: ProtonWorld) -> None:
    first, second, last = world.new_queue(), world.new_queue(), world.new_queue()
    world.consume(first, fail, f"1:move(queue:{second})")
    world.consume(second, fail, f"1:move(queue:{last})")
    world.send(first, b"one")
    assert world.wait_until(lambda: world.depth(last) == 1)
    (letter,) = browsed(world, last)
    assert letter.reader.death(letter.native) == Death(Destination(second))
    assert letter.headers["_AMQ_ORIG_ADDRESS"] == second
