# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Where the model's assumptions break: what the back-test still gets right, and that it says where it does not."""

from __future__ import annotations

import heapq

import numpy as np
import pytest

from redeliver_mw.pipeline.backtest import Candidate, Check, History, how_wrong
from redeliver_mw.pipeline.backtest.check import wilson
from redeliver_mw.policy import Backoff, RedeliveryPolicy

from .worlds import Floats, Rng, Row, attempts_of, history, lognormal, never, rows, truth

EAGER = RedeliveryPolicy(40, 1)
CALM = RedeliveryPolicy(6, Backoff.exponential(2, 2).jittered(0.2))


def outages(messages: int, mean_s: float, rng: Rng) -> Floats:
    """Healing times of messages that all fail until their outage is over; fifty of them, of any length."""
    lengths = rng.exponential(mean_s, 50)
    mine = lengths[rng.integers(0, len(lengths), messages)]
    return mine * rng.random(messages)


def crushed(messages: int, policy: RedeliveryPolicy, harm_s: float) -> list[Row]:
    """A history of outages, of some 10 s each, which every attempt that fails prolongs by `harm_s`. Always the same."""
    rng, found = np.random.default_rng(7), list[Row]()
    for _ in range(messages // 200):
        times = attempts_of(policy, 200, np.random.default_rng(8))
        length = rng.exponential(10.0)
        begins = np.sort(length * rng.random(200))
        events = [(begin, number, 0) for number, begin in enumerate(begins)]
        heapq.heapify(events)
        end, heals = length, np.full(200, np.inf)
        while events:
            now, number, tried = heapq.heappop(events)
            if now >= end:
                heals[number] = now - begins[number] if tried else 0.0
                continue
            end += harm_s
            if tried < times.shape[1]:
                heapq.heappush(events, (begins[number] + times[number, tried], number, tried + 1))
        failed = heals > 0
        found += rows(heals[failed], times[failed], version=policy.version)
    return found


def test_two_policies_that_met_the_same_world_foretell_each_other() -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)
        heals = never(lognormal(5.0, 1.2)(20_000, rng), 0.1, rng)
        lot = rng.random(len(heals)) < 0.2
        found = how_wrong(history(heals[~lot], EAGER, rng, version="a") + history(heals[lot], CALM, rng, version="b"))
        assert [(check.policy_version, check.wrong) for check in found] == [("a", False), ("b", False)], found
        assert [(check.messages, check.predicted_from) for check in found] == [
            (int((~lot).sum()), int(lot.sum())), (int(lot.sum()), int((~lot).sum())),
        ]  # fmt: skip
        assert all(abs(check.off) < 0.03 for check in found)


def test_outages_that_hit_all_at_once_are_judged_right_for_the_messages_that_met_them() -> None:
    rng = np.random.default_rng(5)
    heals = outages(30_000, 20.0, rng)
    past, other = RedeliveryPolicy(8, Backoff.exponential(1, 2).jittered(0.1)), RedeliveryPolicy(4, [4, 10, 20])
    [row] = History(history(heals, past, rng)).backtest([Candidate("c", other)], by="all")
    real = truth(heals, other, rng)
    assert row.p_recover == pytest.approx(real.recovered, rel=0.01)
    assert row.attempts_per_message == pytest.approx(real.attempts, rel=0.01)
    assert row.ttr_mean_s == pytest.approx(real.mean_s, rel=0.05)


def test_a_policy_of_a_month_with_longer_outages_is_told_to_be_off() -> None:
    rng = np.random.default_rng(6)
    march, april = outages(10_000, 10.0, rng), outages(10_000, 40.0, rng)
    found = how_wrong(history(march, EAGER, rng, version="march") + history(april, CALM, rng, version="april"))
    assert [check.wrong for check in found] == [True, True]
    by_version = {check.policy_version: check for check in found}
    assert by_version["april"].off > 0.1  # March foretold more than came
    assert by_version["march"].off < -0.1
    assert "the times were not alike" in str(by_version["april"])


def test_retries_that_prolong_an_outage_are_found_out() -> None:
    found = how_wrong(crushed(12_000, EAGER, 0.003) + crushed(12_000, CALM, 0.003))
    by_version = {check.policy_version: check for check in found}
    assert by_version[EAGER.version].wrong
    assert by_version[EAGER.version].off > 0.1  # the calm ones' history knows nothing of the harm
    assert "healing depends on the policy" in str(by_version[EAGER.version])


def test_the_same_outages_without_the_harm_are_not_called_wrong() -> None:
    found = how_wrong(crushed(12_000, EAGER, 0.0) + crushed(12_000, CALM, 0.0))
    assert [check.wrong for check in found] == [False, False], found


def test_one_policy_alone_or_too_few_messages_say_nothing() -> None:
    rng = np.random.default_rng(9)
    heals = lognormal(5.0, 1.2)(1_000, rng)
    assert how_wrong(history(heals, EAGER, rng)) == []
    few = history(heals, EAGER, rng, version="a") + history(heals[:40], CALM, rng, version="b")
    assert how_wrong(few) == []


def test_what_failed_in_other_ways_is_not_compared() -> None:
    rng = np.random.default_rng(10)
    heals = lognormal(5.0, 1.0)(4_000, rng)
    slow = lognormal(500.0, 0.1)(4_000, rng)
    both = history(heals[:2000], EAGER, rng, version="a") + history(heals[2000:], CALM, rng, version="b")
    found = how_wrong(both + history(slow, CALM, rng, version="b", fingerprint="slow"))
    assert [(check.messages, check.wrong) for check in found] == [(2000, False), (2000, False)]


def test_a_check_says_itself_in_a_sentence() -> None:
    check = Check(
        destination="orders", policy_version="1a2b", messages=1000, predicted_from=9000, within_s=31.0,
        predicted=0.931, observed=0.88, observed_lo=0.851, observed_hi=0.904, wrong=True,
    )  # fmt: skip
    assert str(check) == (
        "orders: the histories of other policies say that 93.1% of the 1000 messages of policy 1a2b heal within 31 s; "
        "88.0% did (85.1% to 90.4%). The back-test is 5.1 points off here: healing depends on the policy, or the times "
        "were not alike"
    )


def test_the_interval_of_a_share_is_wilsons() -> None:
    # z = 2.576: (10 + z*z/2 ± z*sqrt(10*10/20 + z*z/4)) / (20 + z*z)
    low, high = wilson(0.5, 20)
    assert (round(low, 4), round(high, 4)) == (0.2504, 0.7496)
    assert wilson(0.0, 20)[0] == pytest.approx(0.0, abs=1e-12)
