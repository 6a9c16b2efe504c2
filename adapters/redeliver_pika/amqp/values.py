# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads and writes the single values of AMQP 0-9-1, with types that remember how a value stood on the wire.

Such a type is what a handler finds in `headers` where the natural Python type alone would not say the wire
type, and behaves like it: `WireInteger(5, "s") == 5`. Arithmetic on one gives a plain value.
"""

import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial

from redeliver_mw.message import HeaderType, register_header_types

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_LAST_SECOND = 253402300799  # 9999-12-31T23:59:59Z, the last that datetime knows
LENGTH = struct.Struct(">I")
_SINGLE = struct.Struct(">f")
_DOUBLE = struct.Struct(">d")
_DECIMAL = struct.Struct(">Bi")


class Malformed(ValueError):
    """Reports bytes that are no AMQP 0-9-1 table or property list."""


class NotEncodable(ValueError):
    """Reports a value that AMQP 0-9-1 or RabbitMQ cannot hold exactly; nothing has been sent.

    `path`: where it stands in the headers, such as `a.b[3]`; for a property, `property <name>`.
    `reason`: why, in words for the author of the handler.
    """

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason, path)
        self.reason = reason
        self.path = path

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.path else self.reason

    def under(self, step: str) -> "NotEncodable":
        """Return this error, seen from one level further out: `step` is a key or `[index]`."""
        joint = "." if self.path and not self.path.startswith("[") else ""
        self.path = f"{step}{joint}{self.path}"
        return self


class WireInteger(int):
    """Is an int that goes out as the field type `letter`.

    The letter is one of `b B s u I i l L`, or, past what the natural types can express, `T` (seconds after the year
    9999) or `t` (a boolean whose byte is neither 0 nor 1).
    """

    letter: str

    def __new__(cls, value: int, letter: str) -> "WireInteger":
        self = super().__new__(cls, value)
        self.letter = letter
        return self

    def __reduce__(self) -> "tuple[type[WireInteger], tuple[int, str]]":
        return WireInteger, (int(self), self.letter)

    def encode(self) -> bytes:
        """Return letter and value as bytes. Raises `NotEncodable` if the value is too large for its letter."""
        try:
            return self.letter.encode() + INTEGERS[self.letter].pack(self)
        except (struct.error, KeyError):
            raise NotEncodable(f"{int(self)} does not fit the field type {self.letter!r}") from None


INTEGERS = {
    letter: struct.Struct(form)
    for letter, form in zip("bBsuIilLTt", (">b", ">B", ">h", ">H", ">i", ">I", ">q", ">q", ">Q", ">B"), strict=True)
}
"""The field types that are whole numbers. `L` is `l` to RabbitMQ; a quorum queue hands it out as `l`."""


class Single(float):
    """Is a float of 32 bits, `f`; only values that fit them exactly can be encoded."""

    __slots__ = ("wire",)
    wire: bytes  # its four bytes as they came: some NaNs do not survive the way through a Python float


class LongString(bytes):
    """Is a long string, `S`, that is not UTF-8."""

    __slots__ = ()


class AmqpBytes(bytes):
    """Is a value as it stood on the wire, type letter included; it goes out as it is. See `MAX_DEPTH`."""

    __slots__ = ()


class WireTable(dict[str, object]):
    """Is a table in which a key came twice (the last one is seen here); unchanged, it goes out as it came.

    A copy made by `dict()` has forgotten the hidden values.
    """

    __slots__ = ("seen", "wire")
    wire: bytes  # the entries as they came
    seen: bytes  # the entries that are visible here, encoded: tells whether anything was changed since


register_header_types(
    HeaderType("amqp091/integer", WireInteger, ("letter",)),
    HeaderType("amqp091/float", Single, ("wire",)),
    HeaderType("amqp091/long-string", LongString),
    HeaderType("amqp091/encoded", AmqpBytes),
    HeaderType("amqp091/table", WireTable, ("seen", "wire")),
)


def text(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return LongString(raw)


def _bool(byte: int) -> object:
    return byte == 1 if byte < 2 else WireInteger(byte, "t")


def _long(value: int) -> int:
    return WireInteger(value, "l") if -0x80000000 <= value <= 0x7FFFFFFF else value


def _single(wire: bytes) -> Single:
    value = Single(_SINGLE.unpack(wire)[0])
    value.wire = wire
    return value


def _moment(seconds: int) -> object:
    return _EPOCH + timedelta(seconds=seconds) if seconds <= _LAST_SECOND else WireInteger(seconds, "T")


def _decimal(scale: int, unscaled: int) -> Decimal:
    # Put together from digits, as arithmetic would round by the thread's decimal context.
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


FIXED: dict[int, tuple[struct.Struct, Callable[..., object]]] = {
    **{ord(letter): (INTEGERS[letter], partial(WireInteger, letter=letter)) for letter in "bBsuiL"},
    ord("t"): (INTEGERS["t"], _bool),
    ord("I"): (INTEGERS["I"], int),
    ord("l"): (INTEGERS["l"], _long),
    ord("f"): (struct.Struct(">4s"), _single),
    ord("d"): (_DOUBLE, float),
    ord("D"): (_DECIMAL, _decimal),  # RabbitMQ keeps 32 bits; the clients read them as signed
    ord("T"): (INTEGERS["T"], _moment),
}
"""Letter -> form and maker of the values of a fixed length."""


def sized(letter: bytes, content: bytes) -> bytes:
    return letter + LENGTH.pack(len(content)) + content


def _write_str(value: str) -> bytes:
    try:
        return sized(b"S", value.encode())
    except UnicodeEncodeError:
        raise NotEncodable("a text that UTF-8 cannot express (a lone surrogate)") from None


def _write_int(value: int) -> bytes:
    if -0x80000000 <= value <= 0x7FFFFFFF:
        return b"I" + INTEGERS["I"].pack(value)
    if -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
        return b"l" + INTEGERS["l"].pack(value)
    raise NotEncodable("an int of more than 64 bits with its sign")


def write_float(value: float) -> bytes:
    if not isinstance(value, Single):
        return b"d" + _DOUBLE.pack(value)
    wire = getattr(value, "wire", b"")
    try:
        wire = wire or _SINGLE.pack(value)
    except OverflowError:
        wire = b""
    if not wire or (value == value and _SINGLE.unpack(wire)[0] != value):
        raise NotEncodable(f"{float(value)!r} does not fit 32 bits exactly")
    return b"f" + wire


def _write_moment(value: datetime) -> bytes:
    if value.utcoffset() is None:
        raise NotEncodable("a datetime without a time zone")
    since = value - _EPOCH
    if since < timedelta(0):
        raise NotEncodable("a datetime before 1970")
    if since % _SECOND:
        raise NotEncodable("a datetime with a fraction of a second, AMQP 0-9-1 knows whole ones only")
    return b"T" + INTEGERS["T"].pack(since // _SECOND)


def _write_decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise NotEncodable(f"AMQP 0-9-1 has no decimal {value}")
    if exponent > 9 or exponent < -255 or len(digits) > 10:  # 10 digits: more never fit 32 bits
        raise NotEncodable("a decimal of too many digits or with an exponent not in -255 .. 9")
    unscaled = int("".join(map(str, digits))) * 10 ** max(exponent, 0) * (-1 if sign else 1)
    if not -0x80000000 <= unscaled <= 0x7FFFFFFF or (sign and not unscaled):
        raise NotEncodable("a decimal whose digits do not fit a signed 32-bit int")
    return b"D" + _DECIMAL.pack(max(-exponent, 0), unscaled)


# Looked through in this order: a subclass stands before its base, the most frequent first.
WRITERS: tuple[tuple[type, Callable[..., bytes]], ...] = (
    (str, _write_str),
    (bool, lambda value: b"t\x01" if value else b"t\x00"),
    (WireInteger, WireInteger.encode),
    (int, _write_int),
    (AmqpBytes, bytes),
    (LongString, lambda value: sized(b"S", value)),
    (bytes, lambda value: sized(b"x", value)),
    (type(None), lambda value: b"V"),
    (datetime, _write_moment),
    (Decimal, _write_decimal),
)
