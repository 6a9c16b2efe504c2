# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds a filter as a value: conditions over fields and headers, and `not`, `and`, `or` around them. Pure.

`str(filter)` is the canonical text of a filter, on one line; the parser reads the same filter from this text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from .fields import FilterField, HeaderField

Operator = Literal["=", "!=", "<", "<=", ">", ">=", "~"]

SECOND_US: Final = 1_000_000
DAY_US: Final = 86_400 * SECOND_US
KEYWORDS: Final = frozenset({"and", "or", "not", "in", "is", "missing", "present"})
NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
UNITS: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}  # the largest first

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_.:/-]*")
_BARE_NAME = re.compile(r"[A-Za-z0-9_:/-][A-Za-z0-9_.:/-]*")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


# -- values -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Span:
    """Is a length of time in whole seconds, such as `2h`: a value of the field `age`."""

    seconds: int

    def __str__(self) -> str:
        unit, factor = next((unit, factor) for unit, factor in UNITS.items() if self.seconds % factor == 0)
        return f"{self.seconds // factor}{unit}" if self.seconds else "0s"


@dataclass(frozen=True, slots=True)
class Instant:
    """Is one microsecond, such as `2026-11-25T06:00:00Z`. The year is between 1 and 9999."""

    us: int

    def interval_us(self, now_us: int) -> tuple[int, int]:
        """Return the first microsecond, and the first one after it."""
        return self.us, self.us + 1

    def __str__(self) -> str:
        return (_EPOCH + timedelta(microseconds=self.us)).isoformat().replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class Ago:
    """Is the microsecond that is `seconds` before now, such as `-2h`."""

    seconds: int

    def interval_us(self, now_us: int) -> tuple[int, int]:
        """Return the first microsecond, and the first one after it."""
        us = now_us - self.seconds * SECOND_US
        return us, us + 1

    def __str__(self) -> str:
        return f"-{Span(self.seconds)}"


@dataclass(frozen=True, slots=True)
class Day:
    """Is a whole day in UTC, such as `2026-11-25`. `number` counts the days since 1970-01-01."""

    number: int

    def interval_us(self, now_us: int) -> tuple[int, int]:
        """Return the first microsecond of the day, and that of the next day."""
        return self.number * DAY_US, (self.number + 1) * DAY_US

    def __str__(self) -> str:
        return (_EPOCH + timedelta(days=self.number)).date().isoformat()


@dataclass(frozen=True, slots=True)
class RelativeDay:
    """Is the day in UTC that is so many days before the day of now: `today` or `yesterday`."""

    word: Literal["today", "yesterday"]

    def interval_us(self, now_us: int) -> tuple[int, int]:
        """Return the first microsecond of the day, and that of the next day."""
        start = (now_us // DAY_US - (self.word == "yesterday")) * DAY_US
        return start, start + DAY_US

    def __str__(self) -> str:
        return self.word


FilterTime = Instant | Ago | Day | RelativeDay
FilterValue = str | int | float | Span | FilterTime
"""A field of kind number has an int, a field of kind time a `FilterTime`, `age` a `Span`, and every other field a str.
A header has a float if it is compared as a number, and otherwise a str."""


# -- filters ------------------------------------------------------------------------------------------


class Filter:
    """Is the base of every filter. A filter is a frozen value; two filters with the same meaning may be unequal."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Comparison(Filter):
    """Compares a field or a header with a value. It does not hold if the field is missing."""

    field: FilterField | HeaderField
    operator: Operator
    value: FilterValue

    def __str__(self) -> str:
        return f"{_field(self.field)} {self.operator} {_value(self.field, self.value)}"


@dataclass(frozen=True, slots=True)
class Membership(Filter):
    """Holds if a field or a header equals one of the values. It does not hold if the field is missing."""

    field: FilterField | HeaderField
    values: tuple[FilterValue, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError("a membership needs a value")

    def __str__(self) -> str:
        return f"{_field(self.field)} in ({', '.join(_value(self.field, value) for value in self.values)})"


@dataclass(frozen=True, slots=True)
class Presence(Filter):
    """Holds if a field or a header is present or, with `present=False`, if it is missing."""

    field: FilterField | HeaderField
    present: bool

    def __str__(self) -> str:
        return f"{_field(self.field)} is {'present' if self.present else 'missing'}"


@dataclass(frozen=True, slots=True)
class Negation(Filter):
    """Holds if the inner filter does not."""

    inner: Filter

    def __str__(self) -> str:
        return f"not {_in_brackets(self.inner, Conjunction, Disjunction)}"


@dataclass(frozen=True, slots=True)
class Conjunction(Filter):
    """Holds if all parts hold. A part that is a conjunction itself is replaced by its parts."""

    parts: tuple[Filter, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", _flat(self.parts, Conjunction))

    def __str__(self) -> str:
        return " and ".join(_in_brackets(part, Disjunction) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Disjunction(Filter):
    """Holds if one of the parts holds. A part that is a disjunction itself is replaced by its parts."""

    parts: tuple[Filter, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", _flat(self.parts, Disjunction))

    def __str__(self) -> str:
        return " or ".join(str(part) for part in self.parts)


def _flat(parts: tuple[Filter, ...], kind: type[Conjunction | Disjunction]) -> tuple[Filter, ...]:
    if len(parts) < 2:
        raise ValueError(f"a {kind.__name__.lower()} needs two parts")
    return tuple(inner for part in parts for inner in (part.parts if isinstance(part, kind) else (part,)))


# -- the canonical text -------------------------------------------------------------------------------


def quoted(text: str) -> str:
    """Return a text as a string of the grammar: on one line, and without a character that no terminal shows."""
    return '"' + "".join(_escaped(character) for character in text) + '"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    return character if character.isprintable() else f"\\u{{{ord(character):x}}}"


def _field(field: FilterField | HeaderField) -> str:
    if isinstance(field, FilterField):
        return field.name
    return f"header.{field.name}" if _BARE_NAME.fullmatch(field.name) else f"header[{quoted(field.name)}]"


def _value(field: FilterField | HeaderField, value: FilterValue) -> str:
    if isinstance(value, str):
        return value if _BARE.fullmatch(value) and value.lower() not in KEYWORDS else quoted(value)
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    return str(value)


def _in_brackets(part: Filter, *kinds: type[Filter]) -> str:
    return f"({part})" if isinstance(part, kinds) else str(part)
