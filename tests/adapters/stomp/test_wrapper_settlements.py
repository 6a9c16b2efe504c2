# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests what a listener settles by itself, and what happens to its connection, on a real ActiveMQ."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import stomp

from redeliver_mw import PolicyMap, RedeliveryPolicy, current_delivery
from redeliver_mw.errors import ConfigError, RedeliverError
from redeliver_stomp import redelivering
from redeliver_stomp.dropin.copies import ConnectionCopyPublisher
from tests.adapters.stomp.dropins import Listener, begin, connect, consuming, left, new_name, put, settled, until
from tests.brokers import Broker
from tests.contract.stomp_world import StompWorld
from tests.faults.proxy import Proxy

SHORT = RedeliveryPolicy(dead_after=3, backoff=0.1)
BOTH = pytest.mark.parametrize("kind", [stomp.Connection11, stomp.Connection12], ids=["1.1", "1.2"])


@pytest.mark.broker
@BOTH
def test_an_ack_is_success_even_when_the_callback_raises_after_it(kind: Any, activemq63: Broker) -> None:
    def act(listener: Listener, frame: Any) -> None:
        listener.ack(frame)
        if frame.body == "raises":
            raise ValueError("after the ack")

    queue, listener = new_name(), Listener(act)
    put(activemq63, queue, "returns", "raises")
    with consuming(activemq63, f"/queue/{queue}", listener, connection=connect(activemq63, kind=kind), policy=SHORT):
        until(lambda: len(listener.counts) == 2 and settled(listener.conn))
    assert listener.counts == {"returns": ["1"], "raises": ["1"]}
    assert not [told for told in listener.told if told.startswith("error")]  # no second ack
    assert left(activemq63, queue) == left(activemq63, f"DLQ.{queue}") == []


@pytest.mark.broker
@BOTH
def test_a_nack_is_a_failure_that_is_retried(kind: Any, activemq63: Broker) -> None:
    queue, listener = new_name(), Listener(lambda listener, frame: listener.nack(frame))
    put(activemq63, queue, "m")
    with consuming(activemq63, f"/queue/{queue}", listener, connection=connect(activemq63, kind=kind), policy=SHORT):
        until(lambda: listener.attempts("m") == 3 and settled(listener.conn))
    assert listener.counts["m"] == ["1", "2", "3"]
    (dead,) = left(activemq63, f"DLQ.{queue}", 1)
    assert dead.headers["redeliver_failures"] == "3"
    assert left(activemq63, queue) == []
    letters = left(activemq63, "ActiveMQ.DLQ")  # which other tests use too
    assert not [frame for frame in letters if frame.headers.get("original-destination") == f"/queue/{queue}"]


@pytest.mark.broker
def test_with_stomp_pys_own_ack_mode_a_message_in_hand_is_not_lost_by_a_cut(activemq63: Broker) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def act(listener: Listener, frame: Any) -> None:
        inside.set()
        assert go_on.wait(10)

    queue, listener = new_name(), Listener(act)
    put(activemq63, queue, "m")
    with consuming(activemq63, f"/queue/{queue}", listener, policy=SHORT) as conn:
        assert inside.wait(10)
        conn.transport.disconnect_socket()
        assert listener.gone.wait(10)
        go_on.set()
    assert [m.body for m in left(activemq63, queue, 1)] == [b"m"]


@pytest.mark.broker
def test_a_cut_connection_keeps_the_counts(activemq63: Broker) -> None:
    def act(listener: Listener, frame: Any) -> None:
        raise ValueError("no")

    queue, listener = new_name(), Listener(act)
    put(activemq63, queue, "m")
    proxy = Proxy(activemq63.host, activemq63.port)
    conn = connect(activemq63, port=proxy.port)
    begin(conn, activemq63, listener, policy=RedeliveryPolicy(dead_after=3, backoff=1.0))
    for attempts in (1, 2):
        conn.subscribe(f"/queue/{queue}", id="1")
        until(lambda attempts=attempts: len(listener.spans["m"]) == attempts)
        listener.gone.clear()
        proxy.cut()
        assert listener.gone.wait(10)
        conn.connect(activemq63.user, activemq63.password, wait=True)
    conn.subscribe(f"/queue/{queue}", id="1")
    dead = left(activemq63, f"DLQ.{queue}", 1)
    until(lambda: settled(conn))
    conn.disconnect(receipt="bye")
    proxy.close()
    assert listener.counts["m"] == ["1", "2", "3"]
    assert [letter.headers["redeliver_failures"] for letter in dead] == ["3"]
    assert left(activemq63, queue) == []


@pytest.mark.broker
def test_a_callback_that_disconnects_gets_its_message_settled_and_no_other(activemq63: Broker) -> None:
    queue = new_name()
    listener = Listener(lambda listener, frame: listener.conn.disconnect(receipt="bye"))
    put(activemq63, queue, "first", "second")
    with consuming(activemq63, f"/queue/{queue}", listener, policy=SHORT):
        assert listener.gone.wait(10)
    assert listener.counts == {"first": ["1"]}
    assert [m.body for m in left(activemq63, queue, 1)] == [b"second"]


@pytest.mark.broker
def test_a_callback_that_unsubscribes_gets_its_message_settled_and_no_other(activemq63: Broker) -> None:
    queue = new_name()
    listener = Listener(lambda listener, frame: listener.conn.unsubscribe("1"))
    put(activemq63, queue, "first", "second")
    with consuming(activemq63, f"/queue/{queue}", listener, policy=SHORT) as conn:
        until(lambda: listener.done == ["first"])
        assert [m.body for m in left(activemq63, queue, 1)] == [b"second"]
        assert conn.is_connected()
    assert listener.counts == {"first": ["1"]}


@pytest.mark.broker
def test_an_unsubscribe_from_elsewhere_gives_back_what_is_held(activemq63: Broker) -> None:
    def act(listener: Listener, frame: Any) -> None:
        raise ValueError("no")

    queue, listener = new_name(), Listener(act)
    put(activemq63, queue, "held")
    policy = RedeliveryPolicy(dead_after=3, backoff=8.0)
    with consuming(activemq63, f"/queue/{queue}", listener, policy=policy) as conn:
        until(lambda: len(listener.spans["held"]) == 1)
        conn.unsubscribe("1")
        assert [m.body for m in left(activemq63, queue, 1)] == [b"held"]


@pytest.mark.broker
def test_with_settle_callback_the_later_ack_of_another_thread_counts(activemq63: Broker) -> None:
    frames: list[Any] = []
    queue, listener = new_name(), Listener(lambda listener, frame: frames.append(frame))
    put(activemq63, queue, "acked", "never")
    with consuming(activemq63, f"/queue/{queue}", listener, policy=SHORT, settle="callback") as conn:
        until(lambda: len(frames) == 2)
        listener.ack(frames[0])
        until(lambda: len(vars(conn)["_redeliver_scope"]._open) == 1)
    assert [m.body for m in left(activemq63, queue, 1)] == [b"never"]


@pytest.mark.broker
def test_a_durable_subscription_gets_its_retries_alone_and_shows_them_as_its_own(activemq63: Broker) -> None:
    shown: list[tuple[str, str]] = []

    def act(listener: Listener, frame: Any) -> None:
        shown.append((frame.headers["destination"], frame.headers["subscription"]))
        if listener.attempts("m") == 1:
            raise ValueError("no")

    topic, listener, other = new_name(), Listener(act), Listener()
    name = {"activemq.subscriptionName": "audit"}
    conn = connect(activemq63)
    listener.conn = conn
    policy = RedeliveryPolicy(dead_after=3, backoff=1.0)
    conn.set_listener("", redelivering(listener, conn, policy=policy, delay="schedule"))
    conn.connect(activemq63.user, activemq63.password, wait=True, headers={"client-id": topic})
    conn.subscribe(f"/topic/{topic}", id="1", headers={**name, "receipt": "there"})
    until(lambda: listener.told == ["receipt there"])
    with consuming(activemq63, f"/topic/{topic}", other, policy=SHORT) as producer:
        producer.send(f"/topic/{topic}", "m", headers={"persistent": "true"})
        until(lambda: listener.done == ["m"] and settled(conn))
    conn.disconnect(receipt="bye")
    assert listener.counts["m"] == ["1", "2"]
    assert set(shown) == {(f"/topic/{topic}", "1")}
    assert other.counts["m"] == ["1"]


@pytest.mark.broker
def test_a_policy_that_cannot_be_had_is_refused_by_subscribe(activemq63: Broker) -> None:
    listener, conn = Listener(), connect(activemq63)
    begin(conn, activemq63, listener, policy=RedeliveryPolicy(dead_after=3, backoff=60.0), delay="hold")
    with pytest.raises(RedeliverError):
        conn.subscribe("/queue/anything", id="1")
    conn.disconnect(receipt="bye")


@pytest.mark.broker
def test_silence_in_a_transaction_closes_the_connection_and_nothing_of_it_has_happened(
    activemq63: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ConnectionCopyPublisher, "patience", 1.0)
    proxy = Proxy(activemq63.host, activemq63.port)

    def act(listener: Listener, frame: Any) -> None:
        proxy.stall("down")
        raise ValueError("no")

    queue, listener = new_name(), Listener(act)
    put(activemq63, queue, "m")
    connection = connect(activemq63, port=proxy.port)
    policy = RedeliveryPolicy(dead_after=1)
    with consuming(activemq63, f"/queue/{queue}", listener, connection=connection, policy=policy):
        assert listener.gone.wait(10)
    proxy.close()
    assert [m.body for m in left(activemq63, queue, 1)] == [b"m"]
    assert left(activemq63, f"DLQ.{queue}") == []


@pytest.mark.broker
def test_a_broker_without_scheduler_is_noticed_once_and_messages_are_held_from_then_on(
    unscheduled: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    def act(listener: Listener, frame: Any) -> None:
        if listener.attempts(frame.body) < 3:
            raise ValueError("no")

    queue, listener = new_name(), Listener(act)
    put(unscheduled, queue, "a", "b")
    policy = RedeliveryPolicy(dead_after=5, backoff=1.5)
    with consuming(unscheduled, f"/queue/{queue}", listener, policy=policy, delay="schedule") as conn:
        until(lambda: len(listener.done) == 2 and settled(conn))
    assert listener.counts == {"a": ["1", "2", "3"], "b": ["1", "2", "3"]}
    for spans in listener.spans.values():
        assert all(again - failed >= 1.498 for (_, failed), (again, _) in pairwise(spans))
    assert len([r for r in caplog.records if "scheduler is off" in r.getMessage()]) == 1
    assert left(unscheduled, queue) == []


@pytest.mark.broker
def test_a_dead_letter_that_was_refused_for_a_while_takes_its_original_away_beside_others(world: StompWorld) -> None:
    """ActiveMQ forgets with any COMMIT what was acked in the connection's other transactions."""

    def act(listener: Listener, frame: Any) -> None:
        raise ValueError("no")

    broker: Any = world.broker
    full, one, others, listener = world.new_queue(refusing=True), new_name(), new_name(), Listener(act)
    put(broker, others, *[str(number) for number in range(200)])
    put(broker, one, "m")
    policies = PolicyMap({one: RedeliveryPolicy(dead_after=1, dead_letter=full)}, RedeliveryPolicy(dead_after=1))
    with consuming(broker, f"/queue/{others}", listener, policy=policies) as conn:
        conn.subscribe(f"/queue/{one}", id="2")
        until(lambda: len(listener.counts) == 201)
        assert len(left(broker, f"DLQ.{others}", 200)) == 200
        letters = left(broker, full, 2)  # what fills it, and the dead letter as soon as there is room
        until(lambda: settled(conn))
        assert not [told for told in listener.told if told.startswith("error")]
    assert [letter.body for letter in letters[1:]] == [b"m"]
    assert left(broker, one) == left(broker, others) == []


def unconnected(kind: Any) -> Any:
    return kind()


def test_what_has_no_on_message_is_refused() -> None:
    with pytest.raises(ConfigError):
        redelivering(object(), unconnected(stomp.Connection12))


def test_a_listener_whose_on_message_would_not_run_is_refused() -> None:
    class Async(stomp.ConnectionListener):
        async def on_message(self, frame: Any) -> None: ...

    class Generator(stomp.ConnectionListener):
        def on_message(self, frame: Any) -> Iterator[int]:
            yield 1

    for listener, why in ((Async(), "a coroutine as on_message"), (Generator(), "a generator function")):
        with pytest.raises(ConfigError, match=why):
            redelivering(listener, unconnected(stomp.Connection12))


def test_stomp_1_0_is_refused() -> None:
    with pytest.raises(ConfigError):
        redelivering(Listener(), unconnected(stomp.Connection10))


@pytest.mark.broker
def test_what_a_callback_sends_goes_out_only_with_its_success(activemq63: Broker) -> None:
    queue = new_name()

    def act(_listener: Listener, _frame: Any) -> None:
        delivery = current_delivery()
        delivery.send(f"{queue}.next", f"from run {delivery.delivery_count}")
        if delivery.delivery_count == 1:
            raise ValueError("it has sent, and fails")

    listener = Listener(act)
    put(activemq63, queue, "m")
    with consuming(activemq63, f"/queue/{queue}", listener, policy=SHORT):
        until(lambda: listener.attempts("m") == 2 and settled(listener.conn))
    assert [sent.body for sent in left(activemq63, f"{queue}.next", 1)] == [b"from run 2"]
    assert left(activemq63, queue) == []
