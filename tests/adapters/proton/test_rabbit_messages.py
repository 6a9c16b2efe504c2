# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests how RabbitMQ's AMQP 1.0 messages are read and written, without a broker."""

from __future__ import annotations

from typing import Any

import proton
import pytest

from redeliver_mw.message import Death, Delivery, Destination, Outgoing
from redeliver_mw.redelivery.headers import read_history_headers
from redeliver_proton.brokers.rabbitmq.messages import delivery_of, encoded
from redeliver_proton.duplicate_ids import DuplicateIdSalts

SOURCE = Destination("orders")


def delivered(first: bool = True, *, annotations: dict[str, Any] | None = None, **fields: Any) -> Delivery:
    message = proton.Message(body=b"one", inferred=True, **fields)
    message.first_acquirer = first
    message.annotations = {proton.symbol(name): value for name, value in (annotations or {}).items()}
    return delivery_of(SOURCE, 1, 1, message.encode())


@pytest.mark.parametrize(("first", "count", "mark"), [(True, 0, False), (False, 0, True), (False, 2, True)])
def test_what_anybody_had_before_is_redelivered(first: bool, count: int, mark: bool) -> None:
    assert delivered(first, delivery_count=count).redelivered is mark


def test_the_mark_is_found_behind_a_time_to_live_and_a_priority() -> None:
    assert not delivered(True, ttl=70.0, priority=9).redelivered
    assert delivered(False, ttl=70.0, priority=9).redelivered


def test_what_is_no_message_is_not_redelivered_and_can_still_be_handed_over() -> None:
    assert not delivery_of(SOURCE, 1, 1, b"\x00\x53\x70\xc0\xff").redelivered
    assert delivery_of(SOURCE, 1, 1, b"").body == b""


def test_what_was_put_on_it_when_it_was_given_back_stands_in_for_what_it_had_as_a_copy() -> None:
    own = {"k": "v", "redeliver_reason": "exhausted", "redeliver_failures": "9", "redeliver_replay_id": "r"}
    marks = {"failures": "2", "failures_for": "orders", "lineage": "L", "generation": "1", "hop": "1"}
    notes = {f"x-opt-redeliver_{name}": value for name, value in marks.items()}
    delivery = delivered(False, properties=own, annotations={**notes, "x-opt-other": "o"})
    assert delivery.headers == {"k": "v"} | {f"redeliver_{name}": value for name, value in marks.items()}
    past = read_history_headers(delivery)
    assert (past.failures, past.lineage, past.generation, past.hop, past.replay_id) == (2, "L", 1, 1, None)
    assert delivery.reader.marked(delivery.native)


def test_where_the_broker_found_it_dead_and_why() -> None:
    notes = {"x-first-death-queue": "orders", "x-first-death-reason": "delivery_limit"}
    delivery = delivered(annotations=notes)
    assert delivery.reader.death(delivery.native) == Death(Destination("orders"), "delivery_limit")
    ours = delivered(properties={"x-first-death-queue": "orders", "x-first-death-reason": "rejected"})
    assert ours.reader.death(ours.native) == Death(Destination("orders"), "rejected")
    healthy = delivered()
    assert healthy.reader.death(healthy.native) is None


def test_the_way_it_came_is_the_exchange_and_its_key() -> None:
    delivery = delivered(annotations={"x-exchange": "amq.topic", "x-routing-key": "eu.new"})
    assert delivery.reader.route(delivery.native) == {"exchange": "amq.topic", "routing_key": "eu.new"}


def test_a_copy_carries_no_note_of_the_brokers_and_none_of_ours() -> None:
    biting = (
        "x-opt-delivery-time",
        "x-opt-deaths",
        "x-opt-redeliver_failures",
        "x-first-death-queue",
        "x-last-death-reason",
        "x-death",
        "x-delivery-count",
        "x-acquired-count",
        "x-exchange",
        "x-routing-key",
        "x-cc",
    )
    delivery = delivered(annotations=dict.fromkeys(biting, "1") | {"x-opt-mine": 7})
    out = Outgoing(Destination("dlq"), delivery.body, {"k": 1}, delivery.properties, "c1", delivery)
    data, _ = encoded(out, 0.0, DuplicateIdSalts())
    copy = proton.Message()
    copy.decode(data)
    assert {str(name): value for name, value in copy.annotations.items()} == {"x-opt-mine": 7}
    assert (bytes(copy.body), copy.properties, copy.durable) == (b"one", {"k": 1}, True)
