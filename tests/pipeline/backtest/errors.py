# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Measures how exact the back-test is in worlds whose truth is known, and prints the table of docs/backtest.md.

python -m tests.pipeline.backtest.errors
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from redeliver_mw.pipeline.backtest import Candidate, History
from redeliver_mw.policy import Backoff, RedeliveryPolicy

from .worlds import World, at_once, exponential, history, lognormal, mixed, outages, poison, truth, uniform

MESSAGES: Final = 40_000
SEEDS: Final = (1, 2)

SMOOTH: Final[dict[str, World]] = {
    "lognormal, sigma 1.5, and 5 % never": mixed((0.95, lognormal(5.0, 1.5)), (0.05, poison)),
    "a constant rate, and 10 % never": mixed((0.9, exponential(6.0)), (0.1, poison)),
    "quick ones, slow ones and poison as one failure": mixed(
        (0.5, lognormal(1.5, 0.8)), (0.3, lognormal(15.0, 1.0)), (0.2, poison)
    ),
    "by day slower than at night": mixed((0.7, lognormal(9.0, 1.0)), (0.3, lognormal(2.0, 1.0))),
    "a tail: a quarter recovers after the horizon": lognormal(8.0, 2.3),
    "50 outages, each of many messages": outages(20.0),
}
ROUGH: Final[dict[str, World]] = {
    "narrow: lognormal, sigma 0.3": lognormal(5.0, 0.3),
    "until a time, and then none: even over 12 s": uniform(12.0),
    "all after the same 6 s": at_once(6.0),
}
PAST: Final = (
    RedeliveryPolicy(6, Backoff.exponential(1, 2)),
    RedeliveryPolicy(6, Backoff.exponential(1, 2).jittered(0.1)),
    RedeliveryPolicy(5, Backoff.exponential(2, 2).jittered(0.5)),
)
INSIDE: Final = (
    RedeliveryPolicy(4, Backoff.exponential(1, 2)),
    RedeliveryPolicy(4, [3, 4, 8]),
    RedeliveryPolicy(3, 10),
    RedeliveryPolicy(5, Backoff.exponential(2, 1.5)),
    RedeliveryPolicy(2, 20),
    RedeliveryPolicy(5, Backoff.exponential(1.2, 2).jittered(0.3)),
    RedeliveryPolicy(5, [1.5, 2, 4, 11]),
)
OUTSIDE: Final = (
    RedeliveryPolicy(10, Backoff.exponential(1, 2)),
    RedeliveryPolicy(6, 60),
    RedeliveryPolicy(3, 3600),
)


class Errors(NamedTuple):
    """Holds the largest errors of a world, as parts of what is true; of flagged rows only the bounds are looked at.

    `bounds` is the share of all messages by which the truth lies outside the bounds; 0 if it never does.
    """

    flagged: float
    recovered: float
    attempts: float
    mean: float
    bounds: float


def measured(world: World, candidates: tuple[RedeliveryPolicy, ...] = INSIDE) -> Errors:
    """Return the largest errors in a world, over every history, every seed and every candidate."""
    found = [one for seed in SEEDS for past in PAST for one in _errors(world, past, candidates, seed)]
    told = [one for one in found if not one.flagged]
    worst = (max((getattr(one, name) for one in told), default=0.0) for name in ("recovered", "attempts", "mean"))
    return Errors(1 - len(told) / len(found), *worst, max(one.bounds for one in found))


def _errors(
    world: World, past: RedeliveryPolicy, candidates: tuple[RedeliveryPolicy, ...], seed: int
) -> Iterator[Errors]:
    rng = np.random.default_rng(seed)
    heals = world(MESSAGES, rng)
    known = History(history(heals, past, rng))
    named = [Candidate(str(number), policy) for number, policy in enumerate(candidates)]
    for row, policy in zip(known.backtest(named, by="all"), candidates, strict=True):
        real = truth(heals, policy, rng)
        mean = 0.0 if row.ttr_mean_s is None else abs(row.ttr_mean_s / real.mean_s - 1)
        yield Errors(
            row.extrapolated,
            abs(row.p_recover / real.recovered - 1),
            abs(row.attempts_per_message / real.attempts - 1),
            mean,
            max(row.p_recover_lo - real.recovered, real.recovered - row.p_recover_hi, 0.0),
        )


def table() -> Iterator[str]:
    """Yield the lines of the table in Markdown."""
    yield "| messages recover | flagged | recovered | attempts | mean time |"
    yield "|---|---|---|---|---|"
    for name, world in (SMOOTH | ROUGH).items():
        found = measured(world)
        shares = (f"{100 * part:.1f} %" for part in found[:4])
        yield f"| {name} | {' | '.join(shares)} |"


if __name__ == "__main__":
    print("\n".join(table()))
