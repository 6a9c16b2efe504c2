# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests a message that rabbitmq+proton gave back with its count on it, consumed by way of pika."""

from __future__ import annotations

import threading

import pika
import pytest

from redeliver_mw import App, Delivery, RedeliveryPolicy
from redeliver_mw.journal.records import AttemptRecord
from redeliver_mw.message import Destination
from redeliver_mw.redelivery import ledger
from redeliver_mw.redelivery.headers import read_history_headers
from redeliver_pika.messages import delivery_of
from tests.adapters.pika.test_adapter import queue_on
from tests.brokers import Broker

QUEUE = "postponed.for.pika"


def test_annotations_of_ours_stand_in_for_headers_of_ours() -> None:
    headers = {
        "k": "v",
        "redeliver_failures": "9",
        "redeliver_reason": "exhausted",
        "x-opt-other": 1,
        "x-opt-redeliver_failures": "2",
        "x-opt-redeliver_failures_for": "orders",
    }
    method = pika.spec.Basic.Deliver("tag", 1, True, "", "orders")
    delivery = delivery_of(Destination("orders"), 1, (method, pika.BasicProperties(headers=headers), b""))
    ours = {"redeliver_failures": "2", "redeliver_failures_for": "orders"}
    assert delivery.headers == {"k": "v", "x-opt-other": 1} | ours
    assert read_history_headers(delivery).failures == 2
    assert delivery.reader.marked(delivery.native)


def test_a_count_that_was_given_back_over_amqp_1_goes_on_over_0_9_1(
    rabbitmq43: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = RedeliveryPolicy(dead_after=5, backoff=1.0)
    given_back, handled = threading.Event(), threading.Event()
    counts: list[int] = []
    first = App(rabbitmq43.url.replace("rabbitmq:", "rabbitmq+proton:"), policy=policy, delay="nack")
    second = App(rabbitmq43.url, policy=policy)

    @first.handler(QUEUE)
    def fail(delivery: Delivery) -> None:
        raise ConnectionError("down")

    @first.on_attempt
    def told(record: AttemptRecord) -> None:
        if record.mechanism == "nack":
            given_back.set()

    @second.handler(QUEUE)
    def handle(delivery: Delivery) -> None:
        counts.append(delivery.delivery_count)
        handled.set()

    with queue_on(rabbitmq43, QUEUE, "quorum") as channel:
        channel.basic_publish("", QUEUE, b"x")
        with first:
            assert given_back.wait(20)
        monkeypatch.setattr(ledger, "_ledgers", {})  # as in another process
        with second:
            assert handled.wait(20)
    assert counts == [2]
