# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests a wrapped consumer's prefetch window: how long healthy messages wait in it, and who is told when it is full."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from typing import Any

import pytest

from redeliver_mw import RedeliveryPolicy
from redeliver_mw.adapter.capabilities import ScheduleRange, Settlement
from redeliver_mw.message import Delivery
from redeliver_mw.redelivery.delays import DelayOptions
from tests.dropin.memory_driver import Consumer, MemoryScope, Message

LATER = RedeliveryPolicy(dead_after=3, backoff=8.0)


class Times:
    """Fails on each message `bad…`, and notes when each body was first seen, in seconds of the hand-driven clock."""

    def __init__(self) -> None:
        self.first: dict[str, float] = {}
        self.counts: dict[str, int] = {}
        self.consumer: Consumer | None = None

    def __call__(self, message: Message) -> None:
        assert self.consumer is not None
        self.first.setdefault(message.text, self.consumer.clock.now().mono)
        self.counts[message.text] = message.count
        if message.text.startswith("bad"):
            raise ValueError("no")


def windowed(window: int | None, prefetch: int, **options: Any) -> tuple[Times, Consumer]:
    """Return a consumer whose driver says that its window is `window`; None: it does not say."""

    class Scope(MemoryScope):
        learns_window = True

        def window(self, consumer: Hashable) -> int | None:
            return window

    times = Times()
    times.consumer = consumer = Consumer(times, prefetch=prefetch, scope=Scope, **options)
    return times, consumer


@pytest.mark.parametrize("window", [1, None], ids=["known", "learned"])
@pytest.mark.parametrize("personality", ["rabbitmq", "rabbitmq-classic", "artemis", "activemq"])
def test_in_a_window_of_one_healthy_messages_wait_a_second_at_most(personality: str, window: int | None) -> None:
    times, consumer = windowed(window, 1, personality=personality, policy=LATER)
    consumer.put("bad", "good")
    consumer.clock.advance(1.1)
    assert times.first["good"] - times.first["bad"] <= 1.0
    consumer.clock.advance(60.0)
    assert times.counts["bad"] == 3
    assert (consumer.dead(), consumer.left()) == ([("bad", "exhausted")], 0)


@pytest.mark.parametrize("window", [1, None], ids=["known", "learned"])
def test_where_no_copy_can_wait_at_the_broker_the_message_goes_to_the_tail_each_second(window: int | None) -> None:
    """Delays are held here alone, so that the one place of the window is lent for a second at a time."""
    times, consumer = windowed(window, 1, policy=LATER, delay="hold")
    consumer.put("bad", "good")
    consumer.clock.advance(1.1)
    assert times.first["good"] - times.first["bad"] <= 1.0
    consumer.clock.advance(6.5)
    assert times.counts["bad"] == 1  # its own delay is kept: 8 s
    consumer.clock.advance(1.5)
    assert times.counts["bad"] == 2
    consumer.put("another")
    consumer.clock.advance(1.1)
    assert "another" in times.first
    consumer.clock.advance(60.0)
    assert (consumer.dead(), consumer.left()) == ([("bad", "exhausted")], 0)


def test_a_window_that_is_not_known_is_as_large_as_the_most_that_were_unsettled_at_once() -> None:
    """Each message that arrives while another is held shows that there is more room; nobody waits for it."""
    times, consumer = windowed(None, 20, policy=LATER, delay="hold")
    for number in range(6):
        consumer.put(f"bad {number}", f"good {number}")
        assert times.first.keys() >= {f"bad {number}", f"good {number}"}
    consumer.clock.advance(60.0)
    assert len(consumer.dead()) == 6


@pytest.mark.parametrize(
    ("window", "unsettled", "budget", "expected"),
    [
        (1, 1, 20, (1, 0)),  # one place, and healthy messages have no other
        (2, 1, 20, (1, 1)),  # half of the window
        (40, 1, 20, (20, 20)),
        (40, 1, 5, (5, 5)),  # hold_max= says less
        (None, 1, 20, (1, 0)),
        (None, 2, 20, (2, 1)),
        (None, 100, 20, (20, 20)),
    ],
)
def test_how_many_are_held_in_a_window(
    window: int | None, unsettled: int, budget: int, expected: tuple[int, int]
) -> None:
    ways = DelayOptions("auto", 20, 10.0, ScheduleRange(), 8.0).within(window, unsettled, budget)
    assert (ways.budget, ways.spare) == expected


# -- a window that is full ------------------------------------------------------------------------


def forgets(message: Message) -> None:
    """Leave the message unsettled."""


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING and "for a minute" in r.getMessage()]


def test_a_window_of_which_nothing_was_settled_for_a_minute_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    consumer = Consumer(forgets, prefetch=3, settle="callback")
    consumer.put("1", "2", "3", "4")
    consumer.clock.advance(59.0)
    assert warnings(caplog) == []
    consumer.clock.advance(2.0)
    (text,) = warnings(caplog)
    assert text.startswith("queue:orders: for a minute the code has settled none of the 3 messages")
    assert 'settle="return"' in text
    consumer.clock.advance(600.0)
    assert len(warnings(caplog)) == 1


def test_a_consumer_that_settles_something_each_minute_is_not_warned(caplog: pytest.LogCaptureFixture) -> None:
    messages: list[Message] = []
    consumer = Consumer(messages.append, prefetch=3, settle="callback")
    for number in range(8):
        consumer.put(str(number))
    for _ in range(5):
        consumer.clock.advance(45.0)
        messages.pop(0).ack()
        consumer.clock.run_until_idle()
    assert warnings(caplog) == []


def test_a_window_that_is_known_and_has_room_is_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    class Scope(MemoryScope):
        def window(self, consumer: Hashable) -> int | None:
            return 3

    consumer = Consumer(forgets, prefetch=3, settle="callback", scope=Scope)
    consumer.put("1", "2")
    consumer.clock.advance(200.0)
    assert warnings(caplog) == []
    consumer.put("3")
    consumer.clock.advance(130.0)
    assert len(warnings(caplog)) == 1


# -- a consumer that the code cancels -------------------------------------------------------------


class Written(MemoryScope):
    """Notes each settlement that is written. The subscription lives on, so a released message comes again."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.words: list[tuple[str, str]] = []

    def write(self, delivery: Delivery, settlement: Settlement) -> None:
        self.words.append((delivery.text, settlement))
        super().write(delivery, settlement)


def cancelled_after(*bodies: str) -> tuple[list[Message], Consumer, list[tuple[str, str]]]:
    """Return the messages of a consumer that the code cancelled; a nack of one called bad was given before that."""
    messages: list[Message] = []

    def callback(message: Message) -> None:
        messages.append(message)
        if message.text == "bad" and len(messages) <= len(bodies):
            message.nack()

    consumer = Consumer(callback, prefetch=20, settle="callback", policy=LATER, delay="hold", scope=Written)
    consumer.put(*bodies)
    assert isinstance(consumer.scope, Written)
    (generation,) = consumer.scope._live
    consumer.scope.retire(generation)
    return messages, consumer, consumer.scope.words


def test_after_the_codes_own_cancel_held_messages_go_back_and_those_in_hand_can_be_settled() -> None:
    messages, _, words = cancelled_after("bad", "good")
    assert words == [("bad", "released")]
    next(m for m in messages if m.text == "good").ack()
    assert words == [("bad", "released"), ("good", "accepted")]


def test_a_message_that_fails_after_the_codes_own_cancel_is_not_held() -> None:
    messages, _, words = cancelled_after("one")
    messages[0].nack()
    assert words == [("one", "released")]


def test_what_was_in_hand_of_a_cancelled_consumer_is_lost_with_the_channel() -> None:
    messages, consumer, words = cancelled_after("one")
    consumer.scope.abandon_all()
    messages[0].ack()
    assert words == []
    assert consumer.left() == 1
