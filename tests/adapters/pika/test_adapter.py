# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests what the contract cannot ask of every broker: heart-beats, a young ladder, a consumer that RabbitMQ cancels."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pika
import pytest

from redeliver_mw import App, Delivery, RedeliveryPolicy
from redeliver_mw.journal.records import AttemptRecord
from redeliver_mw.session import connect
from tests.bench.rabbitmq import parameters
from tests.brokers import Broker


@contextmanager
def queue_on(broker: Broker, name: str, kind: str = "classic") -> Iterator[Any]:
    """Make a new queue of this name, and yield a channel."""
    with closing(pika.BlockingConnection(parameters(broker.url))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_delete(name)
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind})
        yield channel


def test_a_slow_handler_does_not_stop_the_apps_heart_beats(rabbitmq: Broker) -> None:
    seen: list[tuple[bool, int]] = []
    handled = threading.Event()
    app = App(f"{rabbitmq.url}?heartbeat=2", policy=RedeliveryPolicy(dead_after=3, backoff=1))

    @app.handler("slow.beats")
    def slow(delivery: Delivery) -> None:
        seen.append((delivery.redelivered, delivery.delivery_count))
        threading.Event().wait(7)  # three and a half heart-beats: the work itself
        handled.set()

    with queue_on(rabbitmq, "slow.beats") as channel:
        channel.basic_publish("", "slow.beats", b"x")
        with app:
            assert handled.wait(20)
        assert seen == [(False, 1)], "a lost connection would have brought it again"
        assert channel.queue_declare("slow.beats", passive=True).method.message_count == 0


def test_a_message_that_fails_while_the_ladder_is_young_is_held_and_a_later_one_goes_up_the_ladder(
    rabbitmq43: Broker,
) -> None:
    """A quorum queue that is killed young comes back empty, confirms or not; so no copy goes there until then."""
    runs: dict[bytes, list[float]] = {b"first": [], b"later": []}
    app = App(rabbitmq43.url, policy=RedeliveryPolicy(dead_after=3, backoff=4.0), delay="schedule")
    rung, marker = "redeliver.retry.young.ladder.4s", "redeliver.retry.young.ladder.young"

    @app.handler("young.ladder")
    def handle(delivery: Delivery) -> None:
        runs[delivery.body].append(time.monotonic())
        if len(runs[delivery.body]) == 1:
            raise ValueError("once")

    with queue_on(rabbitmq43, "young.ladder") as channel:

        def depth(queue: str) -> int:
            return int(channel.queue_declare(queue, passive=True).method.message_count)

        def most_until_it_ran_twice(body: bytes) -> int:
            """Return the most messages that were seen on the rung until the message ran twice."""
            channel.basic_publish("", "young.ladder", body, pika.BasicProperties(delivery_mode=2))
            began, most = time.monotonic(), 0
            while len(runs[body]) < 2 and time.monotonic() - began < 25:
                most = max(most, depth(rung))
                channel.connection.sleep(0.1)
            assert len(runs[body]) == 2
            return most

        for name in ("1s", "2s", "4s", "young"):
            channel.queue_delete(f"redeliver.retry.young.ladder.{name}")
        with app:
            assert depth(marker) == 1
            assert most_until_it_ran_twice(b"first") == 0
            assert 3.9 <= runs[b"first"][1] - runs[b"first"][0] < 9.0
            while depth(marker):
                channel.connection.sleep(0.1)
            assert most_until_it_ran_twice(b"later") == 1


def test_an_app_goes_on_when_its_queue_was_deleted_and_made_again(rabbitmq: Broker) -> None:
    """RabbitMQ cancels the consumer; the connection stays."""
    handled: list[bytes] = []
    came = threading.Semaphore(0)
    app = App(rabbitmq.url, policy=RedeliveryPolicy(dead_after=3, backoff=1))

    @app.handler("cancelled")
    def handle(delivery: Delivery) -> None:
        handled.append(delivery.body)
        came.release()

    with queue_on(rabbitmq, "cancelled") as channel, app:
        channel.basic_publish("", "cancelled", b"before")
        assert came.acquire(timeout=10)
        channel.queue_delete("cancelled")
        channel.queue_declare("cancelled", durable=True)
        channel.basic_publish("", "cancelled", b"after")
        assert came.acquire(timeout=15)
    assert handled == [b"before", b"after"]


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_delayed_nack_keeps_its_count_on_a_queue_of_our_own(kind: str, rabbitmq43: Broker) -> None:
    counts: list[tuple[int, bool]] = []
    records: list[AttemptRecord] = []
    done = threading.Event()
    app = App(rabbitmq43.url, policy=RedeliveryPolicy(dead_after=5, backoff=0.2), delay="nack")
    app.on_attempt(records.append)

    @app.handler("nacked")
    def handle(delivery: Delivery) -> None:
        counts.append((delivery.delivery_count, delivery.redelivered))
        if len(counts) < 4:
            raise ValueError("not yet")
        done.set()

    with queue_on(rabbitmq43, "nacked", kind) as channel:
        channel.basic_publish("", "nacked", b"x", pika.BasicProperties(delivery_mode=2, message_id="n1"))
        with app:
            assert done.wait(15)
        assert channel.queue_declare("nacked", passive=True).method.message_count == 0
    assert counts == [(1, False), (2, True), (3, True), (4, True)]
    assert [r.mechanism for r in records] == ["nack", "nack", "nack", None]


def test_stopping_does_not_count_what_was_only_prefetched_towards_the_queues_own_limit(rabbitmq43: Broker) -> None:
    """A quorum queue without a dead-letter exchange destroys a message whose limit is passed."""
    with queue_on(rabbitmq43, "limited", "quorum") as channel:
        channel.queue_delete("limited")
        channel.queue_declare("limited", durable=True, arguments={"x-queue-type": "quorum", "x-delivery-limit": 1})
        for n in range(5):
            channel.basic_publish("", "limited", b"%d" % n)
        for _ in range(4):  # with a limit of 1 the third counted return would be the end of all five
            begun, go_on = threading.Event(), threading.Event()
            app = App(rabbitmq43.url, policy=RedeliveryPolicy(dead_after=3, backoff=1), prefetch=10)

            @app.handler("limited")
            def blocks(delivery: Delivery, begun: threading.Event = begun, go_on: threading.Event = go_on) -> None:
                begun.set()
                go_on.wait(30)

            app.start()
            assert begun.wait(10)
            report = app.stop(timeout=0)
            go_on.set()
            assert report.unsettled == 1
        while (ready := channel.queue_declare("limited", passive=True).method.message_count) < 5:
            channel.connection.sleep(0.1)  # what was given back is on its way
        assert ready == 5


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_messages_that_were_browsed_are_back_before_the_browser_has_its_answer(kind: str, rabbitmq43: Broker) -> None:
    with queue_on(rabbitmq43, "browsed", kind) as channel, connect(rabbitmq43.url) as session:
        for n in range(40):
            channel.basic_publish("", "browsed", b"%d" % n, pika.BasicProperties(delivery_mode=2))
        for n in range(40):
            assert len(session.browse("browsed")) == 40 - n
            method, _, _ = channel.basic_get("browsed")
            assert method is not None, f"round {n}"
            channel.basic_ack(method.delivery_tag)
            channel.queue_declare("browsed", passive=True)  # the ack is with the broker


def test_a_prefetch_that_amqp_0_9_1_cannot_say_is_the_most_that_it_can(rabbitmq43: Broker) -> None:
    handled = threading.Event()
    app = App(rabbitmq43.url)
    app.handler("large.prefetch", prefetch=70_000)(lambda delivery: handled.set())
    with queue_on(rabbitmq43, "large.prefetch") as channel:
        channel.basic_publish("", "large.prefetch", b"x", pika.BasicProperties(delivery_mode=2))
        with app:
            assert handled.wait(20)
