# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests wrong producers, users and brokers: what is wrong is logged once, with a cure, and nothing is lost."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import proton
import pytest
from proton.utils import BlockingConnection

from redeliver_mw import connect
from redeliver_mw.errors import BrokerError
from redeliver_mw.message import Destination, Outgoing
from redeliver_mw.policy import RedeliveryPolicy
from redeliver_mw.testing.contract.handlers import fail
from redeliver_mw.testing.contract.world import Consumer
from tests.adapters.proton.dropins import Consumer as Client
from tests.adapters.proton.dropins import drive
from tests.adapters.proton.probe import Probe, copy_of
from tests.adapters.stomp.plain import Plain
from tests.brokers import Broker, broker
from tests.contract.proton_world import ProtonWorld

pytestmark = pytest.mark.broker
Records = pytest.LogCaptureFixture


def told(caplog: Records, *words: str) -> list[str]:
    """Return what was logged with all these words in it, as a warning or worse."""
    lines = [r for r in caplog.records if r.name != "redeliver_mw.failures"]
    said = [r.getMessage() for r in lines if r.levelno >= logging.WARNING]
    return [text for text in said if all(word in text for word in words)]


def dies_of(world: ProtonWorld, queue: str, dead: str, times: int = 2, **options: Any) -> Consumer:
    return world.consume(queue, fail, RedeliveryPolicy(times, 0.1, f"queue:{dead}"), **options)


# -- what producers put into headers -----------------------------------------------------------------------


def by_stomp(world: ProtonWorld, queue: str, headers: dict[str, str]) -> None:
    plain = Plain(world.broker)
    assert plain.send(queue, b"one", {"destination-type": "ANYCAST", **headers}) == ""
    plain.close()


def by_amqp(world: ProtonWorld, queue: str, headers: dict[str, Any]) -> None:
    marks = {proton.symbol("x-opt-delivery-time"): 1, proton.symbol("x-opt-ORIG-QUEUE"): "another"}
    message = proton.Message(body=b"one", properties=headers, annotations=marks, delivery_count=7, inferred=True)
    world.raw.send(queue, message)


BITING = {
    "ack": "zz",
    "message-id": "mine",
    "AMQ_SCHEDULED_DELAY": "1",
    "_AMQ_DUPL_ID": "mine-{queue}",
    "_AMQ_SCHED_DELIVERY": "9",
    "JMSXDeliveryCount": "9",
    "_AMQ_ORIG_ADDRESS": "another",
    "redelivered": "true",
}


@pytest.mark.parametrize("delay", ["hold", "schedule"])
@pytest.mark.parametrize("send", [by_stomp, by_amqp])
def test_a_producers_headers_that_look_like_the_brokers_do_no_harm(
    world: ProtonWorld, send: Callable[[ProtonWorld, str, dict[str, Any]], None], delay: str
) -> None:
    """A copy with the id of its original would be swallowed, one with its schedule would not be delayed."""
    queue, dead = world.new_queue(), world.new_queue()
    consumer = dies_of(world, queue, dead, 3, delay=delay)
    send(world, queue, {name: value.format(queue=queue) for name, value in BITING.items()})
    assert world.wait_until(lambda: world.depth(dead) == 1)
    world.advance(0.3)
    consumer.stop()
    assert consumer.counts == [1, 2, 3]
    (letter,) = world.take_all(dead)
    assert letter.body == b"one"
    assert letter.headers["_AMQ_ORIG_ADDRESS"] == letter.headers["redeliver_original_destination"] == queue
    assert letter.headers["_AMQ_DUPL_ID"] != f"mine-{queue}"
    assert not {"AMQ_SCHEDULED_DELAY", "_AMQ_SCHED_DELIVERY", "JMSXDeliveryCount"} & letter.headers.keys()
    assert world.wait_until(lambda: world.depth(queue) == 0)


FORGED: dict[str, dict[str, Any]] = {
    "a lie with a reason": {"redeliver_failures": "5", "redeliver_failures_for": "{queue}", "redeliver_reason": "me"},
    "for another": {"redeliver_failures": "5", "redeliver_failures_for": "another"},
    "no texts": {
        "redeliver_failures": -3,
        "redeliver_failures_for": "{queue}",
        "redeliver_generation": None,
        "redeliver_hop": proton.ulong(2**63),
        "redeliver_not_before": "9999-12-31T23:59:59Z",
        "redeliver_state": b"\xff{",
        "redeliver_lineage": "l" * 5000,
        "redeliver_copy_id": [1, 2],
        "redeliver_first_attempt_at": 1.5,
        "redeliver_original_destination": {"a": 1},
    },
}


@pytest.mark.parametrize("kind", FORGED)
def test_a_producers_own_redeliver_headers_neither_kill_nor_spare_a_message(world: ProtonWorld, kind: str) -> None:
    queue, dead = world.new_queue(), world.new_queue()
    consumer = dies_of(world, queue, dead)
    given = {n: v.format(queue=queue) if isinstance(v, str) else v for n, v in FORGED[kind].items()}
    for n in range(2):  # two alike: one lineage does not make them one message
        world.raw.send(queue, proton.Message(body=b"m%d" % n, properties=given, inferred=True))
    assert world.wait_until(lambda: world.depth(dead) == 2)
    world.advance(0.3)
    consumer.stop()
    assert sorted(consumer.counts) == [1, 1, 2, 2]
    letters = world.take_all(dead)
    assert sorted(letter.body for letter in letters) == [b"m0", b"m1"]
    for letter in letters:
        assert (letter.headers["redeliver_failures"], letter.headers["redeliver_reason"]) == ("2", "exhausted")
        assert letter.headers["redeliver_failures_for"] == queue
    assert world.wait_until(lambda: world.depth(queue) == 0)


def test_a_map_is_copied_as_a_map(world: ProtonWorld) -> None:
    queue, dead = world.new_queue(), world.new_queue()
    dies_of(world, queue, dead)
    world.raw.send(queue, proton.Message(body={"a": 1, "b": [b"\xff", None]}))
    assert world.wait_until(lambda: world.depth(dead) == 1)
    (letter,) = world.raw.take(dead, 1)
    assert {name: list(map(bytes, v[:1])) if name == "b" else v for name, v in letter.body.items()} == {
        "a": 1,
        "b": [b"\xff"],
    }


def test_what_is_over_the_brokers_limit_is_refused_by_name_and_the_next_goes_through(world: ProtonWorld) -> None:
    queue = world.new_queue()
    with connect(world.url) as session:
        with pytest.raises(BrokerError, match=f"queue:{queue} did not take the message: .+"):
            session.publish(queue, b"one", {"big": "x" * 1_000_000})
        session.publish(queue, b"two")
    assert [raw.body for raw in world.take_all(queue)] == [b"two"]


# -- targets that would let a message fall -----------------------------------------------------------------


def test_a_text_that_is_no_utf_8_keeps_its_message_here_and_no_other_waits(
    artemis244: Broker, world: ProtonWorld, caplog: Records
) -> None:
    """Artemis takes such a message, and refuses what is published like it with "Cannot parse String"."""
    queue, dead = world.new_queue(), world.new_queue()
    odd = b"\x00\x53\x74\xc1\x07\x02\xa1\x01h\xa1\x01\xff" + b"\x00\x53\x75\xa0\x03odd"
    user, password = artemis244.user, artemis244.password
    connection = BlockingConnection(
        f"amqp://127.0.0.1:{artemis244.port}", user=user, password=password, allowed_mechs="PLAIN", sasl_enabled=True
    )
    try:
        link = connection.create_sender(queue).link
        delivery = link.delivery("odd")
        link.stream(odd)
        link.advance()
        connection.wait(lambda: delivery.remote_state)
        assert delivery.remote_state == proton.Delivery.ACCEPTED
    finally:
        connection.close()
    world.send(queue, b"failing")
    dies_of(world, queue, dead, 2)
    assert world.wait_until(lambda: world.depth(dead) == 1)
    assert [raw.body for raw in world.take_all(dead)] == [b"failing"]
    assert world.wait_until(lambda: len(told(caplog, "cannot be copied exactly", "no UTF-8")) == 1)


def filtered(world: ProtonWorld, text: str, address: str = "") -> str:
    """Make a queue that takes the messages that match `text`, and return how it is named."""
    address = address or world.new_name()
    world.raw.create(f"F.{address}", address, "ANYCAST", **{"filter-string": text, "filter": text})
    return f"{address}::F.{address}"


def test_what_a_filter_may_not_let_in_is_refused_and_not_lost(world: ProtonWorld, probe: Probe) -> None:
    queue, target = world.new_queue(), filtered(world, "colour = 'red'")
    verdict, why = probe.publish(Outgoing(Destination(target), b"one", {"colour": "blue"}))
    assert (verdict, "takes only what matches colour = 'red'" in why) == ("refused", True)
    world.send(queue, b"one")
    probe.subscribe(queue)
    (delivery,) = probe.take(1)
    assert probe.move(delivery, copy_of(delivery, target, redeliver_reason="exhausted"))[0] == "refused"


def test_a_retry_goes_back_through_the_filter_that_let_the_message_in(world: ProtonWorld, caplog: Records) -> None:
    source, dead = filtered(world, "colour = 'red'"), world.new_queue()
    consumer = dies_of(world, source, dead, 3, delay="schedule")
    world.raw.send(source, proton.Message(body=b"one", properties={"colour": "red"}, inferred=True))
    assert world.wait_until(lambda: world.depth(dead) == 1)
    assert consumer.counts == [1, 2, 3]
    assert len(told(caplog, source, "colour = 'red'", "at nothing else")) == 1


def test_a_dead_letter_queue_that_is_filtered_for_another_pauses_the_source_and_nothing_is_lost(
    world: ProtonWorld, caplog: Records
) -> None:
    queue, target = world.new_queue(), filtered(world, "_AMQ_ORIG_ADDRESS = 'another'")
    consumer = dies_of(world, queue, target, 1)
    world.send(queue, b"one")
    assert world.wait_until(lambda: bool(told(caplog, "is paused")))
    (said,) = told(caplog, "is paused")
    assert all(word in said for word in (queue, target, "takes dead letters from another only"))
    consumer.stop()
    assert consumer.counts == [1]
    assert [raw.body for raw in world.take_all(queue)] == [b"one"]


def test_a_drop_ins_letter_is_not_let_fall_by_a_filter(artemis244: Broker, world: ProtonWorld) -> None:
    queue, target = world.new_queue(), filtered(world, "colour = 'red'")
    client = Client(artemis244, queue, fail)
    world.raw.send(queue, proton.Message(body="one"))

    def over() -> bool:  # nothing tells
        return any(time.monotonic() > end + 1.0 for _, end in client.spans["one"])

    drive(client, over, policy=RedeliveryPolicy(1, 0.0, f"queue:{target}"))
    assert client.counts == {"one": [1]}
    assert world.wait_until(lambda: world.depth(queue) == 1)


def test_an_address_that_is_a_topic_without_a_queue_gets_one_before_letters_go_there(world: ProtonWorld) -> None:
    queue, dead = world.new_queue(), world.new_name()
    world.raw.ask("broker", "createAddress", dead, "MULTICAST")
    dies_of(world, queue, dead, 1)
    world.send(queue, b"one")
    assert world.wait_until(lambda: [row["name"] for row in world.raw.queues("address", dead)] == [dead])
    assert world.wait_until(lambda: world.depth(dead) == 1)


@pytest.mark.parametrize("policy", ["FAIL", "BLOCK"])
def test_a_source_without_room_for_its_retries_keeps_every_message_and_goes_on_when_there_is(
    world: ProtonWorld, policy: str
) -> None:
    queue, dead = world.new_queue(), world.new_queue()
    for n in range(3):
        world.send(queue, b"%d" % n)
    world.raw.settings(queue, maxSizeMessages=3, addressFullMessagePolicy=policy)
    consumer = dies_of(world, queue, dead, delay="schedule")
    assert world.wait_until(lambda: len(consumer.counts) >= 3)
    world.advance(1.5)
    (row,) = world.raw.queues("name", queue)
    # A broker that answers "full" at once makes us run the retry here; one that gives no credit makes us wait.
    assert int(row["messageCount"]) + world.depth(dead) >= 3
    world.raw.settings(queue, maxSizeMessages=100, addressFullMessagePolicy=policy)
    assert world.wait_until(lambda: world.depth(dead) == 3, 40.0)
    world.advance(0.3)
    consumer.stop()
    assert sorted(consumer.counts) == [1, 1, 1, 2, 2, 2]
    assert (world.depth(queue), world.depth(dead)) == (0, 3)


def test_a_source_that_drops_when_full_is_warned_of_and_its_retries_stay_here(
    world: ProtonWorld, caplog: Records
) -> None:
    queue, dead = world.new_queue(), world.new_queue()
    world.raw.settings(queue, maxSizeMessages=1, addressFullMessagePolicy="DROP")
    world.send(queue, b"one")
    consumer = dies_of(world, queue, dead)
    (said,) = told(caplog)
    assert all(word in said for word in (queue, "drops what is sent to it when it is full", "Set its address-full"))
    assert world.wait_until(lambda: world.depth(dead) == 1)
    assert consumer.counts == [1, 2]


# -- users and brokers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("selector", ["colour = 'green'", "no-such-name = 'x'"])
def test_a_selector_that_nobody_matches_leaves_every_message_in_peace(
    world: ProtonWorld, selector: str, caplog: Records
) -> None:
    queue, dead = world.new_queue(), world.new_queue()
    app = world.app()
    app.handler(queue, selector=selector, policy=RedeliveryPolicy(1, 0.0, f"queue:{dead}"))(fail)
    world.started(app)
    for n in range(3):
        world.send(queue, b"%d" % n, {"colour": "red"})
    world.advance(0.5)
    assert app.health()["sources"][f"queue:{queue}"] == {
        "waiting": 0,
        "behind": 0,
        "paused": False,
        "uncopyable": 0,
        "why_paused": None,
        "breaker": None,
        "subscribed": True,
        "consuming": True,
        "why_not_consuming": None,
        "paused_by": None,
    }
    app.stop(2.0)
    assert [(raw.body, raw.redelivered) for raw in world.take_all(queue)] == [(b"%d" % n, False) for n in range(3)]
    assert (world.depth(dead), told(caplog)) == (0, [])


@pytest.fixture(scope="module")
def lax(artemis244: Broker) -> Iterator[Broker]:
    """Yield an Artemis where a client with a wrong password is a guest.

    Where no Artemis can be had, the fixture `artemis244` says so.
    """
    with broker("artemis", version="2.44", allow_anonymous=True) as lax:
        yield lax


@pytest.mark.parametrize("user", ["tester:not-the-right-one@", "nobody:secret@", ""])
def test_a_wrong_password_where_everybody_may_come_in_is_no_obstacle_and_cannot_be_seen(lax: Broker, user: str) -> None:
    begun = time.monotonic()
    with connect(f"artemis://{user}{lax.host}:{lax.port}") as session:
        lax.ctl("broker", "createQueue", '{"name":"orders","address":"orders","routing-type":"ANYCAST"}', "true")
        session.publish("orders", b"one")
        delivery = session.receive("orders", 10.0)
        assert delivery is not None
        session.settle(delivery)
        while session.depth("orders") > 0:  # an acceptance is not answered, and the count has another way
            assert time.monotonic() - begun < 10
