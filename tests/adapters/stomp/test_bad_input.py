# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests wrong producers, users and brokers: what is wrong is logged once, with a cure, and nothing is lost."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from proton import Message

from redeliver_mw import Delivery, connect
from redeliver_mw.adapter.protocol import Subscription
from redeliver_mw.adapter.registry import parse_url
from redeliver_mw.errors import BrokerError, ConfigError
from redeliver_mw.message import Destination
from redeliver_mw.policy import RedeliveryPolicy
from redeliver_mw.redelivery import ledger
from redeliver_mw.testing.contract.handlers import fail, fail_first
from redeliver_mw.testing.contract.world import Consumer
from redeliver_stomp import StompAdapter, redelivering
from tests.adapters.stomp.dropins import Listener
from tests.adapters.stomp.plain import Plain
from tests.adapters.stomp.test_unackable import send_by_amqp
from tests.brokers import Broker
from tests.brokers.activemq import ActiveMQ
from tests.contract.stomp_world import FILLER, POLICY, REFUSING, ContractBroker, Site, StompWorld

broker = pytest.mark.broker
Records = pytest.LogCaptureFixture


def told(caplog: Records, *words: str) -> list[str]:
    """Return what was logged with all these words in it, as a warning or worse."""
    lines = [r for r in caplog.records if r.name != "redeliver_mw.failures"]
    said = [r.getMessage() for r in lines if r.levelno >= logging.WARNING]
    return [text for text in said if all(word in text for word in words)]


def dies_of(world: StompWorld, queue: str, dead: str, times: int = 2) -> Consumer:
    return world.consume(queue, fail, RedeliveryPolicy(times, 0.1, f"queue:{dead}"))


# -- what producers put into headers -----------------------------------------------------------------------


@broker
def test_a_delay_that_is_none_costs_its_producer_the_connection_and_nobody_else(
    world: StompWorld, caplog: Records
) -> None:
    queue = world.new_queue()
    consumer = world.consume(queue)
    for value in ("-5", "abc", "", "1.5"):
        producer = Plain(world.broker)
        with pytest.raises(ConnectionError):  # and not a word of why
            producer.send(f"/queue/{queue}", b"bad", {"AMQ_SCHEDULED_DELAY": value})
        producer.close()
    world.send(queue, b"well")
    assert world.wait_until(lambda: consumer.handler.done[b"well"] == 1)
    assert consumer.bodies == [b"well"]
    assert told(caplog) == []


@broker
def test_a_session_names_the_scheduling_header_that_the_broker_would_close_the_connection_for(
    world: StompWorld,
) -> None:
    queue = world.new_queue()
    bad = [("AMQ_SCHEDULED_DELAY", text) for text in ("-5", "abc", "", "1.5", "9" * 19)]
    with connect(world.url) as session:
        for name, value in [*bad, ("AMQ_SCHEDULED_PERIOD", "soon"), ("AMQ_SCHEDULED_REPEAT", "9" * 10)]:
            with pytest.raises(BrokerError, match=f"{queue} did not take .*{name}.*whole number"):
                session.publish(queue, b"bad", {name: value})
        session.publish(queue, b"well", {"AMQ_SCHEDULED_DELAY": "0"})
    assert world.wait_until(lambda: world.depth(queue) == 1)
    assert [raw.body for raw in world.take_all(queue)] == [b"well"]


@broker
def test_a_producers_schedule_is_no_part_of_the_copies(world: StompWorld) -> None:
    """The broker makes two messages of one send: each has its own attempts and one letter."""
    queue, dead = world.new_queue(), world.new_queue()
    consumer = dies_of(world, queue, dead)
    plan = {"AMQ_SCHEDULED_DELAY": "1", "AMQ_SCHEDULED_PERIOD": "200", "AMQ_SCHEDULED_REPEAT": "1"}
    world.send(queue, b"one", plan)
    assert world.wait_until(lambda: world.depth(dead) == 2)
    world.advance(1.2)  # two ticks of the scheduler and a period: nothing else is to come
    consumer.stop()
    assert sorted(consumer.counts) == [1, 1, 2, 2]
    letters = world.take_all(dead)
    assert [letter.body for letter in letters] == [b"one"] * 2
    assert not [n for letter in letters for n in letter.headers if n.startswith(("AMQ_SCHEDULED_", "scheduledJobId"))]


@broker
def test_a_schedule_that_nobody_kept_is_no_part_of_the_copies_either(unscheduled: ContractBroker) -> None:
    site = Site(unscheduled)
    world = StompWorld(site)
    queue, dead = world.new_queue(), world.new_queue()
    dies_of(world, queue, dead)
    world.send(queue, b"one", {"AMQ_SCHEDULED_DELAY": "60000", "AMQ_SCHEDULED_REPEAT": "9"})
    assert world.wait_until(lambda: world.depth(dead) == 1)
    (letter,) = world.take_all(dead)
    assert not [name for name in letter.headers if name.startswith("AMQ_SCHEDULED_")]
    world.close()
    site.close()


FORGED = {
    "a lie with a reason": {"redeliver_failures": "5", "redeliver_failures_for": "{queue}", "redeliver_reason": "me"},
    "for another": {"redeliver_failures": "5", "redeliver_failures_for": "another"},
    "no numbers": {
        "redeliver_failures": "-3",
        "redeliver_failures_for": "{queue}",
        "redeliver_generation": "x",
        "redeliver_hop": "9" * 40,
        "redeliver_not_before": "9999-12-31T23:59:59Z",
        "redeliver_state": "{{{{",
        "redeliver_first_attempt_at": "yesterday",
        "redeliver_history": "[" * 3000,
        "redeliver_lineage": "l" * 5000,
        "redeliver_copy_id": "c\nd:e",
        "redeliver_original_destination": "x" * 5000,
    },
}


@broker
@pytest.mark.parametrize("kind", FORGED)
def test_a_producers_own_redeliver_headers_neither_kill_nor_spare_a_message(world: StompWorld, kind: str) -> None:
    queue, dead = world.new_queue(), world.new_queue()
    consumer = dies_of(world, queue, dead)
    for n in range(2):  # two alike: one lineage does not make them one message
        world.send(queue, b"m%d" % n, {name: value.format(queue=queue) for name, value in FORGED[kind].items()})
    assert world.wait_until(lambda: world.depth(dead) == 2)
    world.advance(0.3)
    consumer.stop()
    assert sorted(consumer.counts) == [1, 1, 2, 2]
    letters = world.take_all(dead)
    assert sorted(letter.body for letter in letters) == [b"m0", b"m1"]
    for letter in letters:
        assert (letter.headers["redeliver_failures"], letter.headers["redeliver_reason"]) == ("2", "exhausted")
        assert letter.headers["redeliver_failures_for"] == queue
        assert re.fullmatch("[0-9a-f]{32}", letter.headers["redeliver_copy_id"])
    assert world.depth(queue) == 0


@broker
@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"big": "x" * 60_000}, ("'big'", "60004 bytes", "takes 10200", "send less")),
        ({"k:ey": "v"}, ("colon", "'k:ey:v'")),
    ],
    ids=["a value over the limit", "a colon in a name"],
)
def test_what_cannot_be_copied_is_run_again_here_and_its_letter_is_never_sent(
    world: StompWorld, properties: dict[str, str], words: tuple[str, ...], caplog: Records
) -> None:
    """Neither can come over STOMP: the broker would close the connection, or take it for another name."""
    queue, dead = world.new_queue(), world.new_queue()
    send_by_amqp(world, queue, Message(body=b"failing", properties=properties))
    consumer = dies_of(world, queue, dead)
    assert world.wait_until(lambda: consumer.uncopyable == 1)
    assert (consumer.counts, consumer.paused) == ([1, 2], None)
    assert world.wait_until(lambda: bool(told(caplog)))
    (said,) = told(caplog)
    assert all(word in said for word in (queue, "cannot be copied exactly", "producer", *words)), said
    consumer.stop()
    assert (world.depth(queue), world.depth(dead)) == (1, 0)
    ledger._ledgers.clear()  # as in a new process, with a handler that is mended
    again = world.consume(queue, fail_first(1), RedeliveryPolicy(3, 0.1, f"queue:{dead}"))
    assert world.wait_until(lambda: len(again.handler.done) == 1)
    again.stop()
    assert (world.depth(queue), world.depth(dead)) == (0, 0)


# -- what users write --------------------------------------------------------------------------------------


def subscribe(source: Destination, selector: str = "") -> None:
    StompAdapter(parse_url("activemq://h")).subscribe(Subscription(source=source, selector=selector))


@pytest.mark.parametrize(
    "source", [Destination("q" * 4000), Destination("ä" * 1600), Destination("t" * 4000, "topic", "s")]
)
def test_a_name_that_fits_no_frame_is_refused_before_it_costs_a_connection(source: Destination) -> None:
    with pytest.raises(ConfigError, match="3000 bytes") as caught:
        subscribe(source)
    assert len(str(caught.value)) < 10_000


def test_a_selector_that_fits_no_frame_is_refused_before_it_costs_a_connection() -> None:
    with pytest.raises(ConfigError, match="10200 bytes") as caught:
        subscribe(Destination("orders"), "id IN ('" + "','".join(map(str, range(3000))) + "')")
    assert str(caught.value).startswith("queue:orders: ")
    assert "shorter" in caught.value.cure


@broker
def test_a_selector_that_nobody_matches_leaves_every_message_in_peace(world: StompWorld, caplog: Records) -> None:
    queue, dead = world.new_queue(), world.new_queue()
    app = world.app()
    app.handler(queue, selector="colour = 'green'", policy=RedeliveryPolicy(1, 0.0, f"queue:{dead}"))(fail)
    world.started(app)
    for n in range(3):
        world.send(queue, b"%d" % n, {"colour": "red"})
    world.advance(0.5)
    assert app.health()["sources"][f"queue:{queue}"] == {
        "waiting": 0,
        "uncopyable": 0,
        "behind": 0,
        "paused": False,
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


@broker
def test_dead_letters_to_a_topic_are_warned_of_because_nobody_may_keep_them(world: StompWorld, caplog: Records) -> None:
    world.consume(world.new_queue(), policy=RedeliveryPolicy(1, 0.0, "topic:nobody"))
    (said,) = told(caplog)
    assert all(word in said for word in ("topic:nobody", "cannot be seen", "durable subscriber", "Name a queue"))


# -- brokers -----------------------------------------------------------------------------------------------


class Lax(ActiveMQ):
    """Lets everybody in, makes JMS messages of AMQP ones, and blocks whoever sends to a full queue."""

    def __init__(self) -> None:
        super().__init__("6.3", policy_entries=POLICY, plugins="<statisticsBrokerPlugin/>")
        file = self.data / "activemq.xml"
        text = re.sub("(?s)<simpleAuthenticationPlugin.*</simpleAuthenticationPlugin>", "", file.read_text())
        file.write_text(re.sub(r'("amqp" uri="[^"]*)', r"\1?transport.transformer=jms", text))


@pytest.fixture(scope="module")
def lax_site(activemq63: Broker) -> Iterator[Site]:
    """Yield the site of an ActiveMQ 6.3 that lets everybody in.

    Where no ActiveMQ 6.3 can be had, the fixture `activemq63` says so.
    """
    with Lax() as lax:
        lax.start()
        site = Site(lax)
        yield site
        site.close()


@pytest.fixture
def lax(lax_site: Site) -> Iterator[StompWorld]:
    world = StompWorld(lax_site)
    yield world
    world.close()


@broker
def test_a_wrong_password_where_everybody_may_come_in_is_no_obstacle_and_cannot_be_seen(lax: StompWorld) -> None:
    queue, dead = lax.new_queue(), lax.new_queue()
    begun = time.monotonic()
    consumer = lax.consume(
        queue, fail, RedeliveryPolicy(1, 0.0, f"queue:{dead}"), url=lax.other_url(password="not-the-right-one")
    )
    assert time.monotonic() - begun < lax.start_limit
    lax.send(queue, b"one")
    assert lax.wait_until(lambda: lax.depth(dead) == 1)
    consumer.stop()
    assert lax.depth(queue) == 0


@broker
@pytest.mark.parametrize(("body", "kind"), [({"a": 1}, "map"), ([1, 2], "list")])
def test_an_amqp_map_that_reaches_stomp_empty_is_not_copied(
    lax: StompWorld, body: Any, kind: str, caplog: Records
) -> None:
    queue, dead = lax.new_queue(), lax.new_queue()
    send_by_amqp(lax, queue, Message(body=body))
    consumer = dies_of(lax, queue, dead)
    assert lax.wait_until(lambda: consumer.uncopyable == 1)
    assert consumer.paused is None
    assert (consumer.bodies, consumer.counts) == ([b"", b""], [1, 2])
    assert lax.wait_until(lambda: bool(told(caplog)))
    (said,) = told(caplog)
    assert all(word in said for word in (queue, f"an AMQP {kind} reaches STOMP without its content", "send bytes"))
    consumer.stop()
    assert (lax.depth(queue), lax.depth(dead)) == (1, 0)


@pytest.fixture
def full(lax: StompWorld) -> tuple[str, Callable[[], None]]:
    """Return the name of a queue that has no room, and a function that makes room in it."""
    name = REFUSING + lax.new_name()
    assert lax._open().send(f"/queue/{name}", FILLER) == ""
    return name, lambda: lax.relent(name)


@broker
def test_a_full_target_that_blocks_gets_one_letter_however_often_it_was_tried(
    lax: StompWorld, full: tuple[str, Callable[[], None]], caplog: Records
) -> None:
    """The broker keeps a SEND that it has no room for, also of a connection that is closed meanwhile."""
    (dead, relent), queue = full, lax.new_queue()

    def act(delivery: Delivery) -> None:
        if delivery.body == b"failing":
            fail(delivery)

    consumer = lax.consume(queue, act, RedeliveryPolicy(1, 0.0, f"queue:{dead}"))
    lax.send(queue, b"failing")
    assert lax.wait_until(lambda: bool(told(caplog, "is paused")), 30.0)
    lax.send(queue, b"well")
    (said,) = told(caplog, "is paused")
    assert all(word in said for word in (queue, dead, "full"))
    relent()
    assert lax.wait_until(lambda: consumer.handler.done[b"well"] == 1, 30.0)
    lax.advance(0.5)
    consumer.stop()
    assert consumer.handler.of(b"failing")[1:] == []
    assert [letter.body for letter in lax.take_all(dead)] == [b"failing"]
    assert lax.depth(queue) == 0


@broker
def test_a_retry_that_comes_due_while_its_queue_is_full_comes_when_there_is_room(lax: StompWorld) -> None:
    """The retry does not come where the broker is told to refuse (`sendFailIfNoSpace`), and throws away what is due."""
    queue, dead = REFUSING + lax.new_name(), lax.new_queue()
    policy = RedeliveryPolicy(3, 1.5, f"queue:{dead}")
    first = lax.consume(queue, fail, policy, delay="schedule")
    lax.send(queue, b"one")
    assert lax.wait_until(lambda: first.counts == [1] and lax.depth(queue) == 0)
    first.stop()
    lax.send(queue, FILLER)
    lax.advance(2.5)
    assert lax.depth(queue) == 1
    lax.relent(queue)
    second = lax.consume(queue, policy=policy)
    assert lax.wait_until(lambda: second.handler.done[b"one"] == 1)
    assert second.counts == [2]


@broker
def test_a_drop_in_does_not_mistake_artemis_for_activemq(artemis244: Broker) -> None:
    """A NACK, and an ACK in a transaction, delete there."""
    import stomp

    connection = stomp.Connection12([(artemis244.host, artemis244.stomp_port)])
    connection.set_listener("", redelivering(Listener(), connection))
    connection.connect(artemis244.user, artemis244.password, wait=True)
    try:
        with pytest.raises(ConfigError, match="Artemis"):
            connection.subscribe("/queue/orders", id="1", ack="client-individual")
    finally:
        connection.disconnect()
