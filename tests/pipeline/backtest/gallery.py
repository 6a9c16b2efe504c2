# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Measures whether advice is surer than its data: judges months of worlds whose law is known, and follows the advice.

    python -m tests.pipeline.backtest.gallery [--draws 200] [--processes 2] [--world NAME] [--results FILE]

For each draw of a world a month of failing messages is played under the policy in use. The back-test searches for a
better policy and says how sure it is. Then a further month of the same world, with other messages, is played under the
policy in use and under the one that was advised. The program prints for each world how often advice was given, how
often what came was no worse than the interval that was said, and how often what was called sure, or fairly sure, was
better. Delays, durations and outcomes are drawn here, with none of the code that is tested.

All draws take about an hour and a half of two cores. With `--results` each draw is kept in a file, and a draw that is
there is not made again, so that the draws may be made in parts. A file that ends with `.gz` is compressed. The file
`draws.jsonl.gz` beside this module has draws of the estimator as it is: remove that file when you change what the
estimator finds.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import IO, Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from redeliver_mw.pipeline.backtest import OBJECTIVES, Candidate, History, how_wrong, recommend, search
from redeliver_mw.pipeline.backtest.assessment import Assessment, LakeEvidence, assess
from redeliver_mw.pipeline.backtest.lake_input import longest_outages
from redeliver_mw.pipeline.time_bins import bin_of, lower_edge
from redeliver_mw.policy import Backoff, RedeliveryPolicy

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rng = np.random.Generator

DAY: Final = 86_400.0
MONTH: Final = 30 * DAY
SLICES: Final = 64
BUCKETS: Final = 2_000
LATE: Final = 0.004
ASSESSED: Final = 20  # draws of each world in which it is asked what is withheld though nothing looks better
_EDGES = np.array([lower_edge(number) for number in range(bin_of(10**14))])

USUAL: Final = RedeliveryPolicy(6, Backoff.exponential(1, 2))
JITTERED: Final = RedeliveryPolicy(6, Backoff.exponential(1, 2).jittered(0.2))
STEADY: Final = RedeliveryPolicy(12, 5.0)
ARM: Final = RedeliveryPolicy(8, Backoff.exponential(2, 2.5, cap=300).jittered(0.3))


@dataclass
class Month:
    """Holds messages that fail at their first attempt, in an array for each value; times are seconds into the month.

    A retry that begins at `t` fails if `t < heals`, or, where `by_attempt` is above 0, if its number is below that.
    """

    arrive: Floats
    heals: Floats
    fingerprint: Ints
    failing_s: Floats  # the mean time that a failing attempt of the message takes
    arm: Floats  # decides which arm a message goes to, evenly from 0 to 1
    by_attempt: Ints
    heavy: bool = False  # durations are lognormal with a heavy tail, else exponential about their mean
    late_s: float = LATE
    untrusted: NDArray[np.bool_] | None = None  # whose times are out of order, as with clocks that are not in step
    harm_s: float = 0.0  # by so much every failing retry prolongs the outage of its message
    outage: Ints | None = None  # of which outage a message is


class Played(NamedTuple):
    """Holds what became of a month: a number for each message; `hi` and `took` are nan where nothing succeeded."""

    lo: Floats
    hi: Floats
    attempts: Ints
    took: Floats
    failing: Floats  # durations of failing attempts, all of them
    late: Floats
    failed: Ints  # the fingerprint of each of `failing`
    waited: Ints  # and of each of `late`


def month_of(
    rng: Rng,
    arrive: Floats,
    heals: Floats,
    *,
    fingerprint: Ints | None = None,
    failing_s: float | Floats = 0.005,
    **more: Any,
) -> Month:
    """Return a month whose messages heal so many seconds after they arrived."""
    count = len(arrive)
    return Month(
        arrive=arrive,
        heals=arrive + heals,
        fingerprint=np.zeros(count, dtype=np.int64) if fingerprint is None else fingerprint,
        failing_s=np.broadcast_to(np.asarray(failing_s, dtype=float), (count,)),
        arm=rng.random(count),
        by_attempt=more.pop("by_attempt", np.zeros(count, dtype=np.int64)),
        **more,
    )


class Attempts(NamedTuple):
    """Holds one attempt at each message that `tried` marks; times are seconds since the message's first failure."""

    number: int
    tried: NDArray[np.bool_]
    failed: NDArray[np.bool_]
    begin: Floats
    taking: Floats
    delay: Floats  # of the rest before it


def play(month: Month, policy: RedeliveryPolicy, rng: Rng, attempts: list[Attempts] | None = None) -> Played:
    """Let a policy try every message of a month; every attempt is added to `attempts`, if that is given."""
    if month.harm_s and month.outage is not None:
        calm = _play(month, policy, np.random.default_rng(7), month.heals)
        heals = month.heals
        for _ in range(6):  # what retries add prolongs the outage, which makes more retries
            failed = np.bincount(month.outage, calm.attempts - 1, month.outage.max() + 1)
            heals = month.heals + month.harm_s * failed[month.outage]
            calm = _play(month, policy, np.random.default_rng(7), heals)
        return _play(month, policy, rng, heals)
    return _play(month, policy, rng, month.heals, attempts)


def _play(
    month: Month, policy: RedeliveryPolicy, rng: Rng, heals: Floats, told: list[Attempts] | None = None
) -> Played:
    assert policy.dead_after is not None
    count = len(month.arrive)
    lo, hi, took = np.zeros(count), np.full(count, np.nan), np.full(count, np.nan)
    attempts, at = np.ones(count, dtype=np.int64), np.zeros(count)
    waiting = np.ones(count, dtype=bool)
    failing, late = [_durations(month, rng)], [np.zeros(0)]
    failed, waited = [month.fingerprint], [month.fingerprint[:0]]
    if told is not None:
        told.append(Attempts(1, waiting.copy(), waiting.copy(), -failing[0], failing[0], np.zeros(count)))
    for number in range(1, policy.dead_after):
        span = policy.backoff.span(number)
        lateness = rng.exponential(month.late_s, count)
        delay = rng.uniform(span.low, span.high, count)
        begin = at + delay + lateness
        retried = number + 1
        fails = np.where(month.by_attempt > 0, retried < month.by_attempt, month.arrive + begin < heals)
        taking = _durations(month, rng)
        attempts += waiting
        if told is not None:
            told.append(Attempts(retried, waiting.copy(), waiting & fails, begin, taking, delay))
        late.append(lateness[waiting])
        waited.append(month.fingerprint[waiting])
        failing.append(taking[waiting & fails])
        failed.append(month.fingerprint[waiting & fails])
        done = waiting & ~fails
        hi[done], took[done] = begin[done], begin[done]
        lo = np.where(waiting & fails, begin, lo)
        waiting &= fails
        at = begin + taking
    return Played(lo, hi, attempts, took, *(np.concatenate(each) for each in (failing, late, failed, waited)))


def _durations(month: Month, rng: Rng) -> Floats:
    if month.heavy:
        return month.failing_s * rng.lognormal(-0.72, 1.2, len(month.arrive))
    return rng.exponential(month.failing_s)


# -- what a lake would hold -------------------------------------------------------------------------------------------


class Judged(NamedTuple):
    """Holds a month as the back-test reads it."""

    rows: list[dict[str, Any]]
    times: list[dict[str, Any]]
    observed: list[dict[str, Any]]
    outages: Mapping[str, float]


def judged(parts: list[tuple[Month, Played, str, NDArray[np.bool_]]]) -> Judged:
    """Return what the back-test reads of played months, each with its policy's version and the messages that had it."""
    counts: Counter[tuple[Any, ...]] = Counter()
    times: Counter[tuple[Any, ...]] = Counter()
    observed, buckets = [], Counter[int]()
    for month, played, version, mine in parts:
        lo, hi = _bins(played.lo), np.where(np.isnan(played.hi), -1, _bins(np.nan_to_num(played.hi)))
        if month.untrusted is not None:
            lo, hi = np.where(month.untrusted, 0, lo), np.where(month.untrusted, -1, hi)
        slices = (month.arrive / MONTH * SLICES).astype(np.int64).clip(0, SLICES - 1)
        table = np.stack([month.fingerprint, slices, lo, hi], axis=1)[mine]
        found, n = np.unique(table, axis=0, return_counts=True)
        for key, many in zip(found.tolist(), n.tolist(), strict=True):
            counts[(f"f{key[0]}", version, *key[1:])] += many
        for kind, seconds, which in (
            ("failing", played.failing, played.failed),
            ("late", played.late, played.waited),
        ):
            pairs = which * len(_EDGES) + _bins(seconds)  # each pair as one number, which is sorted more quickly
            found, n = np.unique(pairs, return_counts=True)
            for code, many in zip(found.tolist(), n.tolist(), strict=True):
                fingerprint, at = divmod(code, len(_EDGES))
                times[f"f{fingerprint}", kind, at] += many
        buckets.update((month.arrive[mine] / MONTH * BUCKETS).astype(np.int64).clip(0, BUCKETS - 1).tolist())
        observed.append(
            {
                "destination": "orders",
                "policy_version": version,
                "messages": int(mine.sum()),
                "recovered": int((~np.isnan(played.took[mine])).sum()),
                "attempts": int(played.attempts[mine].sum()),
                "timed": int((~np.isnan(played.took[mine])).sum()),
                "waited_us": int(np.nansum(played.took[mine]) * 1e6),
                "last_us": int(month.arrive[mine].max(initial=0.0) * 1e6),
            }
        )
    names = ("fingerprint", "policy_version", "slice", "lo_bin", "hi_bin")
    rows = [
        {
            "destination": "orders",
            **dict(zip(names, key, strict=True)),
            "hi_bin": None if key[4] < 0 else key[4],
            "n": n,
        }
        for key, n in counts.items()
    ]
    taking = [
        {"destination": "orders", "fingerprint": fingerprint, "kind": kind, "bin": at, "n": n}
        for (fingerprint, kind, at), n in times.items()
    ]
    failures = [{"destination": "orders", "bucket": at, "n": n} for at, n in buckets.items()]
    return Judged(rows, taking, observed, longest_outages(failures, BUCKETS))


def _bins(seconds: Floats) -> Ints:
    return np.searchsorted(_EDGES, np.rint(seconds * 1e6), side="right") - 1


# -- worlds -----------------------------------------------------------------------------------------------------------

Maker = Callable[[Rng, int], Month]  # a month of the world: the first is 0, the next one 1


@dataclass(frozen=True)
class GalleryWorld:
    """Describes a law by which messages fail and recover.

    `kind` is *judged* where a back-test can be right, *not judged* where nothing honest can be said, and *unseen* where
    what breaks the back-test stands in no log.
    """

    name: str
    kind: str
    make: Maker
    policy: RedeliveryPolicy = USUAL
    objective: str = "fewer-dead-letters"
    arm: RedeliveryPolicy | None = None
    before: RedeliveryPolicy | None = None  # the policy of the first half of the month


def arrivals(rng: Rng, count: int) -> Floats:
    return np.sort(rng.uniform(0.0, MONTH, max(rng.poisson(count), 1 if count else 0)))


def lognormal(rng: Rng, count: int, median: float, sigma: float) -> Floats:
    return median * np.exp(sigma * rng.standard_normal(count))


def never(rng: Rng, heals: Floats, share: float) -> Floats:
    return np.where(rng.random(len(heals)) < share, np.inf, heals)


def smooth(count: int = 2000, median: float = 5.0, sigma: float = 1.5, share: float = 0.05, **more: Any) -> Maker:
    def make(rng: Rng, month: int) -> Month:
        at = arrivals(rng, count)
        return month_of(rng, at, never(rng, lognormal(rng, len(at), median, sigma), share), **more)

    return make


def constant_rate(rng: Rng, month: int) -> Month:
    at = arrivals(rng, 2000)
    return month_of(rng, at, never(rng, rng.exponential(6.0, len(at)), 0.1))


def three_kinds(rng: Rng, month: int) -> Month:
    at = arrivals(rng, 2500)
    kind = rng.choice(3, len(at), p=[0.5, 0.3, 0.2])
    heals = np.choose(
        kind, [lognormal(rng, len(at), 1.5, 0.8), lognormal(rng, len(at), 15.0, 1.0), np.full(len(at), np.inf)]
    )
    return month_of(rng, at, heals)


def two_failures(rng: Rng, month: int) -> Month:
    at = arrivals(rng, 2500)
    kind = (rng.random(len(at)) < 0.3).astype(np.int64)
    heals = np.where(kind == 1, lognormal(rng, len(at), 40.0, 1.0), lognormal(rng, len(at), 3.0, 1.0))
    return month_of(rng, at, never(rng, heals, 0.03), fingerprint=kind, failing_s=np.where(kind == 1, 4.0, 0.01))


def day_and_night(rng: Rng, month: int) -> Month:
    at = arrivals(rng, 2500)
    night = (at % DAY) < DAY / 3
    heals = np.where(night, lognormal(rng, len(at), 3.0, 1.0), lognormal(rng, len(at), 12.0, 1.0))
    return month_of(rng, at, never(rng, heals, 0.05))


def weekly(rng: Rng, month: int) -> Month:
    at = arrivals(rng, 4000)
    busy = (at / DAY % 7) < 5
    at = at[busy | (rng.random(len(at)) < 0.2)]
    return month_of(rng, at, never(rng, lognormal(rng, len(at), 6.0, 1.4), 0.05))


def outage_world(number: int, mean_s: float, each: int = 20, background: int = 0, **more: Any) -> Maker:
    """Return a maker of months with about `number` outages of any length; messages fail until their outage is over."""

    def make(rng: Rng, month: int) -> Month:
        starts = rng.uniform(0.0, MONTH - 10 * mean_s, max(rng.poisson(number), 1))
        lengths = rng.exponential(mean_s, len(starts))
        sizes = rng.poisson(each * lengths / mean_s) + 1
        which = np.repeat(np.arange(len(starts)), sizes)
        into = rng.random(len(which)) * lengths[which]
        at, heals = starts[which] + into, lengths[which] - into
        other = arrivals(rng, background)
        at, heals = np.concatenate([at, other]), np.concatenate([heals, lognormal(rng, len(other), 5.0, 1.5)])
        which = np.concatenate([which, len(starts) + np.arange(len(other))])
        order = np.argsort(at)
        made = month_of(rng, at[order], heals[order], **more)
        made.outage = which[order]
        return made

    return make


def poison_bursts(rng: Rng, month: int) -> Month:
    at = arrivals(rng, 2000)
    heals = never(rng, lognormal(rng, len(at), 5.0, 1.2), 0.02)
    days = rng.choice(30, 8, replace=False)
    burst = np.concatenate([rng.uniform(day * DAY, day * DAY + 3600, 40) for day in days])
    both = np.concatenate([at, burst])
    order = np.argsort(both)
    kind = np.concatenate([np.zeros(len(at)), np.ones(len(burst))]).astype(np.int64)
    return month_of(
        rng, both[order], np.concatenate([heals, np.full(len(burst), np.inf)])[order], fingerprint=kind[order]
    )


def drifting(factor: float) -> Maker:
    """Return a maker of months in which recovery takes longer and longer, by `factor` in a month and on in the next."""

    def make(rng: Rng, month: int) -> Month:
        at = arrivals(rng, 2500)
        slower = factor ** (month + at / MONTH)
        return month_of(rng, at, never(rng, lognormal(rng, len(at), 4.0, 1.2) * slower, 0.05))

    return make


def deploy(before: float, after: float, poison: float = 0.05) -> Maker:
    """Return a maker of months whose messages recover differently from the middle of the first month on."""

    def make(rng: Rng, month: int) -> Month:
        at = arrivals(rng, 2500)
        late = (month > 0) | (at > MONTH / 2)
        heals = lognormal(rng, len(at), 1.0, 1.2) * np.where(late, after, before)
        return month_of(rng, at, np.where(rng.random(len(at)) < np.where(late, poison, 0.05), np.inf, heals))

    return make


def growing_mix(rng: Rng, month: int) -> Month:
    at = arrivals(rng, 3000)
    share = 0.1 + 0.3 * (month + at / MONTH)
    slow = rng.random(len(at)) < share
    heals = np.where(slow, lognormal(rng, len(at), 60.0, 0.8), lognormal(rng, len(at), 3.0, 1.0))
    return month_of(rng, at, heals, fingerprint=slow.astype(np.int64))


def bad_host(rng: Rng, month: int) -> Month:
    at = arrivals(rng, 2500)
    bad = rng.random(len(at)) < 0.25
    heals = np.where(bad, lognormal(rng, len(at), 25.0, 1.0), lognormal(rng, len(at), 4.0, 1.0))
    return month_of(rng, at, never(rng, heals, 0.05))


def skewed(rng: Rng, month: int) -> Month:
    made = smooth()(rng, month)
    made.untrusted = rng.random(len(made.arrive)) < 0.4
    return made


def by_attempt(rng: Rng, month: int) -> Month:
    at = arrivals(rng, 2500)
    numbers = 2 + rng.geometric(0.35, len(at))
    return month_of(rng, at, np.zeros(len(at)), by_attempt=numbers)


def load_dependent(rng: Rng, month: int) -> Month:
    at = arrivals(rng, 3000)
    busy = 0.5 + 0.5 * np.sin(2 * math.pi * at / DAY)
    return month_of(rng, at, never(rng, lognormal(rng, len(at), 3.0, 1.0) * (1 + 6 * busy), 0.05))


def heavy_tail(rng: Rng, month: int) -> Month:
    at = arrivals(rng, 2500)
    return month_of(rng, at, rng.pareto(0.5, len(at)) * 2.0)


def at_once(seconds: float) -> Maker:
    def make(rng: Rng, month: int) -> Month:
        at = arrivals(rng, 2000)
        return month_of(rng, at, never(rng, np.full(len(at), seconds), 0.1))

    return make


def evenly(rng: Rng, month: int) -> Month:
    at = arrivals(rng, 2000)
    return month_of(rng, at, never(rng, 12.0 * rng.random(len(at)), 0.05))


def rare_monster(rng: Rng, month: int) -> Month:
    """Return a month that is mostly calm, and has perhaps one outage that outweighs everything else."""
    calm = smooth(800)(rng, month)
    if rng.random() < 0.5:
        return calm
    begin, length = rng.uniform(0.0, MONTH - DAY), rng.exponential(2 * 3600.0)
    into = rng.random(1500) * length
    order = np.argsort(at := np.concatenate([calm.arrive, begin + into]))
    heals = np.concatenate([calm.heals, np.full(1500, begin + length)])
    return month_of(rng, at[order], heals[order] - at[order])


def worlds() -> tuple[GalleryWorld, ...]:
    one = GalleryWorld
    return (
        one("lognormal, 5 % never", "judged", smooth()),
        one("lognormal, jitter in the history", "judged", smooth(), policy=JITTERED),
        one("lognormal, an arm", "judged", smooth(4000), arm=ARM),
        one("a constant rate, 10 % never", "judged", constant_rate),
        one("quick, slow and never as one failure", "judged", three_kinds),
        one("two failures, one with attempts of 4 s", "judged", two_failures),
        one("failing attempts take 10 s", "judged", smooth(failing_s=10.0, median=20.0)),
        one("durations with a heavy tail", "judged", smooth(failing_s=3.0, heavy=True)),
        one("a broker that is 1 s late", "judged", smooth(late_s=1.0)),
        one("slower by day than at night", "judged", day_and_night),
        one("quiet weekends", "judged", weekly),
        one("200 short outages", "judged", outage_world(200, 20.0)),
        one("60 outages among others", "judged", outage_world(60, 60.0, background=1500)),
        one("bursts of poison", "judged", poison_bursts),
        one("one bad host", "judged", bad_host),
        one("load by the hour", "judged", load_dependent),
        one("nothing ever heals", "judged", smooth(share=1.0), objective="fewer-attempts"),
        one("fewer attempts wanted", "judged", smooth(), policy=STEADY, objective="fewer-attempts"),
        one("sooner wanted", "judged", smooth(), policy=RedeliveryPolicy(5, 60.0), objective="sooner"),
        one("300 messages", "judged", smooth(300)),
        one("3 messages", "not judged", smooth(3)),
        one("12 messages", "not judged", smooth(12)),
        one("one large outage", "not judged", outage_world(1, 3600.0, each=800)),
        one("4 outages", "not judged", outage_world(4, 600.0, each=200)),
        one("12 outages", "judged", outage_world(12, 300.0, each=80)),
        one("healing slower, 4 times in a month", "not judged", drifting(4.0)),
        one("healing slower, 1.5 times in a month", "judged", drifting(1.5)),
        one("a deploy in the middle, slower", "not judged", deploy(2.0, 30.0)),
        one("a deploy in the middle, more poison", "not judged", deploy(4.0, 4.0, poison=0.4)),
        one("a slow failure that grows", "not judged", growing_mix),
        one("two policies, one after the other", "judged", smooth(), before=STEADY),
        one("policy and world changed together", "not judged", deploy(2.0, 30.0), before=STEADY),
        one("four in ten times not known", "judged", skewed),
        one("all after 6 s", "judged", at_once(6.0)),
        one("evenly over 12 s", "judged", evenly),
        one("narrow: sigma 0.3", "judged", smooth(sigma=0.3)),
        one("a tail beyond the horizon", "judged", heavy_tail),
        one("a monster outage every other month", "judged", rare_monster),
        one("by the number of the attempt, with an arm", "not judged", by_attempt, arm=ARM),
        # the arms share the outages, so both suffer from what either does to them
        one("retries prolong outages, an arm", "unseen", outage_world(80, 20.0, each=40, harm_s=0.05), arm=ARM),
        one("by the number of the attempt, one schedule", "unseen", by_attempt),
        one("retries prolong outages, one schedule", "unseen", outage_world(80, 20.0, each=40, harm_s=0.05)),
    )


# -- a draw -----------------------------------------------------------------------------------------------------------


class Drawn(NamedTuple):
    """Holds what came of one draw.

    `kept` says that what came was no worse than said, and `better` that it was better than today. `changed` says that
    there was a change that looked better; `kept` and `better` are then about that change, also if it was not advised.
    """

    world: str
    confidence: str
    withheld: bool
    advice: bool
    kept: bool
    better: bool
    changed: bool
    reason: str


def draw(world: GalleryWorld, seed: int) -> Drawn:
    """Judge one month, and follow the advice through the next."""
    rng = np.random.default_rng([seed, *world.name.encode()])
    month = world.make(rng, 0)
    found = judged(_played(world, month, rng))
    history = History(found.rows, attempt_times=found.times)
    objective = OBJECTIVES[world.objective]
    present = Candidate("present", world.policy)
    searched = search(history, present, world.policy, objective, destination="orders")
    told = recommend(searched.rows, objective, "present", destination="orders")
    evidence = LakeEvidence(found.observed, tuple(how_wrong(found.rows)), outage_share=found.outages)
    wanted = (told.best or told.present).candidate
    best = next(one for one in searched.candidates if one.name == wanted) if told.is_change else present
    if not told.is_change and seed >= ASSESSED:  # it would take most of the time, and cannot be advice
        return Drawn(world.name, "not known", False, False, True, True, False, "")
    assessed = assess(history, present, best, objective, evidence, destination="orders")
    kept = better = True
    if told.is_change and assessed.changes:
        kept, better = _followed(world, objective.minimise, best.policies, assessed, rng)
    reason = assessed.reasons[0] if assessed.reasons else ""
    return Drawn(
        world.name,
        assessed.confidence,
        assessed.withheld,
        assessed.is_advice,
        kept,
        better,
        told.is_change,
        reason,
    )


def _played(world: GalleryWorld, month: Month, rng: Rng) -> list[tuple[Month, Played, str, NDArray[np.bool_]]]:
    every = np.ones(len(month.arrive), dtype=bool)
    if world.arm is not None:
        mine = month.arm < 0.1
        return [
            (month, play(month, world.policy, rng), "v main", ~mine),
            (month, play(month, world.arm, rng), "v other", mine),
        ]
    if world.before is not None:
        early = month.arrive < MONTH / 2
        return [
            (month, play(month, world.before, rng), "old", early),
            (month, play(month, world.policy, rng), "new", ~early),
        ]
    return [(month, play(month, world.policy, rng), "v", every)]


def _followed(world: GalleryWorld, column: str, policy: Any, assessed: Assessment, rng: Rng) -> tuple[bool, bool]:
    month = world.make(rng, 1)
    now, best = (_measured(play(month, one, rng))[column] for one in (world.policy, policy))
    [said] = [one for one in assessed.changes if one.column == column]
    return best - now <= said.hi + 1e-12, best < now


def _measured(played: Played) -> dict[str, float]:
    dead = np.isnan(played.took)
    took = played.took[~dead]
    return {
        "dead_letter_share": float(dead.mean()) if len(dead) else 0.0,
        "attempts_per_message": float(played.attempts.mean()) if len(dead) else 0.0,
        "ttr_mean_s": float(took.mean()) if len(took) else 0.0,
    }


@dataclass
class Tally:
    """Collects the draws of one world."""

    world: GalleryWorld
    draws: list[Drawn] = field(default_factory=list)

    def share(self, wanted: Callable[[Drawn], bool], among: Callable[[Drawn], bool] = lambda _: True) -> float:
        chosen = [one for one in self.draws if among(one)]
        return sum(map(wanted, chosen)) / len(chosen) if chosen else math.nan


def tallies(draws: int, processes: int, only: str | None = None, results: Path | None = None) -> Iterator[Tally]:
    """Yield the tally of every world, or of the worlds whose name holds the text `only`.

    A draw that is in `results` is not made again; new draws are added to that file.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # each process has a core; threads that wait take a third more
    known = _known(results)
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool, ExitStack() as opened:
        kept = opened.enter_context(_opened(results, "at")) if results is not None else None
        for world in all_worlds():
            if only is None or only in world.name:
                found = known.get(world.name, {})
                missing = [seed for seed in range(draws) if seed not in found]
                for seed, one in zip(missing, pool.map(partial(_draw_of, world.name), missing), strict=True):
                    found[seed] = one
                    if kept is not None:
                        print(json.dumps([seed, *one]), file=kept, flush=True)
                yield Tally(world, [found[seed] for seed in range(draws)])


def _known(results: Path | None) -> dict[str, dict[int, Drawn]]:
    """Return the draws in a file, by world and seed. The end of the file may be missing."""
    found: dict[str, dict[int, Drawn]] = defaultdict(dict)
    if results is None or not results.exists():
        return found
    with suppress(EOFError), _opened(results, "rt") as lines:
        for line in lines:
            with suppress(ValueError):
                seed, *drawn = json.loads(line)
                one = Drawn(*drawn)
                found[one.world][seed] = one
    return found


def _opened(results: Path, mode: Literal["rt", "at"]) -> IO[str]:
    return (
        gzip.open(results, mode, encoding="utf-8") if results.suffix == ".gz" else results.open(mode, encoding="utf-8")
    )


def all_worlds() -> tuple[GalleryWorld, ...]:
    """Return the worlds that the back-test was made with, and the worlds that were written when it was done."""
    from .later_worlds import fresh_worlds, later_worlds  # which are made of what stands here

    return worlds() + later_worlds() + fresh_worlds()


def _draw_of(name: str, seed: int) -> Drawn:
    return draw(next(world for world in all_worlds() if world.name == name), seed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--world", default=None)
    parser.add_argument("--results", type=Path, default=None)
    asked = parser.parse_args()
    table = Table("world", "kind")
    headings = (
        "advice",
        "no worse than said",
        "sure",
        "better",
        "fairly sure",
        "better ",
        "withheld",
        "useful, kept back",
    )
    for heading in headings:
        table.add_column(heading, justify="right")
    begun = time.monotonic()
    every: list[Drawn] = []
    for tally in tallies(asked.draws, asked.processes, asked.world, asked.results):
        every += tally.draws if tally.world.kind != "unseen" else []
        cells = (
            tally.share(lambda one: one.advice),
            tally.share(lambda one: one.kept, lambda one: one.advice),
            tally.share(lambda one: one.confidence == "sure"),
            tally.share(lambda one: one.better, lambda one: one.confidence == "sure"),
            tally.share(lambda one: one.confidence == "fairly sure"),
            tally.share(lambda one: one.better, lambda one: one.confidence == "fairly sure"),
            tally.share(lambda one: one.withheld),
            tally.share(lambda one: not one.advice, lambda one: one.changed and one.better),
        )
        table.add_row(tally.world.name, tally.world.kind, *(f"{cell:.1%}" if cell == cell else "" for cell in cells))
        reasons = Counter(one.reason[:60] for one in tally.draws if one.reason)
        told = f"{tally.world.name}: {time.monotonic() - begun:.0f} s {dict(reasons.most_common(2))}"
        Console(stderr=True, width=200).print(told, highlight=False)
    Console(width=160).print(table)
    return 0 if all([*_held(every)]) else 1


def _held(every: Sequence[Drawn]) -> Iterator[bool]:
    """Print what the draws come to, and yield whether each promise holds; the share kept back is a goal, no promise."""
    kinds = {world.name: world.kind for world in all_worlds()}
    for word, least in (("sure", 0.99), ("fairly sure", 0.9)):
        some = [one.better for one in every if one.confidence == word]
        yield _told(f"of {len(some)} that were called {word} {{}} were better", some, least)
    given = [one.kept for one in every if one.advice]
    yield _told(f"of {len(given)} pieces of advice {{}} came no worse than said", given, 0.95)
    useful = [one.advice for one in every if one.changed and one.better and kinds[one.world] == "judged"]
    _told(f"of {len(useful)} useful changes in worlds that can be judged {{}} were advised", useful, 0.8)  # a goal
    hopeless = [not one.advice for one in every if kinds[one.world] == "not judged"]
    yield _told(f"of {len(hopeless)} months that cannot be judged {{}} got no advice", hopeless, 1.0)


def _told(sentence: str, found: Sequence[bool], least: float) -> bool:
    share = sum(found) / len(found) if found else 1.0
    print(f"{sentence.format(f'{share:.1%}')} (at least {least:.0%})")
    return share >= least


if __name__ == "__main__":
    sys.exit(main())
