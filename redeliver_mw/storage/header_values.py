# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Header values of every type that drivers give, as JSON and back, exactly. Pure.

What JSON can say itself stands as it is; all else is a list whose first item tells the kind. A driver's own
types, subclasses of what Python has, keep their class and their attributes. They are found again only in modules
that the program has loaded by then (an app that publishes has loaded its adapter): what is in the database never
causes an import, and no function of such a class is called.
"""

from __future__ import annotations

import base64
import math
import struct
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from ..errors import NotCopyable

MAX_DEPTH = 100
# Classes of their own that hold values; nothing but their attributes makes them up.
HOLDERS = {"proton._data:Array", "proton._data:Described"}
CONSTANTS = {"proton._data:UNDESCRIBED"}  # of which there is one, known by its identity
# The names under which rows hold the adapters' own types, and where those classes are now. A row's names stay what
# they were when the first row was written: databases outlive the layout of the code.
STORED_NAMES = {
    "redeliver_pika._values:Wired": "redeliver_pika.amqp.values:WireInteger",
    "redeliver_pika._values:Single": "redeliver_pika.amqp.values:Single",
    "redeliver_pika._values:LongString": "redeliver_pika.amqp.values:LongString",
    "redeliver_pika._values:Wire": "redeliver_pika.amqp.values:AmqpBytes",
    "redeliver_pika._values:Table": "redeliver_pika.amqp.values:WireTable",
    "redeliver_proton._codec:Wire": "redeliver_proton.amqp.codec:EncodedValue",
}
_STORED_AS = {place: name for name, place in STORED_NAMES.items()}
_BASES = (str, int, float, bytes, dict, list, tuple, Decimal)
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


class UnreadableValue(ValueError):
    """What is in the database is no value of ours, or is one of a driver that is not loaded here."""


BAD = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError, struct.error, RecursionError)
"""What `from_json` raises for JSON that `to_json` did not write; `UnreadableValue` is among them."""


# -- there --------------------------------------------------------------------------------------------


def without_class(value: Any) -> Any:
    """Return a value of a driver's own class as Python's own: `int32(8)` of AMQP 1.0 is 8, an array of it is a list.

    What is in a list stays as it is.
    """
    if type(value) in (bool, int, float, str):
        return value
    if isinstance(value, tuple):
        return list(value)
    match f"{type(value).__module__}:{type(value).__qualname__}":
        case "proton._data:Array":
            return list(value.elements)
        case "proton._data:Described":
            return without_class(value.value)
    return next((base(value) for base in (int, float, str) if isinstance(value, base)), value)


def is_plain(text: str) -> bool:
    """Can every store keep it as a text? Not a NUL, not half a surrogate."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return False
    return "\0" not in text


def to_json(value: Any, depth: int = 0) -> Any:
    """`value` in what JSON has. NotCopyable."""
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
    """A driver's own type: its class, what it is to Python, its attributes."""
    for name in CONSTANTS:
        if value is _found(name):
            return ["constant", name]
    kind = type(value)
    place = f"{kind.__module__}:{kind.__qualname__}"
    name = _STORED_AS.get(place, place)
    base = next((base for base in _BASES if issubclass(kind, base)), None)
    if _found(name) is not kind or isinstance(value, Enum) or (base is None and name not in HOLDERS):
        raise NotCopyable(f"a header of type {kind.__name__} cannot be kept exactly")
    plain = None if base is None else _plain(base, value)
    attributes = {key: to_json(each, depth + 1) for key, each in _attributes(value).items()}
    return ["of", name, to_json(plain, depth + 1), attributes]


def _plain(base: type, value: Any) -> Any:
    """The same as an instance of `base` itself: without asking the class, which may have its own idea of it."""
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


def _attributes(value: Any) -> dict[str, Any]:
    found = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                found[name] = getattr(value, name)
    return found


# -- and back -----------------------------------------------------------------------------------------


def from_json(found: Any, strict: bool = True) -> Any:
    """The value that `found`, read from JSON, stands for. Raises what is in `BAD`.

    Not `strict`, for looking only: a driver's type that is not loaded here becomes Python's own.
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
    if kind == "constant" and content in CONSTANTS and (constant := _found(content)) is not None:
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
    kind = _found(name)
    base: Any = type(plain) if plain is not None else object
    if not isinstance(kind, type) or not issubclass(kind, base) or (base is object and name not in HOLDERS):
        if strict:
            raise UnreadableValue(f"its type {name.partition(':')[2]} is of a driver that is not loaded here")
        return plain if plain is not None else str({k: from_json(v, strict) for k, v in attributes.items()})
    made: Any
    if base in (dict, list):
        made = base.__new__(kind)
        base.__init__(made, plain)
    else:
        made = base.__new__(kind, *(() if plain is None else (plain,)))
    for key, each in attributes.items():
        object.__setattr__(made, key, from_json(each, strict))
    return made


def _found(name: str) -> Any:
    """Return the class that is stored under this name, or None if the program has not loaded it."""
    module, _, path = STORED_NAMES.get(name, name).partition(":")
    found: Any = sys.modules.get(module)
    for step in path.split("."):
        found = getattr(found, step, None)
    return found
