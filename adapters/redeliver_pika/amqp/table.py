# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads and writes AMQP 0-9-1 field tables as RabbitMQ speaks them, byte for byte.

A decoded table holds natural Python values. Where the Python type cannot tell two wire types apart, a small
subclass remembers (`_values`). What a plain value becomes: `int` a signed 32-bit one, 64-bit if it does not
fit; `float` a double; `str` a long string; `bytes` a byte array. `encode_table(decode_table(raw)[0]) == raw`
holds for every table that RabbitMQ can hold. Nothing here does I/O; any thread may call it.
"""

import struct
from functools import lru_cache
from math import isfinite

from redeliver_pika.amqp.values import (
    FIXED,
    LENGTH,
    WRITERS,
    AmqpBytes,
    Malformed,
    NotEncodable,
    WireTable,
    sized,
    text,
    write_float,
)

__all__ = ["MAX_DEPTH", "Malformed", "NotEncodable", "decode_table", "encode_table"]

MAX_DEPTH = 64
"""Deeper nesting stays `AmqpBytes`: RabbitMQ takes thousands of levels, Python's stack does not."""


def decode_table(data: bytes, offset: int = 0) -> tuple[dict[str, object], int]:
    """Return the table whose 4-byte length stands at `offset`, and the offset behind it.

    Keys that are no UTF-8 carry their bytes as surrogate escapes. Raises `Malformed`.
    """
    try:
        return _read_table(data, offset, 0)
    except (struct.error, IndexError) as error:
        raise Malformed(f"a field table ends too early: {error}") from None


def encode_table(mapping: dict[str, object], *, non_finite: bool = False) -> bytes:
    """Encode `mapping`, with its 4-byte length in front. Raises `NotEncodable`, which names the place.

    NaN and infinities are refused, as RabbitMQ answers them by closing the whole connection (541);
    `non_finite=True` writes them nevertheless.
    """
    if not isinstance(mapping, dict):
        raise NotEncodable(f"headers must be a dict, not {type(mapping).__name__}")
    return _write_table(mapping, 0, non_finite)


# --- reading ---------------------------------------------------------------------------------------------


def _read_table(data: bytes, at: int, depth: int) -> tuple[dict[str, object], int]:
    start, end = _span(data, at)
    at, count, name, length_at = start, 0, _name, LENGTH.unpack_from
    table: dict[str, object] = {}
    while at < end:
        key_end = at + 1 + data[at]
        key = name(data[at + 1 : key_end])
        if data[key_end] == 0x53:  # S: most values are texts
            text_start = key_end + 5
            (size,) = length_at(data, key_end + 1)
            at = text_start + size
            if at > end:
                _span(data, key_end + 1)
            try:
                table[key] = data[text_start:at].decode()
            except UnicodeDecodeError:
                table[key] = text(data[text_start:at])
        else:
            table[key], at = _read_value(data, key_end, depth)
        count += 1
    if at != end:
        raise Malformed("an entry runs over the end of its table")
    if count != len(table):
        table = _with_hidden(table, data[start:end], depth)
    return table, end


@lru_cache(maxsize=1024)
def _name(raw: bytes) -> str:
    """Return the name of an entry. Cached, because a text that was hashed once is a quicker key."""
    return raw.decode("utf-8", "surrogateescape")


def _with_hidden(table: dict[str, object], wire: bytes, depth: int) -> WireTable:
    result = WireTable(table)
    result.wire = wire
    result.seen = _write_entries(table, depth, True)
    return result


def _read_array(data: bytes, at: int, depth: int) -> tuple[list[object], int]:
    at, end = _span(data, at)
    array: list[object] = []
    while at < end:
        value, at = _read_value(data, at, depth)
        array.append(value)
    if at != end:
        raise Malformed("an item runs over the end of its array")
    return array, end


def _read_value(data: bytes, at: int, depth: int) -> tuple[object, int]:
    kind = data[at]
    fixed = FIXED.get(kind)
    if fixed is not None:
        form, make = fixed
        return make(*form.unpack_from(data, at + 1)), at + 1 + form.size
    if kind == 0x56:  # V
        return None, at + 1
    start, end = _span(data, at + 1)
    if kind == 0x53:  # S
        return text(data[start:end]), end
    if kind == 0x78:  # x
        return data[start:end], end
    if kind in b"FA":
        if depth >= MAX_DEPTH:
            return AmqpBytes(data[at:end]), end
        read = _read_table if kind == 0x46 else _read_array
        return read(data, at + 1, depth + 1)
    raise Malformed(f"unknown field type {bytes([kind])!r}")


def _span(data: bytes, at: int) -> tuple[int, int]:
    """Return where the content behind the 4-byte length at `at` begins and ends."""
    (size,) = LENGTH.unpack_from(data, at)
    if at + 4 + size > len(data):
        raise Malformed(f"{size} bytes announced, {len(data) - at - 4} there")
    return at + 4, at + 4 + size


# --- writing ---------------------------------------------------------------------------------------------


def _write_table(table: dict[str, object], depth: int, non_finite: bool) -> bytes:
    entries = _write_entries(table, depth, non_finite)
    if isinstance(table, WireTable) and entries == table.seen:
        entries = table.wire
    return LENGTH.pack(len(entries)) + entries


def _write_entries(table: dict[str, object], depth: int, non_finite: bool) -> bytes:
    pieces: list[bytes] = []
    for key, value in table.items():
        try:
            pieces.append(_key(key))
            pieces.append(_write_value(value, depth, non_finite))
        except NotEncodable as error:
            raise error.under(str(key).encode("utf-8", "backslashreplace").decode()) from None
    return b"".join(pieces)


def _key(key: object) -> bytes:
    if not isinstance(key, str):
        raise NotEncodable(f"a key must be str, not {type(key).__name__}")
    try:
        raw = key.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise NotEncodable("a key that UTF-8 cannot express") from None
    if len(raw) > 255:
        raise NotEncodable(f"a key of {len(raw)} bytes in UTF-8, 255 are allowed")
    return bytes((len(raw),)) + raw


def _write_value(value: object, depth: int, non_finite: bool) -> bytes:
    for kind, write in WRITERS:
        if isinstance(value, kind):
            return write(value)
    if isinstance(value, float):
        if not (non_finite or isfinite(value)):
            raise NotEncodable(f"RabbitMQ cannot hold {value!r}")
        return write_float(value)
    if isinstance(value, (dict, list)):
        return _write_nested(value, depth + 1, non_finite)
    raise NotEncodable(f"AMQP 0-9-1 has no type for {type(value).__name__}")


def _write_nested(value: dict[str, object] | list[object], depth: int, non_finite: bool) -> bytes:
    if depth > MAX_DEPTH:
        raise NotEncodable(f"nested more than {MAX_DEPTH} deep")
    if isinstance(value, dict):
        return b"F" + _write_table(value, depth, non_finite)
    pieces: list[bytes] = []
    for index, item in enumerate(value):
        try:
            pieces.append(_write_value(item, depth, non_finite))
        except NotEncodable as error:
            raise error.under(f"[{index}]") from None
    return sized(b"A", b"".join(pieces))
