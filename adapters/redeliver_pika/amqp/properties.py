# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds `RawProperties`: pika's BasicProperties over the bytes of a header frame; decoded on first use, exact."""

import struct
from collections.abc import Callable
from typing import Any

from pika import DeliveryMode
from pika.spec import BasicProperties

from redeliver_pika.amqp.table import decode_table, encode_table
from redeliver_pika.amqp.values import Malformed, NotEncodable

_HAS_TYPE, _HAS_ENCODING, _HAS_HEADERS = 1 << 15, 1 << 14, 1 << 13
_HAS_ID, _HAS_TIMESTAMP = 1 << 7, 1 << 6
_CORRELATION_BYTE = 1 << 2  # the flag of the correlation id, in the first of the two bytes of flags
# What may stand before a message id: its flag, and how wide it is where it is no text and no table.
_BEFORE_ID = (
    (_HAS_TYPE, 0),
    (_HAS_ENCODING, 0),
    (_HAS_HEADERS, 0),
    (1 << 12, 1),
    (1 << 11, 1),
    (1 << 10, 0),
    (1 << 9, 0),
    (1 << 8, 0),
)


class RawProperties(BasicProperties):
    """Holds the properties of one message, and shows them as `pika.BasicProperties` does.

    Made from a frame by `from_raw`, it keeps the bytes and decodes nothing until an attribute is read;
    that raises `Malformed` if they are none. Made by `of(content_type=…, headers=…)`, or by calling the class
    with pika's arguments, it is for sending. Any thread may use it, one at a time.
    """

    raw: bytes | None = None
    """The bytes as they came, whatever a handler does to the attributes; None if made by `of`."""

    @classmethod
    def from_raw(cls, raw: bytes) -> "RawProperties":
        """Make properties of `raw`: a header frame's payload from its property flags on."""
        self: RawProperties = cls.__new__(cls)
        self.raw = raw
        return self

    @classmethod
    def of(cls, **properties: object) -> "RawProperties":
        """Return properties to send, with the names of `pika.BasicProperties`. `encode` checks their values."""
        return cls(**properties)

    def __getattr__(self, name: str) -> Any:
        # Called only for what the instance does not have yet. What was set before the first look stays.
        if name not in _FIELDS or self.raw is None:
            raise AttributeError(name)
        found = _decode(self.raw)
        found.update(self.__dict__)
        self.__dict__.update(found)
        return found[name]

    def decode(self, encoded: bytes, offset: int = 0) -> "RawProperties":
        """Replace all properties by the encoded ones, as pika's method does."""
        self.__dict__.clear()
        self.raw = bytes(encoded[offset:])
        return self

    def encode(self) -> list[bytes]:
        """Return property flags and values for a header frame; what was never looked at goes out as it came.

        Raises `NotEncodable`: nothing of the message has been sent then.
        """
        if self.raw is not None and self._untouched():
            return [self.raw]
        flags, pieces = 0, [b""]
        for name, (bit, write, _) in _FIELDS.items():
            value = getattr(self, name)
            if value is not None:
                flags |= bit
                pieces.append(_written(name, write, value))
        pieces[0] = flags.to_bytes(2, "big")
        return pieces

    def identity(self) -> tuple[Any, Any]:
        """Return `message_id` and `timestamp`; the others are passed over as long as nobody has asked for them."""
        if self.raw is None or not self._untouched():
            return self.message_id, self.timestamp
        return _identity(self.raw) or (self.message_id, self.timestamp)  # those raise what is wrong with the bytes

    def correlation(self) -> Any:
        """Return `correlation_id`, without reading anything of a message that has none."""
        if self.raw is not None and self._untouched() and len(self.raw) > 1 and not self.raw[0] & _CORRELATION_BYTE:
            return None
        return self.correlation_id

    def around_headers(self) -> tuple[bytes, dict[str, Any]]:
        """Return all other properties, as the bytes of the wire, and the headers."""
        raw = self.raw if self.raw is not None else b"".join(self.encode())
        flags, at = _flags(raw), 2
        if not flags & _HAS_HEADERS:
            return raw, {}
        for bit in (_HAS_TYPE, _HAS_ENCODING):  # the two that may stand before the headers
            at += 1 + raw[at] if flags & bit else 0
        headers, end = decode_table(raw, at)
        rest = (flags & ~_HAS_HEADERS).to_bytes(2, "big") + raw[2:at] + raw[end:]
        return rest, headers

    def raw_has(self, prefix: bytes) -> bool:
        """Return whether these bytes occur anywhere in the properties as they came; True may be a coincidence."""
        return prefix in (self.raw if self.raw is not None else b"".join(self.encode()))

    @property
    def headers_size(self) -> int:
        """Return the bytes of the encoded header table with its length field; 0 without headers."""
        if not self._untouched():
            return 0 if self.headers is None else len(encode_table(self.headers))
        return _table_size(self.raw or b"")

    def _untouched(self) -> bool:
        return self.raw is not None and len(self.__dict__) == 1

    def _set(self) -> dict[str, object]:
        return {name: value for name in _FIELDS if (value := getattr(self, name)) is not None}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BasicProperties):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _FIELDS)

    def __repr__(self) -> str:
        try:
            shown = ", ".join(f"{name}={value!r}" for name, value in self._set().items())
        except Malformed as error:
            shown = str(error)
        return f"<RawProperties({shown})>"


def _decode(raw: bytes) -> dict[str, object]:
    """Return all fourteen properties, None where the flag is not set."""
    try:
        flags, at = _flags(raw), 2
        found: dict[str, object] = {}
        for name, (bit, _, read) in _FIELDS.items():
            found[name], at = read(raw, at) if flags & bit else (None, at)
    except (struct.error, IndexError) as error:
        raise Malformed(f"properties end too early: {error}") from None
    if at != len(raw):
        raise Malformed(f"properties of {len(raw)} bytes should have {at}")
    return found


def _flags(raw: bytes) -> int:
    flags = int.from_bytes(raw[:2], "big")
    if len(raw) < 2 or flags & 3:
        raise Malformed("property flags that AMQP 0-9-1 does not have")
    return flags


def _table_size(raw: bytes) -> int:
    flags, at = _flags(raw), 2
    if not flags & _HAS_HEADERS:
        return 0
    for bit in (_HAS_TYPE, _HAS_ENCODING):  # the two that may stand before the headers
        at += 1 + raw[at] if flags & bit else 0
    return 4 + int.from_bytes(raw[at : at + 4], "big")


def _identity(raw: bytes) -> tuple[object, object] | None:
    """Return what identifies the message; None for bytes that are visibly no properties."""
    try:
        flags, at = _flags(raw), 2
        for bit, width in _BEFORE_ID:
            if flags & bit:
                at += width or 1 + raw[at] if bit != _HAS_HEADERS else 4 + int.from_bytes(raw[at : at + 4], "big")
        message_id, at = _read_short(raw, at) if flags & _HAS_ID else (None, at)
        timestamp = _read_seconds(raw, at)[0] if flags & _HAS_TIMESTAMP else None
    except (struct.error, IndexError, Malformed):
        return None
    return (message_id, timestamp) if at <= len(raw) else None


def _written(name: str, write: Callable[[Any], bytes], value: object) -> bytes:
    try:
        return write(value)
    except NotEncodable as error:
        raise (error if name == "headers" else NotEncodable(error.reason, f"property {name}")) from None
    except (struct.error, TypeError):
        raise NotEncodable(f"{value!r:.100} is out of range or of a wrong type", f"property {name}") from None


def _read_short(raw: bytes, at: int) -> tuple[object, int]:
    end = at + 1 + raw[at]
    text = raw[at + 1 : end]
    try:
        return text.decode(), end
    except UnicodeDecodeError:
        return text, end  # as pika does


def _write_short(value: object) -> bytes:
    if not isinstance(value, (str, bytes)):
        raise NotEncodable(f"must be str or bytes, not {type(value).__name__}")
    try:
        text = value.encode() if isinstance(value, str) else value
    except UnicodeEncodeError:
        raise NotEncodable("a text that UTF-8 cannot express") from None
    if len(text) > 255:
        raise NotEncodable(f"{len(text)} bytes in UTF-8, 255 are allowed")
    return bytes((len(text),)) + text


def _read_octet(raw: bytes, at: int) -> tuple[object, int]:
    return raw[at], at + 1


def _write_octet(value: object) -> bytes:
    return struct.pack("B", value.value if isinstance(value, DeliveryMode) else value)


def _read_seconds(raw: bytes, at: int) -> tuple[object, int]:
    return struct.unpack_from(">Q", raw, at)[0], at + 8


def _write_seconds(value: object) -> bytes:
    return struct.pack(">Q", value)


_Reader = Callable[[bytes, int], tuple[object, int]]
_SHORT: tuple[Callable[[Any], bytes], _Reader] = (_write_short, _read_short)
_OCTET: tuple[Callable[[Any], bytes], _Reader] = (_write_octet, _read_octet)

# Name -> flag, writer, reader; in the order of the wire, the first flag the highest bit.
_FIELDS: dict[str, tuple[int, Callable[[Any], bytes], _Reader]] = {
    name: (1 << (15 - place), *codec)
    for place, (name, codec) in enumerate(
        {
            "content_type": _SHORT,
            "content_encoding": _SHORT,
            "headers": (encode_table, decode_table),
            "delivery_mode": _OCTET,
            "priority": _OCTET,
            "correlation_id": _SHORT,
            "reply_to": _SHORT,
            "expiration": _SHORT,
            "message_id": _SHORT,
            "timestamp": (_write_seconds, _read_seconds),
            "type": _SHORT,
            "user_id": _SHORT,
            "app_id": _SHORT,
            "cluster_id": _SHORT,
        }.items()
    )
}
