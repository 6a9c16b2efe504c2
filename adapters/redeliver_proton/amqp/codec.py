# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Finds, reads and writes values of the AMQP 1.0 type system as they stand on the wire. Pure.

Copies are made of slices of what was received, so that nothing of them depends on how a value was read. What
is read comes in the driver's own types (`proton.int32`, `ulong`, `symbol`, …), binary as `bytes`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

import proton

from redeliver_mw.message import HeaderType, register_header_constant, register_header_types

MAX_DEPTH = 32
"""Deeper nesting stays `EncodedValue`: a message may nest thousands of levels, Python's stack does not."""

_FIXED = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}  # high nibble of a constructor -> bytes of the value
_DESCRIBED, _NULL = 0x00, 0x40


class Malformed(ValueError):
    """Reports bytes that are no AMQP value."""


class NotEncodable(ValueError):
    """Means that AMQP has no type for this Python value."""


class EncodedValue(bytes):
    """Is a value as it stood on the wire, its constructor included; it goes out as it is."""

    __slots__ = ()


_UNDESCRIBED: object = proton.UNDESCRIBED  # what the driver's arrays of plain values have for a descriptor
register_header_constant("amqp10/undescribed", _UNDESCRIBED)
register_header_types(
    HeaderType("amqp10/encoded", EncodedValue),
    HeaderType("amqp10/array", proton.Array, ("descriptor", "type", "elements"), lambda array: list(array.elements)),
    HeaderType("amqp10/described", proton.Described, ("descriptor", "value"), lambda described: described.value),
    HeaderType("amqp10/symbol-list", proton.SymbolList, ("raise_on_error",)),
    HeaderType("amqp10/byte", proton.byte),
    HeaderType("amqp10/char", proton.char),
    HeaderType("amqp10/decimal128", proton.decimal128),
    HeaderType("amqp10/decimal32", proton.decimal32),
    HeaderType("amqp10/decimal64", proton.decimal64),
    HeaderType("amqp10/float", proton.float32),
    HeaderType("amqp10/int", proton.int32),
    HeaderType("amqp10/short", proton.short),
    HeaderType("amqp10/symbol", proton.symbol),
    HeaderType("amqp10/timestamp", proton.timestamp),
    HeaderType("amqp10/ubyte", proton.ubyte),
    HeaderType("amqp10/uint", proton.uint),
    HeaderType("amqp10/ulong", proton.ulong),
    HeaderType("amqp10/ushort", proton.ushort),
)


def end_of(data: bytes, at: int, depth: int = 0) -> int:
    """Return the offset behind the value whose constructor stands at `at`. Raises `Malformed`."""
    try:
        code = data[at]
        if code == _DESCRIBED:
            if depth > MAX_DEPTH:
                raise Malformed("descriptors nested too deep")
            return end_of(data, end_of(data, at + 1, depth + 1), depth + 1)
        high = code >> 4
        if (width := _FIXED.get(high)) is not None:
            end = at + 1 + width
        elif high in (0xA, 0xC, 0xE):
            end = at + 2 + data[at + 1]
        elif high in (0xB, 0xD, 0xF):
            end = at + 5 + _U32.unpack_from(data, at + 1)[0]
        else:
            raise Malformed(f"unknown constructor {code:#04x}")
    except (IndexError, struct.error):
        raise Malformed("a value ends too early") from None
    if end > len(data):
        raise Malformed("a value runs over the end")
    return end


def read(data: bytes, at: int, depth: int = 0) -> Any:
    """Return the value whose constructor stands at `at`. Raises `Malformed`."""
    code = data[at]
    end = end_of(data, at)
    if (reader := _READERS.get(code)) is not None:
        return reader(data[at + 1 : end])
    if (sized := _SIZED.get(code)) is not None:
        start, make = sized
        return make(data[at + start : end])
    if code in _LISTS or code in _MAPS:
        return _read_compound(data, at, end, depth)
    return _by_driver(data[at:end])


def _read_compound(data: bytes, at: int, end: int, depth: int) -> Any:
    """Return a list or map; or an `EncodedValue` if it is nested too deep, broken, or has unhashable keys."""
    if depth >= MAX_DEPTH:
        return EncodedValue(data[at:end])
    try:
        found = [read(data, one, depth + 1) for one in items(data, at)]
        return found if data[at] in _LISTS else dict(zip(found[::2], found[1::2], strict=True))
    except (TypeError, ValueError):
        return EncodedValue(data[at:end])


def items(data: bytes, at: int) -> list[int]:
    """Return where the items of the list or map at `at` begin: keys and values in turn for a map."""
    code = data[at]
    if code == 0x45:
        return []
    if code in (0xC0, 0xC1):
        count, one = data[at + 2], at + 3
    elif code in (0xD0, 0xD1):
        count, one = _U32.unpack_from(data, at + 5)[0], at + 9
    else:
        raise Malformed(f"{code:#04x} is neither list nor map")
    end = end_of(data, at)
    found = []
    for _ in range(count):
        found.append(one)
        one = end_of(data, one)
        if one > end:
            raise Malformed("an item runs over the end of its list")
    return found


def _by_driver(wire: bytes) -> Any:
    """Let the driver read decimals, arrays and described values: they are rare, and the driver's own business."""
    data = proton.Data()
    try:
        data.decode(wire)
        data.rewind()
        data.next()
        return data.get_object()
    except Exception:  # whatever the driver makes of strange bytes, they stay what they are
        return EncodedValue(wire)


def _text(raw: bytes) -> Any:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return EncodedValue(_sized(0xA1, 0xB1, raw))


def _symbol(raw: bytes) -> Any:
    return proton.symbol(raw.decode("ascii", "surrogateescape"))


def _number(form: str, kind: Callable[[Any], Any]) -> Callable[[bytes], Any]:
    unpack = struct.Struct(form).unpack
    return lambda raw: kind(unpack(raw)[0])


_U32 = struct.Struct(">I")
_READERS: dict[int, Callable[[bytes], Any]] = {
    _NULL: lambda _: None,
    0x41: lambda _: True,
    0x42: lambda _: False,
    0x56: lambda raw: raw[0] != 0,
    0x50: _number(">B", proton.ubyte),
    0x60: _number(">H", proton.ushort),
    0x70: _number(">I", proton.uint),
    0x52: _number(">B", proton.uint),
    0x43: lambda _: proton.uint(0),
    0x80: _number(">Q", proton.ulong),
    0x53: _number(">B", proton.ulong),
    0x44: lambda _: proton.ulong(0),
    0x51: _number(">b", proton.byte),
    0x61: _number(">h", proton.short),
    0x71: _number(">i", proton.int32),
    0x54: _number(">b", proton.int32),
    0x81: _number(">q", int),
    0x55: _number(">b", int),
    0x72: _number(">f", proton.float32),
    0x82: _number(">d", float),
    0x83: _number(">q", proton.timestamp),
    0x98: lambda raw: UUID(bytes=raw),
    0x73: _number(">I", lambda n: proton.char(chr(n)) if n < 0x110000 else proton.uint(n)),
}
_SIZED: dict[int, tuple[int, Callable[[bytes], Any]]] = {
    0xA0: (2, bytes),
    0xB0: (5, bytes),
    0xA1: (2, _text),
    0xB1: (5, _text),
    0xA3: (2, _symbol),
    0xB3: (5, _symbol),
}
_LISTS, _MAPS = (0x45, 0xC0, 0xD0), (0xC1, 0xD1)


# -- writing ---------------------------------------------------------------------------------------------------


def write(value: Any) -> bytes:
    """Return a value with its constructor. An `int` becomes a long, a `float` a double. Raises `NotEncodable`."""
    for kind, writer in _WRITERS:
        if isinstance(value, kind):
            try:
                return writer(value)
            except (struct.error, UnicodeEncodeError, OverflowError):
                raise NotEncodable(f"{type(value).__name__} {value!r} does not fit its AMQP type") from None
    if isinstance(value, dict):
        return compound(0xC1, 0xD1, [write(part) for pair in value.items() for part in pair])
    if isinstance(value, list | tuple):
        return compound(0xC0, 0xD0, [write(part) for part in value])
    return _written_by_driver(value)


def compound(small: int, large: int, parts: list[bytes]) -> bytes:
    """Return a list (0xc0, 0xd0) or map (0xc1, 0xd1) of values that are encoded already."""
    content = b"".join(parts)
    if len(content) < 255 and len(parts) < 256:
        return bytes((small, len(content) + 1, len(parts))) + content
    return bytes((large,)) + _U32.pack(len(content) + 4) + _U32.pack(len(parts)) + content


def _sized(small: int, large: int, raw: bytes) -> bytes:
    if len(raw) < 256:
        return bytes((small, len(raw))) + raw
    return bytes((large,)) + _U32.pack(len(raw)) + raw


def _written_by_driver(value: Any) -> bytes:
    data = proton.Data()
    try:
        data.put_object(value)
        return bytes(data.encode())
    except Exception:  # the driver raises KeyError, TypeError and its own
        raise NotEncodable(f"AMQP has no type for {type(value).__name__}") from None


def _packed(code: int, form: str) -> Callable[[Any], bytes]:
    pack = struct.Struct(form).pack
    return lambda value: bytes((code,)) + pack(value)


def _moment(value: datetime) -> bytes:
    if value.utcoffset() is None:
        raise NotEncodable("a datetime without a time zone")
    return b"\x83" + struct.pack(">q", round(value.timestamp() * 1000))


# Looked through in this order: a subclass stands before its base, the most frequent first.
_WRITERS: tuple[tuple[Any, Callable[[Any], bytes]], ...] = (
    (proton.symbol, lambda v: _sized(0xA3, 0xB3, v.encode("ascii", "surrogateescape"))),
    (proton.char, lambda v: b"\x73" + _U32.pack(ord(v))),
    (str, lambda v: _sized(0xA1, 0xB1, v.encode())),
    (bool, lambda v: b"\x41" if v else b"\x42"),
    (proton.ulong, _packed(0x80, ">Q")),
    (proton.timestamp, _packed(0x83, ">q")),
    (proton.uint, _packed(0x70, ">I")),
    (proton.int32, _packed(0x71, ">i")),
    (proton.byte, _packed(0x51, ">b")),
    (proton.short, _packed(0x61, ">h")),
    (proton.ubyte, _packed(0x50, ">B")),
    (proton.ushort, _packed(0x60, ">H")),
    (proton.decimal32, _written_by_driver),
    (proton.decimal64, _written_by_driver),
    (int, _packed(0x81, ">q")),
    (proton.float32, _packed(0x72, ">f")),
    (float, _packed(0x82, ">d")),
    (type(None), lambda _: b"\x40"),
    (EncodedValue, bytes),
    (proton.decimal128, _written_by_driver),
    (bytes | bytearray | memoryview, lambda v: _sized(0xA0, 0xB0, bytes(v))),
    (UUID, lambda v: b"\x98" + v.bytes),
    (datetime, _moment),
)
