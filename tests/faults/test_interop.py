# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests what the systems of old read from messages and write on them, over each real broker's wire."""

from __future__ import annotations

import contextlib
import threading
import time

import pika
import proton
import pytest
import stomp
from proton.utils import BlockingConnection

from redeliver_mw import App, Delivery, RedeliveryPolicy
from redeliver_mw.adapter.registry import parse_url
from redeliver_mw.journal.records import AttemptRecord
from redeliver_mw.policy import Expiry, Target
from redeliver_mw.session import connect
from tests.brokers import Broker
from tests.faults.letters import declare, take

pytestmark = pytest.mark.broker

SOURCE, DEAD = "idioms.orders", "idioms.dead"
DATE = "atg.dms.patchbay.MessageLimbo.DELIVERY_DATE"
EARLY = 0.005  # two readings of the clock
PATIENCE = 30.0
PATCH_BAY = f"""<dynamo-message-system><patch-bay><message-sink><input-port><input-destination>
<destination-name>{SOURCE}</destination-name><destination-type>Queue</destination-type>
</input-destination></input-port></message-sink></patch-bay></dynamo-message-system>"""
WEBLOGIC = f"""<weblogic-jms><queue name="{SOURCE}"><delivery-failure-params>
<error-destination>{DEAD}</error-destination></delivery-failure-params></queue><queue name="{DEAD}"/></weblogic-jms>"""


@pytest.fixture
def broker(every_broker: Broker) -> Broker:
    declare(every_broker, SOURCE, DEAD)
    return every_broker


def over(app: App) -> threading.Event:
    """Return an event that is set when a message has come to its end."""
    done = threading.Event()

    @app.on_attempt
    def told(record: AttemptRecord) -> None:
        if record.outcome != "redelivered":
            done.set()

    return done


def test_a_message_that_jmsjca_moved_says_so_to_whoever_takes_it(broker: Broker) -> None:
    app = App(broker.url, policy=f"2:move(queue:{DEAD})")

    @app.handler(SOURCE)
    def on_order(delivery: Delivery) -> None:
        delivery.headers["_JMSJCA_UserRollbackData"] = f"after {delivery.headers['_JMSJCA_RedeliveryCount']}"
        raise ConnectionError("the warehouse does not answer")

    done = over(app)
    with connect(broker.url) as session:
        session.publish(SOURCE, b"one lamp", {"mine": "kept"}, correlation_id="c-1")
    with app:
        assert done.wait(PATIENCE)
    (letter,) = take(broker, DEAD)
    assert (letter.body, letter.headers["mine"]) == (b"one lamp", "kept")
    for start in ("_JMSJCA_", "JMS_Sun_JMSJCA_"):
        found = {name: letter.headers[start + name] for name in ("RedeliveryCount", "OriginalDestinationName")}
        assert found == {"RedeliveryCount": "2", "OriginalDestinationName": SOURCE}
        assert letter.headers[f"{start}OriginalJMSCorrelationID"] == "c-1"
        assert letter.headers[f"{start}ExceptionClass"] == "ConnectionError"
        assert "in on_order\n" in letter.headers[f"{start}ExceptionStackTrace"]
        assert letter.headers[f"{start}UserRollbackData"] == "after 1"


def test_a_senders_limit_is_read_from_the_message(broker: Broker) -> None:
    app, counts = App(broker.url, policy=WEBLOGIC, allow_hot_loop=True), list[int]()

    @app.handler(SOURCE)
    def on_order(delivery: Delivery) -> None:
        counts.append(delivery.delivery_count)
        raise ValueError("no")

    done = over(app)
    with connect(broker.url) as session:
        session.publish(SOURCE, b"one", {"JMS_BEA_RedeliveryLimit": 2})
    with app:
        assert done.wait(PATIENCE)
    assert counts == [1, 2, 3]
    assert len(take(broker, DEAD)) == 1


def test_a_delivery_date_is_waited_for(broker: Broker) -> None:
    app, handled = App(broker.url, policy=PATCH_BAY, allow_hot_loop=True), dict[bytes, float]()

    @app.handler(SOURCE)
    def on_order(delivery: Delivery) -> None:
        handled[delivery.body] = time.time()
        if len(handled) == 2:
            both.set()

    both = threading.Event()
    due = time.time() + 4.0
    with connect(broker.url) as session:
        session.publish(SOURCE, b"later", {DATE: int(due * 1000) + 1})
        session.publish(SOURCE, b"now")
    with app:
        assert both.wait(PATIENCE)
    assert list(handled) == [b"now", b"later"]
    assert handled[b"later"] >= due - EARLY
    assert take(broker, SOURCE) == []


def redirected(broker: Broker, lives: float) -> tuple[Delivery, int]:
    """Return the message that is in the other queue, and the time of its publication in microseconds.

    The message has 1.5 s to live. It has failed before, and its delay of two seconds is over.
    """
    policy = RedeliveryPolicy(9, 2.0, expiry=Expiry("redirect", Target("queue", DEAD), time_to_live=lives, priority=7))
    app, done = App(broker.url, policy=policy), threading.Event()
    app.handler(SOURCE)(lambda delivery: 1 / 0)
    app.on_attempt(lambda record: done.set() if record.reason == "expired" else None)
    with app:
        with connect(broker.url) as session:
            at_us = time.time_ns() // 1000
            session.publish(SOURCE, b"short", {"mine": "kept"}, expires_at_us=at_us + 1_500_000, ttl_us=1_500_000)
        assert done.wait(PATIENCE)
    (late,) = take(broker, DEAD)
    return late, at_us


def test_a_redirected_message_expires_anew_where_the_policy_says_when(broker: Broker) -> None:
    late, at_us = redirected(broker, 60.0)
    assert (late.body, late.headers["mine"], late.headers["redeliver_reason"]) == (b"short", "kept", "expired")
    left = late.properties
    ends = left.expires_at_us if left.expires_at_us is not None else time.time_ns() // 1000 + (left.ttl_us or 0)
    assert 60 <= (ends - at_us) / 1e6 <= 60 + PATIENCE
    assert (left.priority, left.persistent) == (7, True)


def send_transient(url: str, body: bytes) -> None:
    """Send a message that its broker need not keep, as a plain client does."""
    place = parse_url(url)
    (host, port), auth = place.hosts[0], (place.user, place.password)
    if place.dialect == "rabbitmq+pika":
        parameters = pika.ConnectionParameters(host, port, credentials=pika.PlainCredentials(*auth))
        with contextlib.closing(pika.BlockingConnection(parameters)) as connection:
            connection.channel().basic_publish("", SOURCE, body, pika.BasicProperties(delivery_mode=1))
    elif place.dialect == "activemq+stomp":
        client = stomp.Connection([(host, port)])
        client.connect(*auth, wait=True)
        client.send(f"/queue/{SOURCE}", body, headers={"content-length": len(body), "receipt": "sent"})
        client.disconnect()
    else:
        with contextlib.closing(BlockingConnection(f"{host}:{port}", user=auth[0], password=auth[1])) as connection:
            sender = connection.create_sender(SOURCE)
            sender.send(proton.Message(body, durable=False))


def test_it_is_read_whether_a_message_was_sent_to_be_kept(broker: Broker) -> None:
    with connect(broker.url) as session:
        session.publish(SOURCE, b"kept")
        send_transient(broker.url, b"transient")
        found = {}
        for _ in range(2):
            delivery = session.receive(SOURCE, PATIENCE)
            assert delivery is not None
            found[delivery.body] = delivery.properties.persistent
            session.settle(delivery)
    assert found == {b"kept": True, b"transient": False}


def test_a_new_life_that_is_longer_than_a_broker_can_count_is_no_obstacle(broker: Broker) -> None:
    late, _ = redirected(broker, 20 * 365 * 86_400.0)
    assert (late.body, late.headers["redeliver_reason"]) == (b"short", "expired")
