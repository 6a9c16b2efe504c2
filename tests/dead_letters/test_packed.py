# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Packs dead letters into bytes: a packed letter gives, to the bit, what the letter in its queue would give."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import proton
import pytest
from pika.spec import Basic

from redeliver_mw.adapter.capabilities import Capabilities
from redeliver_mw.dead_letters import Edits, Packed, copy_of, letter_of, pack, unpack
from redeliver_mw.errors import NotCopyable
from redeliver_mw.message import Delivery, Destination, Outgoing
from redeliver_mw.redelivery.copies import replay_copy
from redeliver_mw.redelivery.headers import read_history_headers
from redeliver_mw.redelivery.identity import message_key
from redeliver_mw.testing import make_delivery
from redeliver_pika import capabilities as pika_dialects
from redeliver_pika import messages as pika_mapping
from redeliver_pika.amqp.properties import RawProperties
from redeliver_proton import messages as proton_mapping
from redeliver_proton.brokers.artemis import capabilities as proton_dialects
from redeliver_stomp import capabilities as stomp_dialects
from redeliver_stomp import messages as stomp_mapping
from redeliver_stomp.frames import RawFrame

DLQ, SOURCE = Destination("DLQ.orders"), Destination("orders")
BODY = b"\x00\xff\n no text"
OURS = {
    "redeliver_reason": "exhausted",
    "redeliver_failures": "3",
    "redeliver_original_destination": "orders",
    "redeliver_original_kind": "queue",
    "redeliver_lineage": "L",
    "redeliver_hop": "2",
    "tenant": "zwölf:\n",
}


def by_pika(headers: dict[str, Any]) -> Delivery:
    more = {"n": 7, "when": datetime(2026, 1, 1, tzinfo=UTC), "deep": {"list": [1, b"\xff", None, True]}}
    made = RawProperties.of(headers={**headers, **more}, message_id="m1", priority=3, content_type="x/y")
    method = Basic.Deliver(delivery_tag=5, redelivered=True, exchange="shop", routing_key="zwölf")
    native = (method, RawProperties.from_raw(b"".join(made.encode())), BODY)
    return pika_mapping.delivery_of(DLQ, 1, native)


def by_stomp(headers: dict[str, Any]) -> Delivery:
    lines = [f"{name}:{value}".replace("\n", "\\n").replace(":\\n", "\\c\\n") for name, value in headers.items()]
    own = ["MESSAGE", "ack:1", "message-id:m1", "redelivered:true", "priority:3", f"content-length:{len(BODY)}"]
    return stomp_mapping.delivery_of(DLQ, 1, RawFrame("\n".join(own + lines).encode(), BODY))


def by_proton(headers: dict[str, Any]) -> Delivery:
    message = proton.Message(BODY, id="m1", priority=3, properties={**headers, "n": proton.ubyte(7)}, delivery_count=2)
    return proton_mapping.delivery_of(DLQ, 1, 5, message.encode())


KINDS = {
    "pika": (by_pika, pika_dialects.capabilities("4.3.0", 131072, exact_headers=True), pika_mapping.frame_properties),
    "stomp": (by_stomp, stomp_dialects.capabilities("6.3", scheduler=True), lambda o: stomp_mapping.send_frame(o, "r")),
    "proton": (by_proton, proton_dialects.capabilities("2.44.0"), proton_mapping.encode),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def delivery(kind: str, headers: dict[str, Any] | None = None) -> Delivery:
    made: Delivery = KINDS[kind][0](OURS if headers is None else headers)
    return made


def capabilities(kind: str) -> Capabilities:
    return KINDS[kind][1]


def wire(kind: str, out: Outgoing) -> bytes:
    """Return the bytes that the adapter would send."""
    made = KINDS[kind][2](out)
    return b"".join(made.encode()) if kind == "pika" else made


def sent_back(kind: str, packed: Packed, **more: Any) -> Outgoing:
    options = {"replay_id": "r1", "lineage": "own", "salt": "s1"} | more
    return copy_of(packed, SOURCE, delivery(kind).reader, capabilities(kind), **options)


def test_what_was_packed_reads_as_it_did(kind: str) -> None:
    original = delivery(kind)
    again = unpack(pack(original), original.reader)
    assert (again.body, again.headers, again.properties) == (original.body, original.headers, original.properties)
    assert (again.destination, again.redelivered) == (DLQ, original.redelivered)
    assert dict(again.reader.route(again.native)) == dict(original.reader.route(original.native))
    assert letter_of(again, capabilities(kind)) == letter_of(original, capabilities(kind))
    assert again.generation == 0


def test_it_may_be_packed_again_after_somebody_has_looked_into_it(kind: str) -> None:
    looked, fresh = delivery(kind), delivery(kind)
    _ = looked.headers, looked.properties, looked.body
    assert pack(looked) == pack(fresh)


def test_its_copy_goes_out_as_that_of_the_letter_in_its_queue(kind: str) -> None:
    original = delivery(kind)
    direct = replay_copy(original, SOURCE, capabilities(kind), replay_id="r1", lineage="own")
    ours = sent_back(kind, pack(delivery(kind)))
    assert wire(kind, ours) == wire(kind, direct)
    assert (ours.copy_id, ours.target, ours.body) == (direct.copy_id, SOURCE, BODY)


def test_every_try_makes_the_same_copy_and_another_salt_no_other(kind: str) -> None:
    packed = pack(delivery(kind))
    one, two = sent_back(kind, packed), sent_back(kind, packed, salt="s2")
    assert (one.copy_id, one.headers) == (two.copy_id, two.headers)
    assert (one.duplicate_salt, two.duplicate_salt) == ("s1", "s2")


def test_nothing_of_it_can_be_settled(kind: str) -> None:
    assert sent_back(kind, pack(delivery(kind))).generation in (None, 0)


def test_edits_change_what_they_name_and_nothing_else(kind: str) -> None:
    packed = pack(delivery(kind))
    plain = sent_back(kind, packed)
    edited = sent_back(kind, packed, edits=Edits(b"repaired", {"tenant": None, "fixed": "yes"}))
    assert edited.body == b"repaired"
    assert edited.headers == {k: v for k, v in plain.headers.items() if k != "tenant"} | {"fixed": "yes"}
    assert replace(edited, body=plain.body, headers=plain.headers, origin=plain.origin) == plain
    assert b"repaired" in wire(kind, edited) or kind == "pika"


def test_an_edited_letter_goes_under_the_key_that_the_message_had(kind: str) -> None:
    stranger = delivery(kind, {"tenant": "a"})
    consumed = Delivery(SOURCE, 1, None, False, stranger.native, stranger.reader)
    key = message_key(consumed, read_history_headers(consumed))
    assert key is not None
    edited = replace(pack(stranger), body=b"repaired")
    out = sent_back(kind, edited, known_as=key, edits=Edits(b"repaired"))
    assert out.headers["redeliver_lineage"] == key


def test_bytes_that_no_reader_has_packed_are_refused() -> None:
    with pytest.raises(NotCopyable, match="it cannot be read as a message: it ends within a name"):
        sent_back("pika", Packed(DLQ, False, b"\x05abc", BODY))


def test_what_its_adapter_cannot_pack_has_to_stay() -> None:
    with pytest.raises(NotCopyable, match="cannot be kept outside of their broker"):
        pack(make_delivery(b"x", destination=DLQ))


def test_a_death_that_rabbitmq_wrote_down_has_its_time_and_its_count() -> None:
    death = {"queue": "orders", "reason": "rejected", "count": 2, "time": datetime(2026, 11, 29, 12, tzinfo=UTC)}
    again = unpack(pack(by_pika({"x-death": [death]})), pika_mapping.READER)
    found = again.reader.death(again.native)
    assert found is not None
    noon = datetime(2026, 11, 29, 12, tzinfo=UTC)
    assert (found.source, found.at_us, found.count) == (SOURCE, round(noon.timestamp() * 1e6), 2)
