# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the parts that estimate: cells, and EM for interval-censored times."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redeliver_mw.pipeline.arrays import Floats
from redeliver_mw.pipeline.backtest.intervals import Intervals, counted
from redeliver_mw.pipeline.backtest.time_grid import MOST, cells_of, times
from redeliver_mw.pipeline.backtest.turnbull import (
    Smoother,
    expected,
    flat,
    likelihood,
    scale_of,
    step,
    turnbull_estimate,
)
from redeliver_mw.pipeline.time_bins import bin_of, lower_edge


def intervals(*given_: tuple[int, int, float]) -> Intervals:
    """Return these intervals as one group; each is given as its bounds and its count."""
    lo, hi, n = (np.array(column) for column in zip(*given_, strict=True))
    return counted(np.zeros(len(lo), dtype=np.int64), lo, hi, n.astype(float), 1)


@given(st.lists(st.integers(1, 1 << 40), min_size=1, max_size=50, unique=True))
def test_the_middle_of_a_bin_lies_in_it(micros: list[int]) -> None:
    bins = np.array([bin_of(us) for us in micros])
    for number, middle in zip(bins.tolist(), (times(bins) * 1e6).tolist(), strict=True):
        assert lower_edge(number) <= middle <= lower_edge(number + 1)


@given(st.lists(st.integers(1_000, 10**12), min_size=1, max_size=200))
@settings(max_examples=50)
def test_every_bin_has_an_edge_within_its_reach(micros: list[int]) -> None:
    bins = np.array([bin_of(us) for us in micros])
    cells = cells_of(bins, np.ones(len(bins)))
    assert np.all(np.diff(cells.edges) > 0)
    assert cells.edges[0] == 0.0
    near = cells.edges[cells.numbers(bins)] / times(bins)
    span = np.log(times(bins).max() / times(bins).min())
    assert np.all(np.abs(np.log(near)) <= max(np.log(2) / 24, span / MOST) + 1e-9)
    assert len(cells.edges) < 2 * MOST + 100


def test_times_that_are_apart_are_cut_into_eighths_of_a_doubling() -> None:
    cells = cells_of(np.array([bin_of(1_000_000), bin_of(8_000_000)]), np.ones(2))
    ratio = np.diff(cells.logs[2:])
    assert ratio.max() <= np.log(2) / 4 + 1e-9  # below the first bin
    assert np.diff(cells.logs[cells.edges >= 1.0]).max() <= np.log(2) / 8 + 1e-9


def test_what_is_certain_is_what_is_found() -> None:
    # 3 of 10 heal by edge 2, 5 between 2 and 4, 2 after 4: no more can be known, and no other shares explain it
    seen = intervals((0, 2, 3.0), (2, 4, 5.0), (4, 7, 2.0))
    p = np.full((1, 7), 1 / 7)
    for _ in range(200):
        p = step(p, seen, p, 0.0)
    assert [p[0, :2].sum(), p[0, 2:4].sum(), p[0, 4:].sum()] == pytest.approx([0.3, 0.5, 0.2])


def test_censored_messages_are_shared_out_as_by_kaplan_and_meier() -> None:
    # at risk 10: 4 heal at edge 1; 3 of the 6 left are lost sight of there; 1 of 3 heals at edge 2; 2 never
    seen = intervals((0, 1, 4.0), (1, 4, 3.0), (1, 2, 1.0), (2, 4, 2.0))
    p = np.full((1, 4), 0.25)
    for _ in range(2000):
        p = step(p, seen, p, 0.0)
    assert p[0, :2] == pytest.approx([0.4, 0.6 * (1 / 3)], abs=1e-6)
    assert p[0, 2:].sum() == pytest.approx(0.4, abs=1e-6)


def test_a_prior_counts_as_so_many_messages() -> None:
    seen, prior = intervals((0, 1, 30.0)), np.array([[0.25, 0.75]])
    assert step(prior, seen, prior, 10.0)[0] == pytest.approx([32.5 / 40, 7.5 / 40])


histories = st.lists(
    st.tuples(st.integers(0, 8), st.integers(1, 9), st.integers(1, 50)).filter(lambda one: one[0] < one[1]),
    min_size=1,
    max_size=12,
)
shares = st.lists(st.floats(0.01, 1.0), min_size=9, max_size=9)


@given(histories, shares, shares, st.sampled_from([0.0, 1.0, 10.0]))
def test_no_step_makes_the_likelihood_smaller(
    told: list[tuple[int, int, int]], first: list[float], leaning: list[float], strength: float
) -> None:
    seen = intervals(*((lo, hi, float(n)) for lo, hi, n in told))
    p, prior = np.array([first]) / sum(first), np.array([leaning]) / sum(leaning)
    for _ in range(5):
        after = step(p, seen, prior, strength)
        assert after.sum() == pytest.approx(1.0)
        assert likelihood(after, seen, prior, strength) >= likelihood(p, seen, prior, strength) - 1e-9
        p = after


@given(histories, shares)
def test_every_message_heals_somewhere_in_its_interval(told: list[tuple[int, int, int]], first: list[float]) -> None:
    seen = intervals(*((lo, hi, float(n)) for lo, hi, n in told))
    found = expected(np.array([first]) / sum(first), seen)
    assert found.sum() == pytest.approx(seen.n.sum())
    by_hand = np.zeros(9)
    for lo, hi, n in told:
        by_hand[lo:hi] += n * np.array(first[lo:hi]) / sum(first[lo:hi])
    assert found[0] == pytest.approx(by_hand)


def test_groups_that_are_estimated_together_are_as_if_alone() -> None:
    rng = np.random.default_rng(1)
    cells = cells_of(np.array([bin_of(us * 500_000) for us in range(1, 60)]), np.ones(59))
    smoother = Smoother(cells, 0.3)

    def group(number: int) -> Intervals:
        lo = rng.integers(0, 20, 50)
        return counted(np.full(50, number), lo, lo + rng.integers(1, 30, 50), np.ones(50), 2)

    one, other = group(0), group(1)
    both = Intervals(
        *(np.concatenate([getattr(one, key), getattr(other, key)]) for key in ("group", "lo", "hi", "n")), 2
    )
    together: Floats = turnbull_estimate(both, flat(cells), 10.0, (smoother,))
    assert together.sum(axis=1) == pytest.approx([1.0, 1.0])
    for number, part in ((0, one), (1, other)):
        alone = turnbull_estimate(
            Intervals(np.zeros(len(part.n), dtype=np.int64), part.lo, part.hi, part.n, 1),
            flat(cells),
            10.0,
            (smoother,),
        )
        assert np.cumsum(together[number]) == pytest.approx(np.cumsum(alone[0]), abs=0.01)


def test_smoothing_leaves_a_power_of_time_as_it_is_and_flattens_a_spike() -> None:
    cells = cells_of(np.array([bin_of(us * 250_000) for us in (2, 3, 5, 8, 13, 21, 34, 55, 89)]), np.ones(9))
    edges, smoother = cells.edges, Smoother(cells, 0.3)
    power = np.diff(np.append(edges / edges[-1], 2.0))[None] * 0.5  # as many heal in each second
    smooth = smoother(power)
    assert smooth[0, 5:] == pytest.approx(power[0, 5:], rel=0.05)
    spike = power.copy()
    spike[0, 30] *= 50
    spike /= spike.sum()
    assert smoother(spike)[0, 30] < spike[0, 30] / 2


def test_the_scale_of_smoothing_is_a_third_of_the_usual_gap() -> None:
    cells = cells_of(np.array([bin_of(us) for us in (1_000_000, 2_000_000, 4_000_000)]), np.ones(3))
    one, two, four = (int(cells.numbers(np.array([bin_of(us)]))[0]) for us in (1_000_000, 2_000_000, 4_000_000))
    seen = intervals((0, one, 5.0), (one, two, 5.0), (two, four, 5.0), (four, cells.never, 9.0))
    assert scale_of(seen, cells) == pytest.approx(np.log(2) / 3, rel=0.01)
