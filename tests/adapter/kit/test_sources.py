# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests sources and their generations: what the sink is told, and when a source is subscribed to again."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from redeliver_mw.adapter import Subscription
from redeliver_mw.adapter.capabilities import Capabilities
from redeliver_mw.adapter.kit.sources import AGAIN_AFTER, SourceTable, next_generation
from redeliver_mw.errors import BrokerError, RedeliverError
from redeliver_mw.message import Delivery, Destination
from tests.adapter.kit.hand_driven import HandDrivenTimers

ORDERS = Destination("orders")


class NotingSink:
    """Notes what it is told, in order, with what was given up before."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def connected(self, capabilities: Capabilities, /) -> None: ...

    def arrived(self, batch: Sequence[Delivery], /) -> None: ...

    def ready(self, source: Destination, generation: int, /) -> None:
        self.told.append(f"ready {source.name} {generation}")

    def lost(self, generation: int, error: BaseException | None, /) -> None:
        self.told.append(f"lost {generation}: {error}")

    def failed(self, error: RedeliverError, source: Destination | None, /) -> None:
        self.told.append(f"failed {source}: {error.what}")


class Consumer:
    """Stands for a subscription whose generations are numbers."""

    def __init__(self, source: Destination = ORDERS) -> None:
        self.subscription = Subscription(source=source)
        self.generation = 0
        self.was_ready = False


class Scene:
    """Holds a table with its sink and timers."""

    def __init__(self) -> None:
        self.timers, self.sink = HandDrivenTimers(), NotingSink()
        self.subscribed: list[Consumer] = []
        self.table: SourceTable[Consumer] = SourceTable(
            logging.getLogger("redeliver_mw.test"),
            call_later=self.timers.call_later,
            subscribe=self.subscribed.append,
            over=lambda consumer: self.sink.told.append(f"over {consumer.generation}"),
        )
        self.table.start(self.sink)

    def begin(self, consumer: Consumer, generation: int) -> None:
        consumer.generation, consumer.was_ready = generation, True
        self.table.ready(consumer)


def test_no_two_generations_of_a_process_have_the_same_number() -> None:
    assert len({next_generation() for _ in range(100)}) == 100


def test_the_end_of_a_generation_is_reported_once_after_all_of_it_was_given_up() -> None:
    scene, consumer = Scene(), Consumer()
    scene.table.add(consumer)
    scene.begin(consumer, 7)
    assert scene.table.live == {7: consumer}
    scene.table.lost(consumer, ConnectionError("reset"))
    scene.table.lost(consumer, ConnectionError("again"))
    assert scene.sink.told == ["ready orders 7", "over 7", "lost 7: reset"]
    assert scene.table.live == {}


def test_a_generation_that_never_was_ready_is_not_reported_as_lost() -> None:
    scene, consumer = Scene(), Consumer()
    scene.table.add(consumer)
    consumer.generation = 7
    scene.table.lost(consumer, ConnectionError("reset"))
    assert scene.sink.told == []


def test_a_late_end_of_an_earlier_generation_leaves_the_new_one_alone() -> None:
    scene, consumer = Scene(), Consumer()
    scene.begin(consumer, 7)
    scene.table.lost(consumer, None)
    consumer.generation = 8  # it is being subscribed to again
    scene.table.lost(consumer, ConnectionError("late"))
    scene.begin(consumer, 8)
    assert scene.sink.told == ["ready orders 7", "over 7", "lost 7: None", "ready orders 8"]
    assert list(scene.table.live) == [8]


def test_with_the_connection_all_live_generations_are_over_and_the_sources_stay() -> None:
    scene, consumers = Scene(), [Consumer(Destination(name)) for name in "abc"]
    for number, consumer in enumerate(consumers, 1):
        scene.table.add(consumer)
        if number < 3:
            scene.begin(consumer, number)
    scene.table.all_lost(None)
    assert scene.sink.told[2:] == ["over 1", "lost 1: None", "over 2", "lost 2: None"]
    assert list(scene.table) == consumers
    assert scene.table[Destination("b")] is consumers[1]


def test_what_the_broker_closed_is_subscribed_to_again_after_a_second_and_says_why_it_is_not_consumed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene, consumer = Scene(), Consumer()
    scene.begin(consumer, 1)
    scene.table.lost(consumer, ConnectionError("queue deleted"))
    with caplog.at_level(logging.WARNING, "redeliver_mw"):
        scene.table.closed(consumer, ConnectionError("queue deleted"))
    assert scene.table.trouble(ORDERS) == "closed by the broker: queue deleted"
    assert [record.getMessage() for record in caplog.records] == [
        "queue:orders was closed by the broker (queue deleted); subscribing again"
    ]
    scene.timers.advance(AGAIN_AFTER - 0.01)
    assert scene.subscribed == []
    scene.timers.advance(0.02)
    assert scene.subscribed == [consumer]
    scene.begin(consumer, 2)
    assert scene.table.trouble(ORDERS) == ""


def test_a_refusal_is_reported_the_first_time_and_tried_again_later() -> None:
    scene, consumer = Scene(), Consumer()
    scene.table.refused(consumer, BrokerError("not for this user"))
    assert scene.sink.told == ["failed queue:orders: not for this user"]
    assert scene.timers.waiting == 0
    scene.begin(consumer, 1)
    scene.table.lost(consumer, None)
    scene.table.refused(consumer, BrokerError("not just now"))
    scene.timers.advance(AGAIN_AFTER)
    assert scene.subscribed == [consumer]
    assert scene.table.trouble(ORDERS) == "not just now"
    assert not any("not just now" in told for told in scene.sink.told)
