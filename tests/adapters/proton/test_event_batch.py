# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests messages that come together, on a real Artemis.

The driver makes an event of the first message, and the rest goes directly.
"""

from __future__ import annotations

import queue
import threading
from typing import Any

import proton
import pytest
from proton.reactor import Container

from redeliver_mw import RedeliveryPolicy
from redeliver_proton.dropin.wrapper import redelivering
from tests.adapters.proton.dropins import Consumer, Queues, drive, unsettled
from tests.brokers import Broker

BURST = [str(n) for n in range(200)]
TWICE = RedeliveryPolicy(dead_after=2, backoff=0.1)


@pytest.fixture
def q(artemis244: Broker) -> Queues:
    found = Queues(artemis244)
    found.put(*BURST)
    return found


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[proton.EventType]:
    """Return a list that gets the kind of each event that the driver makes."""
    made: list[proton.EventType] = []
    real: Any = proton.Event.__init__

    def init(self: Any, *args: Any) -> None:
        real(self, *args)
        made.append(self.type)

    monkeypatch.setattr(proton.Event, "__init__", init)
    return made


class Hearing(proton.Handler):
    """Hears of deliveries, as a part of a user's program for tracing would."""

    heard = 0


class Listening(Hearing):
    def on_delivery(self, event: Any) -> None:
        self.heard += 1


class Unhandled(Hearing):
    def on_unhandled(self, method: str, *_: Any) -> None:
        self.heard += method == "on_delivery"


class Both(Consumer):
    """Consumes two queues on one connection."""

    def __init__(self, broker: Broker, first: str, second: str, **how: Any) -> None:
        super().__init__(broker, first, **how)
        self.second = second

    def on_start(self, event: Any) -> None:
        super().on_start(event)
        event.container.create_receiver(self.connection, self.second)


def test_a_burst_is_handled_in_order_and_most_of_it_never_becomes_an_event(q: Queues, events: list[Any]) -> None:
    consumer = Consumer(q.broker, q.name, prefetch=len(BURST))
    drive(consumer, lambda: len(consumer.handled) == len(BURST))
    assert consumer.handled == BURST
    assert {count for counts in consumer.counts.values() for count in counts} == {1}
    assert events.count(proton.Event.DELIVERY) < len(BURST) / 2
    assert q.left() == []


@pytest.mark.parametrize("kind", [Listening, Unhandled])
@pytest.mark.parametrize("where", ["global", "beside", "below"])
def test_whoever_listens_to_deliveries_hears_of_each(q: Queues, kind: type[Hearing], where: str) -> None:
    consumer, listening = Consumer(q.broker, q.name, prefetch=50), kind()
    consumer.done = lambda: len(consumer.handled) == len(BURST)
    container = Container(redelivering(consumer))
    {"global": container.global_handler, "beside": container.handler, "below": consumer}[where].add(listening)
    container.run()
    assert consumer.handled == BURST
    assert listening.heard == len(BURST)


def test_two_queues_on_one_connection_keep_their_order(q: Queues) -> None:
    other = Queues(q.broker)
    other.put(*(f"other-{body}" for body in BURST))
    both = Both(q.broker, q.name, other.name, prefetch=20)
    drive(both, lambda: len(both.handled) == 2 * len(BURST))
    assert [body for body in both.handled if body in BURST] == BURST
    assert [body for body in both.handled if body not in BURST] == [f"other-{body}" for body in BURST]
    assert (q.left(), other.left()) == ([], [])


def test_some_fail_in_the_midst_of_it(q: Queues) -> None:
    def act(event: Any) -> None:
        if int(event.message.body) % 10 == 0:
            raise ValueError("no")

    consumer = Consumer(q.broker, q.name, act, prefetch=len(BURST))
    failing = [body for body in BURST if int(body) % 10 == 0]
    drive(
        consumer,
        lambda: all(len(consumer.counts[body]) == 2 for body in failing) and not unsettled(consumer),
        policy=TWICE,
    )
    assert consumer.handled == [body for body in BURST if body not in failing]
    assert sorted(m.body for m in q.dead()) == sorted(failing)
    assert q.left() == []


def test_a_callback_that_closes_the_connection_gets_no_more(q: Queues) -> None:
    def act(event: Any) -> None:
        if event.message.body == BURST[4]:
            event.connection.close()

    consumer = Consumer(q.broker, q.name, act, prefetch=len(BURST))
    drive(consumer, lambda: False)
    assert consumer.handled == BURST[:5]
    assert q.left() == BURST[5:]


def test_an_interrupt_in_the_midst_of_it_ends_the_program_and_loses_nothing(q: Queues) -> None:
    def act(event: Any) -> None:
        if event.message.body == BURST[4]:
            raise KeyboardInterrupt

    consumer = Consumer(q.broker, q.name, act, prefetch=len(BURST))
    container = Container(redelivering(consumer))
    with pytest.raises(KeyboardInterrupt):
        container.run()
    assert consumer.handled == BURST[:4]
    consumer.connection.close()
    while container.process():
        pass
    assert q.left() == BURST[4:]


def test_what_another_thread_says_comes_between_them(q: Queues) -> None:
    """The container's queue holds words of another thread's beside deliveries: each has its turn."""
    given: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def accept() -> None:
        while (delivery := given.get()) is not None:
            delivery.update(proton.Delivery.ACCEPTED)

    other = threading.Thread(target=accept)
    other.start()
    consumer = Consumer(q.broker, q.name, lambda event: given.put(event.delivery), prefetch=50)
    try:
        drive(consumer, lambda: len(consumer.handled) == len(BURST) and not unsettled(consumer), settle="callback")
    finally:
        given.put(None)
        other.join()
    assert consumer.handled == BURST
    assert q.left() == []


def test_each_callback_sees_the_delivery_of_its_own_message(q: Queues) -> None:
    """Those of messages that are not settled yet differ in their tags."""
    seen: list[Any] = []

    def act(event: Any) -> None:
        assert event.context.tag == event.delivery.tag
        seen.append(event.delivery)
        if len(seen) == 50:
            assert len({delivery.tag for delivery in seen}) == 50
            for delivery in seen:
                delivery.update(proton.Delivery.ACCEPTED)

    consumer = Consumer(q.broker, q.name, act, prefetch=50)
    drive(consumer, lambda: len(consumer.handled) >= 50, settle="callback")
    assert consumer.handled[:50] == BURST[:50]


def test_messages_that_come_in_pieces(artemis244: Broker) -> None:
    q = Queues(artemis244)
    bodies = [f"{n:06}" + "x" * 200_000 for n in range(30)]
    sender = q.connection.create_sender(q.name)
    for body in bodies:
        sender.send(proton.Message(body=body, durable=True))
    consumer = Consumer(q.broker, q.name, prefetch=10)
    drive(consumer, lambda: len(consumer.handled) == len(bodies))
    assert [body[:6] for body in consumer.handled] == [body[:6] for body in bodies]
    assert q.left() == []
