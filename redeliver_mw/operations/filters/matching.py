# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Applies a filter to a dead letter in memory, with the meaning that the filter has in SQL. Pure.

A field is missing if it is None or an empty text; a header is missing if the dead letter does not have it. A condition
about something that is missing does not hold, whatever its operator, and its negation holds.
"""

from __future__ import annotations

import math
import operator
import string
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from ...storage.header_values import without_class
from .fields import FIELDS, FilterField, HeaderField
from .model import (
    NUMBER,
    Comparison,
    Conjunction,
    Disjunction,
    Filter,
    FilterTime,
    FilterValue,
    Instant,
    Membership,
    Negation,
    Operator,
    Presence,
    Span,
)

_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_BEGIN_A_NUMBER = frozenset("-0123456789")  # a look at this comes first, because it is faster
_COLUMNS = tuple({field.column for field in FIELDS.values()})
TESTS: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
"""The functions of the operators, except that of `~`. They compare columns as they compare values."""
TURNED: Mapping[Operator, Operator] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""The operator for times of death that means the same as an operator for ages: who is older died earlier."""


class HeaderValue(NamedTuple):
    """Is what a filter knows of one header's value: its text and its number. Each is None if there is none."""

    text: str | None
    number: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterSubject:
    """Describes one dead letter to a filter. The names are those of the store's columns; times are microseconds."""

    dl_id: str | None = None
    broker: str | None = None
    queue: str | None = None
    source: str | None = None
    state: str | None = None
    reason: str | None = None
    error_type: str | None = None
    error_message: str | None = None
    fingerprint: str | None = None
    app: str | None = None
    failures: int | None = None
    generation: int | None = None
    body_bytes: int | None = None
    died_us: int | None = None
    collected_us: int | None = None
    message_key: str | None = None
    content_type: str | None = None
    replay_id: str | None = None
    headers: Mapping[str, HeaderValue] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of_rows(cls, letter: Mapping[str, Any], headers: Iterable[Mapping[str, Any]]) -> FilterSubject:
        """Return the description of a dead letter from the rows that the store has, or would have, of it.

        A letter that is not in a store has no `dl_id` yet, and is known by its `base_id`. Columns that no filter
        names are left out.
        """
        found = {name: letter.get(name) for name in _COLUMNS}
        if found["dl_id"] is None:
            found["dl_id"] = letter.get("base_id")
        return cls(**found, headers={row["name"]: HeaderValue(row["text"], row["number"]) for row in headers})


def header_number(value: Any) -> float | None:
    """Return the number that a header's value is; None if it is none, or one that no float can hold.

    A text that is nothing but a number counts: on STOMP, all headers are texts. The store writes the same number.
    """
    value = without_class(value) if type(value) is not str else value
    if isinstance(value, str):
        if value[:1] not in _BEGIN_A_NUMBER or NUMBER.fullmatch(value) is None:
            return None
    elif value is None or isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    try:
        number = float(value)
    except (OverflowError, ValueError):
        return None
    return number + 0.0 if math.isfinite(number) else None  # makes 0.0 of -0.0


def matches(condition: Filter, letter: FilterSubject, now_us: int) -> bool:
    """Return whether the filter selects the dead letter. `now_us` is the time that relative times count from."""
    match condition:
        case Conjunction(parts):
            return all(matches(part, letter, now_us) for part in parts)
        case Disjunction(parts):
            return any(matches(part, letter, now_us) for part in parts)
        case Negation(inner):
            return not matches(inner, letter, now_us)
        case Presence(about, present):
            return _is_present(about, letter) == present
        case Comparison(about, sign, value):
            return _is_present(about, letter) and _holds(about, letter, sign, value, now_us)
        case Membership(about, values):
            return _is_present(about, letter) and any(_holds(about, letter, "=", each, now_us) for each in values)
    raise TypeError(f"no filter: {condition!r}")


def ascii_lower(text: str) -> str:
    """Return the text with A to Z in lower case, and every other character as it is: SQLite knows no more."""
    return text.translate(_LOWER)


def _is_present(about: FilterField | HeaderField, letter: FilterSubject) -> bool:
    if isinstance(about, HeaderField):
        return about.name in letter.headers
    return getattr(letter, about.column) not in (None, "")


def _holds(
    about: FilterField | HeaderField, letter: FilterSubject, sign: Operator, value: FilterValue, now_us: int
) -> bool:
    """Return whether a field or header that is present compares so with the value."""
    if isinstance(about, HeaderField):
        header = letter.headers[about.name]
        found = header.text if isinstance(value, str) else header.number
        return found is not None and _compares(found, sign, value)
    found = getattr(letter, about.column)
    if about.kind == "age":
        instant = Instant(now_us - cast(Span, value).seconds * 1_000_000)
        return _is_at(found, TURNED[sign], instant, now_us)
    if about.kind == "time":
        return _is_at(found, sign, cast(FilterTime, value), now_us)
    return _compares(found, sign, value)


def _compares(found: Any, sign: Operator, value: Any) -> bool:
    if sign == "~":
        return ascii_lower(value) in ascii_lower(found)
    return bool(TESTS[sign](found, value))


def _is_at(us: int, sign: Operator, when: FilterTime, now_us: int) -> bool:
    """Return whether an instant lies so to a time, which may be a whole day."""
    start, end = when.interval_us(now_us)
    place = -1 if us < start else 0 if us < end else 1
    return bool(TESTS[sign](place, 0))
