# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests what a handler of proton's settles itself, and how it may be written, on a real Artemis.

Each settlement is captured once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from proton import Delivery
from proton.handlers import MessagingHandler
from proton.handlers import Reject as ProtonReject
from proton.handlers import Release as ProtonRelease
from proton.reactor import AtMostOnce, Container, Copy

from redeliver_mw import RedeliveryPolicy, current_delivery, redeliver
from redeliver_mw.errors import ConfigError
from redeliver_proton.dropin.wrapper import redelivering
from tests.adapters.proton.dropins import Consumer, Queues, drive, unsettled
from tests.brokers import Broker

TWICE = RedeliveryPolicy(dead_after=2, backoff=0.1)


@pytest.fixture
def q(artemis244: Broker) -> Queues:
    return Queues(artemis244)


def raise_(error: BaseException) -> None:
    raise error


def run(q: Queues, act: Callable[[Consumer, Any], object], **how: Any) -> Consumer:
    """Run a consumer that does `act` until its one message is settled for good, and return the consumer."""
    consumer = Consumer(q.broker, q.name, lambda event: act(consumer, event), auto_accept=False)
    q.put("one")
    return drive(consumer, lambda: bool(consumer.counts) and not unsettled(consumer), policy=TWICE, **how)


ACCEPTS: list[Callable[[Consumer, Any], object]] = [
    lambda c, e: c.accept(e.delivery),
    lambda c, e: c.settle(e.delivery, Delivery.ACCEPTED),
    lambda c, e: (e.delivery.update(Delivery.ACCEPTED), e.delivery.settle()),
    lambda c, e: (c.accept(e.delivery), c.reject(e.delivery)),
    lambda c, e: (c.accept(e.delivery), raise_(ValueError("after that"))),
]


@pytest.mark.parametrize("act", ACCEPTS)
def test_an_accept_of_its_own_is_success_whatever_follows(q: Queues, act: Callable[[Consumer, Any], object]) -> None:
    consumer = run(q, act)
    assert consumer.counts["one"] == [1]
    assert (q.left(), q.dead()) == ([], [])


RELEASES: list[Callable[[Consumer, Any], object]] = [
    lambda c, e: c.release(e.delivery),
    lambda c, e: c.release(e.delivery, delivered=False),
    lambda c, e: e.delivery.settle(),
    lambda c, e: raise_(ProtonRelease()),
]


@pytest.mark.parametrize("act", RELEASES)
def test_a_release_is_a_failure_that_is_tried_again(q: Queues, act: Callable[[Consumer, Any], object]) -> None:
    consumer = run(q, act)
    assert consumer.counts["one"] == [1, 2]
    (dead,) = q.dead()
    assert dead.properties["redeliver_reason"] == "exhausted"
    assert q.left() == []


REJECTS: list[Callable[[Consumer, Any], object]] = [
    lambda c, e: c.reject(e.delivery),
    lambda c, e: raise_(ProtonReject("not mine")),
]


@pytest.mark.parametrize("act", REJECTS)
def test_a_reject_dead_letters_at_once(q: Queues, act: Callable[[Consumer, Any], object]) -> None:
    consumer = run(q, act)
    assert consumer.counts["one"] == [1]
    (dead,) = q.dead()
    assert dead.properties["redeliver_reason"] == "rejected"
    assert q.left() == []


@pytest.mark.parametrize("what", ["receiver", "connection"])
def test_a_callback_that_closes_what_its_message_came_through_gets_it_settled_first(q: Queues, what: str) -> None:
    def act(event: Any) -> None:
        getattr(event, what).close()
        if what == "receiver":
            event.connection.close()

    consumer = Consumer(q.broker, q.name, act)
    q.put("one", "two", "three")
    drive(consumer, lambda: False, policy=TWICE)
    assert dict(consumer.counts) == {"one": [1]}
    assert q.left() == ["two", "three"]


def test_a_keyboard_interrupt_ends_the_program_and_leaves_the_message(q: Queues) -> None:
    consumer = Consumer(q.broker, q.name, lambda _: raise_(KeyboardInterrupt()))
    q.put("one")
    container = Container(redelivering(consumer, policy=TWICE))
    with pytest.raises(KeyboardInterrupt):
        container.run()
    consumer.connection.close()
    while container.process():
        pass
    assert (q.left(), q.dead()) == (["one"], [])


def test_with_settle_callback_a_later_accept_from_another_thread_is_success(q: Queues) -> None:
    threads: list[threading.Thread] = []

    def act(event: Any) -> None:
        threads.append(threading.Thread(target=lambda: consumer.accept(event.delivery)))

    def done() -> bool:
        if threads and not threads[0].ident:
            assert unsettled(consumer) == 1
            threads[0].start()
        return bool(threads) and not unsettled(consumer)

    consumer = Consumer(q.broker, q.name, act, auto_accept=True)
    q.put("one")
    drive(consumer, done, policy=TWICE, settle="callback")
    assert consumer.counts["one"] == [1]
    assert (q.left(), q.dead()) == ([], [])


def test_a_mark_on_the_callback_is_its_policy(q: Queues) -> None:
    class Marked(Consumer):
        @redeliver(policy=RedeliveryPolicy(dead_after=1))
        def on_message(self, event: Any) -> None:
            super().on_message(event)

    consumer = Marked(q.broker, q.name, lambda _: raise_(ValueError("no")))
    q.put("one")
    drive(consumer, lambda: bool(consumer.counts) and not unsettled(consumer))
    assert consumer.counts["one"] == [1]
    assert [m.body for m in q.dead()] == ["one"]


@pytest.mark.parametrize(("option", "left"), [(Copy(), ["one"]), (AtMostOnce(), [])])
def test_what_cannot_be_redelivered_passes_through_untouched(q: Queues, option: Any, left: list[str]) -> None:
    seen: list[Any] = []

    class Plain(Consumer):
        def on_message(self, event: Any) -> None:
            seen.append((event.message.body, event.message.properties))

    q.put("one")
    drive(Plain(q.broker, q.name, options=option), lambda: bool(seen), policy=TWICE)
    assert seen == [("one", None)]
    assert q.left() == left


def test_what_is_no_handler_is_refused_with_a_cure() -> None:
    class Duck:
        def on_message(self, event: Any) -> None: ...

    class Coroutine(MessagingHandler):
        async def on_message(self, event: Any) -> None: ...

    class Generator(MessagingHandler):
        def on_message(self, event: Any) -> Iterator[int]:
            yield 1

    with pytest.raises(ConfigError, match="generator function"):
        redelivering(Generator())

    for wrong in (Duck(), lambda event: None, Coroutine()):
        with pytest.raises(ConfigError) as caught:
            redelivering(wrong, policy=TWICE)
        assert caught.value.cure
    once = redelivering(Consumer(None, "x"), policy=TWICE)
    with pytest.raises(ConfigError, match="already"):
        redelivering(once, policy=TWICE)


def test_a_policy_that_cannot_be_had_ends_the_container_before_anything_begins(q: Queues) -> None:
    q.put("one")
    consumer = Consumer(q.broker, q.name)
    container = Container(redelivering(consumer, policy=RedeliveryPolicy(dead_after=1, dead_letter=q.name)))
    with pytest.raises(ConfigError, match="dead letters would go to"):
        container.run()
    assert dict(consumer.counts) == {}
    assert q.depth() == 1


def test_what_a_callback_sends_goes_out_only_with_its_success(q: Queues) -> None:
    def act(_consumer: Consumer, _event: Any) -> None:
        delivery = current_delivery()
        delivery.send(f"DLQ.{q.name}", f"from run {delivery.delivery_count}")
        if delivery.delivery_count == 1:
            raise ValueError("it has sent, and fails")

    consumer = Consumer(q.broker, q.name, lambda event: act(consumer, event))
    q.put("one")
    drive(consumer, lambda: len(consumer.counts["one"]) == 2 and not unsettled(consumer), policy=TWICE)
    assert [bytes(sent.body) for sent in q.dead()] == [b"from run 2"]
    assert q.left() == []
