# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Turns MESSAGE frames into `Delivery`, and `Outgoing` into SEND frames. Pure.

The native message of a delivery is stomp.py's `Frame`; of the ones that our own connection received, a
`RawFrame` with the bytes as they came.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from stomp.utils import Frame

from redeliver_mw.errors import NotCopyable
from redeliver_mw.message import Death, Delivery, Destination, Identity, Outgoing, Properties
from redeliver_stomp.capabilities import (
    CAUSE,
    FRAME_HEADERS,
    HEADERS_MAX,
    LINE_BYTES,
    MESSAGE_TYPE,
    NOT_SCHEDULED,
    ORIGINAL,
    STRIP,
    address,
    destination_of,
    problem,
)
from redeliver_stomp.frames import RawFrame, encode, escaped

_ENCODING = "JMS_AMQP_ORIGINAL_ENCODING"
_NO_BODY_LEFT = {"7": "map", "8": "list"}  # of an AMQP value that reaches STOMP without its content
# For anything else the broker closes the connection without a word.
_LONG, _INT = re.compile(r"[0-9]{1,18}"), re.compile(r"[0-9]{1,9}")
_WHOLE = {NOT_SCHEDULED: _LONG, "AMQ_SCHEDULED_PERIOD": _LONG, "AMQ_SCHEDULED_REPEAT": _INT}
OURS_AT_MOST = 60  # headers that a copy gets beside the foreign ones
CAUSE_CHARS = 200


class NotSendable(ValueError):
    """Reports what cannot be put into a frame that the broker takes; nothing has been sent."""


class StompReader:
    """Reads stomp.py's messages; of the ones that our own connection received, exactly."""

    def body(self, native: Frame, /) -> bytes:
        body = native.body
        return body.encode() if isinstance(body, str) else bytes(body or b"")

    def headers(self, native: Frame, /) -> dict[str, Any]:
        return {name: value for name, value in native.headers.items() if name not in FRAME_HEADERS}

    def headers_bytes(self, native: Frame, /) -> int:
        headers = native.headers
        if (kind := _NO_BODY_LEFT.get(headers.get(_ENCODING, ""))) and not native.body:
            what = f"an AMQP {kind} reaches STOMP without its content"
            raise NotCopyable(what, cure="Let its producer send bytes", whole=False)
        lines = native.head.split(b"\n")[1:] if isinstance(native, RawFrame) else _lines(headers)
        for line in lines:
            name, colon, value = line.partition(b":")
            if not colon or b":" in value or not name:
                what = f"a header's name holds a colon or a line break: {_shown(line)}"
                raise NotCopyable(what, cure="Let its producer name it otherwise")
            if len(line) > LINE_BYTES and name.decode("utf-8", "replace") not in STRIP:
                what = f"header {_shown(name)} has {len(line)} bytes, the broker takes {LINE_BYTES}"
                raise NotCopyable(what, cure="Let its producer send less in it")
        if len(lines) + OURS_AT_MOST > HEADERS_MAX:
            what = f"it has {len(lines)} headers, with ours more than the broker takes"
            raise NotCopyable(what, cure="Let its producer send fewer")
        return sum(map(len, lines)) + len(lines)

    def properties(self, native: Frame, /) -> Properties:
        h = native.headers
        timestamp, expires = _whole(h.get("timestamp")), _whole(h.get("expires"))
        return Properties(
            message_id=h.get("message-id"),
            correlation_id=h.get("correlation-id"),
            timestamp_us=timestamp * 1000 if timestamp else None,
            content_type=h.get("content-type"),
            content_encoding=h.get("content-encoding"),
            reply_to=h.get("reply-to"),
            type=h.get("type"),
            priority=_whole(h.get("priority")),
            user_id=h.get("JMSXUserID"),
            expires_at_us=expires * 1000 if expires else None,
            persistent=h.get("persistent") == "true",
        )

    def identity(self, native: Frame, /) -> Identity:
        if isinstance(native, RawFrame):
            message_id, timestamp = native.header("message-id"), _whole(native.header("timestamp"))
        else:
            message_id, timestamp = native.headers.get("message-id"), _whole(native.headers.get("timestamp"))
        return Identity(message_id, timestamp * 1000 if timestamp else None)

    def header_text(self, native: Frame, name: str, /) -> str | None:
        return native.header(name) if isinstance(native, RawFrame) else native.headers.get(name)

    def correlation_id(self, native: Frame, /) -> object:
        return self.header_text(native, "correlation-id")

    def route(self, native: Frame, /) -> Mapping[str, str]:
        """Return the topic that the message came through, if it did."""
        for name in ("destination", ORIGINAL):
            found = destination_of(native.headers.get(name, ""))
            if found is not None and found.kind == "topic":
                return {"topic": found.name}
        return {}

    def image(self, native: Frame, /) -> bytes:
        """Return a frame's head; for a driver's own frame, which has none, a mark of whether its body is bytes."""
        sized = b"\ncontent-length:" if "content-length" in native.headers else b""
        return native.head if isinstance(native, RawFrame) else b"MESSAGE" + sized

    def native(self, image: bytes, /) -> RawFrame:
        return RawFrame(image, b"")

    def pack(self, native: Frame, /) -> bytes:
        if isinstance(native, RawFrame):
            return native.head
        return b"\n".join([b"MESSAGE", *_lines(native.headers)])

    def unpack(self, packed: bytes, body: bytes, /) -> RawFrame:
        return RawFrame(packed, body)

    def marked(self, native: Frame, /) -> bool:
        if isinstance(native, RawFrame):
            return b"\nredeliver_" in native.head
        return any(name.startswith("redeliver_") for name in native.headers)

    def death(self, native: Frame, /) -> Death | None:
        """Return the death of a message. A virtual topic marks an original destination on healthy messages, too."""
        headers = native.headers
        source = destination_of(headers.get(ORIGINAL, ""))
        if source is None or not ({"originalExpiration", CAUSE} & headers.keys()):
            return None
        cause = headers.get(CAUSE, "")
        return Death(source, "expired" if "Message Expired" in cause else cause[:CAUSE_CHARS])

    def unsendable(self, out: Outgoing, /) -> str:
        try:
            send_frame(out, "r")
        except NotSendable as error:
            return str(error)
        return problem(out.target)


READER = StompReader()


def delivery_of(source: Destination, generation: int, frame: RawFrame) -> Delivery:
    """Return the delivery of a MESSAGE; its tag is the `ack` header as it came."""
    return Delivery(source, generation, frame.raw(b"ack"), b"\nredelivered:true" in frame.head, frame, READER)


def was_not_scheduled(frame: RawFrame) -> bool:
    """Return whether the message should have been delayed, and was not."""
    return b"\n" + NOT_SCHEDULED.encode() + b":" in frame.head


def send_frame(out: Outgoing, receipt: str, *, transaction: str = "", after: float = 0.0) -> bytes:
    """Return the SEND of `out`: persistent; after `after` seconds of the broker's delay. NotSendable.

    What came as a JMS text (without a content-length) goes out as one; a NUL in it would end the frame.
    """
    p = out.properties
    given = {
        "correlation-id": p.correlation_id,
        "reply-to": p.reply_to,
        "type": p.type,
        "content-type": p.content_type,
        "content-encoding": p.content_encoding,
        "priority": p.priority,
        "timestamp": None if p.timestamp_us is None else p.timestamp_us // 1000,
        "expires": None if p.expires_at_us is None else p.expires_at_us // 1000,
        "JMSXGroupID": p.group_id,
    }
    lines = [("destination", address(out.target)), ("receipt", receipt), ("persistent", "true")]
    if transaction:
        lines.append(("transaction", transaction))
    if after > 0:
        lines.append((NOT_SCHEDULED, str(max(1, round(after * 1000)))))
    if not (_is_text(out) and b"\0" not in out.body):
        lines.append(("content-length", str(len(out.body))))
    ours = {name for name, _ in lines}
    lines += [(name, _worded(name, value)) for name, value in given.items() if value is not None]
    standard = ours | given.keys()
    lines += [(name, _worded(name, v)) for name, v in out.headers.items() if name not in standard and name not in STRIP]
    _check(lines)
    return encode("SEND", lines, out.body)


def _is_text(out: Outgoing) -> bool:
    native = out.origin.native if out.origin is not None else None
    if isinstance(native, RawFrame):
        return not native.sized
    return isinstance(native, Frame) and "content-length" not in native.headers


def _worded(name: str, value: object) -> str:
    """Return a header's value as text, as JMS spells numbers and booleans."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise NotSendable(f"header {name!r} is no UTF-8") from None
    raise NotSendable(f"header {name!r} is a {type(value).__name__}: headers of STOMP are texts")


def _check(lines: list[tuple[str, str]]) -> None:
    """Raise NotSendable for what the broker would close the connection for, or misread."""
    if len(lines) > HEADERS_MAX:
        raise NotSendable(f"{len(lines)} headers, the broker takes {HEADERS_MAX}")
    for name, value in lines:
        if not name or ":" in name or "\n" in name or "\r" in name or "\0" in name + value:
            raise NotSendable(f"header {name!r} cannot be written: a colon, a line break or a NUL")
        if name in _WHOLE and not _WHOLE[name].fullmatch(value):
            raise NotSendable(f"header {name!r} says {value!r}, the broker takes a whole number from 0 on")
        if name == MESSAGE_TYPE and value not in ("text", "bytes"):
            raise NotSendable(f"header {name!r} says {value!r}, the broker takes text and bytes")
        if len(name) + len(value) > LINE_BYTES // 6 and len(f"{name}:{escaped(value)}".encode()) > LINE_BYTES:
            raise NotSendable(f"header {name!r} takes more than the {LINE_BYTES} bytes that the broker allows")


def _lines(headers: Mapping[str, str]) -> list[bytes]:
    """Return the header lines of a frame that stomp.py read, as they would go out again."""
    bad = [name for name in headers if ":" in name]
    if bad:
        raise NotCopyable(f"a header's name holds a colon: {bad[0]!r}")
    return [f"{name}:{escaped(str(value))}".encode() for name, value in headers.items()]


def _shown(raw: bytes) -> str:
    return repr(raw[:80].decode("utf-8", "replace"))


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 16 else None
