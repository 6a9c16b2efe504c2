# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests AMQP messages with an id of their producer's.

ActiveMQ closes the connection for the ACK of such a message, and keeps the message.
"""

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
from redeliver_stomp import unackable
from tests.adapters.stomp.dropins import Listener, begin, connect, consuming, new_name, put, settled, until
from tests.adapters.stomp.plain import Plain, Seen
from tests.brokers import Broker
from tests.contract.stomp_world import StompWorld

pytestmark = pytest.mark.broker


@pytest.fixture(autouse=True)
def _a_new_process() -> None:
    unackable._proved.clear()
    unackable._convicted.clear()


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "cannot be acked" in r.getMessage()]


def send_by_amqp(world: StompWorld, queue: str, *messages: Message) -> None:
    send_to(world.broker, queue, *messages)


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

    assert world.wait_until(lambda: bool(told(caplog)))
    world.cut_connections()  # whatever was not acked comes once more
    world.send(queue, b"last")
    assert world.wait_until(lambda: consumer.handler.done[b"last"] == 1)
    world.advance(0.2)
    consumer.stop()
    poison = [run for run in consumer.handler.runs if b"poison" in run.body]
    assert len(poison) == 1
    assert len(told(caplog)) == 1
    assert "message-id" in told(caplog)[0]
    assert [b"poison" in raw.body for raw in world.take_all(queue)] == [True]


def test_one_that_fails_makes_one_dead_letter_and_no_more(world: StompWorld, caplog: pytest.LogCaptureFixture) -> None:
    queue, dead = world.new_queue(), world.new_queue()
    send_by_amqp(world, queue, Message(id="m1", body=b"poison"), Message(id="m2", body=b"poison too"))

    def act(delivery: Delivery) -> None:
        if b"poison" in delivery.body:
            raise Trouble("failing")

    consumer = world.consume(queue, act, RedeliveryPolicy(1, 0.0, f"queue:{dead}"))
    assert world.wait_until(lambda: len(told(caplog)) == 2)  # before that a cut may cost a twin
    assert world.depth(dead) == 2
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


class TestInADropIn:
    @pytest.mark.parametrize("make", [lambda: "m1", lambda: "ID:h-1-2:1:1:1:1"], ids=["str", "like"])
    def test_it_is_run_once_and_its_neighbours_go_on(self, activemq63: Broker, make: Callable[[], Any]) -> None:
        queue, listener = new_name(), Listener()
        send_to(activemq63, queue, Message(id=make(), body=b"poison"))
        conn = connect(activemq63)
        begin(conn, activemq63, listener)
        conn.subscribe(f"/queue/{queue}", id="1")
        until(lambda: "poison" in str(listener.done))
        put(activemq63, queue, "well")
        for _ in range(3):  # as users do when their connection is gone
            if not conn.is_connected():
                conn.connect(activemq63.user, activemq63.password, wait=True)
                conn.subscribe(f"/queue/{queue}", id="1")
            until(lambda: "well" in listener.done or not conn.is_connected())
        put(activemq63, queue, "last")
        until(lambda: "last" in listener.done and settled(conn))
        assert conn.is_connected()
        conn.disconnect(receipt="bye")
        until(listener.gone.is_set)
        assert ["poison" in str(body) for body in listener.done].count(True) == 1
        assert [b"poison" in frame.body for frame in looked_at(activemq63, queue)] == [True]

    def test_a_receipt_that_the_callback_asks_for_is_shown(self, activemq63: Broker) -> None:
        queue = new_name()
        listener = Listener(lambda mine, frame: mine.conn.ack(frame.headers["ack"], receipt="mine"))
        send_to(activemq63, queue, Message(body=b"fine"))
        with consuming(activemq63, f"/queue/{queue}", listener):
            until(lambda: "receipt mine" in listener.told)
        assert looked_at(activemq63, queue) == []


def send_to(b: Any, queue: str, *messages: Message) -> None:
    connection = BlockingConnection(f"amqp://{b.user}:{b.password}@{b.host}:{b.amqp_port}", timeout=10)
    sender = connection.create_sender(f"queue://{queue}")
    for message in messages:
        message.durable = True
        sender.send(message)
    connection.close()


def looked_at(broker: Broker, queue: str) -> list[Seen]:
    """Return what lies in a queue, and leave it there: it cannot be acked."""
    witness, found = Plain(broker), []
    witness.say("SUBSCRIBE", {"id": "w", "destination": f"/queue/{queue}", "ack": "client-individual"})
    while (frame := witness.wait(0.5)) is not None:
        found.append(frame)
    witness.close()
    return found
