# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the text of a filter: what is read, what is refused and where, and the canonical text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redeliver_mw.errors import ConfigError
from redeliver_mw.operations.filters.fields import FIELDS, HeaderField
from redeliver_mw.operations.filters.model import (
    KEYWORDS,
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
from redeliver_mw.operations.filters.parser import (
    LARGEST_NUMBER,
    MAX_CONDITIONS,
    MAX_LENGTH,
    MAX_NESTING,
    MAX_VALUES,
    parse_filter,
)
from tests.operations.filters.strategies import filters

A, B, C = (Comparison(FIELDS["queue"], "=", name) for name in "abc")


def refused(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse_filter(text)
    return caught.value


@settings(max_examples=300)
@given(filters)
def test_the_canonical_text_of_a_filter_is_read_as_the_same_filter(condition: Filter) -> None:
    text = str(condition)
    assert parse_filter(text) == condition
    assert text.isprintable()


PIECES = ["and", "or", "not", "in", "is", "missing", "present", "(", ")", ",", "[", "]", "header", "header.a", *FIELDS]
PIECES += [
    "=",
    "!=",
    "<",
    "~",
    "==",
    "'",
    '"',
    '"a b"',
    "3",
    "-2h",
    "2026-11-25",
    "today",
    "\\",
    "\\u{",
    "}",
    " ",
    "\n",
]


@settings(max_examples=500)
@given(st.text() | st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=12).map(" ".join))
def test_every_text_is_a_filter_or_an_error_with_its_place(text: str) -> None:
    try:
        found = parse_filter(text)
    except ConfigError as error:
        check_error(error, text)
    else:
        assert parse_filter(str(found)) == found


@settings(max_examples=300)
@given(filters, st.data())
def test_a_filter_with_a_typing_error_is_a_filter_or_an_error_with_its_place(
    condition: Filter, data: st.DataObject
) -> None:
    text = str(condition)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 3)))
    text = text[:start] + data.draw(st.sampled_from([*PIECES, ""]) | st.characters()) + text[end:]
    try:
        found = parse_filter(text)
    except ConfigError as error:
        check_error(error, text)
    else:
        assert parse_filter(str(found)) == found


def check_error(error: ConfigError, text: str) -> None:
    assert (error.code, error.exit_code) == ("filter-syntax", 2)
    place = re.fullmatch(r"--where: column ([0-9]+)", error.where)
    assert place is not None
    assert 1 <= int(place[1]) <= len(text) + 1
    assert error.what
    first, *shown = error.cure.split("\n")
    assert first
    if shown:
        assert shown == [f"  {text}", f"  {' ' * (int(place[1]) - 1)}^"]


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("queue=a", A),
        (" queue\n=\t'a' ", A),
        ("queue = a or queue = b and queue = c", Disjunction((A, Conjunction((B, C))))),
        ("(queue = a or queue = b) and queue = c", Conjunction((Disjunction((A, B)), C))),
        ("not queue = a and queue = b", Conjunction((Negation(A), B))),
        ("NOT (queue = a AND queue = b)", Negation(Conjunction((A, B)))),
        ("queue = a and (queue = b and queue = c)", Conjunction((A, B, C))),
        ("not not queue = a", Negation(Negation(A))),
        ("id = 3", Comparison(FIELDS["id"], "=", "3")),
        ("failures>=-1", Comparison(FIELDS["failures"], ">=", -1)),
        ("error Is Missing", Presence(FIELDS["error"], False)),
        ("error is present", Presence(FIELDS["error"], True)),
        (
            'app in (topic:prices::audit, \'b c\',"\\"")',
            Membership(FIELDS["app"], ("topic:prices::audit", "b c", '"')),
        ),
        ("header.x-y.z = 007", Comparison(HeaderField("x-y.z"), "=", 7.0)),
        ("header.x = -0", Comparison(HeaderField("x"), "=", 0.0)),
        ("header.x = '007'", Comparison(HeaderField("x"), "=", "007")),
        ("header.x ~ 007", Comparison(HeaderField("x"), "~", "007")),
        ("header . x = 1", None),
        ("header['a ] b'] in (1e3, a, '')", Membership(HeaderField("a ] b"), (1000.0, "a", ""))),
        ("header.x = 2026-11-25", Comparison(HeaderField("x"), "=", "2026-11-25")),
        (r"key = '\\\'\"\n\r\t\u{e9}\u{1F600}'", Comparison(FIELDS["key"], "=", "\\'\"\n\r\té\U0001f600")),
        ("age < 90m", Comparison(FIELDS["age"], "<", Span(5400))),
        ("died >= -36h", Comparison(FIELDS["died"], ">=", Ago(129_600))),
        ("died = Today", Comparison(FIELDS["died"], "=", RelativeDay("today"))),
        ("died = 1970-01-02", Comparison(FIELDS["died"], "=", Day(1))),
        ("died = 1969-12-31", Comparison(FIELDS["died"], "=", Day(-1))),
        ("died = 1970-01-01T00:01", Comparison(FIELDS["died"], "=", Instant(60_000_000))),
        ("died = '1970-01-01 00:00:01.5'", Comparison(FIELDS["died"], "=", Instant(1_500_000))),
        ("died = 1970-01-01T02:00:00.000001+02:00", Comparison(FIELDS["died"], "=", Instant(1))),
        ("died = 1969-12-31T20:00-04:00", Comparison(FIELDS["died"], "=", Instant(0))),
    ],
)
def test_a_text_is_read_as_the_filter_that_it_describes(text: str, condition: Filter | None) -> None:
    if condition is None:
        refused(text)
    else:
        assert parse_filter(text) == condition


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("( ( queue='a' ) )", "queue = a"),
        ("age < 120m or age > 0h", "age < 2h or age > 0s"),
        ("died < -1440m", "died < -1d"),
        ("not (not (queue = a or queue = b))", "not not (queue = a or queue = b)"),
        ("(queue = a and queue = b) or queue = c", "queue = a and queue = b or queue = c"),
        ("header['tenant'] = 'x y'", 'header.tenant = "x y"'),
        ("header.x = 1.50 or header.x = '1.50'", 'header.x = 1.5 or header.x = "1.50"'),
        ("key = 'AND' or key = 'and so'", 'key = "AND" or key = "and so"'),
        ("key = '\u202e\n\u00a0'", 'key = "\\u{202e}\\n\\u{a0}"'),
        ("died > '2026-11-25 06:00+01:00'", "died > 2026-11-25T05:00:00Z"),
    ],
)
def test_the_canonical_text_has_one_form_for_each_meaning(text: str, canonical: str) -> None:
    assert str(parse_filter(text)) == canonical


@pytest.mark.parametrize(
    ("text", "column", "what", "cure"),
    [
        ("", 1, "empty", "failures > 3"),
        (" \n", 1, "empty", "failures > 3"),
        ("faild > 3", 1, '"faild" is no field', "Did you mean failures?"),
        ("failures = 1 and Queue = a", 18, '"Queue" is no field', "Did you mean queue?"),
        ("error_type = a", 1, "no field", "Did you mean error?"),
        ("headers.x = a", 1, "no field", "Did you mean header.x?"),
        ("zzz = a", 1, "no field", "The fields are id, queue,"),
        ("header. = a", 1, "no field", "header.NAME"),
        ("header = a", 1, "needs the name", 'header["any name"]'),
        ("header[x] = a", 8, "in quotes", 'header["any name"]'),
        ("header['x' = a", 12, "] after the name", 'header["any name"]'),
        ("'queue' = a", 1, "where a field is needed", "without quotes on the left"),
        ("queue = a and", 14, "a field is needed here, not the end", "Write a condition"),
        ("and queue = a", 1, "a field is needed", "Write a condition"),
        ("!(queue = a)", 1, "! is no operator", "Write not"),
        ("queue", 6, "an operator is needed after queue, not the end", "Write ="),
        ("queue == a", 7, "== is no operator", "Write ="),
        ("queue <> a", 7, "<> is no operator", "Write !="),
        ("queue !~ a", 7, "!~ is no operator", "Write not queue ~ …"),
        ("queue like a", 7, 'not "like"', "Write queue ~ …"),
        ("queue not in (a)", 7, 'not "not"', "Write not queue in"),
        ("failures between 1 and 2", 10, 'not "between"', "failures >= … and failures <= …"),
        ("failures ~ 3", 10, "failures is none", "Compare it with ="),
        ("error is null", 10, 'here is "null"', "Write error is missing"),
        ("error is not missing", 10, 'here is "not"', "Write error is present"),
        ("error is KeyError", 10, 'here is "KeyError"', "for a value, write ="),
        ("queue = ", 9, "a value is needed here, not the end", "Write a word"),
        ("queue = = a", 9, "a value is needed here, not =", "Write a word"),
        ("queue = in", 9, "not the keyword in", 'Write "in"'),
        ("error = ''", 9, "an empty text", "error is missing"),
        ("header.x ~ ''", 12, "an empty text", "is missing"),
        ("queue = a b", 11, 'a condition ends before "b"', "put a text with blanks in quotes"),
        ("queue = a, queue = b", 10, "a condition ends before ,", "Write and"),
        ("(queue = a", 1, "never closed", "Write a )"),
        ("(queue = a queue = b)", 12, 'a condition ends before "queue"', "Write and"),
        ("queue = a)", 10, "closes no (", "Leave it out"),
        ("queue in a", 10, "in brackets", "Write queue in (…, …)"),
        ("queue in ()", 11, "a value is needed here, not )", "Write a word"),
        ("queue in (a, )", 14, "a value is needed here, not )", "Write a word"),
        ("queue in (a b)", 13, "no comma", "Write a comma"),
        ("queue in (a", 10, "never closed", "Write a )"),
        ("queue = 'a", 9, "this ' is never closed", "another '"),
        ('queue = "a\\"', 9, 'this " is never closed', 'another "'),
        (r"queue = 'ab\x'", 12, r"\x is no escape", r"\n"),
        (r"queue = '\u{110000}'", 10, r"\u{110000} is no escape", r"\u{e9}"),
        (r"queue = '\u{d800}'", 10, "no escape", r"\u{e9}"),
        (r"queue = '\u{0}'", 10, "no escape", r"\u{e9}"),
        ("queue = \u201ca\u201d", 9, "\u201c cannot stand outside of quotes", "Write \" or '"),
        ("queue = a && queue = b", 11, "& cannot stand", "Write and"),
        ("queue = a | queue = b", 11, "| cannot stand", "Write or"),
        ("queue = a;", 10, "; cannot stand", "in quotes"),
        ("queue = a\u200b", 10, "U+200B cannot stand", "in quotes"),
        ("queue = a\0", 10, "U+0000", "Leave it out"),
        ("queue = '\udc80'", 10, "U+DC80", "Leave it out"),
        ("failures > many", 12, '"many" is no value of failures', "a whole number"),
        ("failures > 3.5", 12, '"3.5" is no value', "a whole number"),
        ("failures > '3'", 12, '"3" is no value', "without quotes"),
        ("failures > \u0663", 12, "is no value", "a whole number"),
        (f"bytes < {LARGEST_NUMBER + 1}", 9, "is no value", f"largest number is {LARGEST_NUMBER}"),
        ("bytes < " + "9" * 5000, 9, "is no value", "a whole number"),
        ("header.x = 1e999", 12, "too large", "as a text"),
        ("age > 90", 7, '"90" is no value of age', "with s, m, h or d"),
        ("age > 1.5h", 7, "is no value", "with s, m, h or d"),
        ("age > -2h", 7, "is no value", "Write 2h"),
        ("age < 36526d", 7, "is no value", "36525d is the longest"),
        ("age < 999999999999999s", 7, "is no value", "36525d is the longest"),
        ("died > 2h", 8, "is no value", "Write -2h"),
        ("died > tomorrow", 8, "is no value", "today or yesterday"),
        ("died > 2026-13-01", 8, "is no value", "2026-11-25"),
        ("died > 2026-11-25T25:00", 8, "is no value", "2026-11-25"),
        ("died > 2026-11-25T06:00+25:00", 8, "is no value", "2026-11-25"),
        ("died > 0001-01-01T00:00+01:00", 8, "is no value", "2026-11-25"),
        ("died > 2026-11-25 06:00", 19, "a condition ends before", "in quotes"),
        ("died > 20261125", 8, "is no value", "2026-11-25"),
    ],
)
def test_an_error_names_the_column_the_problem_and_the_cure(text: str, column: int, what: str, cure: str) -> None:
    error = refused(text)
    check_error(error, text)
    assert error.where == f"--where: column {column}"
    assert what in error.what
    assert cure in error.cure


def test_an_error_shows_the_filter_with_a_mark_only_where_it_fits_on_one_line() -> None:
    assert str(refused("queue == a")) == (
        "--where: column 7: == is no operator. Write =\n  queue == a\n        ^ [filter-syntax]"
    )
    for text in ("queue == a\n", "queue == é", "queue == \x1b[31m", "queue == " + "a" * 100):
        assert "\n" not in str(refused(text))


def test_an_error_never_contains_a_long_or_an_unprintable_part_of_the_filter() -> None:
    for text in ("\x1b[31m" * 40, "'" + "\x1b\u202e" * 400 + "' = a", "a" * 9000 + " = 1", "headers." + "a" * 9000):
        message = str(refused(text))
        assert message.isprintable()
        assert len(message) < 500


def test_the_place_of_an_error_begins_with_what_the_caller_names() -> None:
    with pytest.raises(ConfigError, match=r"^body\.where: column 1: the filter is empty"):
        parse_filter("", where="body.where")


def test_a_filter_has_at_most_ten_thousand_characters() -> None:
    text = "key = " + "a" * (MAX_LENGTH - 6)
    assert str(parse_filter(text)) == text
    assert "10001 characters" in refused(text + "a").what
    escaped = "key = '" + "\x01" * 5000 + "'"  # six characters for each in the canonical text
    assert "more than 10000 characters once it is written" in refused(escaped).what


@pytest.mark.parametrize(("opening", "closing"), [("(", ")"), ("not ", ""), ("not(", ")")])
def test_brackets_and_not_are_nested_at_most_fifty_deep(opening: str, closing: str) -> None:
    levels = MAX_NESTING // (1 + (opening == "not("))
    parse_filter(opening * levels + "queue = a" + closing * levels)
    error = refused(opening * (levels + 1) + "queue = a" + closing * (levels + 1))
    assert "nested more than 50 deep" in error.what
    assert "nested more than 50 deep" in refused((opening * MAX_LENGTH)[:MAX_LENGTH]).what
    parse_filter(" and ".join([f"{opening}queue = a{closing}"] * 100))  # side by side, none is inside another


def test_an_in_has_at_most_a_thousand_values() -> None:
    parse_filter(f"id in ({','.join('a' * MAX_VALUES)})")
    assert refused(f"id in ({','.join('a' * (MAX_VALUES + 1))})").where == "--where: column 2008"


def test_a_filter_has_at_most_two_hundred_conditions_and_values_of_times_count() -> None:
    parse_filter(" or ".join(["queue = a"] * MAX_CONDITIONS))
    assert "more than 200 conditions" in refused(" or ".join(["queue = a"] * (MAX_CONDITIONS + 1))).what
    parse_filter(f"age in ({','.join(['2h'] * MAX_CONDITIONS)})")
    assert "more than 200 conditions" in refused(f"age in ({','.join(['2h'] * (MAX_CONDITIONS + 1))})").what
    assert "more than 200 conditions" in refused(f"queue = a and age in ({','.join(['2h'] * MAX_CONDITIONS)})").what


@pytest.mark.parametrize("word", sorted(KEYWORDS))
def test_a_keyword_is_a_value_and_a_header_in_quotes_only(word: str) -> None:
    for each in (word, word.upper()):
        quoted = f'key = "{each}"'
        assert str(parse_filter(quoted)) == quoted
        assert f'Write "{each}"' in refused(f"key = {each}").cure
    assert str(parse_filter(f"header.{word} is present")) == f"header.{word} is present"


def test_a_filter_made_in_code_cannot_be_one_that_no_text_describes() -> None:
    assert Conjunction((A, Conjunction((B, C)))) == Conjunction((A, B, C))
    with pytest.raises(ValueError, match="needs two parts"):
        Disjunction((A,))
    with pytest.raises(ValueError, match="needs a value"):
        Membership(FIELDS["id"], ())
