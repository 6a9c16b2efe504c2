# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The bounds hold the truth, and a row agrees with itself, whatever the world, the history and the candidate are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redeliver_mw.pipeline.backtest import Candidate, History
from redeliver_mw.policy import Backoff, RedeliveryPolicy

from .worlds import World, at_once, exponential, history, lognormal, mixed, poison, truth, uniform

MESSAGES = 1_500
AS_ONE = 0.04  # two times within such a part of each other are one: cells are so wide
DRAWN = 4 / math.sqrt(MESSAGES)  # jitter falls one way in truth and evenly in the back-test: four deviations

seconds = st.floats(0.2, 200.0)
kinds = st.one_of(
    st.builds(lognormal, seconds, st.floats(0.05, 2.5)),
    st.builds(exponential, seconds),
    st.builds(uniform, seconds),
    st.builds(at_once, seconds),
    st.just(poison),
)
worlds = st.lists(st.tuples(st.floats(0.05, 1.0), kinds), min_size=1, max_size=3).map(lambda parts: mixed(*parts))


@st.composite
def policies(draw: st.DrawFn, most: float = 0.5) -> RedeliveryPolicy:
    attempts = draw(st.integers(1, 12))
    first, factor = draw(st.floats(0.3, 40.0)), draw(st.sampled_from([1.0, 1.5, 2.0, 3.0]))
    cap = draw(st.sampled_from([math.inf, 5.0 * first]))
    backoff = Backoff.constant(first) if factor == 1 else Backoff.exponential(first, factor, min(cap, 1e6))
    jitter = draw(st.sampled_from([0.0, most / 4, most]))
    return RedeliveryPolicy(attempts, backoff.jittered(jitter) if jitter else backoff)


@given(worlds, policies(), policies(), st.integers(0, 2**32))
@settings(max_examples=80, deadline=None)
def test_the_bounds_hold_the_truth(world: World, past: RedeliveryPolicy, wanted: RedeliveryPolicy, seed: int) -> None:
    rng = np.random.default_rng(seed)
    heals = world(MESSAGES, rng)
    [row] = History(history(heals, past, rng)).backtest([Candidate("c", wanted)], by="all")
    sooner, later = (truth(heals * part, wanted, np.random.default_rng(1)) for part in (1 - AS_ONE, 1 + AS_ONE))
    jitter = wanted.backoff.span(1).low != wanted.backoff.span(1).high
    slack = DRAWN if jitter else 1e-9
    assert row.p_recover_lo <= sooner.recovered + slack
    assert row.p_recover_hi >= later.recovered - slack


@given(worlds, policies(), policies(), st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_a_row_agrees_with_itself(world: World, past: RedeliveryPolicy, wanted: RedeliveryPolicy, seed: int) -> None:
    rng = np.random.default_rng(seed)
    [row] = History(history(world(MESSAGES, rng), past, rng)).backtest([Candidate("c", wanted)], by="all")
    assert row.p_recover_lo <= row.p_recover <= row.p_recover_hi
    assert row.dead_letter_share == pytest.approx(1 - row.p_recover)
    times = (row.ttr_p50_s, row.ttr_p95_s, row.ttr_mean_s)
    assert (None in times) == (row.extrapolated or row.p_recover == 0)
    assert not (row.extrapolated and row.pareto)
    attempts = wanted.dead_after or 0
    assert 1 <= row.attempts_per_message <= attempts
    assert row.wasted_attempts == pytest.approx(attempts * row.dead_letter_share * MESSAGES)
    if row.ttr_p50_s is not None and row.ttr_p95_s is not None:
        assert 0 < row.ttr_p50_s <= row.ttr_p95_s
