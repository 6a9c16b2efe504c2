# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""A filter selects the same dead letters in memory, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, func, select
from sqlalchemy.dialects import postgresql, sqlite

from redeliver_mw.operations.filters.compiler import FilterColumns, compile_filter
from redeliver_mw.operations.filters.fields import FIELDS, HeaderField
from redeliver_mw.operations.filters.matching import FilterSubject, HeaderValue, header_number
from redeliver_mw.operations.filters.model import Comparison, Filter, Membership, Negation, Presence
from redeliver_mw.operations.filters.parser import MAX_CONDITIONS, MAX_NESTING, MAX_VALUES, parse_filter
from tests.operations.filters.strategies import filters, operators_of, subjects
from tests.operations.filters.ways import COLUMNS, DAY_US, NOW_US, Ways, headers, letters
from tests.storage.postgres import Postgres


@pytest.fixture(scope="module")
def ways(postgres: Postgres) -> Iterator[Ways]:
    made = Ways(postgres.new_database())
    yield made
    made.close()


def texts_of(*found: str) -> list[FilterSubject]:
    return [FilterSubject(message_key=text) for text in found]


def with_header(value: Any, name: str = "h") -> dict[str, HeaderValue]:
    """Return the header h, as the store describes it, with this value."""
    return {name: HeaderValue(str(value), header_number(value))}


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(filters, min_size=1, max_size=4), st.lists(subjects(), min_size=1, max_size=5))
def test_random_filters_select_the_same_random_dead_letters_in_each_way(
    ways: Ways, conditions: list[Filter], found: list[FilterSubject]
) -> None:
    everything = set(range(len(found)))
    selected = ways.agreed_each(conditions, found)
    rest = ways.agreed_each([Negation(condition) for condition in conditions], found)
    assert rest == [everything - one for one in selected]


VALUES = {"text": "a", "number": "0", "time": "today", "age": "2h"}


@pytest.mark.parametrize("name", [*FIELDS, "header.h", "header.redeliver_h"])
def test_a_condition_about_something_missing_does_not_hold_and_its_negation_holds(ways: Ways, name: str) -> None:
    nothing = [FilterSubject()]
    field = FIELDS.get(name)
    value = VALUES[field.kind] if field else "a"
    signs = operators_of(field) if field else ["=", "!=", "<", "<=", ">", ">=", "~"]
    for condition in [*(f"{name} {sign} {value}" for sign in signs), f"{name} in ({value})", f"{name} is present"]:
        assert ways.agreed(parse_filter(condition), nothing) == set(), condition
        assert ways.agreed(parse_filter(f"not {condition}"), nothing) == {0}, condition
    assert ways.agreed(parse_filter(f"{name} is missing"), nothing) == {0}


def test_an_empty_text_of_a_field_is_missing_and_an_empty_header_is_present(ways: Ways) -> None:
    empty = [FilterSubject(error_type="", headers={"h": HeaderValue("")})]
    assert ways.agreed(parse_filter("error is missing and not error != a and not error < a"), empty) == {0}
    assert ways.agreed(parse_filter("header.h is present and header.h = '' and header.h < a"), empty) == {0}


OWN = "redeliver_h"  # one of the headers that are together in one row
HEADER_VALUES = [
    "",
    "a",
    "A",
    "b",
    "é",
    "É",
    "日本",
    "😀",
    '"',
    "\\",
    "\\u0061",
    "\n",
    "null",
    "true",
    "{}",
    "a%b",
    "a_b",
]
HEADER_VALUES += ["0", "-1", "1.5", "0.1", "10", "9", "1e1", "1e300", "-0", "5e-324", "2147483648", "9007199254740993"]
HEADER_NUMBERS = ["0", "-1", "1.5", "0.1", "10", "9", "1e300", "5e-324", "2147483648", "9007199254740993"]


def test_a_header_of_ours_has_the_meaning_of_any_other_header(ways: Ways) -> None:
    """Each letter has the same value in one of ours and in one of another program's; and one letter has neither."""
    found = [FilterSubject(headers=with_header(value) | with_header(value, OWN)) for value in HEADER_VALUES]
    found.append(FilterSubject(headers=with_header("a", "redeliver_other")))
    theirs = HeaderField("h")
    signs: list[Any] = operators_of(theirs)
    conditions: list[Any] = [Presence(theirs, True), Presence(theirs, False)]
    conditions += [Comparison(theirs, sign, text) for sign in signs for text in HEADER_VALUES if text or sign != "~"]
    conditions += [Comparison(theirs, sign, float(one)) for sign in signs if sign != "~" for one in HEADER_NUMBERS]
    conditions.append(Membership(theirs, ("a", "É", 10.0, 0.1, 1e300)))
    ours = [replace(condition, field=HeaderField(OWN)) for condition in conditions]
    selected = ways.agreed_each(conditions, found)
    assert ways.agreed_each(ours, found) == selected
    everything = set(range(len(found)))
    rest = ways.agreed_each([Negation(condition) for condition in ours], found)
    assert rest == [everything - one for one in selected]
    assert selected[0] == everything - {len(HEADER_VALUES)}


@pytest.mark.parametrize(
    "name", ["redeliver_", "redeliver_H", "redeliver-h", "redeliver_h\n", "redeliver_é", "x_redeliver_h"]
)
def test_a_name_that_is_nearly_one_of_ours_means_that_header_alone(ways: Ways, name: str) -> None:
    found = [FilterSubject(headers=with_header("x", name)), FilterSubject(headers=with_header("x", OWN))]
    assert ways.agreed(Comparison(HeaderField(name), "=", "x"), found) == {0}
    assert ways.agreed(Comparison(HeaderField(OWN), "=", "x"), found) == {1}


def test_headers_of_ours_and_of_others_stand_in_one_filter(ways: Ways) -> None:
    found = [
        FilterSubject(headers={"redeliver_failures": HeaderValue(str(n), float(n)), "tenant": HeaderValue(text)})
        for n, text in ((1, "a"), (5, "a"), (5, "b"), (30, "a"))
    ]
    assert ways.agreed(parse_filter("header.redeliver_failures >= 5 and header.tenant = a"), found) == {1, 3}
    assert ways.agreed(parse_filter("header.redeliver_failures < '5' or header.tenant != a"), found) == {0, 2, 3}
    assert ways.agreed(parse_filter("not header.redeliver_failures in (5, '30')"), found) == {0}
    assert ways.agreed(parse_filter("header.redeliver_task is missing and header.redeliver_failures ~ 3"), found) == {3}


def test_equality_knows_case_and_containing_ignores_it_in_ascii_only(ways: Ways) -> None:
    found = texts_of("Kiel", "kiel", "\u212aiel", "CAFÉ", "café")
    assert ways.agreed(parse_filter("key = kiel"), found) == {1}
    assert ways.agreed(parse_filter("key ~ KIEL"), found) == {0, 1}
    assert ways.agreed(parse_filter("key ~ caf"), found) == {3, 4}
    assert ways.agreed(parse_filter("key ~ é"), found) == {4}
    assert ways.agreed(parse_filter("key ~ É"), found) == {3}


def test_no_character_of_a_text_is_a_wildcard(ways: Ways) -> None:
    found = texts_of("100%", "1000", "a_b", "axb", "a/b", "a\\b")
    assert ways.agreed(parse_filter("key ~ '0%'"), found) == {0}
    assert ways.agreed(parse_filter("key ~ a_b"), found) == {2}
    assert ways.agreed(parse_filter("key ~ /"), found) == {4}
    assert ways.agreed(parse_filter(r"key ~ '\\'"), found) == {5}


def test_texts_are_ordered_by_code_points_in_every_locale(ways: Ways) -> None:
    found = texts_of("a", "B", "é", "z", "10", "9")
    assert ways.agreed(parse_filter("key < a"), found) == {1, 4, 5}
    assert ways.agreed(parse_filter("key > z"), found) == {2}
    assert ways.agreed(parse_filter("key >= 9"), found) == {0, 1, 2, 3, 5}


def test_numbers_of_64_bits_compare_with_a_smaller_column(ways: Ways) -> None:
    found = [FilterSubject(failures=3)]
    assert ways.agreed(parse_filter(f"failures < {2**63 - 1} and failures > -{2**63 - 1}"), found) == {0}
    assert ways.agreed(parse_filter(f"failures in ({2**40}, 3)"), found) == {0}


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        # the last microsecond of 24 November, the first of the 25th, its last, the first of the 26th
        ("died = 2026-11-25", {1, 2}),
        ("died = yesterday", {1, 2}),
        ("died != yesterday", {0, 3}),
        ("died < 2026-11-25", {0}),
        ("died <= 2026-11-25", {0, 1, 2}),
        ("died > 2026-11-25", {3}),
        ("died >= 2026-11-25", {1, 2, 3}),
        ("died in (today, 2026-11-24)", {0, 3}),
        ("died = 2026-11-25T00:00", {1}),
        ("died > 2026-11-25T00:00", {2, 3}),
        ("died <= '2026-11-25 01:00+01:00'", {0, 1}),
        ("died = 2026-11-24T23:59:59.999999Z", {0}),
        ("died = -6h", {3}),
        ("died < -6h", {0, 1, 2}),
        ("age = 6h", {3}),
        ("age > 6h", {0, 1, 2}),
        ("age >= 6h", {0, 1, 2, 3}),
        ("age < 30h", {2, 3}),
        ("age <= 30h", {1, 2, 3}),
        ("age in (6h, 30h)", {1, 3}),
    ],
)
def test_a_day_is_an_interval_and_every_other_time_an_instant(ways: Ways, condition: str, holds: set[int]) -> None:
    midnight = NOW_US // DAY_US * DAY_US
    times = [midnight - DAY_US - 1, midnight - DAY_US, midnight - 1, midnight]
    assert ways.agreed(parse_filter(condition), [FilterSubject(died_us=us) for us in times]) == holds


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("header.h = 7", {0, 1, 2, 3}),
        ("header.h = '7'", {0, 1}),
        ("header.h > 7", {4}),
        ("header.h != 7", {4}),
        ("header.h < '7'", {4, 6, 7}),
        ("header.h in (7, True)", {0, 1, 2, 3, 5}),
        ("header.h in ('7.0', '')", {2, 7}),
        ("header.h ~ 7", {0, 1, 2, 3}),
        ("header.h = True", {5}),
        ("header.h is present", set(range(8))),
        ("header.H is present", set()),
        ("header.h > 2026-11-26", {0, 1, 2, 3, 5, 6}),
    ],
)
def test_a_header_is_compared_as_the_value_is_written(ways: Ways, condition: str, holds: set[int]) -> None:
    values = [7, "7", 7.0, "7e0", Decimal("12.5"), True, "2026-11-26T06:00:00Z", ""]
    found = [FilterSubject(headers=with_header(value)) for value in values]
    assert ways.agreed(parse_filter(condition), found) == holds


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (7, 7.0),
        (12.5, 12.5),
        (Decimal("12.5"), 12.5),
        ("12.5", 12.5),
        ("-0", 0.0),
        ("1e3", 1000.0),
        (2**70, 2.0**70),
        (10**400, None),
        ("9" * 400, None),
        (Decimal("1e400"), None),
        (Decimal("sNaN"), None),
        (float("nan"), None),
        (float("inf"), None),
        ("nan", None),
        ("inf", None),
        ("acme", None),
        ("", None),
        (" 7", None),
        ("7\n", None),
        ("1_000", None),
        ("+7", None),
        ("0x10", None),
        ("\u0663", None),
        (True, None),
        (None, None),
        (b"7", None),
        ([7], None),
        ({"a": 7}, None),
    ],
)
def test_a_header_is_a_number_if_its_value_or_its_whole_text_is_one(value: object, number: float | None) -> None:
    assert header_number(value) == number


def test_a_source_is_named_with_or_without_its_kind(ways: Ways) -> None:
    names = ["queue:orders", "topic:prices::audit", "queue:topic:odd"]
    found = [FilterSubject(source=name, queue="dlq") for name in names]
    for text, selected in (
        ("source = orders", {0}),
        ("source = queue:orders", {0}),
        ("source in (orders, topic:prices::audit)", {0, 1}),
        ("source != orders", {1, 2}),
        ("source = topic:odd", set()),
        ("source = queue:topic:odd", {2}),
        ("source ~ orders", {0}),
        ("queue = dlq and queue = queue:dlq", {0, 1, 2}),
    ):
        assert ways.agreed(parse_filter(text), found) == selected, text
    assert str(parse_filter("source = orders and queue = queue:dlq")) == "source = queue:orders and queue = dlq"
    assert str(parse_filter("queue = queue:topic:odd")) == "queue = queue:topic:odd"


def test_a_dead_letter_is_described_by_the_rows_of_the_store() -> None:
    row = {column.name: None for column in letters.c} | {"base_id": "a1", "queue": "dlq", "died_us": 7, "same": "x"}
    headers_of_it = [{"letter_id": 1, "name": "h", "text": "7", "number": 7.0}]
    found = FilterSubject(dl_id="a1", queue="dlq", died_us=7, headers={"h": HeaderValue("7", 7.0)})
    assert FilterSubject.of_rows(row, headers_of_it) == found
    assert FilterSubject.of_rows(row | {"dl_id": "a1~2"}, ()).dl_id == "a1~2"


def test_a_filter_of_every_largest_size_is_carried_out(ways: Ways) -> None:
    found = [FilterSubject(queue="q", died_us=NOW_US, headers=with_header("x"))]
    deep = "not (" * (MAX_NESTING // 2)
    for condition in (
        " and ".join(["queue != 'a'"] * MAX_CONDITIONS),
        " or ".join(["died > today"] * (MAX_CONDITIONS - 1) + ["queue = q"]),
        deep + " or ".join(["header.h = y"] * MAX_CONDITIONS) + ")" * (MAX_NESTING // 2),
        "(" * MAX_NESTING + "queue = q" + ")" * MAX_NESTING,
        "not " * MAX_NESTING + "queue = q",
    ):
        assert ways.agreed(parse_filter(condition), found) == {0}, condition[:60]
    assert ways.agreed(parse_filter(f"id in ({','.join(['1'] * MAX_VALUES)}) or header.h in (x)"), found) == {0}
    times = ",".join(["-1h"] * (MAX_CONDITIONS - 1))
    assert ways.agreed(parse_filter(f"died in ({times},today)"), found) == {0}


def comb(levels: int, inner: str, *, last: bool = False) -> str:
    """Return a filter in which `and` and `or` alternate, with one more condition at each level, after or before it."""
    for level in range(levels):
        more = f"failures {'!=' if level % 2 else '='} {level}"
        left, right = (more, f"({inner})") if last else (f"({inner})", more)
        inner = f"{left} {'and' if level % 2 else 'or'} {right}"
    return inner


def tree(leaves: int, leaf: str, level: int = 0) -> str:
    """Return a filter in which `and` and `or` alternate, with two equal halves at each level."""
    if leaves == 1:
        return leaf
    half = leaves // 2
    joined = (" or " if level % 2 else " and ").join(tree(part, leaf, level + 1) for part in (half, leaves - half))
    return f"({joined})"


@pytest.mark.parametrize("before", ["", "not not ", "not "])
def test_the_deepest_filters_are_carried_out(ways: Ways, before: str) -> None:
    found = [FilterSubject(queue="q", failures=-1), FilterSubject(queue="p", failures=-1)]
    expected = {1} if before == "not " else {0}
    for condition in (
        comb(MAX_NESTING - 3, "queue = q"),
        comb(MAX_NESTING - 3, "queue = q", last=True),
        comb(MAX_NESTING - 11, tree(128, "queue = q")),
        comb(MAX_NESTING - 11, tree(64, "not (header.h in (1, x) or queue != q)")),
    ):
        assert ways.agreed(parse_filter(f"{before}({condition})"), found) == expected


def test_no_text_of_a_filter_stands_in_the_sql() -> None:
    text = (
        "(queue = zq1 or message ~ 'zq2%' or reason < zq3 or id in (zq4, zq5) or header.zq6 = zq7)"
        " and header['zq8'] ~ zq9"
        " and (failures > 4711 or header.n = 4712 or header.n in (4713, zq10) or died > 2001-02-03)"
    )
    statement = select(letters).where(compile_filter(parse_filter(text), COLUMNS, NOW_US))
    for dialect in (sqlite.dialect(), postgresql.dialect()):
        compiled = statement.compile(dialect=dialect)
        assert not any(part in str(compiled) for part in ("zq", "471", "2001", "9811584"))
        assert {"zq1", "zq2/%", "zq7", "zq9", 4711, 4712.0, 981_244_800_000_000} <= {
            value for value in compiled.params.values() if not isinstance(value, list)
        }


def test_equality_leaves_the_column_as_its_index_has_it() -> None:
    for text, collated in (("queue = a", False), ("queue in (a, b)", False), ("queue < a", True), ("queue ~ a", True)):
        condition = compile_filter(parse_filter(text), COLUMNS, NOW_US)
        assert ('COLLATE "C"' in str(condition.compile(dialect=postgresql.dialect()))) == collated, text


def test_a_filter_works_over_aliases_and_in_a_delete(ways: Ways) -> None:
    found = [FilterSubject(queue="q", headers=with_header(n)) for n in range(4)]
    condition = parse_filter("header.h > 1")
    one, other = letters.alias("one"), headers.alias("other")
    joined = (
        select(one.c.letter_id)
        .join(headers, headers.c.letter_id == one.c.letter_id)
        .where(headers.c.number < 3, compile_filter(condition, FilterColumns(one, headers), NOW_US))
    )
    with ways.holding(found) as connections:
        for connection in connections.values():
            aliased = select(one.c.letter_id).where(compile_filter(condition, FilterColumns(one, other), NOW_US))
            assert set(connection.execute(aliased).scalars()) == {2, 3}
            assert set(connection.execute(joined).scalars()) == {2}
            connection.execute(delete(letters).where(compile_filter(condition, COLUMNS, NOW_US)))
            assert connection.execute(select(func.count()).select_from(letters)).scalar() == 2
