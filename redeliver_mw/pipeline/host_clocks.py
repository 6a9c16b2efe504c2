# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Computes how far hosts' clocks differ, from messages that were tried on one host and then on another. Pure numpy.

An attempt begins after the attempt before it has ended. If the first was on host A and the next on host B, the gap
between them, each time on its own host's clock, is::

    gap = start by B - end by A = true wait + offset(B) - offset(A),    true wait >= 0

So every gap is an upper bound of `offset(B) - offset(A)`, and small gaps give the sharpest bounds. Messages that go
from B to A give the lower bound, as in NTP: two hosts, one of them 30 s behind, with waits of 0.2 s and more::

    A -> B   gaps from -29.8 s on:   offset(B) - offset(A) <= -29.8
    B -> A   gaps from  30.2 s on:   offset(A) - offset(B) <=  30.2
    offset(B) - offset(A) is between -30.2 and -29.8: -30 s, with an error of at most 0.2 s

The bounds of several hosts add up along chains of pairs, so the sharpest bound between two hosts is the length of a
shortest path. The error is a bound, not an estimate: clocks that are in step are never reported as different, however
long and however uneven the waits are. A few wrong gaps (a twentieth, in each direction) do no harm. More wrong gaps
give bounds that contradict each other: then the clock was not steady, and its day is examined in halves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

import numpy as np

from .arrays import Bools, Floats, Ints
from .time_range import DAY_US

ClockState = Literal["in step", "corrected", "unknown"]

LEAST: Final = 20  # handovers from one host to another, below which they are ignored
TAIL: Final = 0.05  # the share of gaps that may be wrong: this share of the smallest gaps is ignored
SLACK_US: Final = 50_000  # timers fire early, and clock readings differ, by less than this
APART_US: Final = 500_000  # clocks that differ by less than this are in step
# An offset is corrected if it is at least this many times its error, so that the rest is smaller than the offset was.
SURE: Final = 2
CLOSE_US: Final = 2_000_000  # with a greater error, clocks are not reported as in step
SHORTEST_US: Final = DAY_US // 64  # a part of a day that is not halved any further

_ROUNDS: Final = 3  # rounds of estimating how far hosts are ahead, before they are grouped


@dataclass(frozen=True)
class Handovers:
    """Holds pairs of attempts that follow each other: `before` and `after` are numbers of hosts, which may be the same.

    `at_us` is the end of the later attempt, on its host's clock. `gap_us` is the time from the end of the first to the
    start of the second. The delay between the two is not subtracted: a message whose host stops comes back at once, and
    the end of a delay is itself measured by a clock.
    """

    at_us: Ints
    before: Ints
    after: Ints
    gap_us: Ints

    def within(self, since_us: int, until_us: int) -> Handovers:
        """Return the pairs whose `at_us` lies in a span of time."""
        return self.where((self.at_us >= since_us) & (self.at_us < until_us))

    def where(self, wanted: Bools) -> Handovers:
        """Return the pairs for which `wanted` is true."""
        return Handovers(self.at_us[wanted], self.before[wanted], self.after[wanted], self.gap_us[wanted])

    def renamed(self, name: Ints) -> Handovers:
        """Return the pairs with the number `name[n]` for host n, so that hosts with one clock share one number."""
        return Handovers(self.at_us, name[self.before], name[self.after], self.gap_us)


class HostDay(NamedTuple):
    """Counts the `records` of a host on a day; `day` counts from 1970."""

    host: int
    day: int
    records: int


class HostClock(NamedTuple):
    """Describes the clock of a host in a span of time: `offset_us` is how far the clock is ahead; below 0: behind.

    Offset and error are None if they are not known. `pairs` is the number of handovers to and from other hosts.
    """

    host: int
    day: int
    since_us: int
    until_us: int
    offset_us: int | None
    error_us: int | None
    pairs: int
    state: ClockState


def host_clocks(handovers: Handovers, days: Sequence[HostDay]) -> list[HostClock]:
    """Return the clock of each host on each day with records.

    A day is split into several parts if the clock changed.
    """
    if not days:
        return []
    hosts = 1 + max(one.host for one in days)
    weights = np.zeros(hosts)
    for one in days:
        weights[one.host] += one.records
    whole = _of_whole(handovers, weights)
    found = [
        clock for day in sorted({one.day for one in days}) for clock in _of_day(day, handovers, days, weights, whole)
    ]
    return _joined(sorted(found, key=lambda one: (one.day, one.host, one.since_us)))


@dataclass(frozen=True)
class _Solution:
    """Holds bounds of all offsets against `reference`; infinite if there are none. `unsteady` hosts have no bounds."""

    reference: int
    low: Floats
    high: Floats
    unsteady: Bools

    @property
    def known(self) -> Bools:
        return np.isfinite(self.low) & np.isfinite(self.high)

    @property
    def offset(self) -> Floats:
        """Return the middle between the bounds; nan if one of them is missing."""
        return np.divide(self._finite(self.low) + self._finite(self.high), 2)

    @property
    def error(self) -> Floats:
        """Return half of the distance between the bounds."""
        return np.abs(np.divide(self._finite(self.high) - self._finite(self.low), 2))

    def _finite(self, bound: Floats) -> Floats:
        return np.where(self.known, bound, np.nan)


@dataclass(frozen=True)
class _Bounds:
    """Holds `offset(j) - offset(i) <= upper` for pairs of hosts with enough handovers.

    `usual_us`: the median gap of a host with itself; nan if it is not known, or useless because the clock is not
    steady.
    """

    i: Ints
    j: Ints
    upper: Floats
    erratic: Bools
    usual_us: float

    def without(self, hosts: Bools) -> _Bounds:
        kept = ~(hosts[self.i] | hosts[self.j])
        return _Bounds(self.i[kept], self.j[kept], self.upper[kept], self.erratic, self.usual_us)


def _of_whole(handovers: Handovers, weights: Floats) -> _Solution:
    """Return the result of all days together. Many hosts with few handovers between them are examined in groups.

    A group holds hosts that seem to have one clock. This may be wrong: the bounds of a group hold for any choice of
    members as long as the clocks are in step, and contradict each other if they are not.
    """
    found = _solved(handovers, weights)
    missing = (weights > 0) & ~found.known & ~found.unsteady
    if not missing.any():
        return found
    group = _groups(handovers, len(weights))
    missing &= group >= 0
    name = np.where(group >= 0, group, np.arange(len(weights)))
    together = np.bincount(name, weights, len(weights)).astype(np.float64)
    grouped = _solved(handovers.renamed(name), together)
    if name[found.reference] != grouped.reference:
        if found.known.sum() > 1:
            return found  # the two results have different reference clocks
        members = np.flatnonzero(name == grouped.reference)
        found = replace(found, reference=int(members[np.argmax(weights[members])]))
    low, high = np.where(missing, grouped.low[name], found.low), np.where(missing, grouped.high[name], found.high)
    low[found.reference] = high[found.reference] = 0.0
    return _Solution(found.reference, low, high, found.unsteady | (missing & grouped.unsteady[name]))


def _groups(handovers: Handovers, hosts: int) -> Ints:
    """Return for each host the number of a host that seems to have the same clock; -1: too few handovers to know.

    Compares half the difference between the median gaps to a host and from it with the apparent lead of the other
    hosts.
    """
    there = handovers.where(handovers.before != handovers.after)
    n = np.minimum(np.bincount(there.after, minlength=hosts), np.bincount(there.before, minlength=hosts))
    seems = np.zeros(hosts)
    for _ in range(_ROUNDS):
        to = _medians(there.after, there.gap_us + seems[there.before], hosts)
        away = _medians(there.before, there.gap_us - seems[there.after], hosts)
        seems = np.where(n >= LEAST, (to - away) / 2, 0.0)
    known = np.flatnonzero(n >= LEAST)
    order = known[np.argsort(seems[known], kind="stable")]
    group = np.full(hosts, -1)
    first = np.concatenate([[True], np.diff(seems[order]) > CLOSE_US])[: len(order)]
    group[order] = order[np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))]
    return group


def _medians(host: Ints, gap_us: Floats, hosts: int) -> Floats:
    order = np.lexsort((gap_us, host))
    n = np.bincount(host, minlength=hosts)
    middle = np.cumsum(n) - n + n // 2
    return (
        np.where(n > 0, gap_us[order][np.minimum(middle, max(len(order) - 1, 0))], 0.0)
        if len(order)
        else np.zeros(hosts)
    )


def _of_day(
    day: int, handovers: Handovers, days: Sequence[HostDay], weights: Floats, whole: _Solution
) -> Iterator[HostClock]:
    """Yield the clocks of one day.

    If a day is too short for a result, the whole time's is used, if the clock was steady.
    """
    since_us, until_us = day * DAY_US, (day + 1) * DAY_US
    seen = handovers.within(since_us, until_us)
    present = np.zeros(len(weights), np.bool_)
    present[[one.host for one in days if one.day == day]] = True
    found = _solved(seen, np.where(present, weights, 0.0))
    # All days use one reference clock, whichever hosts had records.
    found = _against_the_usual(found, whole, seen)
    frame = _Frame(found.reference)
    if _apart(whole.offset[found.reference], whole.error[found.reference]):
        frame = _Frame(found.reference, whole.offset[found.reference], whole.error[found.reference])
    offset, error, pairs = found.offset + frame.offset, found.error + frame.error, _pairs(seen, len(weights))
    one_clock = np.where(np.abs(found.offset) < APART_US, found.reference, np.arange(len(weights)))
    for host in np.flatnonzero(present):
        if found.unsteady[host]:
            yield from _in_parts(int(host), day, (since_us, until_us), seen.renamed(one_clock), weights, frame)
        elif not found.known[host] and whole.known[host]:
            yield _clock_of(
                int(host), day, (since_us, until_us), whole.offset[host], whole.error[host], int(pairs[host])
            )
        else:
            yield _clock_of(int(host), day, (since_us, until_us), offset[host], error[host], int(pairs[host]))


class _Frame(NamedTuple):
    """Holds a reference clock, and how far it is ahead of the whole time's reference."""

    reference: int
    offset: float = 0.0
    error: float = 0.0


def _in_parts(
    host: int, day: int, span: tuple[int, int], seen: Handovers, weights: Floats, frame: _Frame
) -> Iterator[HostClock]:
    """Yield the clock of a host that was not steady, in halves of the span, and halves of these."""
    middle = (span[0] + span[1]) // 2
    for part in ((span[0], middle), (middle, span[1])):
        inside = seen.within(*part)
        found = _solved(inside, weights, frame.reference)
        if found.unsteady[host] and part[1] - part[0] > SHORTEST_US:
            yield from _in_parts(host, day, part, inside, weights, frame)
        else:
            pairs = int(_pairs(inside, len(weights))[host])
            yield _clock_of(host, day, part, found.offset[host] + frame.offset, found.error[host] + frame.error, pairs)


def _joined(clocks: Sequence[HostClock]) -> list[HostClock]:
    """Return the clocks, with adjacent parts of a day merged if nothing is known of them."""
    found: list[HostClock] = []
    for one in clocks:
        if found and (last := found[-1]).offset_us is one.offset_us is None and last[:2] == one[:2]:
            found[-1] = last._replace(until_us=one.until_us, pairs=last.pairs + one.pairs)
        else:
            found.append(one)
    return found


def _clock_of(host: int, day: int, span: tuple[int, int], offset: float, error: float, pairs: int) -> HostClock:
    if np.isnan(offset):
        return HostClock(host, day, *span, None, None, pairs, "unknown")
    state: ClockState = "unknown"
    if _apart(offset, error):
        state = "corrected"
    elif abs(offset) - error < APART_US and error <= CLOSE_US:
        state = "in step"
    return HostClock(host, day, *span, round(offset), round(error), pairs, state)


def _apart(offset: float, error: float) -> bool:
    """Return whether an offset is significant; False if it is not known."""
    return abs(offset) >= max(APART_US, SURE * error)


def _against_the_usual(found: _Solution, whole: _Solution, seen: Handovers) -> _Solution:
    """Return the solution against the whole time's reference clock, if the distance between the two is unchanged."""
    usual, here = whole.reference, found.reference
    off, error = found.offset[usual] + whole.offset[here], found.error[usual] + whole.error[here]
    if usual == here or not abs(off) <= max(APART_US, error):
        return found
    bounds = _bounds(seen, len(found.unsteady), parted=False).without(found.unsteady)
    return _against(usual, bounds, found.unsteady)


def _solved(handovers: Handovers, weights: Floats, reference: int | None = None) -> _Solution:
    """Return the bounds of all offsets: against a host, or against the middle of the clocks, each by its weight."""
    bounds, unsteady = _bounds(handovers, len(weights), parted=reference is not None), np.zeros(len(weights), np.bool_)
    unsteady |= bounds.erratic
    if reference is not None:
        unsteady[reference] = False
    _drop_contradictions(bounds, weights, unsteady, reference)
    while True:
        steady = bounds.without(unsteady)
        against = reference if reference is not None else _heaviest(weights, unsteady)
        circle = _contradiction(steady, len(weights))
        if not len(circle):
            break
        others = circle[circle != against]
        unsteady[others[np.argmin(weights[others])]] = True
    found = _against(against, steady, unsteady)
    if reference is None and (middle := _middle(found, weights)) != against:
        found = _against(middle, steady, unsteady)
    return found


def _bounds(handovers: Handovers, hosts: int, *, parted: bool) -> _Bounds:
    code = handovers.before * hosts + handovers.after
    order = np.lexsort((handovers.gap_us, code))
    gaps = handovers.gap_us[order].astype(np.float64)
    pairs, first, n = np.unique(code[order], return_index=True, return_counts=True)
    enough = n >= LEAST
    pairs, first, n = pairs[enough], first[enough], n[enough]
    i, j = pairs // max(hosts, 1), pairs % max(hosts, 1)
    upper = gaps[first + (TAIL * n).astype(np.int64)] + SLACK_US if len(first) else np.zeros(0)
    erratic = np.zeros(hosts, np.bool_)
    erratic[i[(i == j) & (upper < 0)]] = True
    own = handovers.gap_us[handovers.before == handovers.after]
    usual = float(np.median(own)) if len(own) >= LEAST and not parted else np.nan
    others = i != j
    return _Bounds(i[others], j[others], upper[others], erratic, usual)


def _drop_contradictions(bounds: _Bounds, weights: Floats, unsteady: Bools, reference: int | None) -> None:
    """Mark hosts as unsteady until no contradiction is left, those with the most contradictions first.

    Two hosts contradict each other if each would have to be ahead of the other.
    """
    hosts = len(weights)
    upper = dict(zip(zip(bounds.i.tolist(), bounds.j.tolist(), strict=True), bounds.upper.tolist(), strict=True))
    against = [(i, j) for (i, j), one in upper.items() if i < j and one + upper.get((j, i), np.inf) < 0]
    while against := [(i, j) for i, j in against if not (unsteady[i] or unsteady[j])]:
        n = np.bincount(np.array(against).ravel(), minlength=hosts)
        if reference is not None:
            n[reference] = 0
        worst = np.flatnonzero(n == n.max())
        unsteady[worst[np.argmin(weights[worst])]] = True


def _contradiction(bounds: _Bounds, hosts: int) -> Ints:
    """Return hosts on a cycle of bounds that contradict each other; none if there is no such cycle."""
    length, before = np.zeros(hosts), np.full(hosts, -1)
    for _ in range(hosts + 1):
        through = length[bounds.i] + bounds.upper
        shorter = np.flatnonzero(through < length[bounds.j] - 0.5)
        if not len(shorter):
            return np.zeros(0, np.int64)
        np.minimum.at(length, bounds.j, through)
        best = shorter[through[shorter] <= length[bounds.j[shorter]]]
        before[bounds.j[best]] = bounds.i[best]
    at = int(bounds.j[shorter[0]])
    for _ in range(hosts):
        at = int(before[at])
    circle = [at]
    while (at := int(before[at])) != circle[0]:
        circle.append(at)
    return np.array(circle)


def _against(reference: int, bounds: _Bounds, unsteady: Bools) -> _Solution:
    """Return the sharpest bounds against one host.

    If there is only one bound, the waits of hosts with themselves show how far away the other bound may be, unless mere
    lateness explains the gaps.
    """
    high = _shortest(reference, bounds.i, bounds.j, bounds.upper, len(unsteady))
    low = -_shortest(reference, bounds.j, bounds.i, bounds.upper, len(unsteady))
    if not np.isnan(bounds.usual_us):
        reach = max(bounds.usual_us, 0.0) + SLACK_US
        behind, ahead = np.isinf(low) & (high < APART_US), np.isinf(high) & (low > -APART_US)
        low, high = np.where(behind, high - reach, low), np.where(ahead, low + reach, high)
    low[unsteady], high[unsteady] = -np.inf, np.inf
    if not unsteady[reference]:
        low[reference] = high[reference] = 0.0
    return _Solution(reference, low, high, unsteady)


def _shortest(start: int, i: Ints, j: Ints, upper: Floats, hosts: int) -> Floats:
    length = np.full(hosts, np.inf)
    length[start] = 0.0
    for _ in range(hosts):
        shorter = length.copy()
        np.minimum.at(shorter, j, length[i] + upper)
        if np.array_equal(shorter, length):
            break
        length = shorter
    return length


def _heaviest(weights: Floats, unsteady: Bools) -> int:
    return int(np.argmax(np.where(unsteady, -1.0, weights)))


def _middle(found: _Solution, weights: Floats) -> int:
    """Return the host in the middle of the clocks by weight; the reference itself if it is one such host."""
    offset, error = found.offset, found.error
    known = np.flatnonzero((error <= CLOSE_US) | (np.abs(offset) >= SURE * error))
    offset, heavy = offset[known], weights[known]
    half = heavy.sum() / 2
    if heavy[offset < -APART_US].sum() <= half and heavy[offset > APART_US].sum() <= half:
        return found.reference
    order = np.argsort(offset, kind="stable")
    middle = offset[order[np.searchsorted(np.cumsum(heavy[order]), half)]]
    near = known[np.abs(offset - middle) < APART_US]
    return int(near[np.argmax(weights[near])])  # the heaviest of the hosts that are in step with it


def _pairs(handovers: Handovers, hosts: int) -> Ints:
    others = handovers.before != handovers.after
    both = np.concatenate([handovers.before[others], handovers.after[others]])
    return np.bincount(both, minlength=hosts).astype(np.int64)
