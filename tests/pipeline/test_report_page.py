# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The page is whole in itself, well-formed, harmless and small, and has words for every case."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from base64 import b64encode
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redeliver_mw.pipeline.report.charts import flow_chart, healing_curve, storm_chart
from redeliver_mw.pipeline.report.facts import MartRows, facts
from redeliver_mw.pipeline.report.page import LIMIT, page
from redeliver_mw.pipeline.report.policy_section import pareto_chart
from redeliver_mw.pipeline.report.storms import Bucket, Storm, Storms
from redeliver_mw.pipeline.report.svg_axes import LETTER, Anchor, Box, place
from redeliver_mw.pipeline.report.units import count, duration, share
from tests.pipeline.sample_rows import sample, sample_facts
from tests.pipeline.sample_world import SECOND, START, START_US
from tests.pipeline.test_report_facts import MONDAY, Row, candidate, recovered, wasted, window

HOSTILE = (
    "</title><script>alert(1)</script><img src=x onerror=alert(1)>\"' \u202e\u2066 \x00\x1b[2J ${1+1} &amp; --> ]]>"
)


@pytest.fixture(scope="module")
def shown() -> str:
    return page(sample_facts())


def parsed(text: str) -> ET.Element:
    first, _, rest = text.partition("\n")
    assert first == "<!doctype html>"
    return ET.fromstring(rest)


def words(text: str) -> str:
    """Return what a person reads, without what is written twice for narrow screens."""
    return " ".join(" ".join(parsed(text).itertext()).split())


def told(rows: MartRows) -> str:
    return words(page(facts(rows, lake="lake", made_s=0)))


class Seen(HTMLParser):
    """Collects every element with its attributes, as a browser's parser takes them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


def test_the_page_is_well_formed_for_a_parser_of_xml_and_one_of_html(shown: str) -> None:
    strict = [element.tag.lower() for element in parsed(shown).iter()]
    assert [name for name, _ in Seen(shown).elements] == strict


def test_nothing_is_fetched_and_nothing_runs(shown: str) -> None:
    elements = Seen(shown).elements
    assert not {"script", "link", "img", "iframe", "object", "embed", "form", "base"} & {name for name, _ in elements}
    for _, attributes in elements:
        assert not any(name.startswith("on") or name in ("src", "style", "srcset") for name in attributes)
        assert (attributes.get("href") or "#").startswith("#")
    assert "@import" not in shown
    assert "url(" not in shown


def test_the_policy_allows_this_style_and_nothing_else(shown: str) -> None:
    policy = next(a["content"] for _, a in Seen(shown).elements if a.get("http-equiv") == "Content-Security-Policy")
    style = re.search(r"<style>(.*?)</style>", shown, re.DOTALL)
    assert style is not None
    own = b64encode(sha256(style[1].encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{own}'; base-uri 'none'; form-action 'none'"


def test_every_name_is_given_once_and_every_link_leads_to_one(shown: str) -> None:
    elements = Seen(shown).elements
    names = [a["id"] for _, a in elements if "id" in a]
    assert len(names) == len(set(names))
    for _, attributes in elements:
        wanted = {*(attributes.get("aria-labelledby") or "").split(), (attributes.get("href") or "")[1:]}
        assert wanted - {""} <= set(names)


def test_every_picture_has_a_title_and_a_description(shown: str) -> None:
    pictures = [svg for svg in parsed(shown).iter("svg") if svg.get("aria-hidden") != "true"]
    assert len(pictures) > 10
    for svg in pictures:
        assert svg.get("role") == "img"
        title, described = svg.find("title"), svg.find("desc")
        assert title is not None
        assert described is not None
        assert title.text
        assert described.text


def test_every_class_that_a_picture_uses_has_a_style(shown: str) -> None:
    style = shown.partition("<style>")[2].partition("</style>")[0]
    used = {
        name for svg in parsed(shown).iter("svg") for part in svg.iter() for name in (part.get("class") or "").split()
    }
    assert {name for name in used if f".{name}" not in style} <= {"note"}


def test_the_sample_is_described_in_numbers_that_its_histories_have(shown: str) -> None:
    made, _ = sample()
    text = words(shown)
    failed, healed = len(made.histories), sum(one.healed for one in made.histories)
    everything = failed + sum(made.healthy.values())
    assert f"1 in {round(everything / failed)} messages failed at least once" in text
    assert f"{share(healed / failed)} recovered by themselves and {share(1 - healed / failed)} died" in text
    died = [one for one in made.histories if not one.healed]
    assert count(len(died)) in text
    assert f"{count(sum(len(one.times_us) for one in died))} attempts at messages that died" in text


def test_what_strangers_wrote_stays_text_wherever_it_is_shown() -> None:
    rows = hostile(HOSTILE)
    text = page(facts(rows, lake=HOSTILE, made_s=0))
    assert not {"script", "img"} & {name for name, _ in Seen(text).elements}
    assert [element.tag for element in parsed(text).iter()] == [
        element.tag for element in parsed(page(facts(hostile("x" * len(HOSTILE)), lake="l", made_s=0))).iter()
    ]
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069]", text)


@settings(max_examples=25)  # each is a page
@given(st.text(st.characters(codec=None), max_size=60))
def test_any_text_leaves_the_page_well_formed(text: str) -> None:
    parsed(page(facts(hostile(text), lake=text, made_s=0)))


def test_messages_of_200_kilobytes_and_thousands_of_failures_make_no_large_page() -> None:
    assert len(page(facts(crowded(), lake="x" * 200_000, made_s=0)).encode()) < LIMIT


def test_an_empty_lake_says_how_to_fill_it() -> None:
    text = told(MartRows())
    assert "This lake holds no attempts yet." in text
    assert "redeliver pipeline insights LAKE" in text
    assert "What fails" not in text


def test_where_nothing_failed_that_is_the_headline_and_nothing_is_to_do() -> None:
    text = told(MartRows(storms=[window(0, 1234, 0)]))
    assert "Nothing failed. Every one of 1,234 messages was handled at its first attempt." in text
    assert "What to do" not in text
    assert "No storm." in text


def test_one_message_that_failed_is_spoken_of_in_the_singular() -> None:
    rows = MartRows(
        storms=[window(0, 10, 1)], outcomes=[{"outcome": "accepted", "n": 1}], recovery=[recovered(0, 2, 1)]
    )
    text = told(rows)
    assert "One message failed. It recovered." in text
    assert "1 way of failing" in text
    assert "1 messages" not in text


def test_a_failure_that_never_heals_is_to_be_retried_no_more() -> None:
    rows = MartRows(
        storms=[window(0, 1000, 700)],
        outcomes=[{"outcome": "dead_lettered", "n": 100}],
        recovery=[recovered(31, None, 100)],
        waste=[wasted(700, 7 * 60 * SECOND)],
        fingerprints=[
            {"fingerprint": "f1", "group": "f1", "example": "ValueError: no", "n": 700, "first_us": 0, "last_us": 1}
        ],
    )
    text = told(rows)
    assert "Stop retrying failure 1 in orders : ValueError: no" in text
    assert "None of 100 messages ever recovered; 700 attempts and 7 min of handler time went for nothing." in text
    # the upper Wilson bound of 0 in 100 is 3.7 %
    assert "With 95 % confidence fewer than 3.7 % ever do in that time." in text


@pytest.mark.parametrize(
    ("failed", "healthy", "told_so"),
    [
        (23, 77, "23 % of messages failed at least once"),
        (100, 0, "100 % of messages failed at least once"),
        (5, 95, "1 in 20 messages failed at least once"),
        (99_999, 1, "> 99.9 % of messages failed at least once"),
    ],
)
def test_the_headline_is_a_sentence_whatever_the_share(failed: int, healthy: int, told_so: str) -> None:
    text = told(
        MartRows(
            storms=[window(0, failed + healthy, failed)],
            outcomes=[{"outcome": "dead_lettered", "n": failed}],
            recovery=[recovered(31, None, failed)],
        )
    )
    assert told_so in text


def test_no_bound_is_described_as_fewer_than_less_than_something() -> None:
    text = told(
        MartRows(
            storms=[window(0, 200_000, 100_000)],
            outcomes=[{"outcome": "dead_lettered", "n": 100_000}],
            recovery=[recovered(0.0002, None, 100_000)],
        )
    )
    # the upper Wilson bound of 0 in 100,000 is 0.004 %
    assert "tried for up to 1 ms. With 95 % confidence fewer than 0.1 % ever do in that time." in text
    assert not re.search("(fewer than|more than|up to|by|within) [<>]", text)


def test_where_the_policy_in_use_is_not_known_the_page_says_why_and_how_to_name_it() -> None:
    why = "its text in the journal is cut off after 500 characters"
    rows = MartRows(
        storms=[window(0, 10, 4)],
        outcomes=[{"outcome": "accepted", "n": 4}],
        recovery=[recovered(1, 2, 4)],
        untold=[{"destination": f"queue-{n}", "why": why} for n in range(5)] + [{"destination": "odd", "why": "other"}],
    )
    text = told(rows)
    assert "Name the policy in use at queue-0 , queue-1 , queue-2 and 2 other destinations with --policy." in text
    assert f"No other one can be called better until then: {why}." in text
    assert "Name the policy in use at odd with --policy." in text


def test_a_few_failures_are_described_as_too_few() -> None:
    text = told(
        MartRows(storms=[window(0, 10, 4)], outcomes=[{"outcome": "accepted", "n": 4}], recovery=[recovered(1, 2, 4)])
    )
    assert "too few to tell" in text


def test_what_was_never_tried_again_has_no_curve() -> None:
    rows = MartRows(
        storms=[window(0, 10, 0)], outcomes=[{"outcome": "discarded", "n": 4}], recovery=[recovered(0, None, 4)]
    )
    text = told(rows)
    assert "never tried again" in text
    assert "recovered by when" not in text


def advised(choice: dict[str, Any], *candidates: dict[str, Any]) -> str:
    rows = MartRows(
        storms=[window(0, 1000, 9)],
        outcomes=[{"outcome": "accepted", "n": 9}],
        backtest=candidates,
        choices=[{"destination": "orders", **choice}],
    )
    return told(rows)


def test_a_change_is_described_with_what_it_saves_costs_and_how_sure_it_is() -> None:
    differences = [
        {"column": "dead_letter_share", "now": 0.5, "best": 0.1, "lo": -0.5, "hi": -0.3},
        {"column": "attempts_per_message", "now": 4.0, "best": 5.5, "lo": 1.0, "hi": 2.0},
        {"column": "ttr_p50_s", "now": 5.0, "best": 300.0, "lo": 240.0, "hi": 360.0},
    ]
    text = advised(
        {"today": "a", "best": "b", "confidence": "sure", "changes": differences},
        candidate(
            "a", 200, p_recover=0.5, dead_letter_share=0.5, attempts_per_message=4.0, ttr_p50_s=5.0, ttr_p95_s=30.0
        ),
        candidate(
            "b",
            200,
            p_recover=0.9,
            p_recover_lo=0.89,
            p_recover_hi=0.91,
            dead_letter_share=0.1,
            attempts_per_message=5.5,
            ttr_p50_s=300.0,
            ttr_p95_s=7200.0,
            pareto=True,
        ),
    )
    assert "90 % of those that fail would recover instead of 50 %: 20 dead letters instead of 100." in text
    assert "It costs 300 attempts: 5.5 attempts for each instead of 4.0." in text
    assert "Half of those that recover are back within 5 min (today 5 s), 95 % within 2 h (today 30 s)." in text
    assert (
        "change dead letters by -100 to -60, attempts by +200 to +400, the median wait by +4 min to +6 min "
        "(95 % intervals)" in text
    )
    assert "Sure, if what comes is like what was" in text
    assert "a median wait of 5 min instead of 5 s" in text
    assert "80 dead letters fewer, at the cost of 300 attempts more and slower recovery, 95 % within 2 h" in text


def test_what_is_only_fairly_sure_is_called_so() -> None:
    weak = ["all messages were tried by one schedule"]
    choice = {"today": "a", "best": "b", "confidence": "fairly sure", "weak": weak}
    text = advised(choice, candidate("a", 200), candidate("b", 200, dead_letter_share=0.3, pareto=True))
    assert "Fairly sure, if what comes is like what was" in text
    assert "What is taken for granted: all messages were tried by one schedule." in text


def test_where_it_is_not_known_which_policy_is_better_no_change_is_advised() -> None:
    differences = [{"column": "dead_letter_share", "now": 0.5, "best": 0.4, "lo": -0.25, "hi": 0.05}]
    choice = {"today": "a", "best": "b", "confidence": "not known", "changes": differences}
    text = advised(choice, candidate("a", 200), candidate("b", 200, dead_letter_share=0.4, pareto=True))
    assert "is better than the one in use is not known: the difference may be chance" in text
    assert "dead letters by -50 to +10" in text
    assert "Change the policy" not in text


def test_advice_that_is_withheld_says_why() -> None:
    why = ["the policy in use is predicted to recover 88.6% of the messages that fail, and 47.7% did"]
    choice = {"today": "a", "best": "b", "confidence": "not known", "withheld": True, "reasons": why}
    text = advised(choice, candidate("a", 200), candidate("b", 200, dead_letter_share=0.1, pareto=True))
    assert f"Nothing is advised: {why[0]}." in text
    assert "not known" in text
    assert "Change the policy" not in text


@pytest.mark.parametrize(("observed", "wrong"), [(0.52, False), (0.31, True)])
def test_the_page_shows_how_right_the_back_test_was_where_that_can_be_known(observed: float, wrong: bool) -> None:
    check = {
        "destination": "orders",
        "policy_version": "abc",
        "messages": 200,
        "predicted_from": 900,
        "within_s": 60.0,
        "predicted": 0.5,
        "observed": observed,
        "observed_lo": 0.3,
        "observed_hi": 0.6,
        "wrong": wrong,
    }
    rows = MartRows(
        storms=[window(0, 1000, 9)],
        outcomes=[{"outcome": "accepted", "n": 9}],
        checks=[check],
        backtest=[candidate("a", 10), candidate("b", 10, pareto=True, p_recover_lo=0.5, p_recover_hi=0.5)],
        choices=[{"destination": "orders", "today": "a", "best": "b"}],
    )
    text = told(rows)
    assert "predicted that 50 % of 200 messages under policy abc would recover within 1 min" in text
    assert f"{share(observed)} did" in text
    assert ("That is more than chance allows" in text) == wrong


def test_nothing_to_recommend_is_stated() -> None:
    assert "so there is nothing to recommend" in told(MartRows(storms=[window(0, 9, 0)]))
    unjudged = {"today": "a", "best": None}
    assert "From 10 messages that failed here no advice can be drawn." in advised(unjudged, candidate("a", 10))
    assert "cannot judge the policy in use" in advised(unjudged, candidate("a", 10, extrapolated=True))
    assert "not known which policy is in use here" in advised({"today": None, "best": None}, candidate("a", 10))
    assert "Of 1 policy none that history can judge does better than the one in use." in advised(
        {"today": "a", "best": "a"}, candidate("a", 10)
    )


def test_what_is_all_extrapolated_is_called_a_guess_and_to_be_tried_on_a_few() -> None:
    text = advised(
        {"today": "a", "best": "b"},
        candidate("a", 10),
        candidate(
            "b",
            10,
            extrapolated=True,
            extrapolated_share=0.25,
            p_recover_lo=0.1,
            p_recover_hi=1.0,
            ttr_p50_s=None,
            ttr_p95_s=None,
            dead_letter_share=0.2,
            pareto=True,
        ),
    )
    assert "This is a guess: for 25 % of the messages it tries when nothing was ever tried here" in text
    assert "between 10 % and 100 % would recover." in text
    assert "How long those that recover would take is not known." in text
    assert "try another policy on a few" in text


def test_storms_are_described_with_the_worst_and_drawn_where_they_were() -> None:
    text = words(page(sample_facts()))
    storms = sample_facts().storms
    assert storms is not None
    worst = storms.storms[0]
    assert (
        f"The worst hit {worst.destination} on 10 Mar 2026 14:00 UTC for {duration(worst.end_s - worst.first_s)}"
        in text
    )


def test_a_period_is_shown_in_utc() -> None:
    assert START.strftime("%H") == "00"
    assert "2 Mar 2026 00:00 to" in words(page(sample_facts()))


@pytest.mark.parametrize("width", [328, 520, 1080])
def test_pictures_stay_within_their_frames(width: int) -> None:
    made = sample_facts()
    assert made.storms is not None
    drawn = [storm_chart("s", made.storms, width), flow_chart("f", made.flow, width)]
    drawn += [pareto_chart("p", one, width) for one in made.advice]
    drawn += [healing_curve("h", one.healing, "t") for one in made.failures.shown]
    for picture in drawn:
        assert picture is not None
        root = ET.fromstring(picture)
        right, bottom = (float(value) for value in (root.get("viewBox") or "").split()[2:])
        for shape in root.iter():
            xs = [float(shape.get(name, 0)) for name in ("x", "x1", "x2", "cx")]
            ys = [float(shape.get(name, 0)) for name in ("y", "y1", "y2", "cy")]
            points = re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", shape.get("d", ""))
            assert all(0 <= x <= right for x in (*xs, *(float(x) for x, _ in points)))
            assert all(0 <= y <= bottom for y in (*ys, *(float(y) for _, y in points)))


def test_a_healing_curve_is_drawn_where_the_shares_are() -> None:
    rows = [recovered(1, 2, 50), recovered(4, None, 50)]
    healing = facts(MartRows(recovery=rows), lake="l", made_s=0).failures.shown[0].healing
    picture = healing_curve("h", healing, "title", 336, 180)
    assert picture is not None
    certain = next(path for path in ET.fromstring(picture).iter("path") if path.get("class") == "certain")
    heights = [float(y) for _, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", certain.get("d", ""))]
    assert (max(heights), min(heights)) == (152, 81)  # none at the foot of the axis, half of them halfway up


def test_the_number_of_a_storm_lies_on_no_other_and_the_worst_has_its_own() -> None:
    begins = {1: 700_000, 2: 100_000, 3: 690_000, 4: 120_000, 5: 400_000, 6: 412_000}  # by number; seconds of ten days
    found = tuple(
        Storm(number=number, destination="orders", first_s=at, end_s=at + 40, attempts=50, retries=40, peak=5.0)
        for number, at in begins.items()
    )
    buckets = (Bucket(start_s=0, first_attempts=1, retries=1),)
    seen = Storms(
        first_s=0,
        end_s=864_000,
        width_s=3600,
        buckets=buckets,
        first_attempts=1,
        retries=1,
        storms=found,
        others=0,
        others_retries=0,
    )
    drawn = list(ET.fromstring(storm_chart("s", seen, 1080)).iter())
    marks = [(float(one.get("x", "")), float(one.get("width", ""))) for one in drawn if one.get("class") == "storm"]
    labels = {one.text: float(one.get("x", "")) for one in drawn if one.get("class") == "label"}
    assert len(marks) == 6
    assert set(labels) == {"1", "2", "4", "6"}  # where those of 3 and 5 would be, there is a mark
    assert all(at + wide <= label or at >= label + LETTER for at, wide in marks for label in labels.values())


@given(st.lists(st.tuples(st.floats(0, 500), st.floats(0, 300), st.text("ABC ", min_size=1, max_size=12)), max_size=30))
def test_labels_meet_neither_each_other_nor_a_mark(given: list[tuple[float, float, str]]) -> None:
    anchors = [Anchor(x, y, name) for x, y, name in given]
    bounds = Box(0, 0, 500, 300)
    placed = place(anchors, bounds)
    marks = [Box(a.x - a.radius, a.y - a.radius, a.x + a.radius, a.y + a.radius) for a in anchors]
    for number, label in enumerate(placed):
        assert label.box.within(bounds)
        assert not any(label.box.meets(other) for other in marks)
        assert not any(label.box.meets(other.box) for other in placed[:number])


def test_labels_of_marks_that_stand_apart_all_find_room() -> None:
    anchors = [Anchor(60 + 80 * n, 150, f"P{n}") for n in range(5)]
    assert [label.anchor for label in place(anchors, Box(0, 0, 500, 300))] == anchors


def crowded() -> MartRows:
    """Return more of everything than a page has room for, under names and errors of 200 kB."""
    many = 2_000
    names = [f"{number}{'x' * 200_000}" for number in range(100)]

    def failing(number: int) -> Row:
        return {"destination": names[number % 50], "fingerprint": names[number % 100]}

    letters = [
        {
            "day": MONDAY + timedelta(number),
            "destination": names[number % 40],
            "reason": names[number % 3],
            "in": 1,
            "out": 1,
            "oldest_us": None,
        }
        for number in range(many)
    ]
    return MartRows(
        recovery=[recovered(1, number % 900 + 2, 1, **failing(number)) for number in range(many)],
        waste=[wasted(3, number, **failing(number)) for number in range(many)],
        fingerprints=[
            {"fingerprint": name, "group": "g", "example": name, "n": 1, "first_us": 0, "last_us": 1} for name in names
        ],
        outcomes=[{"outcome": "accepted", "n": many}],
        attempt_curve=[
            {"day": MONDAY, "destination": name, "error_type": name, "attempt": attempt, "n": 100, "n_accepted": 1}
            for name in names
            for attempt in range(1, 50)
        ],
        storms=[window(number * 10, 5, 5, names[number % 100]) for number in range(many)],
        episodes=[
            {
                "destination": names[number % 100],
                "first_us": START_US + number * 60 * SECOND,
                "attempts": number + 9,
                "end_us": START_US + number * 60 * SECOND + 10 * SECOND,
                "retries": number,
                "peak": 3.0,
            }
            for number in range(many)
        ],
        flow_by_day=letters,
        flow_by_reason=letters,
        poison=[
            {
                "message_key": name,
                "destination": name,
                "fingerprint": name,
                "attempts": 3,
                "first_us": 0,
                "last_us": 1,
                "replays": 0,
                "verdict": "dead",
            }
            for name in names
        ],
        verdicts=[{"verdict": "dead", "n": 100}],
        backtest=[
            candidate(
                names[number],
                9,
                destination=place,
                pareto=number % 3 == 0,
                attempts_per_message=number / 7,
                dead_letter_share=1 / (number + 1),
            )
            for number in range(100)
            for place in names[:20]
        ],
        choices=[{"destination": place, "today": names[7], "best": names[9]} for place in names[:20]],
    )


def hostile(text: str) -> MartRows:
    """Return the rows for a page of everything, on which every text is this one."""
    _, rows = sample()
    key = {"destination": text, "fingerprint": text, "reason": text, "verdict": text, "message_key": text}

    def turned(row: Any) -> Any:
        return {name: key.get(name, value) for name, value in row.items()}

    return replace(
        rows,
        recovery=[
            recovered(1, 2, 99, **{k: key[k] for k in ("destination", "fingerprint")}),
            recovered(9, None, 400, **{k: key[k] for k in ("destination", "fingerprint")}),
        ],
        waste=[wasted(3, 5 * SECOND, destination=text, fingerprint=text)],
        fingerprints=[{"fingerprint": text, "group": text, "example": text, "n": 1, "first_us": 0, "last_us": 1}],
        attempt_curve=[{"day": MONDAY, "destination": text, "error_type": text, "attempt": 2, "n": 3, "n_accepted": 1}],
        poison=[turned(row) for row in rows.poison[:3]],
        verdicts=[{"verdict": text, "n": 3}],
        storms=[window(0, 5, 5, text)],
        episodes=[turned(row) for row in rows.episodes[:2]],
        estimates=[],
        flow_by_day=rows.flow_by_day[:5],
        flow_by_reason=[turned(row) for row in rows.flow_by_day[:5]],
        backtest=[candidate(text, 10, destination=text, pareto=True), candidate(text + "2", 10, destination=text)],
        choices=[{"destination": text, "today": text + "2", "best": text}],
    )
