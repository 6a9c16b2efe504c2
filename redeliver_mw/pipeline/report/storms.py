# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Counts attempts over time, and lists the storms, from rows of the mart `storms`. Pure.

A bucket is a round number of the mart's windows; there are at most BUCKETS, for any span.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ..schemas import Row
from .axis_scales import bucket

BUCKETS: Final = 400
KEPT: Final = 120  # storms
WINDOW_S: Final = 10


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """Counts the attempts of one stretch of time."""

    start_s: float
    first_attempts: int
    retries: int


@dataclass(frozen=True, kw_only=True)
class Storm:
    """Describes a storm from the beginning of its first window to the end of its last.

    `peak`: the highest ratio of attempts to first attempts.
    """

    number: int  # by retries, the most first, from 1
    destination: str
    first_s: float
    end_s: float
    attempts: int
    retries: int
    peak: float


@dataclass(frozen=True, kw_only=True)
class Storms:
    """Holds the attempts by time, and the storms among them; times are seconds since 1970."""

    first_s: float  # the beginning of the first window
    end_s: float  # the end of the last window
    width_s: float  # of a bucket
    buckets: tuple[Bucket, ...]  # by time; empty buckets are left out
    first_attempts: int
    retries: int
    storms: tuple[Storm, ...]  # by number
    others: int  # storms that are not shown
    others_retries: int


def storms(windows: Sequence[Row], episodes: Sequence[Row]) -> Storms | None:
    """Return the storms; None if there was no attempt at all. `last_us`, if present: the row sums several windows."""
    if not windows:
        return None
    first_s = min(row["window_us"] for row in windows) / 1e6
    end_s = max(row.get("last_us") or row["window_us"] for row in windows) / 1e6 + WINDOW_S
    width_s = bucket(end_s - first_s, BUCKETS)
    ranked = sorted(episodes, key=lambda row: (-row["retries"], row["first_us"], row["destination"]))
    buckets = _buckets(windows, width_s)
    return Storms(
        first_s=first_s,
        end_s=end_s,
        width_s=width_s,
        buckets=buckets,
        first_attempts=sum(one.first_attempts for one in buckets),
        retries=sum(one.retries for one in buckets),
        storms=tuple(_storm(number, row) for number, row in enumerate(ranked[:KEPT], 1)),
        others=len(ranked[KEPT:]),
        others_retries=sum(row["retries"] for row in ranked[KEPT:]),
    )


def _buckets(windows: Iterable[Row], width_s: int) -> tuple[Bucket, ...]:
    sums: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for row in windows:
        place = sums[row["window_us"] // 1_000_000 // width_s * width_s]
        place[0] += row["first_attempts"]
        place[1] += row["retries"]
    return tuple(Bucket(start_s=start, first_attempts=a, retries=b) for start, (a, b) in sorted(sums.items()))


def _storm(number: int, row: Row) -> Storm:
    return Storm(
        number=number,
        destination=row["destination"],
        first_s=row["first_us"] / 1e6,
        end_s=row["end_us"] / 1e6,
        attempts=row["attempts"],
        retries=row["retries"],
        peak=row["peak"],
    )
