# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""AMQP messages with an id of their producer's: ActiveMQ closes the connection for their ACK, and keeps them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from proton import Message, ulong
from proton.utils import BlockingConnection

from redeliver_mw import Delivery
from redeliver_mw.policy import RedeliveryPolicy
from redeliver_mw.testing.contract.handlers import Trouble
from redeliver_stomp import _poison
from tests.contract.stomp_world import StompWorld

pytestmark = pytest.mark.broker


@pytest.fixture(autouse=True)
def _a_new_process() -> None:
    _poison._proved.clear()
    _poison._convicted.clear()


def send_by_amqp(world: StompWorld, queue: str, *messages: Message) -> None:
    b: Any = world._broker
    connection = BlockingConnection(f"amqp://{b.user}:{b.password}@{b.host}:{b.amqp_port}", timeout=10)
    sender = connection.create_sender(f"queue://{queue}")
    for message in messages:
        message.durable = True
        sender.send(message)
    connection.close()


@pytest.mark.parametrize(
    "make",
    [lambda: "m1", uuid.uuid4, lambda: ulong(3), lambda: "ID:h-1-2:1:1:1:1"],
    ids=["str", "uuid", "ulong", "like"],
)
def test_a_message_that_cannot_be_acked_is_run_once_and_its_neighbours_go_on(
    world: StompWorld, caplog: pytest.LogCaptureFixture, make: Callable[[], Any]
) -> None:
    queue = world.new_queue()
    send_by_amqp(world, queue, Message(id=make(), body=b"poison"))
    consumer = world.consume(queue)
    for n in range(20):
        world.send(queue, b"well%d" % n)
    assert world.wait_until(lambda: len([b for b in consumer.handler.done if b.startswith(b"well")]) == 20)

    def told() -> list[str]:
        return [r.getMessage() for r in caplog.records if "cannot be acked" in r.getMessage()]

    assert world.wait_until(lambda: bool(told()))
    world.cut_connections()  # whatever was not acked comes once more
    world.send(queue, b"last")
    assert world.wait_until(lambda: consumer.handler.done[b"last"] == 1)
    world.advance(0.2)
    consumer.stop()
    poison = [run for run in consumer.handler.runs if b"poison" in run.body]
    assert len(poison) == 1
    assert len(told()) == 1
    assert "message-id" in told()[0]
    assert [b"poison" in raw.body for raw in world.take_all(queue)] == [True]


def test_one_that_fails_makes_one_dead_letter_and_no_more(world: StompWorld) -> None:
    queue, dead = world.new_queue(), world.new_queue()
    send_by_amqp(world, queue, Message(id="m1", body=b"poison"), Message(id="m2", body=b"poison too"))

    def act(delivery: Delivery) -> None:
        if b"poison" in delivery.body:
            raise Trouble("sick")

    consumer = world.consume(queue, act, RedeliveryPolicy(1, 0.0, f"queue:{dead}"))
    assert world.wait_until(lambda: world.depth(dead) == 2)
    for _ in range(2):
        world.cut_connections()
        world.advance(0.3)
    world.send(queue, b"well")
    assert world.wait_until(lambda: consumer.handler.done[b"well"] == 1)
    consumer.stop()
    assert world.depth(dead) == 2
    assert world.depth(queue) == 2


def test_an_amqp_message_without_an_id_is_an_ordinary_one(world: StompWorld) -> None:
    queue = world.new_queue()
    send_by_amqp(world, queue, Message(body=b"fine"), Message(body=b"fine"))
    consumer = world.consume(queue)
    assert world.wait_until(lambda: consumer.handler.done.total() == 2)
    consumer.stop()
    assert world.depth(queue) == 0


def test_those_that_cannot_be_acked_do_not_use_up_the_window(world: StompWorld) -> None:
    queue = world.new_queue()
    send_by_amqp(world, queue, *(Message(id=f"m{n}", body=b"poison") for n in range(4)))
    consumer = world.consume(queue, prefetch=2)
    assert world.wait_until(lambda: len(consumer.handler.runs) >= 4)
    world.cut_connections()
    world.send(queue, b"well")
    assert world.wait_until(lambda: consumer.handler.done[b"well"] == 1)
    consumer.stop()
    assert world.depth(queue) == 4
