# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests what the page says of clocks, from rows of the mart, without Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from redeliver_mw.pipeline.report.clocks import NAMED, clocks, cure, sentences
from redeliver_mw.pipeline.report.facts import facts
from redeliver_mw.pipeline.report.page import page
from tests.pipeline.sample_rows import sample
from tests.pipeline.test_report_page import HOSTILE, Seen, words

Row = dict[str, Any]


def clock(host: str, offset_s: float | None = 0, state: str = "in step", error_s: float = 0.2) -> Row:
    offset_us = None if offset_s is None else round(offset_s * 1e6)
    return {"host": host, "state": state, "offset_us": offset_us, "error_us": offset_us and round(error_s * 1e6)}


def order(disorder: int, histories: int = 1_000) -> list[Row]:
    return [{"histories": histories, "disorder": disorder}]


@pytest.mark.parametrize(
    ("rows", "disorder"), [([], 0), ([clock("a"), clock("b", 0.3)], 9), ([clock("a"), clock("b", None, "unknown")], 0)]
)
def test_nothing_is_reported_where_nothing_is_wrong(rows: list[Row], disorder: int) -> None:
    known = clocks(rows, order(disorder))
    assert (sentences(known), cure(known)) == ([], "")


def test_a_corrected_clock_is_named_with_how_far_it_was_off() -> None:
    known = clocks([clock("a"), clock("b", -30, "corrected"), clock("c", 7200, "corrected", 2)], order(0))
    assert sentences(known) == [
        "The clock of c was 2 h ahead, to within 2 s. Its times are corrected by that.",
        "The clock of b was 30 s behind, to within 200 ms. Its times are corrected by that.",
    ]
    assert cure(known) == "Keep the clocks of c and b in step, with NTP or chrony."


@pytest.mark.parametrize(
    ("offsets", "says"),
    [
        ((-30, -20), "20 s to 30 s behind"),
        ((3, 3.001, 9), "3 s to 9 s ahead"),
        ((-4, 5), "between 4 s behind and 5 s ahead"),
    ],
)
def test_a_clock_that_changed_is_reported_with_its_range(offsets: tuple[float, ...], says: str) -> None:
    rows = [clock("b", offset, "corrected") for offset in offsets]
    assert says in sentences(clocks([clock("a"), *rows], order(0)))[0]
    summed = clock("b", min(offsets), "corrected") | {"most_us": round(max(offsets) * 1e6)}  # as they are read
    assert sentences(clocks([summed], order(0))) == sentences(clocks(rows, order(0)))


def test_histories_that_contradict_themselves_are_reported_with_their_share() -> None:
    known = clocks([clock("a"), clock("b", None, "unknown")], order(120))
    first, second = sentences(known)
    assert first.startswith("The times of 120 of 1,000 messages that were tried more than once (12 %) contradict")
    assert second == "How far the clock of b may be off is not known for all of the time."
    assert cure(known) == "Keep the clocks of all hosts in step, with NTP or chrony."


def test_of_one_host_no_clocks_are_apart() -> None:
    (only,) = sentences(clocks([clock("a")], order(500)))
    assert "a clock was set back, or a count of attempts was lost" in only
    assert "apart" not in only


def test_of_many_clocks_some_are_named() -> None:
    known = clocks([clock(f"h{n}", 10 + n, "corrected") for n in range(NAMED + 3)], order(0))
    assert sentences(known)[-1] == "So are those of 3 other hosts."
    assert cure(known).endswith("h3 and 3 other hosts in step, with NTP or chrony.")


def test_the_page_has_a_part_on_clocks_only_where_something_is_wrong() -> None:
    _, rows = sample()
    well = page(facts(replace(rows, clocks=[clock("a"), clock("b")], order=order(0)), lake="l", made_s=0))
    assert "NTP" not in well
    ill = replace(rows, clocks=[clock("a"), clock(HOSTILE, -30, "corrected")], order=order(300))
    text = page(facts(ill, lake="l", made_s=0))
    assert not {"script", "img"} & {name for name, _ in Seen(text).elements}
    assert "was 30 s behind, to within 200 ms" in words(text)
    assert "300 of 1,000 messages" in words(text)
