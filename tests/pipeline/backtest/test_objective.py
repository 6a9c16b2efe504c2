# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests which of several candidates is recommended, and that a search finds what is there to be found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from redeliver_mw.errors import ConfigError
from redeliver_mw.pipeline.backtest import OBJECTIVES, BacktestRow, Candidate, History, recommend
from redeliver_mw.pipeline.backtest.search import search
from redeliver_mw.policy import Backoff, RedeliveryPolicy

from .worlds import history, lognormal, never

ROW = BacktestRow(
    candidate="now",
    destination=None,
    error_fingerprint=None,
    messages=1000,
    p_recover=0.8,
    p_recover_lo=0.8,
    p_recover_hi=0.8,
    dead_letter_share=0.2,
    attempts_per_message=4.0,
    wasted_attempts=1000.0,
    ttr_mean_s=30.0,
    ttr_p50_s=20.0,
    ttr_p95_s=90.0,
    extrapolated_share=0.0,
    extrapolated=False,
    pareto=False,
)
FEWER = OBJECTIVES["fewer-dead-letters"]


def row(name: str, dead: float, attempts: float = 4.0, mean_s: float | None = 30.0) -> BacktestRow:
    return replace(ROW, candidate=name, dead_letter_share=dead, attempts_per_message=attempts, ttr_mean_s=mean_s)


def test_of_those_that_gain_nearly_as_much_the_soonest_is_taken() -> None:
    # The best gains 0.10; nine tenths of that are 0.09, so 0.11 is near enough and 0.1101 is not.
    rows = [ROW, row("best", 0.1, mean_s=2000.0), row("near", 0.11, mean_s=80.0), row("far", 0.1101, mean_s=5.0)]
    found = recommend(rows, FEWER, "now")
    assert found.best is not None
    assert (found.best.candidate, found.is_change) == ("near", True)


def test_what_costs_more_than_now_is_not_taken_however_good_it_is() -> None:
    found = recommend([ROW, row("dear", 0.01, attempts=4.1), row("same price", 0.15)], FEWER, "now")
    assert found.best is not None
    assert found.best.candidate == "same price"


def test_a_gain_of_a_hundredth_is_no_gain() -> None:
    found = recommend([ROW, row("hardly", 0.2 * 0.991, mean_s=1.0)], FEWER, "now")
    assert (found.best, found.is_change) == (ROW, False)


def test_what_is_extrapolated_is_never_taken() -> None:
    found = recommend([ROW, replace(row("guess", 0.0, mean_s=None), extrapolated=True)], FEWER, "now")
    assert found.best == ROW


def test_nothing_is_held_to_a_policy_that_history_cannot_judge() -> None:
    now = replace(ROW, extrapolated=True, ttr_mean_s=None)
    assert recommend([now, row("better", 0.1)], FEWER, "now").best is None


def test_the_soonest_is_the_soonest() -> None:
    rows = [ROW, row("sooner", 0.2, mean_s=10.0), row("soonest", 0.2, mean_s=9.0), row("worse", 0.21, mean_s=1.0)]
    found = recommend(rows, OBJECTIVES["sooner"], "now")
    assert found.best is not None
    assert found.best.candidate == "soonest"


def test_a_present_policy_that_is_none_of_them_is_your_input() -> None:
    with pytest.raises(ConfigError, match="not among the candidates"):
        recommend([ROW], FEWER, "another")


def test_a_search_looks_as_early_as_the_present_policy_does() -> None:
    rng = np.random.default_rng(3)
    heals = never(lognormal(2.0, 1.0)(20_000, rng), 0.02, rng)
    impatient = RedeliveryPolicy(6, Backoff.exponential(1.0, 2.0).jittered(0.2))
    patient = RedeliveryPolicy(8, Backoff.exponential(8.0, 3.0).jittered(0.3))  # it looks for hours
    lot = rng.random(len(heals)) < 0.1
    rows = history(heals[~lot], impatient, rng, version="a") + history(heals[lot], patient, rng, version="b")
    known = History(rows)
    assert known.horizon() / 256 > 10  # seconds: as early as the grid would begin by itself
    found = search(known, Candidate("now", impatient), impatient, FEWER)
    told = recommend(found.rows, FEWER, "now")
    assert told.best is not None
    assert told.is_change
    now = next(row for row in found.rows if row.candidate == "now")
    assert now.ttr_mean_s is not None
    assert told.best.ttr_mean_s is not None
    # All but the 2 % that never heal are healed in a minute, and nobody has to wait for hours for that.
    assert told.best.dead_letter_share == pytest.approx(0.02, abs=0.012)
    assert told.best.ttr_mean_s < 60


def test_no_candidate_is_spelled_in_two_ways() -> None:
    rng = np.random.default_rng(4)
    heals = never(lognormal(5.0, 1.0)(5_000, rng), 0.1, rng)
    policy = RedeliveryPolicy(8, Backoff.exponential(1.0, 2.0).jittered(0.2))
    found = search(History(history(heals, policy, rng)), Candidate("now", policy), policy, OBJECTIVES["fewer-attempts"])
    spelled: dict[tuple[object, ...], str] = {}
    for candidate in found.candidates[1:]:
        assert isinstance(candidate.policies, RedeliveryPolicy)
        last = candidate.policies.dead_after
        assert last is not None
        delays = tuple(candidate.policies.backoff.span(number) for number in range(1, last))
        assert spelled.setdefault((last, *delays), candidate.name) == candidate.name
