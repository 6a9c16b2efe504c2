# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Computes when messages recover, from rows of the mart `recovery`: certain and possible shares, and the verdict. Pure.

A journal shows of a message only that it recovered between its last failure and its success, or that there was no
attempt after its last failure. So at each time two shares are exact: messages that had certainly recovered, and
messages that may have recovered. Both get the outer Wilson bound, at 95 %: the lower bound for certain, the upper bound
for possible recoveries.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Literal

from ..time_bins import lower_edge

RecoveryVerdict = Literal["never", "untried", "seldom", "mixed", "heals", "unsure"]

POINTS: Final = 60  # of a curve; more would not be visible
_Z: Final = 1.959963984540054
_NEVER, _SELDOM, _HEALS, _WIDE = 0.05, 0.20, 0.80, 0.30


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Counts `messages` that recovered later than `after_s` and not later than `by_s`; None: no success was seen."""

    after_s: float
    by_s: float | None
    messages: int


@dataclass(frozen=True, kw_only=True)
class Point:
    """Gives shares of all messages `after_s` seconds after the first failure, with the bounds for chance."""

    after_s: float
    certain: float
    possible: float
    lo: float
    hi: float


@dataclass(frozen=True, kw_only=True)
class Likely:
    """Holds the back-test's estimate: `healed` is the share that recovers within `after_s`."""

    after_s: float
    healed: float


@dataclass(frozen=True, kw_only=True)
class RecoveryCurve:
    """Describes how the messages of one failure recovered; times in seconds since a message's first failure."""

    messages: int
    healed: int
    retried: int  # how many of the messages were tried again at all
    lo: float  # Wilson bounds at 95 % of the share that recovered
    hi: float
    half_s: float | None  # by then half of those that recovered had succeeded
    most_s: float | None  # by then 95 % of them
    watched_s: float  # the longest time after which a message was tried
    verdict: RecoveryVerdict
    curve: tuple[Point, ...]
    likely: tuple[Likely, ...]  # within the time of `curve`; empty without an estimate


def wilson(hits: float, of: float) -> tuple[float, float]:
    """Return the 95 % bounds of a share that was seen `hits` times in `of`; 0 to 1 if `of` is 0."""
    if of <= 0:
        return 0.0, 1.0
    share, square = hits / of, _Z * _Z
    middle = share + square / (2 * of)
    reach = _Z * math.sqrt(share * (1 - share) / of + square / (4 * of * of))
    low, high = (middle - reach) / (1 + square / of), (middle + reach) / (1 + square / of)
    return max(low, 0.0) if hits > 0 else 0.0, min(high, 1.0) if hits < of else 1.0


def interval(lo_bin: int, hi_bin: int | None, messages: int) -> Interval:
    """Return the interval of a row of `recovery`. A bin has a width: a certain bound is certain for all of the bin."""
    by_s = None if hi_bin is None else lower_edge(hi_bin + 1) / 1e6
    return Interval(after_s=lower_edge(lo_bin) / 1e6, by_s=by_s, messages=messages)


def recovery_curve(intervals: Sequence[Interval], likely: Iterable[Likely] = ()) -> RecoveryCurve:
    """Return the page's facts on one failure's messages; without messages, all are zero."""
    curve = _curve(intervals)
    messages = sum(one.messages for one in intervals)
    healed = sum(one.messages for one in intervals if one.by_s is not None)
    retried = sum(one.messages for one in intervals if one.by_s is not None or one.after_s > 0)
    lo, hi = wilson(healed, messages)
    return RecoveryCurve(
        messages=messages,
        healed=healed,
        retried=retried,
        lo=lo,
        hi=hi,
        half_s=_by_when(intervals, healed, 0.5),
        most_s=_by_when(intervals, healed, 0.95),
        watched_s=max((one.by_s or one.after_s for one in intervals), default=0.0),
        verdict=verdict(messages, healed, retried),
        curve=curve,
        likely=_seen(likely, curve),
    )


def verdict(messages: int, healed: int, retried: int) -> RecoveryVerdict:
    """Return the verdict that the counts allow, in one word."""
    if retried == 0:
        return "untried"
    lo, hi = wilson(healed, messages)
    if healed == 0 and hi <= _NEVER:
        return "never"
    if lo >= _HEALS:
        return "heals"
    if hi <= _SELDOM:
        return "seldom"
    return "unsure" if healed == 0 or hi - lo > _WIDE else "mixed"


def _by_when(intervals: Sequence[Interval], healed: int, part: float) -> float | None:
    wanted, seen = math.ceil(part * healed), 0
    for by_s, messages in sorted((one.by_s, one.messages) for one in intervals if one.by_s is not None):
        seen += messages
        if seen >= wanted:
            return by_s
    return None


def _seen(likely: Iterable[Likely], curve: Sequence[Point]) -> tuple[Likely, ...]:
    """Return the estimate for times for which there are observations."""
    inside = sorted((one for one in likely if curve and one.after_s <= curve[-1].after_s), key=lambda one: one.after_s)
    wanted = set(_thinned([one.after_s for one in inside if one.after_s > 0]))
    return tuple(one for one in inside if one.after_s in wanted)


def _curve(intervals: Sequence[Interval]) -> tuple[Point, ...]:
    messages = sum(one.messages for one in intervals)
    certain = _Sums((one.by_s, one.messages) for one in intervals if one.by_s is not None)
    possible = _Sums((one.after_s, one.messages) for one in intervals)
    edges = sorted({edge for one in intervals for edge in (one.after_s, one.by_s) if edge})
    return tuple(
        Point(
            after_s=at,
            certain=certain.until(at) / messages,
            possible=possible.before(at) / messages,
            lo=wilson(certain.until(at), messages)[0],
            hi=wilson(possible.before(at), messages)[1],
        )
        for at in _thinned(edges)
    )


def _thinned(edges: Sequence[float]) -> list[float]:
    """Return at most POINTS edges, including the first and the last, spread evenly by ratio."""
    if len(edges) <= POINTS:
        return list(edges)
    first = math.log(edges[0])  # a ratio of two edges may overflow a float, its logarithm does not
    growth = (math.log(edges[-1]) - first) / (POINTS - 1)
    cells = {math.ceil((math.log(edge) - first) / growth - 1e-9): edge for edge in edges}
    return list(cells.values())


class _Sums:
    """Counts messages until a time, and before it."""

    def __init__(self, numbers: Iterable[tuple[float, int]]) -> None:
        ordered = sorted(numbers)
        self._times = [at for at, _ in ordered]
        self._sums = [0, *accumulate(messages for _, messages in ordered)]

    def until(self, at: float) -> int:
        return self._sums[bisect_right(self._times, at)]

    def before(self, at: float) -> int:
        return self._sums[bisect_left(self._times, at)]
