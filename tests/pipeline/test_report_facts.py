# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""All that the page says follows from the rows by arithmetic."""

from __future__ import annotations

import json
from collections import Counter
from datetime import date, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redeliver_mw.pipeline.report.attempts import attempts
from redeliver_mw.pipeline.report.facts import MartRows, facts
from redeliver_mw.pipeline.report.failures import SHOWN, TEXT, failures
from redeliver_mw.pipeline.report.healing import POINTS, Interval, Likely, interval, recovery_curve, wilson
from redeliver_mw.pipeline.report.letters import flow, poison
from redeliver_mw.pipeline.report.policy_advice import FRONT, advise
from redeliver_mw.pipeline.report.storms import BUCKETS, KEPT, storms
from redeliver_mw.pipeline.time_bins import bin_of
from tests.pipeline.sample_rows import sample, sample_facts
from tests.pipeline.sample_world import CURRENCY, DAY, KINDS, SECOND, SILENT, START_US

Row = dict[str, Any]
MONDAY = date(2026, 3, 2)


def recovered(lo_s: float, hi_s: float | None, n: int, **more: Any) -> Row:
    hi = None if hi_s is None else bin_of(round(hi_s * SECOND))
    return {
        "day": MONDAY,
        "destination": "orders",
        "fingerprint": "f1",
        "policy_version": "v",
        "lo_bin": bin_of(round(lo_s * SECOND)),
        "hi_bin": hi,
        "n": n,
        **more,
    }


def wasted(attempts: int, handler_us: int, **more: Any) -> Row:
    return {
        "day": MONDAY,
        "destination": "orders",
        "fingerprint": "f1",
        "attempts": attempts,
        "handler_us": handler_us,
        "hopeless_attempts": 0,
        **more,
    }


def window(at_s: int, first: int, retries: int, destination: str = "orders") -> Row:
    return {
        "window_us": START_US + at_s * SECOND,
        "destination": destination,
        "attempts": first + retries,
        "first_attempts": first,
        "retries": retries,
    }


def candidate(name: str, messages: int, **more: Any) -> Row:
    return {
        "candidate": name,
        "destination": "orders",
        "error_fingerprint": "f1",
        "messages": messages,
        "p_recover": 0.5,
        "p_recover_lo": 0.4,
        "p_recover_hi": 0.6,
        "dead_letter_share": 0.5,
        "attempts_per_message": 2.0,
        "wasted_attempts": 10.0,
        "ttr_mean_s": 1.0,
        "ttr_p50_s": 1.0,
        "ttr_p95_s": 5.0,
        "extrapolated_share": 0.0,
        "extrapolated": False,
        "pareto": False,
        **more,
    }


# Wilson's interval, as R's binom.confint(method = "wilson") and the textbook formula give it
@pytest.mark.parametrize(
    ("hits", "of", "lo", "hi"), [(1, 10, 0.017876, 0.404150), (0, 10, 0.0, 0.277533), (10, 10, 0.722467, 1.0)]
)
def test_bounds_of_a_share_are_wilsons(hits: int, of: int, lo: float, hi: float) -> None:
    assert wilson(hits, of) == (pytest.approx(lo, abs=1e-6), pytest.approx(hi, abs=1e-6))


def test_of_nothing_seen_everything_is_possible() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


def test_what_healed_between_two_attempts_is_possible_from_the_first_and_certain_from_the_second() -> None:
    found = recovery_curve([Interval(after_s=1, by_s=3, messages=30), Interval(after_s=7, by_s=None, messages=10)])
    at = {point.after_s: (point.certain, point.possible) for point in found.curve}
    # until 1 s all have failed; between 1 s and 3 s 30 of 40 may have healed; after 7 s nobody looked at the other 10
    assert at == {1: (0, 0), 3: (0.75, 0.75), 7: (0.75, 0.75)}
    assert (found.messages, found.healed, found.retried, found.half_s, found.most_s) == (40, 30, 40, 3, 3)
    assert found.watched_s == 7


def test_half_and_nearly_all_count_only_those_that_healed() -> None:
    seen = [Interval(after_s=0, by_s=by, messages=n) for by, n in ((1.0, 10), (2.0, 9), (60.0, 1))]
    found = recovery_curve([*seen, Interval(after_s=99, by_s=None, messages=500)])
    assert (found.half_s, found.most_s) == (1, 2)  # 10 and 19 of 20


def test_what_is_shown_as_certain_is_certain_for_the_whole_of_its_bin() -> None:
    exact_us = 3_141_592
    one = interval(bin_of(exact_us), bin_of(exact_us), 1)
    assert one.by_s is not None
    assert one.after_s * SECOND <= exact_us < one.by_s * SECOND <= exact_us * (1 + 1 / 64)


@pytest.mark.parametrize(
    ("healed", "dead", "untried", "verdict"),
    [
        (0, 100, 0, "never"),
        (0, 10, 0, "unsure"),
        (0, 0, 50, "untried"),
        (99, 1, 0, "heals"),
        (5, 95, 0, "seldom"),
        (50, 50, 0, "mixed"),
        (2, 3, 0, "unsure"),
        (5, 0, 0, "unsure"),
    ],
)
def test_the_verdict_says_no_more_than_the_counts_allow(healed: int, dead: int, untried: int, verdict: str) -> None:
    parts = ((0.0, 1.0, healed), (5.0, None, dead), (0.0, None, untried))
    assert recovery_curve([Interval(after_s=a, by_s=b, messages=n) for a, b, n in parts if n]).verdict == verdict


intervals = st.lists(
    st.builds(
        lambda lo, more, n: Interval(after_s=lo, by_s=None if more is None else lo + more, messages=n),
        st.floats(0, 1e6),
        st.none() | st.floats(0.001, 1e6),
        st.integers(1, 10**6),
    ),
    min_size=1,
    max_size=200,
)


@given(intervals)
def test_a_curve_rises_within_its_bounds_and_has_no_more_points_than_can_be_seen(seen: list[Interval]) -> None:
    curve = recovery_curve(seen).curve
    assert len(curve) <= POINTS
    for point in curve:
        assert 0 <= point.lo <= point.certain <= point.possible <= point.hi <= 1
    for before, after in pairwise(curve):
        assert before.after_s < after.after_s
        assert before.certain <= after.certain
        assert before.possible <= after.possible


@given(intervals)
def test_each_point_of_a_curve_counts_the_messages_again(seen: list[Interval]) -> None:
    total = sum(one.messages for one in seen)
    for point in recovery_curve(seen).curve:
        certain = sum(one.messages for one in seen if one.by_s is not None and one.by_s <= point.after_s)
        assert point.certain * total == pytest.approx(certain)


def test_an_estimate_is_shown_no_further_than_anything_was_seen() -> None:
    seen = [Interval(after_s=1, by_s=2, messages=5)]
    likely = [Likely(after_s=at, healed=at / 10) for at in (1.5, 0.5, 2.5)]
    assert [one.after_s for one in recovery_curve(seen, likely).likely] == [0.5, 1.5]


def test_a_failure_is_summed_over_days_and_policies() -> None:
    rows = [
        recovered(1, 2, 3),
        recovered(1, 2, 4, day=MONDAY + timedelta(1)),
        recovered(1, None, 5, policy_version="w"),
    ]
    found = failures(rows, [wasted(7, 2_500_000), wasted(1, 500_000, day=MONDAY + timedelta(1))], [], [])
    (one,) = found.shown
    assert (one.healing.messages, one.healing.healed) == (12, 7)
    assert (one.waste.attempts, one.waste.handler_s) == (8, 3.0)
    assert found.others is None


def test_those_that_waste_most_come_first_and_the_others_are_summed_up() -> None:
    many = SHOWN + 5
    recovery = [recovered(1, 2 if number % 2 else None, number + 1, fingerprint=f"f{number}") for number in range(many)]
    waste = [wasted(10, number * SECOND, fingerprint=f"f{number}", hopeless_attempts=4) for number in range(many)]
    found = failures(recovery, waste, [], [])
    assert [one.fingerprint for one in found.shown] == [f"f{number}" for number in range(many - 1, 4, -1)]
    assert [one.number for one in found.shown] == list(range(1, SHOWN + 1))
    assert found.others is not None
    # what is left out are f0 to f4: 1 + 2 + 3 + 4 + 5 messages, those of f1 and f3 healed
    assert (found.others.failures, found.others.messages, found.others.healed) == (5, 15, 6)
    assert (found.others.waste.attempts, found.others.waste.handler_s, found.others.waste.hopeless) == (50, 10.0, 20)
    assert found.waste.handler_s == sum(range(many))
    assert found.messages == sum(range(1, many + 1))


def test_an_example_is_cut_and_near_duplicates_are_counted() -> None:
    known = [
        {"fingerprint": name, "group": "g", "example": "x" * 200_000, "n": 1, "first_us": 1, "last_us": 2}
        for name in ("f1", "f2", "f3")
    ]
    (one,) = failures([recovered(1, 2, 3)], [], known, []).shown
    assert (len(one.error), one.alike) == (TEXT, 3)


def test_a_failure_without_an_error_is_one_of_its_own() -> None:
    (one,) = failures([recovered(1, None, 3, fingerprint=None)], [], [], []).shown
    assert (one.fingerprint, one.error, one.healing.messages) == ("", "", 3)


def test_the_sample_is_described_as_its_histories_are() -> None:
    made, _ = sample()
    told = {one.fingerprint: one for one in sample_facts().failures.shown}
    assert set(told) == {kind.fingerprint for kind in KINDS}
    for kind, histories in made.kinds.items():
        one = told[kind.fingerprint]
        assert one.healing.messages == len(histories)
        assert one.healing.healed == sum(history.healed for history in histories)
        died = [history for history in histories if not history.healed]
        assert one.waste.attempts == sum(len(history.times_us) for history in died)
    assert told[CURRENCY.fingerprint].healing.verdict == "never"
    assert told[SILENT.fingerprint].healing.verdict == "heals"
    totals = sample_facts().totals
    assert totals.messages == len(made.histories) + sum(made.healthy.values())
    assert (totals.failed, totals.healed) == (len(made.histories), sum(one.healed for one in made.histories))
    assert totals.dead + totals.healed == totals.failed


def test_messages_that_are_at_no_end_are_neither_healed_nor_dead() -> None:
    ends = {"accepted": 5, "dead_lettered": 2, "discarded": 1, "redelivered": 3, "kept": 4}
    rows = MartRows(outcomes=[{"outcome": outcome, "n": n} for outcome, n in ends.items()], storms=[window(0, 20, 9)])
    totals = facts(rows, lake="l", made_s=0).totals
    assert (totals.messages, totals.attempts) == (20, 29)
    assert (totals.failed, totals.healed, totals.dead, totals.open) == (15, 5, 3, 7)


def test_attempts_are_summed_over_days_from_the_second_on() -> None:
    rows = [
        {
            "day": MONDAY + timedelta(day),
            "destination": "orders",
            "error_type": error,
            "attempt": attempt,
            "n": n,
            "n_accepted": accepted,
        }
        for day, error, attempt, n, accepted in (
            (0, None, 1, 1000, 900),
            (0, "E", 2, 60, 20),
            (1, "E", 2, 40, 10),
            (1, "E", 3, 70, 7),
            (1, "E", 40, 9, 0),
        )
    ]
    (line,) = attempts(rows).lines
    assert [(one.attempt, one.n, one.accepted, one.p_success) for one in line.chances] == [
        (2, 100, 30, 0.3),
        (3, 70, 7, 0.1),
    ]
    assert line.later == 9


def test_buckets_hold_every_attempt_once_however_long_the_time() -> None:
    rows = [window(at, 3, 2) for at in range(0, 40 * 86_400, 1700 * 10)]
    found = storms(rows, [])
    assert found is not None
    assert len(found.buckets) <= BUCKETS
    assert found.width_s % 10 == 0
    assert (found.first_attempts, found.retries) == (3 * len(rows), 2 * len(rows))
    assert sum(one.first_attempts + one.retries for one in found.buckets) == 5 * len(rows)
    assert (found.first_s, found.end_s) == (START_US / SECOND, rows[-1]["window_us"] / SECOND + 10)


def test_windows_that_were_summed_up_already_give_the_same_buckets() -> None:
    rows = [window(at, at % 7, at % 3) for at in range(0, 9 * 86_400, 1230)]
    whole = storms(rows, [])
    assert whole is not None
    summed: dict[int, Row] = {}
    for row in rows:
        start = row["window_us"] // (int(whole.width_s) * SECOND)
        place = summed.setdefault(start, {**row, "first_attempts": 0, "retries": 0})
        place["last_us"] = row["window_us"]
        for name in ("first_attempts", "retries"):
            place[name] += row[name]
    assert len(summed) < len(rows)
    assert storms(list(summed.values()), []) == whole


def test_the_storms_with_most_retries_are_kept_and_the_others_counted() -> None:
    many = KEPT + 3
    episodes = [
        {
            "destination": "orders",
            "first_us": START_US + number * 60 * SECOND,
            "attempts": 2 * number + 1,
            "end_us": START_US + number * 60 * SECOND + 20 * SECOND,
            "retries": number,
            "peak": 4.0,
        }
        for number in range(many)
    ]
    found = storms([window(0, 1, 1)], episodes)
    assert found is not None
    assert [one.number for one in found.storms] == list(range(1, KEPT + 1))
    assert found.storms[0].retries == many - 1
    assert found.storms[0].end_s - found.storms[0].first_s == 20
    assert (found.others, found.others_retries) == (3, 0 + 1 + 2)


def test_letters_are_summed_by_day_and_by_reason() -> None:
    rows = [
        {
            "day": MONDAY + timedelta(day),
            "destination": name,
            "reason": reason,
            "in": came,
            "out": left,
            "oldest_us": oldest,
        }
        for day, name, reason, came, left, oldest in (
            (0, "orders", "exhausted", 5, 1, 10 * SECOND),
            (1, "orders", "exhausted", 7, 0, 4 * SECOND),
            (1, "mail", "fatal", 2, 0, None),
            (1, "mail", None, 0, 3, None),
        )
    ]
    found = flow(rows, rows)
    assert (found.came, found.left) == (14, 4)
    assert [(one.days, one.came, one.left) for one in found.bars] == [(1, 5, 1), (1, 9, 3)]
    assert [(one.destination, one.reason, one.came, one.left, one.oldest_s) for one in found.lines] == [
        ("orders", "exhausted", 12, 1, 4.0),
        ("mail", "fatal", 2, 0, None),
        ("mail", "", 0, 3, None),
    ]


def test_years_of_letters_are_no_more_bars_than_can_be_seen() -> None:
    rows = [
        {
            "day": MONDAY + timedelta(day),
            "destination": "orders",
            "reason": "exhausted",
            "in": 1,
            "out": 1,
            "oldest_us": None,
        }
        for day in range(4000)
    ]
    found = flow(rows, rows)
    assert len(found.bars) <= 101
    assert sum(one.came for one in found.bars) == 4000


def test_the_messages_with_the_most_failures_come_first_and_those_that_healed_are_only_counted() -> None:
    rows = [
        {
            "message_key": f"m{number}",
            "destination": "orders",
            "fingerprint": None,
            "attempts": number,
            "first_us": 0,
            "last_us": DAY,
            "replays": 0,
            "verdict": "healed" if number == 99 else "dead",
        }
        for number in range(100)
    ]
    counted = [{"verdict": verdict, "n": n} for verdict, n in Counter(row["verdict"] for row in rows).items()]
    found = poison(rows, counted)
    assert [one.attempts for one in found.messages] == list(range(98, 88, -1))
    assert found.verdicts == {"dead": 99, "healed": 1}


def test_a_candidate_is_put_together_from_its_failures_by_their_messages() -> None:
    rows = [
        candidate(
            "a",
            30,
            p_recover=1.0,
            p_recover_lo=0.9,
            p_recover_hi=1.0,
            dead_letter_share=0.0,
            attempts_per_message=2.0,
            wasted_attempts=0.0,
            ttr_p95_s=10.0,
        ),
        candidate(
            "a",
            10,
            error_fingerprint="f2",
            p_recover=0.2,
            p_recover_lo=0.1,
            p_recover_hi=0.4,
            dead_letter_share=0.8,
            attempts_per_message=6.0,
            wasted_attempts=40.0,
            ttr_p95_s=90.0,
            pareto=True,
        ),
    ]
    (one,) = advise(rows, [{"destination": "orders", "today": "a", "best": "a"}])
    assert one.kind == "stay"
    assert one.best is not None
    assert (one.best.messages, one.best.heals, one.best.dies) == (40, pytest.approx(0.8), pytest.approx(0.2))
    assert (one.best.heals_lo, one.best.heals_hi) == (pytest.approx(0.7), pytest.approx(0.85))
    assert (one.best.attempts, one.best.wasted) == (pytest.approx(3.0), pytest.approx(40))
    assert (one.best.half_s, one.best.most_s) == (
        1.0,
        90.0,
    )  # 95 % of each are within its own 95 %, so all are within 90 s


def test_where_the_back_test_tells_of_a_destination_as_a_whole_that_counts() -> None:
    rows = [
        candidate("a", 40, error_fingerprint=None, p_recover=0.75, ttr_p95_s=20.0, pareto=True),
        candidate("a", 30, p_recover=0.1, ttr_p95_s=99.0),
        candidate("a", 500, destination=None, error_fingerprint=None, p_recover=0.9),
    ]
    (one,) = advise(rows, [])
    assert (one.destination, one.messages) == ("orders", 40)
    assert (one.front[0].heals, one.front[0].most_s) == (0.75, 20.0)


def test_where_the_time_of_one_failure_is_unknown_that_of_all_is() -> None:
    rows = [
        candidate("a", 30),
        candidate("a", 10, error_fingerprint="f2", ttr_p95_s=None, extrapolated=True, pareto=True),
    ]
    (one,) = advise(rows, [])
    assert (one.front[0].most_s, one.front[0].extrapolated, one.kind) == (None, True, "none")


@pytest.mark.parametrize(
    ("today", "best", "kind"),
    [
        ("a", "b", "change"),
        ("a", "a", "stay"),
        ("a", "c", "guess"),
        (None, "b", "change"),
        ("a", None, "none"),
        ("z", "z", "none"),
    ],
)
def test_what_is_advised_follows_from_the_choice(today: str | None, best: str | None, kind: str) -> None:
    rows = [candidate("a", 10), candidate("b", 10, pareto=True), candidate("c", 10, pareto=True, extrapolated=True)]
    (one,) = advise(rows, [{"destination": "orders", "today": today, "best": best, "confidence": "sure"}])
    assert one.kind == kind


@pytest.mark.parametrize("choice", [{"confidence": "not known"}, {"confidence": "sure", "withheld": True}])
def test_what_is_not_known_is_no_change(choice: dict[str, Any]) -> None:
    rows = [candidate("a", 10), candidate("b", 10, pareto=True)]
    (one,) = advise(rows, [{"destination": "orders", "today": "a", "best": "b", **choice}])
    assert one.kind == "unknown"


def test_a_long_front_is_thinned_evenly_and_keeps_what_is_spoken_of() -> None:
    rows = [
        candidate(f"p{n:03}", 10, attempts_per_message=n / 10, dead_letter_share=1 / (n + 2), pareto=n != 50)
        for n in range(500)
    ]
    (one,) = advise(rows, [{"destination": "orders", "today": "p050", "best": "p333"}])
    names = [each.policy for each in one.front]
    assert len(names) <= FRONT
    assert {"p000", "p050", "p333", "p499"} <= set(names)
    assert [each.letter for each in one.front] == list("ABCDEFGH"[: len(names)])
    assert one.candidates == 500
    assert 0 < len(one.dots) <= 300


def test_a_policy_that_is_quick_only_because_it_gives_up_is_not_worth_having() -> None:
    def one(name: str, attempts: float, dies: float) -> Row:
        return candidate(name, 10, attempts_per_message=attempts, dead_letter_share=dies, pareto=True)

    rows = [
        one("today", 5.0, 0.3),
        one("cheap", 2.0, 0.5),
        one("gives up", 4.0, 0.9),
        one("spares", 4.5, 0.2),
        one("spends", 6.0, 0.25),
    ]
    (judged,) = advise(rows, [{"destination": "orders", "today": "today", "best": "spares"}])
    assert [each.policy for each in judged.front] == ["cheap", "spares", "today", "spends"]
    (unchosen,) = advise(rows, [])
    assert [each.policy for each in unchosen.front] == ["cheap", "spares"]


def test_policies_that_come_to_the_same_are_shown_once() -> None:
    rows = [
        candidate(name, 10, pareto=True, attempts_per_message=2 + digits)
        for name, digits in (("longer", 0.0), ("same", 0.001), ("best of all", -0.001), ("other", 1.0))
    ]
    (chosen,) = advise(rows, [{"destination": "orders", "today": None, "best": "best of all"}])
    assert [one.policy for one in chosen.front] == ["best of all", "other"]
    (unchosen,) = advise(rows, [])
    assert [one.policy for one in unchosen.front] == ["same", "other"]


def test_where_most_dead_letters_would_be_spared_comes_first() -> None:
    rows = [
        candidate(name, messages, destination=place, dead_letter_share=dies, pareto=True)
        for place, messages in (("few", 10), ("many", 1000))
        for name, dies in (("a", 0.5), ("b", 0.1))
    ]
    choices = [{"destination": place, "today": "a", "best": "b", "confidence": "sure"} for place in ("few", "many")]
    assert [one.destination for one in advise(rows, choices)] == ["many", "few"]


def test_the_json_has_the_numbers_of_the_page() -> None:
    told = json.loads(json.dumps(sample_facts().as_json()))
    assert told["totals"]["failed"] == sample_facts().totals.failed
    assert told["failures"]["shown"][0]["healing"]["verdict"] == sample_facts().failures.shown[0].healing.verdict
    assert told["advice"][0]["best"]["letter"] == getattr(sample_facts().advice[0].best, "letter", None)
