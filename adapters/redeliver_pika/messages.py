# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Turns frames of AMQP 0-9-1 into `Delivery`, and `Outgoing` into frames. Pure.

The native message of a delivery is pika's `(method, properties, body)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from pika.spec import Basic

from redeliver_mw.errors import NotCopyable
from redeliver_mw.message import Death, Delivery, Destination, Identity, Outgoing, Properties
from redeliver_pika.amqp.properties import RawProperties
from redeliver_pika.amqp.table import encode_table
from redeliver_pika.amqp.values import NotEncodable, WireTable
from redeliver_pika.capabilities import queue_of

TOPIC_EXCHANGE = "amq.topic"
PERSISTENT = 2
NAME_BYTES = 255  # of a queue or a routing key
LONGEST_TTL_MS = 315_360_000_000  # ten years: RabbitMQ closes the channel for more (seen on 3.10.8 and 4.3.6)
OURS = "redeliver_"
MARK = "x-opt-"  # before the names of headers that went onto a message as annotations
MARKED = (MARK + OURS).encode()
LADDER = "redeliver.retry."  # as `_dialects.rung_queue` names our helper queues
Native = tuple[Any, Any, bytes]
_TEXTS, _NESTED = frozenset({str}), frozenset({dict, list})


class PikaReader:
    """Reads pika's messages; of the ones that our own connection received, exactly."""

    def body(self, native: Native, /) -> bytes:
        return native[2]

    def headers(self, native: Native, /) -> dict[str, Any]:
        """Return the headers. Marks of rabbitmq+proton, on a message that it gave back, replace all headers of ours."""
        properties = native[1]
        found = named(properties.headers or {})
        if isinstance(properties, RawProperties) and properties.raw is not None and MARKED not in properties.raw:
            return found
        marks = {name.removeprefix(MARK): value for name, value in found.items() if name.startswith(MARK + OURS)}
        if marks:
            found = {name: value for name, value in found.items() if not name.startswith((OURS, MARK + OURS))} | marks
        return found

    def headers_bytes(self, native: Native, /) -> int:
        properties = native[1]
        if isinstance(properties, RawProperties):
            size = properties.headers_size  # quick as long as nobody has looked at the headers
            if isinstance(properties.headers, WireTable):
                raise NotCopyable("it cannot be sent again as it is: the name of a header comes twice in it")
            return size
        try:
            return len(encode_table(named(properties.headers or {})))
        except NotEncodable as error:
            raise NotCopyable(f"a header cannot be sent again as it is: {error}") from None

    def header_text(self, native: Native, name: str, /) -> str | None:
        """Return the text of one header: as it is on the wire, its name, an S, four bytes of its length, the text."""
        properties = native[1]
        if not isinstance(properties, RawProperties) or properties.raw is None:
            value = (properties.headers or {}).get(name)
            return value if isinstance(value, str) else None
        raw = properties.raw
        begin = raw.find(b"%c%bS" % (len(name), name.encode()))
        if begin < 0:
            return None
        begin += len(name) + 6
        return raw[begin : begin + int.from_bytes(raw[begin - 4 : begin], "big")].decode("utf-8", "replace")

    def correlation_id(self, native: Native, /) -> object:
        properties = native[1]
        return properties.correlation() if isinstance(properties, RawProperties) else properties.correlation_id

    def properties(self, native: Native, /) -> Properties:
        p = native[1]
        return Properties(
            message_id=p.message_id,
            correlation_id=p.correlation_id,
            timestamp_us=None if p.timestamp is None else int(p.timestamp) * 1_000_000,
            content_type=p.content_type,
            content_encoding=p.content_encoding,
            reply_to=p.reply_to,
            type=p.type,
            priority=p.priority,
            app_id=p.app_id,
            user_id=p.user_id,
            ttl_us=_ttl_us(p.expiration),
            persistent=p.delivery_mode == PERSISTENT,
        )

    def identity(self, native: Native, /) -> Identity:
        properties = native[1]
        if isinstance(properties, RawProperties):
            message_id, timestamp = properties.identity()
        else:
            message_id, timestamp = properties.message_id, properties.timestamp
        return Identity(message_id, None if timestamp is None else int(timestamp) * 1_000_000)

    def route(self, native: Native, /) -> Mapping[str, str]:
        method = native[0]
        return {"exchange": method.exchange or "", "routing_key": method.routing_key or ""}

    def twin(self, native: Native, /) -> tuple[bytes, Mapping[str, Any]]:
        """Return what identical messages share beside the body: the route with the properties, and the headers."""
        method, properties, _ = native
        if isinstance(properties, RawProperties):
            rest, headers = properties.around_headers()
        else:
            known = [(name, value) for name, value in sorted(vars(properties).items()) if name != "headers"]
            rest, headers = repr(known).encode("utf-8", "backslashreplace"), named(properties.headers or {})
        return f"{method.exchange}\0{method.routing_key}\0".encode("utf-8", "backslashreplace") + rest, headers

    def pack(self, native: Native, /) -> bytes:
        """Exchange and routing key, each behind a byte that is its length, and the properties as they came."""
        method, properties, _ = native
        raw = RawProperties.of(**vars(properties)) if not isinstance(properties, RawProperties) else properties
        return b"".join((_packed_route(method.exchange or "", method.routing_key or ""), *raw.encode()))

    def unpack(self, packed: bytes, body: bytes, /) -> Native:
        exchange, rest = _short(packed)
        routing_key, raw = _short(rest)
        drivers: Any = Basic.Deliver  # which has no types
        return drivers(exchange=exchange, routing_key=routing_key), RawProperties.from_raw(raw), body

    def marked(self, native: Native, /) -> bool:
        properties = native[1]
        if isinstance(properties, RawProperties) and properties.raw is not None:
            return OURS.encode() in properties.raw
        return any(name.startswith((OURS, MARK + OURS)) for name in named(properties.headers or {}))

    def death(self, native: Native, /) -> Death | None:
        """Return the queue of the last death: `x-death` lists queues and reasons, the newest first.

        Letters that merely waited too long, in our ladder, in a retry queue or in a dead-letter queue, were not
        consumed there. Only where there is no other death does such a one count, and then the first.
        """
        headers = native[1].headers or {}
        deaths = headers.get("x-death")
        listed: list[Mapping[str, Any]] = (
            [death for death in deaths if isinstance(death, dict)] if isinstance(deaths, list) else []
        )
        first = {word: _text(headers.get(f"x-first-death-{word}")) for word in ("queue", "reason")}
        named = [
            death for death in (*listed, first) if death.get("queue") and not str(death["queue"]).startswith(LADDER)
        ]
        consumed = [death for death in named if death.get("reason") in ("rejected", "delivery_limit")]
        if not named:
            return None
        death = consumed[0] if consumed else named[-1]
        at, count = death.get("time"), death.get("count")
        return Death(
            Destination(str(death["queue"])),
            str(death.get("reason") or ""),
            round(at.replace(tzinfo=UTC).timestamp() * 1e6) if isinstance(at, datetime) else None,
            int(count) if isinstance(count, int) else 0,
        )

    def unsendable(self, out: Outgoing, /) -> str:
        try:
            frame_properties(out).encode()
        except (ValueError, TypeError, OverflowError) as error:
            return f"it cannot be encoded: {error}"
        key = route_to(out.target)[1]
        return "" if len(key.encode("utf-8", "replace")) <= NAME_BYTES else f"its name has more than {NAME_BYTES} bytes"


def named(headers: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a copy of the driver's headers, in which names that are no UTF-8 are texts as in `decode_table`.

    pika 1.4 gives them as bytes, in nested tables too.
    """
    if _TEXTS.issuperset(map(type, headers)) and _NESTED.isdisjoint(map(type, headers.values())):
        return dict(headers)
    return {_name(name): _named_within(value) for name, value in headers.items()}


@lru_cache(maxsize=256)
def _packed_route(*names: str) -> bytes:
    """Return names as `_short` reads them. Cached, because a queue's messages have come in few ways."""
    return b"".join(bytes([len(raw)]) + raw for raw in (name.encode() for name in names))


def _name(name: Any) -> Any:
    return name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else name


def _named_within(value: Any) -> Any:
    if type(value) is dict and any(isinstance(n, bytes) or isinstance(v, dict | list) for n, v in value.items()):
        return named(value)
    if type(value) is list and any(isinstance(item, dict | list) for item in value):
        return [_named_within(item) for item in value]
    return value


def _short(packed: bytes) -> tuple[str, bytes]:
    """Return the name that these bytes begin with, and what is behind it. Raises ValueError."""
    if not packed or len(packed) <= packed[0]:
        raise ValueError("it ends within a name")
    end = 1 + packed[0]
    return packed[1:end].decode(), packed[end:]


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")


def _expiration(ttl_us: int | None) -> str | None:
    """Return the time to live as RabbitMQ's text; None, which is for ever, if it is more than RabbitMQ takes."""
    return None if ttl_us is None or ttl_us // 1000 > LONGEST_TTL_MS else str(ttl_us // 1000)


def _ttl_us(expiration: Any) -> int | None:
    """Return the time to live in microseconds; RabbitMQ writes it as a text of milliseconds."""
    text = str(expiration)
    return int(text) * 1000 if text.isascii() and text.isdigit() and len(text) < 16 else None


READER = PikaReader()


def route_to(target: Destination) -> tuple[str, str]:
    """Return exchange and routing key for a destination: the default exchange for a queue, or a subscription's."""
    if target.kind == "queue" or target.subscription:
        return "", queue_of(target)
    return TOPIC_EXCHANGE, target.name


def frame_properties(out: Outgoing) -> RawProperties:
    """Return the properties of the header frame: persistent, and without another user's id."""
    p = out.properties
    return RawProperties.of(
        content_type=p.content_type,
        content_encoding=p.content_encoding,
        headers=dict(out.headers),
        delivery_mode=PERSISTENT,
        priority=p.priority,
        correlation_id=p.correlation_id,
        reply_to=p.reply_to,
        expiration=_expiration(p.ttl_us),
        message_id=p.message_id,
        timestamp=None if p.timestamp_us is None else p.timestamp_us // 1_000_000,
        type=p.type,
        app_id=p.app_id,
    )


def delivery_of(source: Destination, generation: int, native: Native) -> Delivery:
    method = native[0]
    return Delivery(source, generation, method.delivery_tag, bool(method.redelivered), native, READER)
