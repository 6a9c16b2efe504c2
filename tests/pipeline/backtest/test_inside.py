# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The back-test is right within what history saw, in worlds whose truth is known and which obey the model."""

from __future__ import annotations

import numpy as np
import pytest

from redeliver_mw.pipeline.backtest import BacktestRow, Candidate, History
from redeliver_mw.policy import Backoff, RedeliveryPolicy

from .worlds import Floats, World, exponential, history, lognormal, never, truth

MESSAGES = 60_000
COUNTS, TIMES = 0.01, 0.05  # what is promised

WORLDS: dict[str, tuple[World, float]] = {
    "lognormal": (lognormal(5.0, 1.5), 0.05),
    "narrower": (lognormal(4.0, 0.7), 0.0),
    "a constant rate": (exponential(6.0), 0.1),
    "a third never heals": (lognormal(5.0, 1.2), 0.33),
}
HISTORIES = {
    "1 s doubling, no jitter": RedeliveryPolicy(6, Backoff.exponential(1, 2)),
    "1 s doubling, a tenth of jitter": RedeliveryPolicy(6, Backoff.exponential(1, 2).jittered(0.1)),
    "2 s doubling, half of jitter": RedeliveryPolicy(5, Backoff.exponential(2, 2).jittered(0.5)),
}
CANDIDATES = {
    "on the same times": RedeliveryPolicy(4, Backoff.exponential(1, 2)),
    "on every second of them": RedeliveryPolicy(4, [3, 4, 8]),
    "10 s each": RedeliveryPolicy(3, 10),
    "2 s times 1.5": RedeliveryPolicy(5, Backoff.exponential(2, 1.5)),
    "a late one": RedeliveryPolicy(2, 20),
    "jitter": RedeliveryPolicy(5, Backoff.exponential(1.2, 2).jittered(0.3)),
    "listed": RedeliveryPolicy(5, [1.5, 2, 4, 11]),
}


def judge(heals: Floats, past: RedeliveryPolicy, seed: int, **candidates: RedeliveryPolicy) -> list[BacktestRow]:
    rows = history(heals, past, np.random.default_rng(seed))
    return History(rows).backtest([Candidate(name, policy) for name, policy in candidates.items()], by="all")


@pytest.mark.parametrize("past", HISTORIES.values(), ids=HISTORIES)
@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
@pytest.mark.parametrize("seed", [1, 2])
def test_counts_are_within_1_percent_and_times_within_5(
    world: tuple[World, float], past: RedeliveryPolicy, seed: int
) -> None:
    make, share = world
    rng = np.random.default_rng(100 + seed)
    heals = never(make(MESSAGES, rng), share, rng)
    for row in judge(heals, past, seed, **CANDIDATES):
        real = truth(heals, CANDIDATES[row.candidate], rng)
        assert not row.extrapolated, row
        assert row.ttr_mean_s is not None
        assert row.p_recover == pytest.approx(real.recovered, rel=COUNTS), row
        assert row.attempts_per_message == pytest.approx(real.attempts, rel=COUNTS), row
        assert row.ttr_mean_s == pytest.approx(real.mean_s, rel=TIMES), row
        assert row.p_recover_lo <= real.recovered + 0.002, row
        assert row.p_recover_hi >= real.recovered - 0.002, row


def test_the_policy_that_made_the_history_is_judged_as_it_was() -> None:
    heals = never(lognormal(5.0, 1.5)(20_000, np.random.default_rng(3)), 0.1, np.random.default_rng(4))
    past = RedeliveryPolicy(6, Backoff.exponential(1, 2))
    rows = history(heals, past, np.random.default_rng(5))
    [row] = History(rows).backtest([Candidate("past", past)], by="all")
    recovered = sum(line["n"] for line in rows if line["hi_bin"] is not None)
    assert row.messages == len(heals)
    assert row.p_recover == row.p_recover_lo == row.p_recover_hi == pytest.approx(recovered / len(heals), abs=1e-12)
    assert row.dead_letter_share == pytest.approx(1 - recovered / len(heals), abs=1e-12)
    assert row.wasted_attempts == pytest.approx(6 * (len(heals) - recovered), rel=1e-9)
    assert row.ttr_p50_s == truth(heals, past, np.random.default_rng(5)).median_s


def test_failures_that_heal_differently_are_told_apart_and_add_up() -> None:
    rng, past = np.random.default_rng(6), RedeliveryPolicy(6, Backoff.exponential(1, 2).jittered(0.1))
    worlds = {
        ("orders", "quick"): lognormal(1.5, 0.8)(20_000, rng),
        ("orders", "slow"): lognormal(12.0, 0.8)(10_000, rng),
        ("mail", "quick"): lognormal(6.0, 1.0)(5_000, rng),
        ("mail", "dead"): np.full(3_000, np.inf),
    }
    rows = [
        line
        for (place, print_), heals in worlds.items()
        for line in history(heals, past, rng, destination=place, fingerprint=print_)
    ]
    policy = RedeliveryPolicy(4, [1.5, 3, 9])
    found = History(rows).backtest([Candidate("c", policy)], by="fingerprint")
    judged = {(row.destination, row.error_fingerprint): row for row in found}
    assert list(judged) == [
        (None, None),
        ("mail", None),
        ("mail", "dead"),
        ("mail", "quick"),
        ("orders", None),
        ("orders", "quick"),
        ("orders", "slow"),
    ]
    for place, heals in worlds.items():
        real = truth(heals, policy, rng)
        assert judged[place].p_recover == pytest.approx(real.recovered, abs=COUNTS), place
        assert judged[place].attempts_per_message == pytest.approx(real.attempts, rel=COUNTS), place
        if real.recovered:
            assert judged[place].ttr_mean_s == pytest.approx(real.mean_s, rel=TIMES), place
    for place in ("orders", "mail"):
        parts = [judged[key] for key in worlds if key[0] == place]
        whole = judged[place, None]
        assert whole.messages == sum(part.messages for part in parts)
        for name in ("p_recover", "p_recover_lo", "p_recover_hi", "dead_letter_share", "attempts_per_message"):
            mean = sum(getattr(part, name) * part.messages for part in parts) / whole.messages
            assert getattr(whole, name) == pytest.approx(mean, abs=1e-9), name
        assert whole.wasted_attempts == pytest.approx(sum(part.wasted_attempts for part in parts))


def test_small_failures_lean_on_their_destination_where_they_know_nothing_themselves() -> None:
    rng, past = np.random.default_rng(7), RedeliveryPolicy(3, [2, 20])
    many = lognormal(5.0, 0.5)(20_000, rng)  # nearly all heal between 2 s and 22 s, and most of them by 8 s
    few = 2.0 + 20.0 * rng.random(4)
    rows = history(many, RedeliveryPolicy(9, 2.5), rng) + history(few, past, rng, fingerprint="rare")
    found = History(rows).backtest([Candidate("by 8 s", RedeliveryPolicy(2, 8))], by="fingerprint")
    rare = next(row for row in found if row.error_fingerprint == "rare")
    assert (rare.p_recover_lo, rare.p_recover_hi) == (0.0, 1.0)  # its own messages say nothing of 8 s
    assert rare.p_recover == pytest.approx(float(np.mean(many[many > 2] < 8)), abs=0.1)


def test_attempts_take_time_where_they_are_configured_to() -> None:
    rng, heals = np.random.default_rng(8), lognormal(5.0, 1.0)(20_000, np.random.default_rng(9))
    past = RedeliveryPolicy(8, 1)
    slow = RedeliveryPolicy(8, 1.5)  # as if each attempt took half a second
    rows = history(heals, slow, rng)
    [row] = History(rows, attempt_s=0.5).backtest([Candidate("past", past)], by="all")
    real = truth(heals, slow, rng)
    assert row.p_recover == pytest.approx(real.recovered, rel=COUNTS)
    assert row.ttr_mean_s == pytest.approx(real.mean_s, rel=TIMES)


def test_what_an_arm_saw_later_counts_for_all() -> None:
    rng, heals = (
        np.random.default_rng(10),
        never(lognormal(20.0, 1.2)(60_000, np.random.default_rng(11)), 0.1, np.random.default_rng(12)),
    )
    short, patient = RedeliveryPolicy(4, [1, 4, 16]), RedeliveryPolicy(8, Backoff.exponential(2, 2).jittered(0.3))
    lot = rng.random(len(heals)) < 0.05
    rows = history(heals[~lot], short, rng, version="main") + history(heals[lot], patient, rng, version="patient")
    wanted = RedeliveryPolicy(4, [10, 30, 60])
    [row] = History(rows).backtest([Candidate("c", wanted)], by="all")
    real = truth(heals, wanted, rng)
    assert not row.extrapolated
    assert row.p_recover == pytest.approx(real.recovered, rel=0.02)  # 3000 messages say so, no more
    assert row.attempts_per_message == pytest.approx(real.attempts, rel=0.02)
    main = [line for line in rows if line["policy_version"] == "main"]
    [alone] = History(main).backtest([Candidate("c", wanted)], by="all")
    assert alone.extrapolated


def test_a_candidate_with_arms_is_what_its_arms_are_together() -> None:
    rng, heals = np.random.default_rng(13), lognormal(5.0, 1.2)(20_000, np.random.default_rng(14))
    rows = history(heals, RedeliveryPolicy(6, Backoff.exponential(1, 2).jittered(0.2)), rng)
    main, other = RedeliveryPolicy(3, 2), RedeliveryPolicy(2, 8)
    both = RedeliveryPolicy(3, 2, arms={"other": (0.25, other)})
    found = {
        row.candidate: row
        for row in History(rows).backtest([Candidate("main", main), Candidate("other", other), Candidate("both", both)])
        if row.destination is None
    }
    for name in ("p_recover", "attempts_per_message", "wasted_attempts", "dead_letter_share"):
        parts = 0.75 * getattr(found["main"], name) + 0.25 * getattr(found["other"], name)
        assert getattr(found["both"], name) == pytest.approx(parts), name
    assert found["both"].messages == len(heals)
