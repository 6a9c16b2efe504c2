# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Converts header values of every type that drivers give to JSON and back, exactly. Pure.

A value that JSON can express is stored unchanged; every other value is a list whose first item names the kind. A
driver's own type is stored under the name that its adapter has registered (`redeliver_mw.message.HeaderType`) with its
attributes. Nothing that is stored names a module or a class, so no stored value can cause an import or a call.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

from ..errors import NotCopyable
from ..message import HeaderType, header_constant, header_type, header_type_named, name_of_constant

MAX_DEPTH = 100
# Rows that were written before types had names hold the paths of classes; these are the names of those classes.
EARLIER_NAMES = {
    "redeliver_pika._values:Wired": "amqp091/integer",
    "redeliver_pika._values:Single": "amqp091/float",
    "redeliver_pika._values:LongString": "amqp091/long-string",
    "redeliver_pika._values:Wire": "amqp091/encoded",
    "redeliver_pika._values:Table": "amqp091/table",
    "redeliver_proton._codec:Wire": "amqp10/encoded",
    "proton._data:Array": "amqp10/array",
    "proton._data:Described": "amqp10/described",
    "proton._data:SymbolList": "amqp10/symbol-list",
    "proton._data:UNDESCRIBED": "amqp10/undescribed",
    "proton._data:byte": "amqp10/byte",
    "proton._data:char": "amqp10/char",
    "proton._data:decimal128": "amqp10/decimal128",
    "proton._data:decimal32": "amqp10/decimal32",
    "proton._data:decimal64": "amqp10/decimal64",
    "proton._data:float32": "amqp10/float",
    "proton._data:int32": "amqp10/int",
    "proton._data:short": "amqp10/short",
    "proton._data:symbol": "amqp10/symbol",
    "proton._data:timestamp": "amqp10/timestamp",
    "proton._data:ubyte": "amqp10/ubyte",
    "proton._data:uint": "amqp10/uint",
    "proton._data:ulong": "amqp10/ulong",
    "proton._data:ushort": "amqp10/ushort",
}
_BASES = (str, int, float, bytes, dict, list, tuple, Decimal)
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


class UnreadableValue(ValueError):
    """Reports a stored value that `to_json` has not written, or whose type no adapter in this process knows."""


BAD = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError, struct.error, RecursionError)
"""Raised by `from_json` for JSON that `to_json` did not write; includes `UnreadableValue`."""


# -- to JSON ------------------------------------------------------------------------------------------


def without_class(value: Any) -> Any:
    """Return a value of a driver's own class as one of Python's own.

    AMQP 1.0's `int32(8)` becomes 8, an array becomes a list.

    The items of a list are not converted.
    """
    if type(value) in (bool, int, float, str):
        return value
    if isinstance(value, tuple):
        return list(value)
    known = header_type(type(value))
    if known is not None and known.plain is not None:
        return without_class(known.plain(value))
    return next((base(value) for base in (int, float, str) if isinstance(value, base)), value)


def is_plain(text: str) -> bool:
    """Return whether every store can keep the text: it has no NUL and no lone surrogate."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return False
    return "\0" not in text


def to_json(value: Any, depth: int = 0) -> Any:
    """Return `value` as a value that JSON has. Raises NotCopyable."""
    writer = _WRITERS.get(type(value))
    if writer is not None:
        return writer(value)
    if depth > MAX_DEPTH:
        raise NotCopyable(f"a header is nested more than {MAX_DEPTH} deep")
    if type(value) is dict:
        return ["map", [[to_json(k, depth + 1), to_json(v, depth + 1)] for k, v in value.items()]]
    if type(value) is list or type(value) is tuple:
        return [type(value).__name__, [to_json(item, depth + 1) for item in value]]
    return _of_class(value, depth)


def _text(value: str) -> Any:
    return value if is_plain(value) else ["str", value.encode("utf-8", "surrogatepass").hex()]


def _int(value: int) -> Any:
    return value if _SMALLEST <= value <= _LARGEST else ["int", hex(value)]


def _float(value: float) -> Any:
    return value if math.isfinite(value) else ["float", struct.pack(">d", value).hex()]


def _datetime(value: datetime) -> Any:
    if value.tzinfo is not None and type(value.tzinfo) is not timezone:
        raise NotCopyable(f"a time whose zone is a {type(value.tzinfo).__name__} cannot be kept exactly")
    return ["time", value.isoformat(), value.fold]


def _base64(raw: bytes | bytearray | memoryview) -> str:
    return base64.b64encode(raw).decode()


_WRITERS: dict[type, Callable[[Any], Any]] = {
    str: _text,
    int: _int,
    float: _float,
    bool: lambda v: v,
    type(None): lambda v: v,
    datetime: _datetime,
    bytes: lambda v: ["bytes", _base64(v)],
    bytearray: lambda v: ["bytearray", _base64(v)],
    memoryview: lambda v: ["memoryview", _base64(v.tobytes())],
    Decimal: lambda v: ["decimal", str(v)],
    UUID: lambda v: ["uuid", v.hex],
}


def _of_class(value: Any, depth: int) -> Any:
    """Return a value of a driver's own type as JSON.

    The JSON holds the type's name, the value as a Python type, and its attributes.
    """
    if (name := name_of_constant(value)) is not None:
        return ["constant", name]
    known = header_type(type(value))
    if known is None:
        raise NotCopyable(f"a header of type {type(value).__name__} cannot be kept exactly")
    base = _base_of(known)
    plain = None if base is None else _plain(base, value)
    attributes = {key: to_json(getattr(value, key), depth + 1) for key in known.attributes if hasattr(value, key)}
    return ["of", known.name, to_json(plain, depth + 1), attributes]


def _base_of(known: HeaderType) -> type | None:
    """Return the Python class that a type derives from, or None for a type that has only attributes."""
    return next((base for base in _BASES if issubclass(known.kind, base)), None)


def _plain(base: type, value: Any) -> Any:
    """Return the same value as an instance of `base` itself.

    The value's class is not called, because it may convert differently.
    """
    if base is str:
        return str.__str__(value)
    if base is int:
        return int.__int__(value)
    if base is float:
        return float.__float__(value)
    if base is bytes:
        return bytes.__getitem__(value, slice(None))
    if base is Decimal:
        return Decimal(value.as_tuple())
    if base is dict:
        return dict(dict.items(value))
    sequence: Any = base  # list or tuple
    return sequence(sequence.__iter__(value))


# -- from JSON ----------------------------------------------------------------------------------------


def from_json(found: Any, strict: bool = True) -> Any:
    """Return the value that `found`, read from JSON, represents. Raises the exceptions in `BAD`.

    Without `strict`, for display only, a driver's type that is not loaded here becomes one of Python's own.
    """
    if not isinstance(found, list):
        return found
    kind, content = found[0], found[1]
    if kind in _READERS:
        return _READERS[kind](content)
    if kind in ("list", "tuple"):
        items = [from_json(item, strict) for item in content]
        return items if kind == "list" else tuple(items)
    if kind == "map":
        return {from_json(k, strict): from_json(v, strict) for k, v in content}
    if kind == "time":
        return datetime.fromisoformat(content).replace(fold=found[2])
    if kind == "constant" and (constant := header_constant(EARLIER_NAMES.get(content, str(content)))) is not None:
        return constant
    if kind == "of":
        return _with_class(content, from_json(found[2], strict), found[3], strict)
    raise UnreadableValue(f"a value of kind {kind!r}")


_READERS: dict[str, Callable[[str], Any]] = {
    "str": lambda c: bytes.fromhex(c).decode("utf-8", "surrogatepass"),
    "int": lambda c: int(c, 16),
    "float": lambda c: struct.unpack(">d", bytes.fromhex(c))[0],
    "bytes": lambda c: base64.b64decode(c),
    "bytearray": lambda c: bytearray(base64.b64decode(c)),
    "memoryview": lambda c: memoryview(base64.b64decode(c)),
    "decimal": Decimal,
    "uuid": lambda c: UUID(hex=c),
}


def _with_class(name: str, plain: Any, attributes: dict[str, Any], strict: bool) -> Any:
    name = EARLIER_NAMES.get(name, name)
    known = header_type_named(name)
    if known is None:
        if strict:
            raise UnreadableValue(f"no adapter that is loaded here has a header type {name!r}")
        return plain if plain is not None else str({k: from_json(v, strict) for k, v in attributes.items()})
    base: Any = _base_of(known)
    complete = attributes.keys() == {*known.attributes} if base is None else attributes.keys() <= {*known.attributes}
    if type(plain) is not (base or type(None)) or not complete:
        raise UnreadableValue(f"a value of type {name!r} that was not written by this program")
    made: Any
    if base in (dict, list):
        made = base.__new__(known.kind)
        base.__init__(made, plain)
    else:
        made = (base or object).__new__(known.kind, *(() if base is None else (plain,)))
    for key, each in attributes.items():
        object.__setattr__(made, key, from_json(each, strict))
    return made
