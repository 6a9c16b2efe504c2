# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The back-test says what is beyond what history saw, gives no times for that, and its bounds hold the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from redeliver_mw.pipeline.backtest import BacktestRow, Candidate, History
from redeliver_mw.pipeline.time_bins import bin_of
from redeliver_mw.policy import Backoff, RedeliveryPolicy

from .worlds import exponential, history, lognormal, never, truth

PAST = {
    "no jitter": RedeliveryPolicy(6, Backoff.exponential(1, 2)),
    "jitter": RedeliveryPolicy(6, Backoff.exponential(1, 2).jittered(0.2)),
}
BEYOND = {
    "four more attempts": RedeliveryPolicy(10, Backoff.exponential(1, 2)),
    "every minute": RedeliveryPolicy(6, 60),
    "the first after an hour": RedeliveryPolicy(3, 3600),
    "one just behind": RedeliveryPolicy(3, [5, 35]),
    "jitter that reaches out": RedeliveryPolicy(6, Backoff.exponential(1.4, 2).jittered(0.4)),
}


def one(history_: History, policy: RedeliveryPolicy) -> BacktestRow:
    [row] = history_.backtest([Candidate("c", policy)], by="all")
    return row


@pytest.mark.parametrize("past", PAST.values(), ids=PAST)
@pytest.mark.parametrize("policy", BEYOND.values(), ids=BEYOND)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_it_is_flagged_without_times_and_the_truth_is_within_its_bounds(
    past: RedeliveryPolicy, policy: RedeliveryPolicy, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    heals = never(lognormal(8.0, 1.5)(20_000, rng), 0.05, rng)
    row = one(History(history(heals, past, rng)), policy)
    real = truth(heals, policy, rng)
    assert row.extrapolated
    assert row.extrapolated_share > 0.01
    assert (row.ttr_mean_s, row.ttr_p50_s, row.ttr_p95_s) == (None, None, None)
    assert not row.pareto
    assert row.p_recover_lo - 0.002 <= real.recovered <= row.p_recover_hi + 0.002
    assert row.p_recover <= real.recovered + 0.01  # nothing is said to heal that nobody saw heal


def test_messages_that_nobody_tried_again_say_nothing() -> None:
    rows = [{"destination": "d", "fingerprint": "f", "policy_version": "v", "lo_bin": 0, "hi_bin": None, "n": 50}]
    row = one(History(rows), RedeliveryPolicy(3, 5))
    assert (row.p_recover_lo, row.p_recover, row.p_recover_hi) == (0.0, 0.0, 1.0)
    assert row.extrapolated
    assert row.extrapolated_share == 1.0
    once = one(History(rows), RedeliveryPolicy(1))
    assert (once.p_recover_hi, once.dead_letter_share, once.attempts_per_message, once.extrapolated) == (0, 1, 1, False)


def test_where_all_healed_a_later_attempt_is_known_to_succeed() -> None:
    rng = np.random.default_rng(4)
    heals = 3.0 * rng.random(5_000)
    row = one(History(history(heals, RedeliveryPolicy(5, 1), rng)), RedeliveryPolicy(2, 3600))
    assert not row.extrapolated
    assert (row.p_recover, row.ttr_mean_s, row.attempts_per_message) == (1.0, 3600.0, 2.0)


def test_a_few_that_waited_for_hours_do_not_move_the_horizon() -> None:
    rng = np.random.default_rng(5)
    heals = never(exponential(6.0)(20_000, rng), 0.2, rng)
    rows = history(heals, PAST["no jitter"], rng)
    rows.append(rows[0] | {"lo_bin": bin_of(7_200_000_000), "hi_bin": None, "n": 3})  # the consumer was away
    known = History(rows)
    assert known.horizon() == pytest.approx(31.0, rel=0.01)
    assert one(known, RedeliveryPolicy(5, 900)).extrapolated


def test_a_policy_without_an_end_is_flagged_and_its_attempts_are_those_within_the_horizon() -> None:
    rng = np.random.default_rng(6)
    heals = never(exponential(6.0)(20_000, rng), 0.2, rng)
    known = History(history(heals, PAST["no jitter"], rng))
    for endless in (RedeliveryPolicy(None, 10), RedeliveryPolicy(3, 10, None)):
        row = one(known, endless)
        assert row.extrapolated
        assert (row.dead_letter_share, row.wasted_attempts) == (0.0, 0.0)
        assert row.attempts_per_message < 5  # at 0, 10, 20, 30 and 40 s, and then nobody knows


def test_an_attempt_before_anybody_looked_is_not_trusted_where_much_hangs_on_it() -> None:
    rng = np.random.default_rng(7)
    heals = lognormal(4.0, 0.7)(20_000, rng)
    known = History(history(heals, RedeliveryPolicy(6, 10), rng))
    early = one(known, RedeliveryPolicy(3, [2, 18]))  # nine of ten heal before the first look, at 10 s
    assert early.extrapolated
    assert early.ttr_mean_s is None
    assert not one(known, RedeliveryPolicy(3, [10, 10])).extrapolated


def test_between_two_looks_that_are_far_apart_the_fate_is_a_guess() -> None:
    rng = np.random.default_rng(8)
    heals = lognormal(60.0, 1.0)(20_000, rng)
    known = History(history(heals, RedeliveryPolicy(3, [1, 3600]), rng))
    row = one(known, RedeliveryPolicy(2, 60))
    assert row.extrapolated
    assert row.p_recover_lo < 0.01
    assert row.p_recover_hi > 0.99
    assert not one(known, RedeliveryPolicy(3, [1, 3600])).extrapolated


def test_a_flagged_row_has_the_estimate_between_two_looks_and_nothing_behind_the_last_one() -> None:
    healed = {"destination": "d", "fingerprint": "f", "policy_version": "v", "lo_bin": 0, "hi_bin": bin_of(10_000_000)}
    died = healed | {"lo_bin": bin_of(10_000_000), "hi_bin": None}
    known = History([healed | {"n": 600}, died | {"n": 400}])
    between, behind, both = (
        one(known, policy) for policy in (RedeliveryPolicy(2, 3), RedeliveryPolicy(2, 60), RedeliveryPolicy(3, [3, 60]))
    )
    assert between.extrapolated
    assert 0 < between.p_recover < 0.6  # nobody looked at 3 s: it is the estimate
    assert (between.p_recover_lo, between.p_recover_hi) == (0.0, 0.6)
    for row in (behind, both):
        assert row.extrapolated
        assert (row.p_recover_lo, row.p_recover, row.p_recover_hi) == pytest.approx((0.6, 0.6, 1.0))


@pytest.mark.parametrize("jitter", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("messages", [30, 300, 3000])
def test_the_policy_in_use_is_never_beyond_its_own_history_by_much(jitter: float, messages: int) -> None:
    rng = np.random.default_rng(9)
    backoff = Backoff.exponential(1, 2)
    past = RedeliveryPolicy(6, backoff.jittered(jitter) if jitter else backoff)
    heals = never(lognormal(5.0, 1.2)(messages, rng), 0.1, rng)
    row = one(History(history(heals, past, rng)), past)
    assert row.extrapolated_share < max(0.03, 3 / messages)
    assert row.p_recover == pytest.approx(truth(heals, past, rng).recovered, abs=max(0.01, 2 / math.sqrt(messages)))
