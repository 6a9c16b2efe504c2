# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests messages to deliveries and copies back to messages, against the driver's own reading, without a broker."""

from __future__ import annotations

import struct
import uuid
from dataclasses import replace
from typing import Any

import proton
import pytest

from redeliver_mw.errors import NotCopyable
from redeliver_mw.message import Death, Delivery, Destination, Outgoing, Properties
from redeliver_proton.amqp.codec import EncodedValue, Malformed, NotEncodable, end_of, read, write
from redeliver_proton.messages import READER, delivery_of, encode

SOURCE = Destination("orders")
VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    2**62,
    proton.int32(-5),
    proton.ulong(0),
    proton.ulong(7),
    proton.ulong(2**63),
    proton.uint(0),
    proton.uint(7),
    proton.uint(2**31),
    proton.byte(-3),
    proton.ubyte(200),
    proton.short(-300),
    proton.ushort(300),
    1.75,
    proton.float32(1.5),
    proton.timestamp(1_767_323_045_123),
    proton.symbol("s"),
    proton.char("ü"),
    "",
    "grüße",
    "x" * 300,
    b"",
    bytes(range(256)),
    uuid.UUID(int=9),
]


def delivered(message: proton.Message) -> Delivery:
    return delivery_of(SOURCE, 1, 1, bytes(message.encode()))


def decoded(raw: bytes) -> proton.Message:
    message = proton.Message()
    message.decode(raw)
    return message


def copied(delivery: Delivery, headers: dict[str, Any] | None = None, **more: Any) -> proton.Message:
    """Return a copy as the core makes it: without the original's expiry."""
    kept = dict(delivery.headers) | (headers or {})
    properties = replace(delivery.properties, expires_at_us=None, ttl_us=None)
    out = Outgoing(Destination("dead"), delivery.body, kept, properties, "c1", delivery)
    return decoded(encode(out, **more))


@pytest.mark.parametrize("value", VALUES, ids=lambda v: f"{type(v).__name__}-{str(v)[:12]}")
def test_a_value_is_read_and_written_as_the_driver_does_it(value: Any) -> None:
    (found,) = delivered(proton.Message(properties={"v": value})).headers.values()
    assert (found, type(found)) == (value, type(value))
    wire = write(value)
    assert end_of(wire, 0) == len(wire)
    data = proton.Data()
    data.decode(wire)
    data.rewind()
    data.next()
    read_by_driver = data.get_object()
    if isinstance(read_by_driver, memoryview):
        read_by_driver = bytes(read_by_driver)
    assert (read_by_driver, type(read_by_driver)) == (value, type(value))


@pytest.mark.parametrize("value", [[1, "two", [None]], {"a": {"b": 2}}, [], {}, ["x" * 300] * 300])
def test_lists_and_maps_survive(value: Any) -> None:
    assert read(write(value), 0) == value


@pytest.mark.parametrize("value", [object(), 2**64, proton.uint(2**31).__class__, "\ud800"])
def test_what_amqp_has_no_type_for_is_refused(value: Any) -> None:
    with pytest.raises(NotEncodable):
        write(value)


def test_a_value_nested_thousands_deep_stays_as_it_is() -> None:
    wire = b"\x45"
    for _ in range(3000):
        wire = b"\xd0" + struct.pack(">II", len(wire) + 4, 1) + wire
    found = read(wire, 0)
    while isinstance(found, list):
        (found,) = found
    assert isinstance(found, EncodedValue)
    assert write(read(wire, 0))[-len(found) :] == bytes(found)


@pytest.mark.parametrize("raw", [b"", b"\xa1", b"\xa1\x05ab", b"\x99", b"\x01", b"\x00" * 50])
def test_broken_bytes_are_reported_as_broken(raw: bytes) -> None:
    with pytest.raises(Malformed):
        end_of(raw, 0)


def test_a_list_that_is_broken_inside_stays_as_it_is() -> None:
    assert read(b"\xc0\x02\x09\x40", 0) == EncodedValue(b"\xc0\x02\x09\x40")


@pytest.mark.parametrize(
    ("body", "seen"),
    [(b"\x00\xff", b"\x00\xff"), ("grüße", "grüße".encode()), (None, b""), ("", b""), (b"", b"")],
)
def test_bodies_of_bytes_and_text_are_seen_as_bytes(body: Any, seen: bytes) -> None:
    assert delivered(proton.Message(body=body, inferred=isinstance(body, bytes))).body == seen


@pytest.mark.parametrize("body", [{"a": 1}, [1, "two"], 7, 1.5, "text", b"data", None, proton.symbol("s")])
def test_a_copy_carries_the_very_body_section(body: Any) -> None:
    message = proton.Message(body=body, inferred=isinstance(body, bytes))
    copy = copied(delivered(message))
    assert (copy.inferred, type(copy.body)) == (message.inferred, type(decoded(message.encode()).body))
    assert copy.body == body


def test_a_map_is_seen_in_its_encoding() -> None:
    delivery = delivered(proton.Message(body={"a": 1}))
    assert read(delivery.body, 0) == {"a": 1}


def test_a_copy_is_durable_and_keeps_the_standard_properties_in_their_types() -> None:
    message = proton.Message(
        body=b"x",
        inferred=True,
        id=proton.ulong(7),
        correlation_id=uuid.UUID(int=1),
        subject="s",
        reply_to="r",
        content_type="application/json",
        content_encoding="utf-8",
        creation_time=1_700_000_000.123,
        group_id="g",
        group_sequence=4,
        priority=7,
        user_id=b"bob",
        address="orders",
        ttl=60,
        expiry_time=1_900_000_000,
        delivery_count=3,
    )
    message.reply_to_group_id = "rg"
    copy = copied(delivered(message))
    for name in (
        "id",
        "correlation_id",
        "subject",
        "reply_to",
        "content_type",
        "content_encoding",
        "creation_time",
        "group_id",
        "group_sequence",
        "reply_to_group_id",
        "priority",
    ):
        assert getattr(copy, name) == getattr(message, name), name
        assert type(getattr(copy, name)) is type(getattr(message, name)), name
    assert copy.durable
    assert (copy.user_id, copy.address, copy.ttl, copy.expiry_time, copy.delivery_count) == (b"", None, 0, 0, 0)


def test_properties_are_read_in_plain_units() -> None:
    message = proton.Message(
        id="m1",
        subject="order.placed",
        content_type="text/plain",
        creation_time=1_700_000_000.123,
        ttl=2.5,
        user_id=b"bob",
        priority=3,
    )
    found = delivered(message).properties
    assert (found.message_id, found.type, found.content_type, found.user_id) == (
        "m1",
        "order.placed",
        "text/plain",
        "bob",
    )
    assert (found.timestamp_us, found.expires_at_us) == (1_700_000_000_123_000, 1_700_000_002_623_000)
    assert (found.priority, found.ttl_us) == (3, None)
    assert delivered(proton.Message(ttl=2.5)).properties.ttl_us == 2_500_000
    assert delivered(proton.Message()).properties.content_type is None


def test_properties_of_a_message_of_ones_own_go_out_as_they_are_given() -> None:
    properties = Properties(
        message_id="m1",
        correlation_id="c",
        content_type="text/plain",
        type="t",
        priority=2,
        timestamp_us=1_700_000_000_123_000,
        reply_to="r",
        group_id="g",
    )
    message = decoded(encode(Outgoing(SOURCE, b"x", {"n": 1, "f": 1.5}, properties)))
    assert (message.id, message.correlation_id, message.content_type, message.subject) == ("m1", "c", "text/plain", "t")
    assert (message.priority, message.creation_time, message.reply_to, message.group_id) == (
        2,
        1_700_000_000.123,
        "r",
        "g",
    )
    assert (bytes(message.body), message.properties, message.durable) == (b"x", {"n": 1, "f": 1.5}, True)


def test_the_users_annotations_are_kept_and_the_brokers_are_not() -> None:
    symbol = proton.symbol
    own = {symbol("x-opt-mine"): proton.int32(3), symbol("x-opt-jms-msg-type"): proton.byte(5)}
    brokers = {
        symbol(name): "x"
        for name in ("x-opt-ORIG-ADDRESS", "x-opt-ORIG-MESSAGE-ID", "x-opt-delivery-time", "x-opt-delivery-delay")
    }
    copy = copied(delivered(proton.Message(annotations=own | brokers)))
    assert copy.annotations == own
    assert type(copy.annotations[symbol("x-opt-mine")]) is proton.int32


def test_a_delay_is_a_moment_as_a_long_which_alone_the_broker_obeys() -> None:
    copy = copied(delivered(proton.Message(body="x")), at_ms=1_900_000_000_000)
    (value,) = copy.annotations.values()
    assert (value, type(value)) == (1_900_000_000_000, int)


def test_a_dead_letter_says_where_it_came_from_and_a_retry_does_not() -> None:
    delivery = delivered(proton.Message(body="x"))
    retry = copied(delivery, source=("orders", "orders"))
    assert (retry.annotations, retry.properties) == (None, None)
    dead = copied(delivery, {"redeliver_reason": "exhausted", "_AMQ_ORIG_ADDRESS": "?"}, source=("prices", "audit"))
    assert dead.annotations == {"x-opt-ORIG-ADDRESS": "prices::audit", "x-opt-ORIG-QUEUE": "audit"}
    assert dead.properties["_AMQ_ORIG_ADDRESS"] == "prices"


def test_the_duplicate_id_is_ours_alone() -> None:
    copy = copied(delivered(proton.Message(body="x")), {"_AMQ_DUPL_ID": "theirs"}, duplicate_id="ours")
    assert copy.properties == {"_AMQ_DUPL_ID": "ours"}


@pytest.mark.parametrize(
    ("annotations", "properties", "death"),
    [
        ({}, {}, None),
        ({"x-opt-ORIG-ADDRESS": "a", "x-opt-ORIG-QUEUE": "a"}, {}, Death(Destination("a"))),
        ({"x-opt-ORIG-ADDRESS": "a::b", "x-opt-ORIG-QUEUE": "b"}, {}, Death(Destination("a", "topic", "b"))),
        (
            {"x-opt-ORIG-ADDRESS": "a", "x-opt-ORIG-QUEUE": "b", "x-opt-ACTUAL-EXPIRY": 5},
            {},
            Death(Destination("a", "topic", "b"), "expired"),
        ),
        (
            {},
            {"_AMQ_ORIG_ADDRESS": "a", "_AMQ_ORIG_QUEUE": "b", "_AMQ_ORIG_ROUTING_TYPE": "1"},
            Death(Destination("a::b")),
        ),
    ],
)
def test_the_brokers_own_marks_are_read(annotations: Any, properties: Any, death: Death | None) -> None:
    marks = {proton.symbol(name): value for name, value in annotations.items()}
    delivery = delivered(proton.Message(annotations=marks, properties=properties))
    assert READER.death(delivery.native) == death


@pytest.mark.parametrize(("count", "redelivered"), [(0, False), (1, True), (300, True)])
def test_redelivered_is_a_delivery_count_above_none(count: int, redelivered: bool) -> None:
    message = proton.Message(body="x", durable=True, delivery_count=count)
    assert delivered(message).redelivered is redelivered


def test_a_name_that_comes_twice_cannot_be_copied() -> None:
    pairs = [write(one) for one in ("k", 1, "k", 2)]
    raw = b"\x00\x53\x74\xc1" + bytes((len(b"".join(pairs)) + 1, 4)) + b"".join(pairs) + b"\x00\x53\x77\x40"
    delivery = delivery_of(SOURCE, 1, 1, raw)
    with pytest.raises(NotCopyable):
        READER.headers_bytes(delivery.native)


def test_bytes_that_are_no_message_cannot_be_copied() -> None:
    delivery = delivery_of(SOURCE, 1, 1, b"\x00\x53\x74\xc1\xff")
    with pytest.raises(NotCopyable):
        READER.headers_bytes(delivery.native)
    assert (delivery.headers, delivery.body) == ({}, b"")
