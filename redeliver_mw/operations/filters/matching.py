# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Applies a filter to a dead letter in memory, with the meaning that the filter has in SQL. Pure.

A field is missing if it is None or an empty text; a header is missing if the dead letter does not have it. A condition
about something that is missing does not hold, whatever its operator, and its negation holds.
"""

from __future__ import annotations

import math
import operator
import re
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Any, NamedTuple, cast
from uuid import UUID

from ...storage.header_values import without_class
from .fields import FilterField, HeaderField
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
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NEVER = re.compile("[\0\ud800-\udfff]")
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


def header_value(value: Any) -> HeaderValue:
    """Return what a filter knows of a header's value, of whatever type a driver gives. The store writes the same.

    A list, a map and None have neither text nor number: a filter can ask only whether the header is present.
    """
    value = without_class(value)
    if isinstance(value, bool):
        return HeaderValue("true" if value else "false")
    if isinstance(value, bytes | bytearray | memoryview):
        value = bytes(value).decode("utf-8", "replace")
    if isinstance(value, datetime):
        known = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        try:
            return HeaderValue(str(Instant((known - _EPOCH) // _MICROSECOND)))
        except OverflowError:  # in UTC, the year is 0 or 10000
            return HeaderValue(value.isoformat())
    if isinstance(value, int | float | Decimal | str | UUID):
        text = _text_of(value)
        return HeaderValue(_NEVER.sub("\ufffd", text), _number_of(text))
    return HeaderValue(None)


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


def _text_of(value: int | float | Decimal | str | UUID) -> str:
    try:
        return str(value)
    except ValueError:  # Python writes no number of more than 4300 digits
        return hex(cast(int, value))


def _number_of(text: str) -> float | None:
    """Return the number that a text is; None for a text that is none, and for one that no float can hold."""
    if not NUMBER.fullmatch(text):
        return None
    number = float(text)
    return number + 0.0 if math.isfinite(number) else None


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
