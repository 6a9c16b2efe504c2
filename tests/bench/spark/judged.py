# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Compares the back-test with the truth that the records were made with: goal G10."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from redeliver_mw.pipeline.backtest.history import History
from redeliver_mw.pipeline.backtest.rows import BacktestRow, Candidate
from redeliver_mw.pipeline.marts.messages import messages
from redeliver_mw.pipeline.marts.recovery import recovery
from redeliver_mw.policy import Backoff, RedeliveryPolicy

from .sides import Bench, Figure

# Within the half minute that history looked at, and what the goal allows of each.
INSIDE: Final = {
    "4 attempts, 1 s doubling": RedeliveryPolicy(4, Backoff.exponential(1.0, 2.0)),
    "4 attempts, 9 s each": RedeliveryPolicy(4, Backoff.constant(9.0)),
    "3 attempts, 0.5 s times 3, a fifth of jitter": RedeliveryPolicy(3, Backoff.exponential(0.5, 3.0).jittered(0.2)),
}
OUTSIDE: Final = {"10 attempts, 1 s doubling": RedeliveryPolicy(10, Backoff.exponential(1.0, 2.0))}
COUNTS, TIMES = 0.01, 0.05


class Truth(NamedTuple):
    """Says what a policy does with the messages that failed."""

    recovered: float  # their share
    attempts: float  # of each
    mean_s: float  # until those that recover did


def goals(bench: Bench) -> None:
    rows = recovery(messages(bench.events())).collect()
    history = History([row.asDict() for row in rows])
    heals = bench.made.recovery_s()
    for name, policy in INSIDE.items():
        [told] = history.backtest([Candidate(name, policy)], by="all")
        _inside(bench, name, told, truth(policy, heals))
    for name, policy in OUTSIDE.items():
        [told] = history.backtest([Candidate(name, policy)], by="all")
        _outside(bench, name, told, truth(policy, heals))


def truth(policy: RedeliveryPolicy, heals: np.ndarray[Any, np.dtype[np.float64]]) -> Truth:
    """Return what the policy does with every message by itself, with jitter drawn for each."""
    rng = np.random.default_rng(7)
    tries = policy.dead_after
    assert tries is not None
    spans = [policy.backoff.span(failures) for failures in range(1, tries)]
    delays = np.stack([rng.uniform(span.low, span.high, len(heals)) for span in spans], axis=1)
    times = np.concatenate([np.zeros((len(heals), 1)), np.cumsum(delays, axis=1)], axis=1)
    fails = (times < heals[:, None]).sum(axis=1)
    healed = fails < tries
    took = times[healed, fails[healed]]
    return Truth(float(healed.mean()), float(np.minimum(fails + 1, tries).mean()), float(took.mean()))


def _inside(bench: Bench, name: str, told: BacktestRow, true: Truth) -> None:
    assert told.ttr_mean_s is not None, f"{name} is called extrapolated"
    pairs = (
        ("recovered", told.p_recover, true.recovered, COUNTS),
        ("attempts", told.attempts_per_message, true.attempts, COUNTS),
        ("mean time", told.ttr_mean_s, true.mean_s, TIMES),
    )
    for what, ours, theirs, most in pairs:
        off = abs(ours / theirs - 1)
        bench.figures.append(
            Figure(
                "G10",
                f"{name}: {what}, back-test and truth",
                bench.made.asked,
                f"{ours:.4f}",
                f"{theirs:.4f}",
                off,
                f"within {most:.0%}",
                off <= most,
            )
        )


def _outside(bench: Bench, name: str, told: BacktestRow, true: Truth) -> None:
    within = told.p_recover_lo <= true.recovered <= told.p_recover_hi
    flagged = told.extrapolated and told.ttr_mean_s is told.ttr_p50_s is told.ttr_p95_s is None
    bounds = f"{told.p_recover_lo:.4f} to {told.p_recover_hi:.4f}"
    bench.figures.append(
        Figure(
            "G10",
            f"{name}, beyond what history saw: recovered",
            bench.made.asked,
            bounds,
            f"{true.recovered:.4f}",
            told.extrapolated_share,
            "flagged, truth in bounds",
            within and flagged,
        )
    )
