# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests numbers as people read them, round ticks, and strangers' texts made harmless."""

from __future__ import annotations

import math
import unicodedata
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redeliver_mw.pipeline.report.axis_scales import Scale, Tick, bucket, rounds, spans, steps, times
from redeliver_mw.pipeline.report.markup import Markup, foreign, join, stranger, tag
from redeliver_mw.pipeline.report.units import at_most, count, date, duration, moment, no_later, one_in, share, short

UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 s"),
        (0.0001, "< 1 ms"),
        (0.25, "250 ms"),
        (0.9999, "1 s"),
        (1.5, "1.5 s"),
        (9.96, "10 s"),
        (31.4, "31 s"),
        (59.97, "1 min"),
        (180, "3 min"),
        (200, "3.3 min"),
        (3599, "1 h"),
        (7200, "2 h"),
        (9360, "2.6 h"),
        (86399, "1 d"),
        (41 * 86400, "41 d"),
        (1e9, "11,574 d"),
    ],
)
def test_a_time_span_has_about_two_digits_and_the_unit_that_people_use(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


@given(st.floats(0.001, 8e7))
def test_no_time_span_is_more_than_a_twentieth_off_or_as_large_as_the_next_unit(seconds: float) -> None:
    number, unit = duration(seconds).split()
    value = float(number.replace(",", ""))
    assert math.isclose(value * UNITS[unit], seconds, rel_tol=0.051)
    assert value < {"ms": 1000, "s": 60, "min": 60, "h": 24, "d": math.inf}[unit]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0 %"),
        (1e-9, "< 0.1 %"),
        (0.0032, "0.3 %"),
        (0.05, "5 %"),
        (0.123, "12 %"),
        (0.996, "99.6 %"),
        (0.99999, "> 99.9 %"),
        (1, "100 %"),
    ],
)
def test_none_and_all_are_written_only_for_none_and_all(value: float, shown: str) -> None:
    assert share(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(1e-9, "0.1 %"), (0.001, "0.1 %"), (0.037, "3.7 %"), (0.99999, "100 %"), (1, "100 %")]
)
def test_an_upper_bound_has_no_sign_of_its_own(value: float, shown: str) -> None:
    assert at_most(value) == shown


def test_a_time_within_which_something_is_has_no_sign_of_its_own() -> None:
    assert (no_later(0), no_later(1e-5), no_later(0.02), no_later(90)) == ("0 s", "1 ms", "20 ms", "1.5 min")


def test_large_numbers_are_grouped_or_shortened() -> None:
    assert (count(1234567), short(1234567), short(999), short(999_600), short(0.4)) == (
        "1,234,567",
        "1.2 M",
        "999",
        "1 M",
        "0.4",
    )


def test_a_share_is_one_in_so_many_unless_that_says_no_more() -> None:
    assert (one_in(1 / 40), one_in(0.5), one_in(0)) == ("1 in 40", "", "")


def test_points_in_time_are_in_utc_with_the_month_as_a_word() -> None:
    at = datetime(2026, 3, 4, 9, 5, tzinfo=UTC).timestamp()
    assert (date(at), moment(at)) == ("4 Mar 2026", "4 Mar 2026 09:05")


@given(st.floats(0, 4e9, allow_subnormal=False), st.floats(1, 1e9), st.integers(3, 20))
def test_ticks_of_a_time_axis_are_round_in_order_and_not_too_many(low: float, span: float, most: int) -> None:
    ticks = times(low, low + span, most)
    values = [tick.value for tick in ticks]
    assert values == sorted(set(values))
    assert len(values) <= most
    assert all(low <= value <= low + span for value in values)
    whens = [datetime.fromtimestamp(value, UTC) for value in values]
    assert all(when.second % 10 == 0 or span < most for when in whens)
    if span > 200 * 86400 * most / 3:
        assert all((when.day, when.hour) == (1, 0) for when in whens)


def test_ticks_are_named_by_what_changes_between_them() -> None:
    begin = datetime(2026, 3, 2, tzinfo=UTC).timestamp()
    assert [tick.label for tick in times(begin, begin + 6 * 3600, 4)] == ["2 Mar", "03:00", "06:00"]
    assert [tick.label for tick in times(begin, begin + 20 * 86400, 4)] == ["2 Mar", "9 Mar", "16 Mar"]
    assert [tick.label for tick in times(begin, begin + 400 * 86400, 6)] == ["Apr", "Jul", "Oct", "Jan 2027", "Apr"]


@given(st.floats(1, 1e9), st.integers(3, 500))
def test_buckets_are_whole_windows_and_never_more_than_asked_for(span: float, most: int) -> None:
    width = bucket(span, most)
    assert width % 10 == 0
    assert math.floor(span / width) + 1 <= most


@given(st.floats(1e-6, 1e9), st.integers(2, 8))
def test_round_steps_reach_the_highest_value_and_not_much_more(highest: float, most: int) -> None:
    levels = rounds(highest, most)
    assert levels[0] == 0
    assert len(levels) - 1 <= most
    assert levels[-2] < highest <= levels[-1] * (1 + 1e-9)


@given(st.floats(0.001, 1e5), st.floats(1.5, 1e6), st.floats(100, 1200))
def test_time_spans_under_an_axis_keep_their_distance(low: float, ratio: float, width: float) -> None:
    scale = Scale(low, low * ratio, 0, width, log=True)
    places = [scale(tick.value) for tick in spans(scale, 50)]
    assert all(after - before >= 50 for before, after in pairwise(places))


def test_a_curve_of_steps_keeps_a_value_until_the_next() -> None:
    assert steps([(0, 0), (2, 1), (3, 1), (5, 4)]) == [(0, 0), (2, 0), (2, 1), (5, 1), (5, 4), (5, 4)]
    assert steps([]) == []


def test_a_tick_that_lies_too_near_to_the_one_before_is_left_out() -> None:
    scale = Scale(0, 10, 0, 100)
    ticks = [Tick(value, str(value)) for value in (0, 1, 4, 11)]
    assert [tick.label for tick in scale.thinned(ticks, 30)] == ["0", "4"]


def test_text_is_escaped_and_markup_is_not() -> None:
    inner = tag("b", '1 < 2 & "3"')
    assert tag("p", inner, " <i>", title="\"'<&", hidden=None) == (
        '<p title="&quot;&#x27;&lt;&amp;"><b>1 &lt; 2 &amp; &quot;3&quot;</b> &lt;i&gt;</p>'
    )
    assert join(["<", Markup("<br/>"), None], ">") == "&lt;&gt;<br/>"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x00b\x1b[31mc", r"a\x00b\x1b[31mc"),
        ("txt.\u202eexe", r"txt.\u202eexe"),
        ("a\u2066b", r"a\u2066b"),
        ("zero\u200bwidth", r"zero\u200bwidth"),
        ("line\nbreak\tand\rtab", "line break and tab"),
        ("half \udcff", r"half \udcff"),
        ("\u2028", r"\u2028"),
        ("\uffff", r"\uffff"),
        ("\U000e0041", r"\U000e0041"),
        ("Zoë שלום 你好 🙂", "Zoë שלום 你好 🙂"),
        ("", ""),
    ],
)
def test_what_would_steer_the_page_or_the_eye_is_spelled_out(text: str, shown: str) -> None:
    assert foreign(text) == shown


def test_marks_piled_up_on_a_letter_do_not_climb_over_the_lines_around_it() -> None:
    assert foreign("e" + "\u0301" * 500 + "x", 1000) == "e\u0301\u0301\u0301x"


@given(st.text(st.characters(codec=None), max_size=400))
def test_whatever_a_stranger_wrote_is_well_formed_and_steers_nothing(text: str) -> None:
    shown = foreign(text, 100)
    assert all(unicodedata.category(letter) not in ("Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp") for letter in shown)
    assert ET.fromstring(stranger(text, 100)).text in (shown, None)


def test_a_long_text_is_cut_and_says_so() -> None:
    assert foreign("x" * 200_000, 20) == "x" * 20 + "…"
    assert len(foreign("\u202e" * 200_000, 20)) == 20 * 6 + 1
