# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

import pytest

from redeliver_mw.errors import ConfigError
from redeliver_mw.message import Delivery, Destination, Past
from redeliver_mw.testing import make_delivery


@pytest.mark.parametrize(
    ("text", "name", "kind"),
    [
        ("orders", "orders", "queue"),
        ("queue:orders", "orders", "queue"),
        ("topic:prices", "prices", "topic"),
        ("a:b", "a:b", "queue"),
        ("queue:queue:x", "queue:x", "queue"),
    ],
)
def test_a_destination_is_a_queue_unless_it_says_topic(text: str, name: str, kind: str) -> None:
    parsed = Destination.parse(text)
    assert (parsed.name, parsed.kind) == (name, kind)


@pytest.mark.parametrize("text", ["", " ", " orders", "orders ", "queue:", "topic: x", 5, None, b"orders"])
def test_what_names_no_destination_is_refused_with_a_cure(text: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        Destination.parse(text)
    assert refused.value.cure


def test_a_destination_reads_back_from_its_own_text() -> None:
    for destination in (Destination("orders"), Destination("prices", "topic")):
        assert Destination.parse(str(destination)) == destination
        assert Destination.parse(destination) is destination


class CountingReader:
    """Tells how often it was asked."""

    def __init__(self, inner: Delivery) -> None:
        self.inner, self.asked = inner, 0

    def body(self, native: object, /) -> bytes:
        self.asked += 1
        return self.inner.body


def test_the_body_is_read_on_first_use_and_once() -> None:
    plain = make_delivery(b"x")
    reader = CountingReader(plain)
    delivery = Delivery(plain.destination, 1, 7, False, plain.native, reader)
    assert reader.asked == 0
    assert (delivery.body, delivery.text, delivery.body) == (b"x", "x", b"x")
    assert reader.asked == 1


def test_text_and_json_that_are_none_fail_as_the_handler_would() -> None:
    with pytest.raises(UnicodeDecodeError):
        _ = make_delivery(b"\xff").text
    with pytest.raises(ValueError, match="Expecting"):
        make_delivery(b"{").json()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("m1", "m1"),
        (b"m\xff", "m\\xff"),
        (7, "7"),
        (None, None),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    ],
)
def test_ids_are_shown_as_text_whatever_the_driver_has(given: object, text: str | None) -> None:
    delivery = make_delivery(b"", message_id=given, correlation_id=given)
    assert (delivery.message_id, delivery.correlation_id) == (text, text)


def test_the_delivery_count_is_one_more_than_the_failures() -> None:
    assert make_delivery(b"").delivery_count == 1
    assert make_delivery(b"", failures=2).delivery_count == 3


def test_what_is_known_of_earlier_attempts_is_shown_to_the_handler() -> None:
    delivery = make_delivery(b"")
    assert (delivery.first_failed_at, delivery.last_error) == (None, None)
    delivery.past = Past(failures=1, first_failed_us=1_700_000_000_000_001, last_error="ValueError: no")
    assert delivery.first_failed_at == datetime(2023, 11, 14, 22, 13, 20, 1, UTC)
    assert delivery.last_error == "ValueError: no"


def test_state_belongs_to_one_message() -> None:
    one, other = make_delivery(b""), make_delivery(b"")
    one.state["page"] = "3"
    assert one.state == {"page": "3"}
    assert other.state == {}


def test_send_outside_of_a_handler_is_an_error_with_its_cure() -> None:
    delivery = Delivery(Destination("orders"), 1, "tag", False, None, make_delivery(b"").reader)
    with pytest.raises(ConfigError, match=r"only while a handler has the delivery\. Call it while its handler"):
        delivery.send("audit", b"x")


def test_a_delivery_shows_no_body_and_no_headers_in_its_repr() -> None:
    shown = repr(make_delivery(b"card=4111", {"authorization": "Bearer abc"}))
    assert "queue:orders" in shown
    assert "4111" not in shown
    assert "Bearer" not in shown
