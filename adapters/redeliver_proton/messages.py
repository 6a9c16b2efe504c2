# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Turns AMQP 1.0 messages into `Delivery`, and `Outgoing` into AMQP 1.0 messages. Pure.

The native message of a delivery is a `Received`. `Delivery.body` is what its data sections hold, a text body as
UTF-8, and any other value (map, list, number) in its AMQP encoding; a copy carries the original body section.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import proton

from redeliver_mw.errors import NotCopyable
from redeliver_mw.message import Death, Delivery, Destination, Identity, Outgoing, Properties
from redeliver_proton.amqp.codec import Malformed, NotEncodable, compound, end_of, read, write
from redeliver_proton.amqp.sections import ANNOTATIONS, APPLICATION, DATA, FIELDS, HEADER, PROPERTIES, Received
from redeliver_proton.brokers.artemis.capabilities import (
    ACTUAL_EXPIRY,
    BROKERS_ANNOTATIONS,
    DELIVERY_TIME,
    DUPLICATE_ID,
    ORIGINAL_ADDRESS,
    ORIGINAL_QUEUE,
    X_ACTUAL_EXPIRY,
    X_ADDRESS,
    X_QUEUE,
)

_DROPPED = {"user_id", "to", "absolute_expiry_time"}  # fields that a copy does not take over
_ROUTING_TYPE = "_AMQ_ORIG_ROUTING_TYPE"
_NULL = b"\x40"


class ProtonReader:
    """Reads what a link brought; exactly, and only what is asked for."""

    def body(self, native: Received, /) -> bytes:
        return native.body_bytes()

    def image(self, native: Received, /) -> bytes:
        return native.raw

    def native(self, image: bytes, /) -> Received:
        return Received(image)

    def pack(self, native: Received, /) -> bytes:
        return native.raw

    def unpack(self, packed: bytes, body: bytes, /) -> Received:
        return Received(packed)

    def headers(self, native: Received, /) -> dict[str, Any]:
        return {name: read(native.raw, start) for name, (start, _) in native.application.items()}

    def headers_bytes(self, native: Received, /) -> int:
        sizes = [_size(native, section) for section in (APPLICATION, ANNOTATIONS)]
        _ = native.application, native.annotations
        if native.fault:
            raise NotCopyable(f"it cannot be sent again as it is: {native.fault}")
        return sum(sizes)

    def properties(self, native: Received, /) -> Properties:
        created, expiry, ttl = native.field("creation_time"), native.field("absolute_expiry_time"), native.ttl
        if not expiry and created and ttl:
            expiry = created + ttl
        return Properties(
            message_id=native.field("message_id"),
            correlation_id=native.field("correlation_id"),
            timestamp_us=None if created is None else int(created) * 1000,
            content_type=_text(native.field("content_type")),
            content_encoding=_text(native.field("content_encoding")),
            reply_to=native.field("reply_to"),
            type=native.field("subject"),
            priority=_int(native.header(1)),
            group_id=native.field("group_id"),
            user_id=_text(native.field("user_id")),
            expires_at_us=int(expiry) * 1000 if expiry else None,
            ttl_us=int(ttl) * 1000 if ttl and not expiry else None,
            persistent=bool(native.header(0)),
        )

    def identity(self, native: Received, /) -> Identity:
        created = native.field("creation_time")
        return Identity(
            native.field("message_id"), None if created is None else int(created) * 1000, native.field("group_id")
        )

    def header_text(self, native: Received, name: str, /) -> str | None:
        value = application_of(native, name)
        return value if isinstance(value, str) else None

    def correlation_id(self, native: Received, /) -> object:
        return native.field("correlation_id")

    def route(self, native: Received, /) -> Mapping[str, str]:
        return {}

    def marked(self, native: Received, /) -> bool:
        return b"redeliver_" in native.raw

    def death(self, native: Received, /) -> Death | None:
        address = native.annotation(X_ADDRESS) or application_of(native, ORIGINAL_ADDRESS)
        if not address:
            return None
        address, _, one = str(address).partition("::")
        queue = one or native.annotation(X_QUEUE) or application_of(native, ORIGINAL_QUEUE) or address
        expired = X_ACTUAL_EXPIRY in native.annotations or ACTUAL_EXPIRY in native.application
        return Death(_came_from(native, address, str(queue)), "expired" if expired else "")

    def unsendable(self, out: Outgoing, /) -> str:
        try:
            encode(out)
        except (NotEncodable, UnicodeEncodeError) as error:
            return f"it cannot be encoded: {error}"
        return ""


def _came_from(native: Received, address: str, queue: str) -> Destination:
    if queue == address:
        return Destination(address)
    if str(application_of(native, _ROUTING_TYPE)) == "1":  # ANYCAST
        return Destination(f"{address}::{queue}")
    return Destination(address, "topic", queue)


def application_of(native: Received, name: str) -> Any:
    """Return one application property, or None."""
    where = native.application.get(name)
    return None if where is None else read(native.raw, where[0])


def _size(native: Received, section: int) -> int:
    at = native.parts.get(section)
    return 0 if at is None else end_of(native.raw, at) - at


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return None if value is None else str.__str__(value)


def _int(value: Any) -> int | None:
    return None if value is None else int(value)


READER = ProtonReader()


def delivery_of(source: Destination, generation: int, tag: int, raw: bytes | bytearray) -> Delivery:
    native = Received(raw)
    return Delivery(source, generation, tag, native.failed_before, native, READER)


# -- outgoing --------------------------------------------------------------------------------------------------


def encode(
    out: Outgoing,
    *,
    at_ms: int | None = None,
    source: tuple[str, str] | None = None,
    duplicate_id: str = "",
    biting: tuple[str, ...] = BROKERS_ANNOTATIONS,
) -> bytes:
    """Return the message as it goes out: durable, without the original's expiry, user id and address.

    `at_ms`: not to be delivered before, milliseconds since 1970. `source`: address and queue where the dead came
    from. `biting`: how the names of annotations begin that it does not take over. NotEncodable for a header value
    that AMQP has no type for.
    """
    origin = out.origin.native if out.origin is not None and isinstance(out.origin.native, Received) else None
    dead = "redeliver_reason" in out.headers
    return b"".join(
        (
            _header(out.properties.priority),
            _annotations(origin, at_ms, source if dead else None, biting),
            _properties(out.properties, origin),
            _application_properties(out, origin, source if dead else None, duplicate_id),
            _body(out, origin),
        )
    )


def _section(code: int, value: bytes) -> bytes:
    return b"\x00\x53" + bytes((code,)) + value


def _header(priority: int | None) -> bytes:
    fields = [b"\x41"] if priority is None else [b"\x41", write(proton.ubyte(min(max(priority, 0), 255)))]
    return _section(HEADER, compound(0xC0, 0xD0, fields))


def _annotations(
    origin: Received | None, at_ms: int | None, source: tuple[str, str] | None, biting: tuple[str, ...]
) -> bytes:
    """Return the user's own annotations; then the delivery time as a long, the only form that is obeyed."""
    parts: list[bytes] = []
    for name, (start, end) in origin.annotations.items() if origin is not None else ():
        if not name.startswith(biting):
            assert origin is not None
            parts += [write(proton.symbol(name)), origin.raw[start:end]]
    if at_ms is not None:
        parts += [write(proton.symbol(DELIVERY_TIME)), b"\x81" + struct.pack(">q", at_ms)]
    for name, value in _origin_marks(source):
        parts += [write(proton.symbol(name)), write(value)]
    return _section(ANNOTATIONS, compound(0xC1, 0xD1, parts)) if parts else b""


def _origin_marks(source: tuple[str, str] | None) -> list[tuple[str, str]]:
    """Return the marks by which the broker's own tools send a dead letter back.

    They route by the address alone (seen on 2.44: also letters of the broker's own reach every subscription), so a
    queue that is not the only one of its address is named in full.
    """
    if source is None:
        return []
    address, queue = source
    return [(X_ADDRESS, address if queue == address else f"{address}::{queue}"), (X_QUEUE, queue)]


def _properties(p: Properties, origin: Received | None) -> bytes:
    if origin is not None:
        wires = origin.property_wires()
        came = dict(zip(FIELDS, wires, strict=False))
        fields = [_NULL if name in _DROPPED else came.get(name, _NULL) for name in FIELDS]
        if p.expires_at_us is not None:
            fields[FIELDS.index("absolute_expiry_time")] = write(proton.timestamp(p.expires_at_us // 1000))
    else:
        fields = [write(value) for value in _fields_of(p)]
    while fields and fields[-1] == _NULL:
        fields.pop()
    return _section(PROPERTIES, compound(0xC0, 0xD0, fields)) if fields else b""


def _fields_of(p: Properties) -> tuple[Any, ...]:
    symbol, moment = proton.symbol, proton.timestamp
    return (
        p.message_id,
        None,
        None,
        p.type,
        p.reply_to,
        p.correlation_id,
        None if p.content_type is None else symbol(p.content_type),
        None if p.content_encoding is None else symbol(p.content_encoding),
        None if p.expires_at_us is None else moment(p.expires_at_us // 1000),
        None if p.timestamp_us is None else moment(p.timestamp_us // 1000),
        p.group_id,
    )


def _application_properties(
    out: Outgoing, origin: Received | None, source: tuple[str, str] | None, duplicate_id: str
) -> bytes:
    """Return the original's application properties as they stood on the wire, and ours as strings."""
    came = out.origin.headers if out.origin is not None and origin is not None else {}
    parts: list[bytes] = []
    more: dict[str, Any] = {DUPLICATE_ID: duplicate_id} if duplicate_id else {}
    if source is not None:
        more[ORIGINAL_ADDRESS] = source[0]  # what a filtered dead-letter queue looks at
    for name, value in (dict(out.headers) | more).items():
        where = origin.application.get(name) if origin is not None and came.get(name) is value else None
        if where is not None and origin is not None and name not in more:
            wire = origin.raw[where[0] : where[1]]
        else:
            wire = write(value)
        parts += [write(str(name)), wire]
    return _section(APPLICATION, compound(0xC1, 0xD1, parts)) if parts else b""


def _body(out: Outgoing, origin: Received | None) -> bytes:
    """Return the original's body section if the body is the original's; else a data section."""
    if origin is not None and out.origin is not None and out.body == out.origin.body:
        return origin.body_wire
    return _section(DATA, write(bytes(out.body)))


__all__ = ["READER", "Malformed", "ProtonReader", "delivery_of", "encode"]
