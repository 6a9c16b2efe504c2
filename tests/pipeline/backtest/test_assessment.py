# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests how sure a recommendation is: in worlds where a confident answer would be wrong, and where it is right."""

from __future__ import annotations

import math

import numpy as np
import pytest

from redeliver_mw.pipeline.backtest import OBJECTIVES, Candidate, History, how_wrong
from redeliver_mw.pipeline.backtest.assessment import Assessment, LakeEvidence, assess
from redeliver_mw.pipeline.backtest.lake_input import longest, longest_outages
from redeliver_mw.pipeline.backtest.sampling import Blocks, blocks_of, spread, student, with_sampling
from redeliver_mw.pipeline.time_bins import bin_of
from redeliver_mw.policy import Backoff, RedeliveryPolicy

from .gallery import (
    ARM,
    JITTERED,
    USUAL,
    GalleryWorld,
    Judged,
    _played,
    by_attempt,
    deploy,
    judged,
    outage_world,
    play,
    smooth,
)

PRESENT = Candidate("present", USUAL)


def month(world: GalleryWorld, seed: int = 1) -> Judged:
    rng = np.random.default_rng(seed)
    return judged(_played(world, world.make(rng, 0), rng))


def assessed(world: GalleryWorld, better: RedeliveryPolicy, seed: int = 1) -> Assessment:
    found = month(world, seed)
    evidence = LakeEvidence(found.observed, tuple(how_wrong(found.rows)), outage_share=found.outages)
    history = History(found.rows, attempt_times=found.times)
    present, best = Candidate("present", world.policy), Candidate("better", better)
    return assess(history, present, best, OBJECTIVES[world.objective], evidence, destination="orders")


@pytest.mark.parametrize(("failing_s", "late_s"), [(10.0, 0.004), (0.5, 2.0), (0.005, 0.004)])
def test_the_policy_in_use_is_predicted_as_it_was_observed(failing_s: float, late_s: float) -> None:
    rng = np.random.default_rng(3)
    made = smooth(20_000, median=20.0, failing_s=failing_s, late_s=late_s)(rng, 0)
    played = play(made, USUAL, rng)
    found = judged([(made, played, "v", np.ones(len(made.arrive), dtype=bool))])
    [row] = History(found.rows, attempt_times=found.times).backtest([PRESENT], by="all")
    recovered = ~np.isnan(played.took)
    assert row.p_recover == pytest.approx(recovered.mean(), abs=0.01)
    assert row.attempts_per_message == pytest.approx(played.attempts.mean(), rel=0.01)
    if not row.extrapolated:
        assert row.ttr_mean_s == pytest.approx(played.took[recovered].mean(), rel=0.03)


def test_slow_attempts_of_one_failure_do_not_spoil_the_times_of_another() -> None:
    rng = np.random.default_rng(4)
    slow, quick = smooth(3000, failing_s=10.0)(rng, 0), smooth(3000, median=1.0, failing_s=0.001)(rng, 0)
    every = [np.ones(len(one.arrive), dtype=bool) for one in (slow, quick)]
    tables = [judged([(one, play(one, USUAL, rng), "v", mine)]) for one, mine in zip((slow, quick), every, strict=True)]
    names = ("slow", "quick")
    rows = [{**row, "destination": name} for name, table in zip(names, tables, strict=True) for row in table.rows]
    times = [{**row, "destination": name} for name, table in zip(names, tables, strict=True) for row in table.times]
    both = History(rows, attempt_times=times)
    alone = History(tables[1].rows, attempt_times=tables[1].times)
    [row] = both.backtest([PRESENT], destination="quick")
    [same] = alone.backtest([PRESENT], by="all")
    assert (row.p_recover, row.attempts_per_message) == pytest.approx(
        (same.p_recover, same.attempts_per_message), rel=1e-3
    )


def test_an_arm_that_contradicts_the_prediction_stops_the_advice() -> None:
    found = assessed(GalleryWorld("", "", by_attempt, arm=ARM), ARM)
    assert found.withheld
    assert not found.is_advice
    assert "of policy v" in found.reasons[0]


@pytest.mark.parametrize("count", [3, 12])
def test_of_a_handful_of_messages_nothing_is_advised(count: int) -> None:
    found = assessed(GalleryWorld("", "", smooth(count)), RedeliveryPolicy(9, Backoff.exponential(1, 2)))
    assert (found.withheld, found.confidence) == (True, "not known")
    assert "messages failed here, and 100 are needed" in found.reasons[0]


def test_many_messages_of_few_outages_are_too_few_witnesses() -> None:
    found = assessed(GalleryWorld("", "", outage_world(3, 1800.0, each=2000)), RedeliveryPolicy(3, 10.0))
    assert found.withheld
    assert "independent stretches of time" in found.reasons[0]


def test_a_world_that_changed_in_the_middle_is_noticed() -> None:
    found = assessed(GalleryWorld("", "", deploy(2.0, 30.0)), RedeliveryPolicy(4, 15.0))
    assert found.withheld
    assert "in the first half of the time" in found.reasons[0]


def test_a_policy_that_is_named_as_the_one_in_use_and_was_not_is_found_out() -> None:
    found = month(GalleryWorld("", "", smooth()))
    evidence = LakeEvidence(found.observed, (), outage_share=found.outages)
    other = Candidate("present", RedeliveryPolicy(2, 0.5))
    history = History(found.rows, attempt_times=found.times)
    told = assess(history, other, other, OBJECTIVES["fewer-attempts"], evidence, destination="orders")
    assert told.withheld
    assert "is predicted to recover" in told.reasons[0]


def test_times_that_are_predicted_otherwise_than_observed_stop_the_advice() -> None:
    found = month(GalleryWorld("", "", smooth()))
    twice = [row | {"waited_us": 2 * row["waited_us"]} for row in found.observed]
    history = History(found.rows, attempt_times=found.times)
    for observed, withheld in ((found.observed, False), (twice, True)):
        evidence = LakeEvidence(observed, (), outage_share=found.outages)
        told = assess(history, PRESENT, PRESENT, OBJECTIVES["sooner"], evidence, destination="orders")
        assert told.withheld == withheld
    assert "let messages recover after" in told.reasons[0]


def test_one_failure_that_is_predicted_wrong_stops_the_advice_though_all_together_are_right() -> None:
    """Two policies saw two failures; what a policy makes better for one failure, it makes worse for the other."""
    rows = [
        {
            "destination": "orders",
            "fingerprint": fingerprint,
            "policy_version": version,
            "slice": at,
            "lo_bin": 0 if recovers else bin_of(31_020_000),
            "hi_bin": bin_of(1_004_000) if recovers else None,
            "n": n,
        }
        for at in range(64)
        for fingerprint, better in (("one", "new"), ("two", "old"))
        for version in ("old", "new")
        for recovers, n in ((True, 9 if version == better else 1), (False, 1 if version == better else 9))
    ]
    observed = [
        {
            "destination": "orders",
            "policy_version": version,
            "messages": 20 * 64,
            "recovered": 10 * 64,
            "attempts": 0,
            "last_us": last,
        }
        for last, version in enumerate(("old", "new"))
    ]
    history = History(rows)
    [row] = history.backtest([PRESENT], by="all")
    for one in observed:
        one["attempts"] = round(row.attempts_per_message * one["messages"])
    assert row.p_recover == pytest.approx(0.5, abs=0.01)
    told = assess(history, PRESENT, PRESENT, OBJECTIVES["fewer-attempts"], LakeEvidence(observed), destination="orders")
    assert told.withheld
    assert "of the messages with failure" in told.reasons[0]


def test_a_large_gain_is_sure_where_an_arm_has_tried_it_and_names_its_costs() -> None:
    found = assessed(GalleryWorld("", "", smooth(4000), arm=ARM), RedeliveryPolicy(8, [2, 5, 12, 30, 60, 90, 120]))
    assert (found.withheld, found.confidence, found.weak) == (False, "sure", ())
    columns = {one.column: one for one in found.changes}
    assert set(columns) >= {"dead_letter_share", "attempts_per_message", "ttr_mean_s", "ttr_p50_s", "ttr_p95_s"}
    assert columns["dead_letter_share"].hi < 0 < columns["ttr_mean_s"].lo


def test_without_arms_the_assumption_is_named_and_nothing_untried_is_sure() -> None:
    found = assessed(GalleryWorld("", "", smooth(20_000), policy=JITTERED), RedeliveryPolicy(6, [3, 5, 6, 7, 9]))
    assert found.confidence != "sure"
    assert "An arm with other delays would show it" in found.weak[0]


def test_an_equal_policy_is_never_called_better() -> None:
    for seed in range(5):
        found = assessed(GalleryWorld("", "", smooth(2000), policy=JITTERED), JITTERED, seed)
        assert not found.is_advice


# -- chance -----------------------------------------------------------------------------------------------------------


def test_outages_make_the_bounds_as_wide_as_resampling_them_does() -> None:
    found = month(GalleryWorld("", "", outage_world(40, 200.0, each=50)))
    history = History(found.rows, attempt_times=found.times)
    rows = history.backtest([PRESENT], by="all")
    [row] = with_sampling(history, rows, [PRESENT], by="all", outage_share=found.outages["orders"])
    told = history.histories
    shares, sizes = [], []
    for one in np.unique(told.slice):
        mine = told.slice == one
        sizes.append(told.n[mine].sum())
        shares.append(told.n[mine & (told.hi >= 0)].sum())
    rng = np.random.default_rng(1)
    lots = rng.integers(0, len(sizes), (4000, len(sizes)))
    resampled = np.array(shares)[lots].sum(axis=1) / np.array(sizes)[lots].sum(axis=1)
    width = 2 * 1.96 * resampled.std()
    assert width > 0.1  # as if messages were independent it would be a third of that
    assert row.p_recover_hi - row.p_recover_lo == pytest.approx(width, rel=0.5)


def test_the_error_of_a_mean_is_the_one_of_the_textbook() -> None:
    """With blocks of one size the jackknife of a mean is exactly its usual standard error."""
    values = np.array([3.0, 5.0, 4.0, 9.0, 1.0, 6.0, 2.0, 7.0])
    blocks = Blocks(np.arange(8), np.ones(8), np.arange(8) >= 4)
    found = spread(blocks, {"mean": values.mean()}, lambda left_out: {"mean": float(values[~left_out].mean())})
    assert found.errors["mean"] == pytest.approx(values.std(ddof=1) / math.sqrt(8))
    assert found.freedom == pytest.approx(7.0)
    # two samples of four: their pooled variance has six degrees of freedom
    pooled = (values[:4].var() * 4 + values[4:].var() * 4) / 6
    assert found.errors_apart["mean"] == pytest.approx(math.sqrt(pooled / 8))


def test_what_one_half_differs_from_the_other_by_is_not_taken_for_chance() -> None:
    """With a step in the middle, the usual error grows with the step, and the error of the two halves does not."""
    noise = np.array([0.3, -0.2, 0.1, -0.1, 0.2, -0.3, -0.1, 0.1])
    late = np.arange(8) >= 4
    found = []
    for step in (0.0, 10.0):
        values = noise + step * late
        blocks = Blocks(np.arange(8), np.ones(8), late)
        found.append(spread(blocks, {"mean": values.mean()}, lambda out, v=values: {"mean": float(v[~out].mean())}))
    without, with_step = found
    assert with_step.errors["mean"] > 10 * without.errors["mean"]
    assert with_step.errors_apart["mean"] == pytest.approx(without.errors_apart["mean"])


@pytest.mark.parametrize(
    ("z", "freedom", "quantile"), [(1.96, 10, 2.228), (2.5758, 15, 2.947), (1.6449, 7, 1.895), (2.5758, 5, 4.032)]
)
def test_quantiles_of_students_distribution_are_those_of_the_tables(z: float, freedom: float, quantile: float) -> None:
    assert student(z, freedom) == pytest.approx(quantile, rel=0.01)


def test_a_block_is_longer_than_the_longest_outage() -> None:
    found = month(GalleryWorld("", "", smooth(2000)))
    told = History(found.rows).histories
    for share in (0.05, 0.1, 0.24):
        numbers = blocks_of(told, share).number
        slices = [np.ptp(told.slice[numbers == one]) + 1 for one in np.unique(numbers)]
        assert min(slices) / 64 > share


def test_the_longest_outage_is_the_longest_run_of_many_failures() -> None:
    counts = np.ones(1000)
    counts[100:130] = 40.0
    counts[115] = 1.0  # a lull does not end it
    counts[500:510] = 90.0
    assert longest(counts) == 30
    assert longest(np.ones(1000)) == 0
    rows = [{"destination": "orders", "bucket": at, "n": int(n)} for at, n in enumerate(counts)]
    assert longest_outages(rows, 1000) == {"orders": 0.03}
