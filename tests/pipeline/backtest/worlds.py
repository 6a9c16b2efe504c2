# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Worlds in which it is known when each message heals: histories of them as a lake has them, and the truth.

A world is an array of healing times, seconds after a message's first failure, inf for never. A history lets a policy
try its messages, each attempt somewhat late, as attempts are; the truth lets another one try the very same messages.
Delays are drawn here from the policy's own spans, with none of the code that is tested.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from redeliver_mw.pipeline.bins import bin_of
from redeliver_mw.policy import RedeliveryPolicy

Floats = NDArray[np.float64]
Rng = np.random.Generator
Row = dict[str, Any]
World = Callable[[int, Rng], Floats]  # so many healing times
LATE = 0.004  # seconds by which attempts are late, on average


class Truth(NamedTuple):
    """What a policy really does with the messages of a world."""

    recovered: float
    attempts: float
    mean_s: float
    median_s: float


def never(heals: Floats, share: float, rng: Rng) -> Floats:
    """Some of the messages never heal."""
    return np.where(rng.random(len(heals)) < share, np.inf, heals)


def attempts_of(policy: RedeliveryPolicy, count: int, rng: Rng, late: float = 0.0) -> Floats:
    """When each of `count` messages that always fail would be tried again (messages x retries), seconds."""
    assert policy.dead_after is not None
    spans = [policy.backoff.span(failures) for failures in range(1, policy.dead_after)]
    delays = [rng.uniform(span.low, span.high, count) + rng.exponential(late, count) for span in spans]
    return np.cumsum(np.stack(delays, axis=1), axis=1) if delays else np.zeros((count, 0))


def truth(heals: Floats, policy: RedeliveryPolicy, rng: Rng) -> Truth:
    """Of every message by itself."""
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
    """Rows of the mart `recovery`: what became of these messages under this policy."""
    times = attempts_of(policy, len(heals), rng, LATE)
    return rows(heals, times, destination=destination, fingerprint=fingerprint, version=version)


def rows(
    heals: Floats, times: Floats, *, destination: str = "orders", fingerprint: str | None = "f", version: str = "v"
) -> list[Row]:
    """The same from the times at which each message would be tried."""
    counted: Counter[tuple[int, int | None]] = Counter()
    starts = np.concatenate([np.zeros((len(heals), 1)), times], axis=1)
    failed = (times < heals[:, None]).sum(axis=1)
    for line, last in enumerate(failed):
        hi = bin_of(round(times[line, last] * 1e6)) if last < times.shape[1] else None
        counted[bin_of(round(starts[line, last] * 1e6)), hi] += 1
    return [
        {"destination": destination, "fingerprint": fingerprint, "policy_version": version, "lo_bin": lo, "hi_bin": hi,
         "n": n}
        for (lo, hi), n in counted.items()
    ]  # fmt: skip


def lognormal(median: float, sigma: float) -> World:
    return lambda count, rng: median * np.exp(sigma * rng.standard_normal(count))


def exponential(mean: float) -> World:
    return lambda count, rng: rng.exponential(mean, count)
