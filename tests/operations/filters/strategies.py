# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Draws random filters, and random dead letters that they may select: both take their values from small sets."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from hypothesis import strategies as st

from redeliver_mw.operations.filters.fields import FIELDS, FilterField, HeaderField
from redeliver_mw.operations.filters.matching import FilterSubject, HeaderValue
from redeliver_mw.operations.filters.model import (
    Ago,
    Comparison,
    Conjunction,
    Day,
    Disjunction,
    Filter,
    Instant,
    Membership,
    Negation,
    Presence,
    RelativeDay,
    Span,
)
from redeliver_mw.operations.filters.parser import LARGEST_NUMBER, LONGEST_SPAN
from tests.operations.filters.ways import DAY_US, NOW_US

# Case outside of ASCII, wildcards of LIKE, what looks like another kind of value, and characters of more than one byte.
TEXTS = [
    *("a", "A", "b", "B", "ab", "aB", "ba", "%", "_", "a%b", "a_b", "axb", "/", "a/%b", "\\", "'", '"', "x y", " "),
    *("10", "9", "1e1", "10.0", "-0", "and", "NOT", "today", "-2h", "2h", "2026-11-25", "true"),
    *(
        "é",
        "É",
        "e\u0301",
        "\u212a",
        "k",
        "K",
        "İ",
        "i",
        "\u0131",
        "ß",
        "ẞ",
        "SS",
        "\u03c3",
        "ς",
        "Σ",
        "日本",
        "😀",
        "\uffff",
        "\ue000",
    ),
    *("\n", "\t", "\r\n", "\u202e", "\u00a0", "\x7f", "\x01"),
]
TIMES = [NOW_US + days * DAY_US // 4 + more for days in range(-9, 3) for more in (-1, 0, 1)]
NUMBERS = [-1, 0, 1, 2, 3, 2**31 - 1]

any_text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5)
texts = st.sampled_from(TEXTS) | any_text
sources = texts.map(lambda text: f"queue:{text}")
some_text = texts.filter(bool)
# Names that are kept in the row of own headers, and names that are nearly so.
OWN_NAMES = ["redeliver_failures", "redeliver_error_type", "redeliver_a", "redeliver_9", "redeliver__"]
NEARLY_OWN = ["redeliver_", "redeliver_A", "redeliver_é", "redeliver-a", "Redeliver_a", "redeliver_a\n", "xredeliver_a"]
names = (
    st.sampled_from(["a", "A", "x-y", "any name", "é", '"', ""])
    | st.sampled_from(OWN_NAMES)
    | st.sampled_from(NEARLY_OWN)
    | any_text
)
spans = st.builds(Span, st.sampled_from([0, 1, 60, 5400, 21_600, 86_400, LONGEST_SPAN]) | st.integers(0, LONGEST_SPAN))
instants = st.builds(Instant, st.sampled_from(TIMES) | st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999))
agos = spans.map(lambda span: Ago(span.seconds))
days = st.builds(Day, st.integers(NOW_US // DAY_US - 3, NOW_US // DAY_US + 1) | st.integers(-719_162, 2_932_896))
times = instants | agos | days | st.builds(RelativeDay, st.sampled_from(["today", "yesterday"]))
numbers = st.sampled_from(NUMBERS) | st.integers(-LARGEST_NUMBER, LARGEST_NUMBER)
floats = st.sampled_from([-1.0, 0.0, 1.0, 1.5, 9.0, 10.0, 0.1, 1e300]) | st.floats(
    allow_nan=False, allow_infinity=False
).map(lambda number: number + 0.0)
fields = st.sampled_from(list(FIELDS.values()))
header_fields = st.builds(HeaderField, names)


def values_of(field: FilterField | HeaderField, operator: str = "=") -> st.SearchStrategy[Any]:
    if isinstance(field, HeaderField):
        return some_text if operator == "~" else texts | floats
    if field.name == "source" and operator in ("=", "!="):
        return sources
    return {"text": some_text, "number": numbers, "time": times, "age": spans}[field.kind]


def operators_of(field: FilterField | HeaderField) -> list[str]:
    compared = ["=", "!=", "<", "<=", ">", ">="]
    return [*compared, "~"] if isinstance(field, HeaderField) or field.kind == "text" else compared


@st.composite
def conditions(draw: st.DrawFn) -> Filter:
    field = draw(fields | header_fields)
    kind = draw(st.sampled_from(["comparison", "comparison", "membership", "presence"]))
    if kind == "presence":
        return Presence(field, draw(st.booleans()))
    if kind == "membership":
        return Membership(field, tuple(draw(st.lists(values_of(field), min_size=1, max_size=3))))
    operator: Any = draw(st.sampled_from(operators_of(field)))
    return Comparison(field, operator, draw(values_of(field, operator)))


def _around(inner: st.SearchStrategy[Filter]) -> st.SearchStrategy[Filter]:
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.builds(Negation, inner) | st.builds(Conjunction, several) | st.builds(Disjunction, several)


filters = st.recursive(conditions(), _around, max_leaves=6)

header_values = st.builds(HeaderValue, texts, st.none() | floats)


@st.composite
def subjects(draw: st.DrawFn) -> FilterSubject:
    possible = {"text": texts, "number": st.sampled_from(NUMBERS), "time": st.sampled_from(TIMES)}
    found: dict[str, Any] = {
        field.column: draw(st.none() | possible[field.kind] | possible[field.kind])
        for field in FIELDS.values()
        if field.kind != "age"  # has the column of `died`
    }
    found["source"] = draw(sources | st.none())
    headers = draw(st.dictionaries(names, header_values, max_size=3))
    return FilterSubject(**found, headers=MappingProxyType(headers))
