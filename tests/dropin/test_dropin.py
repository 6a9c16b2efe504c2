# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the core of the wrappers on the smallest driver there is: the memory broker, with time moved by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from redeliver_mw import RedeliveryPolicy, current_delivery, redeliver
from redeliver_mw.adapter.protocol import OnAnswer, OnTransferred
from redeliver_mw.dropin import CompanionPublisher, CopyPublisher, IsAlive
from redeliver_mw.errors import ConfigError
from redeliver_mw.message import Delivery, Destination, Outgoing
from redeliver_mw.testing import register_broker
from tests.dropin.memory_driver import Consumer, Message

TWICE = RedeliveryPolicy(dead_after=2, backoff=1.0)


class Seen:
    """Runs `act` as a callback, and remembers the text and the count of each message that it was shown."""

    def __init__(self, act: Callable[[Message], object] = lambda message: None) -> None:
        self.calls: list[tuple[str, int]] = []
        self.act = act

    def __call__(self, message: Message) -> object:
        self.calls.append((message.text, message.count))
        return self.act(message)


def raises(message: Message) -> None:
    raise ValueError("no")


def acks_and_raises(message: Message) -> None:
    message.ack()
    raise ValueError("too late")


def nacks_and_acks(message: Message) -> None:
    message.nack()
    message.ack()


def raises_once(message: Message) -> None:
    if message.count == 1:
        raise ValueError("no")


def test_returning_is_success_and_the_delivery_is_in_hand_meanwhile() -> None:
    inside: list[str] = []
    seen = Seen(lambda message: inside.append(current_delivery().text))
    consumer = Consumer(seen, policy=TWICE)
    consumer.put("1", "2")
    assert (seen.calls, inside) == ([("1", 1), ("2", 1)], ["1", "2"])
    with pytest.raises(LookupError):
        current_delivery()
    assert (consumer.left(), consumer.dead()) == (0, [])


@pytest.mark.parametrize("personality", ["rabbitmq", "rabbitmq-classic", "activemq", "artemis"])
def test_a_failed_message_comes_again_after_its_delay_and_is_dead_lettered_after_the_last(personality: str) -> None:
    seen = Seen(raises)
    consumer = Consumer(seen, personality, policy=TWICE)
    consumer.put("1")
    consumer.clock.advance(0.9)
    assert seen.calls == [("1", 1)]
    consumer.clock.advance(0.2)
    assert seen.calls == [("1", 1), ("1", 2)]
    assert (consumer.dead(), consumer.left()) == ([("1", "exhausted")], 0)


def test_others_are_handled_while_one_is_held() -> None:
    seen = Seen(lambda message: raises_once(message) if message.text == "failing" else None)
    consumer = Consumer(seen, policy=TWICE)
    consumer.put("failing", "well")
    assert seen.calls == [("failing", 1), ("well", 1)]
    consumer.clock.advance(1.0)
    assert (seen.calls[2:], consumer.left()) == ([("failing", 2)], 0)


@pytest.mark.parametrize(
    ("act", "counts", "dead"),
    [
        (lambda m: m.ack(), [1], []),
        (acks_and_raises, [1], []),
        (lambda m: m.nack(), [1, 2], [("1", "exhausted")]),
        (nacks_and_acks, [1, 2], [("1", "exhausted")]),
        (lambda m: m.nack(requeue=False), [1], [("1", "rejected")]),
    ],
)
def test_the_first_settlement_of_a_callback_counts(act: Any, counts: list[int], dead: list[tuple[str, str]]) -> None:
    seen = Seen(act)
    consumer = Consumer(seen, policy=TWICE)
    consumer.put("1")
    consumer.clock.advance(5.0)
    assert ([count for _, count in seen.calls], consumer.dead(), consumer.left()) == (counts, dead, 0)


def test_with_settle_callback_a_later_settlement_decides_and_returning_settles_nothing() -> None:
    kept: dict[str, Message] = {}
    seen = Seen(lambda message: kept.update({message.text: message}))
    consumer = Consumer(seen, policy=TWICE, settle="callback")
    consumer.put("good", "bad", "silent")
    kept["good"].ack()
    kept["bad"].nack(requeue=False)
    consumer.clock.run_until_idle()
    assert (consumer.dead(), consumer.left()) == ([("bad", "rejected")], 1)


def test_a_callback_that_closes_its_consumer_after_its_message_gets_it_settled_first() -> None:
    consumer = Consumer(Seen(lambda message: message.close()), policy=TWICE)
    consumer.put("1")
    assert consumer.left() == 0


def test_a_callback_that_closes_its_consumer_for_an_error_leaves_its_message() -> None:
    def act(message: Message) -> None:
        try:
            raises(message)
        except ValueError:
            message.close()
            raise

    consumer = Consumer(Seen(act), policy=TWICE)
    consumer.put("1")
    assert consumer.left() == 1


def test_a_count_survives_the_loss_of_its_generation_and_a_late_settlement_does_nothing() -> None:
    kept: list[Message] = []

    def act(message: Message) -> None:
        kept.append(message)
        raises_once(message)

    seen = Seen(act)
    consumer = Consumer(seen, policy=RedeliveryPolicy(dead_after=3, backoff=5.0))
    consumer.put("1")
    consumer.memory.cut()
    kept[0].ack()
    consumer.clock.advance(1.0)
    assert seen.calls == [("1", 1)]  # back, and not before its time
    consumer.clock.advance(5.0)
    assert (seen.calls, consumer.left()) == ([("1", 1), ("1", 2)], 0)


@pytest.mark.parametrize(("requeue", "reason"), [(True, "exhausted"), (False, "rejected")])
def test_the_exception_that_a_nack_answers_is_the_error_of_the_attempt(requeue: bool, reason: str) -> None:
    def act(message: Message) -> None:
        try:
            raise KeyError("no stock")
        except KeyError:
            message.nack(requeue)

    consumer = Consumer(Seen(act), policy=RedeliveryPolicy(dead_after=1))
    consumer.put("1")
    (letter,) = consumer.memory.peek("DLQ.orders")
    assert consumer.dead() == [("1", reason)]
    assert letter.headers["redeliver_error_type"] == "KeyError"


def test_an_exception_that_was_in_hand_before_the_callback_is_not_its_error() -> None:
    consumer = Consumer(Seen(lambda message: message.nack()), policy=RedeliveryPolicy(dead_after=1))
    try:
        raise KeyError("the program's")
    except KeyError:
        consumer.put("1")
    (letter,) = consumer.memory.peek("DLQ.orders")
    assert letter.headers["redeliver_error_type"] == "Requeued"


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_what_ends_a_program_goes_through_and_leaves_the_message(end: type[BaseException]) -> None:
    def act(message: Message) -> None:
        raise end

    consumer = Consumer(Seen(act), policy=TWICE)
    with pytest.raises(end):
        consumer.put("1")
    assert consumer.left() == 1


def test_a_source_that_is_paused_keeps_what_comes_and_goes_on_with_it(caplog: pytest.LogCaptureFixture) -> None:
    seen = Seen(lambda message: raises(message) if message.text == "failing" else None)
    consumer = Consumer(seen, policy=RedeliveryPolicy(dead_after=1))
    consumer.faults.refuse("DLQ.orders", times=5)
    consumer.put("failing")
    consumer.clock.advance(3.0)
    consumer.put("waits")
    assert ("is paused" in caplog.text, seen.calls) == (True, [("failing", 1)])
    consumer.clock.advance(60.0)
    assert seen.calls == [("failing", 1), ("waits", 1)]
    assert (consumer.dead(), consumer.left()) == ([("failing", "exhausted")], 0)


class Elsewhere(CopyPublisher):
    """Keeps copies until the test lets them out, as a connection with a thread of its own would."""

    off_thread = True

    def __init__(self) -> None:
        self.waiting: list[tuple[Outgoing, OnAnswer, IsAlive]] = []

    def store(self, out: Outgoing, after: float, answer: OnAnswer, alive: IsAlive) -> None:
        self.waiting.append((out, answer, alive))


def test_copies_that_go_out_elsewhere_are_never_part_of_a_transaction() -> None:
    publisher = Elsewhere()
    consumer = Consumer(Seen(raises), "artemis", publisher, policy=RedeliveryPolicy(dead_after=1))
    assert consumer.memory.capabilities.atomic_move  # the broker could
    consumer.put("1")
    [(out, answer, alive)] = publisher.waiting
    assert (str(out.target), alive()) == ("queue:DLQ.orders", True)
    answer("ok", "")
    consumer.clock.run_until_idle()
    assert consumer.left() == 0


def test_a_copy_of_a_lost_delivery_is_known_to_be_of_no_use() -> None:
    publisher = Elsewhere()
    consumer = Consumer(Seen(raises), "artemis", publisher, policy=RedeliveryPolicy(dead_after=1))
    consumer.put("1")
    consumer.scope.abandon_all()
    assert not publisher.waiting[0][2]()


def test_a_companion_sends_through_an_adapter_of_its_own_and_only_what_is_still_ours() -> None:
    consumer = Consumer(Seen(), policy=TWICE)
    register_broker("companion", consumer.memory)
    companion = CompanionPublisher("memory://companion", "memory")
    verdicts: list[str] = []
    out = Outgoing(Destination("DLQ.orders"), b"copy", {"redeliver_reason": "exhausted"})
    companion.store(out, 0.0, lambda verdict, why: verdicts.append(verdict), lambda: True)
    companion.store(out, 0.0, lambda verdict, why: verdicts.append(verdict), lambda: False)
    consumer.clock.run_until_idle()
    assert (sorted(verdicts), consumer.dead()) == (["ok", "unsent"], [("copy", "exhausted")])
    companion.close()


def test_copies_and_settle_go_as_one_where_the_broker_can(monkeypatch: pytest.MonkeyPatch) -> None:
    stored: list[Outgoing] = []
    consumer = Consumer(Seen(raises), "artemis", policy=RedeliveryPolicy(dead_after=1))
    monkeypatch.setattr(consumer.publisher, "store", lambda out, *_: stored.append(out))
    consumer.put("1")
    assert (stored, consumer.dead(), consumer.left()) == ([], [("1", "exhausted")], 0)


def test_an_aborted_transaction_is_not_tried_again_nor_is_the_callback(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen(raises)
    consumer = Consumer(seen, "artemis", policy=RedeliveryPolicy(dead_after=1))
    moved: list[Delivery] = []
    real = consumer.publisher.move

    def move(delivery: Delivery, outs: Any, answer: OnTransferred) -> None:
        moved.append(delivery)
        real(delivery, outs, answer)

    monkeypatch.setattr(consumer.publisher, "move", move)
    consumer.faults.refuse("DLQ.orders", times=1)
    consumer.put("1")
    consumer.clock.advance(5.0)
    assert (len(moved), seen.calls) == (1, [("1", 1)])  # its abort gave the message back to the broker
    assert (consumer.dead(), consumer.left()) == ([("1", "exhausted")], 0)


def test_the_mark_is_the_policy_where_none_is_given() -> None:
    @redeliver(RedeliveryPolicy(dead_after=1))
    def marked(message: Message) -> None:
        raise ValueError("no")

    consumer = Consumer(marked)
    consumer.put("1")
    assert consumer.dead() == [("1", "exhausted")]
    consumer = Consumer(marked, policy=TWICE)
    consumer.put("1")
    assert consumer.dead() == []


def test_an_awaitable_is_refused_where_there_is_no_loop_for_it() -> None:
    class Awaitable:
        def __await__(self) -> Any:
            yield

    consumer = Consumer(Seen(lambda message: Awaitable()), policy=TWICE)
    with pytest.raises(ConfigError, match="awaitable"):
        consumer.put("1")
    assert consumer.left() == 1


def sends(message: Message) -> None:
    current_delivery().send("next", f"from {message.text}, run {message.count}")
    if message.text == "failing" and message.count == 1:
        raise ValueError("it has sent, and fails")


@pytest.mark.parametrize("personality", ["rabbitmq", "rabbitmq-classic", "activemq", "artemis"])
def test_what_a_callback_sends_goes_out_only_with_its_success(personality: str) -> None:
    consumer = Consumer(sends, personality, policy=TWICE)
    consumer.memory.declare("next")
    consumer.put("well", "failing")
    consumer.clock.advance(2.0)
    assert [raw.body for raw in consumer.memory.peek("next")] == [b"from well, run 1", b"from failing, run 2"]
    assert consumer.left() == 0


def test_what_a_callback_sends_is_confirmed_before_its_message_is_settled() -> None:
    consumer = Consumer(sends, "rabbitmq-classic", policy=TWICE)
    consumer.memory.declare("next")
    consumer.faults.refuse("next", 1)
    consumer.put("well")
    assert (consumer.memory.depth("next"), len(consumer.memory.everything())) == (0, 1)  # it is unsettled yet
    consumer.clock.advance(2.0)
    assert (consumer.memory.depth("next"), consumer.left()) == (1, 0)


def test_an_ack_of_the_callbacks_own_ends_its_sending() -> None:
    errors: list[ConfigError] = []

    def act(message: Message) -> None:
        delivery = current_delivery()
        delivery.send("next", b"before")
        message.ack()
        try:
            delivery.send("next", b"after")
        except ConfigError as error:
            errors.append(error)

    consumer = Consumer(act, policy=TWICE)
    consumer.memory.declare("next")
    consumer.put("one")
    assert [raw.body for raw in consumer.memory.peek("next")] == [b"before"]
    assert "after its handler was over" in str(errors[0])
    assert consumer.left() == 0
