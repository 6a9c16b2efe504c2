# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes worlds in which it is known when each message recovers: their histories as a lake has them, and the truth.

A world is an array of recovery times, in seconds after a message's first failure; inf means never. A history lets a
policy try a world's messages, each attempt somewhat late, as attempts are; the truth lets another policy try the very
same messages. Delays are drawn here from the policy's own spans, with none of the code that is tested.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from redeliver_mw.pipeline.time_bins import bin_of, lower_edge
from redeliver_mw.policy import RedeliveryPolicy

Floats = NDArray[np.float64]
Rng = np.random.Generator
Row = dict[str, Any]
World = Callable[[int, Rng], Floats]  # so many healing times
_EDGES = np.array([lower_edge(number) for number in range(bin_of(10**14))])
LATE = 0.004  # seconds by which attempts are late, on average


class Truth(NamedTuple):
    """Holds what a policy really does with the messages of a world."""

    recovered: float
    attempts: float
    mean_s: float
    median_s: float


def never(heals: Floats, share: float, rng: Rng) -> Floats:
    """Return the recovery times with inf, for never, in the place of a share of them."""
    return np.where(rng.random(len(heals)) < share, np.inf, heals)


def attempts_of(policy: RedeliveryPolicy, count: int, rng: Rng, late: float = 0.0) -> Floats:
    """Return when each of `count` messages that always fail would be tried again (messages x retries), in seconds."""
    assert policy.dead_after is not None
    spans = [policy.backoff.span(failures) for failures in range(1, policy.dead_after)]
    delays = [rng.uniform(span.low, span.high, count) + rng.exponential(late, count) for span in spans]
    return np.cumsum(np.stack(delays, axis=1), axis=1) if delays else np.zeros((count, 0))


def truth(heals: Floats, policy: RedeliveryPolicy, rng: Rng) -> Truth:
    """Return the truth about a policy, worked out from every message by itself."""
    times = attempts_of(policy, len(heals), rng)
    failed = (times < heals[:, None]).sum(axis=1)  # retries that came too early
    healed = failed < times.shape[1]
    took = times[np.flatnonzero(healed), failed[healed]]
    attempts = 1 + np.minimum(failed + 1, times.shape[1])
    mean, median = (float(np.mean(took)), float(np.median(took))) if len(took) else (0.0, 0.0)
    return Truth(float(healed.mean()), float(attempts.mean()), mean, median)


def history(
    heals: Floats,
    policy: RedeliveryPolicy,
    rng: Rng,
    *,
    destination: str = "orders",
    fingerprint: str | None = "f",
    version: str = "v",
) -> list[Row]:
    """Return the rows of the mart `recovery` that say what became of these messages under this policy."""
    times = attempts_of(policy, len(heals), rng, LATE)
    return rows(heals, times, destination=destination, fingerprint=fingerprint, version=version)


def rows(
    heals: Floats, times: Floats, *, destination: str = "orders", fingerprint: str | None = "f", version: str = "v"
) -> list[Row]:
    """Return rows of the mart `recovery`, as `history` does, from the times at which each message would be tried."""
    starts = np.concatenate([np.zeros((len(heals), 1)), times], axis=1)
    ends = np.concatenate([times, np.full((len(heals), 1), -1.0)], axis=1)  # -1: never seen to succeed
    failed, every = (times < heals[:, None]).sum(axis=1), np.arange(len(heals))
    pairs = np.stack([_bins(starts[every, failed]), np.where(failed < times.shape[1], _bins(ends[every, failed]), -1)])
    found, counts = np.unique(pairs, axis=1, return_counts=True)
    return [
        {
            "destination": destination,
            "fingerprint": fingerprint,
            "policy_version": version,
            "lo_bin": lo,
            "hi_bin": None if hi < 0 else hi,
            "n": n,
        }
        for lo, hi, n in zip(*found.tolist(), counts.tolist(), strict=True)
    ]


def _bins(seconds: Floats) -> NDArray[np.int64]:
    return np.searchsorted(_EDGES, np.rint(seconds * 1e6), side="right") - 1


def lognormal(median: float, sigma: float) -> World:
    return lambda count, rng: median * np.exp(sigma * rng.standard_normal(count))


def exponential(mean: float) -> World:
    return lambda count, rng: rng.exponential(mean, count)


def mixed(*parts: tuple[float, World]) -> World:
    """Return a world whose messages are of these kinds, drawn with these weights; a kind may never recover."""
    weights = np.array([weight for weight, _ in parts])

    def make(count: int, rng: Rng) -> Floats:
        kinds = rng.choice(len(parts), count, p=weights / weights.sum())
        return np.choose(kinds, [world(count, rng) for _, world in parts])

    return make


def poison(count: int, rng: Rng) -> Floats:
    return np.full(count, np.inf)


def uniform(longest: float) -> World:
    return lambda count, rng: longest * rng.random(count)


def at_once(seconds: float) -> World:
    """Return a world whose messages all recover after the same time, as behind a restart that always takes as long."""
    return lambda count, rng: np.full(count, seconds)


def outages(mean_s: float, number: int = 50) -> World:
    """Return a world of `number` outages of any length; each hits many messages, which all fail until it is over."""

    def make(count: int, rng: Rng) -> Floats:
        lengths = rng.exponential(mean_s, number)
        return lengths[rng.integers(0, number, count)] * rng.random(count)

    return make
