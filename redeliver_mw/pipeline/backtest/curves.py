# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Prepares what history knows of a group of messages, ready to be asked: tables over the edges of the cells.

A history is asked about its own messages, not about others like them: of a message that failed at 3 s and succeeded at
7 s it is known that it would have failed at 2 s and succeeded at 8 s, and only in between is it estimated. So what the
estimate says of a group always lies between what is known (`low`) and what is possible (`high`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from ..arrays import Bools, Floats, Ints
from .intervals import Intervals
from .time_grid import BELOW, TimeGrid
from .turnbull import Smoother, expected, flat, likelihood, rough, scale_of, turnbull_estimate

PRIOR: Final = 10.0  # messages: what a failure's destination counts beside its own
SUPPORT: Final = 10.0  # messages, or
SUPPORT_SHARE: Final = 0.005  # so many of all, if that is less: by these history must still have been looked at
MISFIT: Final = 8.0  # by so much less likely, in logarithms, may a smooth estimate make what was seen than a rough one;
_HALVINGS: Final = 2  # else it is smoothed less, at most to this power of a half
COARSE: Final = 4.0  # how much coarser than the last the first smoothing is
NEAR: Final = 1 / 20  # looks are counted together within this, in logarithms of time
_GUESS: Final = 0.03  # the share of a gap's messages on the wrong side of its middle, if it is one doubling wide;
_WORST: Final = 1 / 6  # it grows with the square of the width, up to this
_ROUGH: Final = 0.33  # of what two estimates differ by, one smooth and one not, is a guess
_EARLY: Final = 1 / 8  # of the way to the first look: what is earlier than that is no less a guess


class Densities(NamedTuple):
    """Holds how messages recover, as shares over cells: all of them, those of each destination, those of each group.

    Everything shorter than `scale`, in logarithms of time, was smoothed away.
    """

    top: Floats
    middle: Floats
    groups: Floats
    scale: float


@dataclass(frozen=True)
class Curves:
    """Holds a row for each group and a column for each edge. Shares are of the group's messages.

    - `healed`: the estimated share that has recovered by then; a share that nobody has seen recover never does.
    - `low`: the share known to have recovered by then. `high`: the share not known to be failing then.
    - `guess`: by how much `healed` may well be wrong, since history looked only before and after.
    - `horizon`: how far history has looked, in seconds. `left`: the share that is failing at the horizon.
    - `densities`: the estimates behind the curves, from which those of fewer histories are found quickly.
    """

    cells: TimeGrid
    groups: tuple[tuple[str, str], ...]
    messages: Floats
    healed: Floats
    low: Floats
    high: Floats
    guess: Floats
    horizon: Floats
    left: Floats
    densities: Densities

    @property
    def longest(self) -> float:
        """Return the time in seconds after which nothing is known of any group."""
        return float(self.cells.edges[-1])


def curves_of(groups: tuple[tuple[str, str], ...], seen: Intervals, cells: TimeGrid) -> Curves:
    """Return the curves of groups that are pairs of destination and fingerprint, sorted by destination."""
    into, destinations = _destinations(groups)
    everything = seen.pooled(np.zeros(seen.groups, dtype=np.int64), 1)
    top = rough(everything, flat(cells), 1.0)
    densities = _found(seen, into, destinations, cells, everything, top)
    messages = seen.messages
    known, still = _known(seen, cells, messages)
    reached, horizon = _reached(seen, cells, messages)
    healed, other = (
        _healed(found, messages, reached, known, still)
        for found in (expected(densities.groups, seen), _unsmoothed(seen, into, destinations, top))
    )
    guess = _guesses(healed, seen.pooled(into, destinations), into, cells)
    guess = np.maximum(guess, _ROUGH * np.abs(healed - other))
    rows = np.arange(len(groups))
    left = np.maximum(1 - healed[rows, horizon], 0.0)
    return Curves(cells, groups, messages, healed, known, still, guess, cells.edges[horizon], left, densities)


def curves_again(whole: Curves, seen: Intervals) -> Curves:
    """Return the curves of some of the histories, from those of all: what is sampled, and not what is a guess.

    `guess` and `left` are 0, so that nothing is flagged: that was decided by the whole.
    """
    into, destinations = _destinations(whole.groups)
    densities = _found_again(whole, seen, into, destinations)
    messages = seen.messages
    known, still = _known(seen, whole.cells, messages)
    reached, horizon = _reached(seen, whole.cells, messages)
    healed = _healed(expected(densities.groups, seen), messages, reached, known, still)
    return replace(
        whole,
        messages=messages,
        healed=healed,
        low=known,
        high=still,
        guess=np.zeros_like(healed),
        horizon=whole.cells.edges[horizon],
        left=np.zeros(len(whole.groups)),
        densities=densities,
    )


def _destinations(groups: tuple[tuple[str, str], ...]) -> tuple[Ints, int]:
    """Return the number of each group's destination, and how many there are."""
    names = sorted({destination for destination, _ in groups})
    places = {name: number for number, name in enumerate(names)}
    return np.array([places[destination] for destination, _ in groups]), len(names)


def _healed(shares: Floats, messages: Floats, reached: Ints, known: Floats, still: Floats) -> Floats:
    columns = np.minimum(np.arange(shares.shape[1]), reached[:, None])
    found: Floats = np.clip(np.take_along_axis(_sums(shares, messages), columns, axis=1), known, still[:, :-1])
    return found


def _found_again(whole: Curves, seen: Intervals, into: Ints, destinations: int) -> Densities:
    """Go on from the estimates of all histories, which are near: a few rounds are enough."""
    cells, (top, middle, groups, scale) = whole.cells, whole.densities
    fine = (Smoother.of(cells, scale),)
    middle = turnbull_estimate(seen.pooled(into, destinations), top, PRIOR, fine, start=middle)
    return Densities(top, middle, turnbull_estimate(seen, middle[into], PRIOR, fine, start=groups), scale)


def _found(
    seen: Intervals, into: Ints, destinations: int, cells: TimeGrid, everything: Intervals, unsmoothed: Floats
) -> Densities:
    """Estimate how messages recover: all first, then destinations, then their groups.

    `unsmoothed` is the rough estimate of all messages.
    """
    top, scale = _smooth_enough(everything, unsmoothed, scale_of(seen, cells), cells)
    coarse, fine = Smoother.of(cells, COARSE * scale), Smoother.of(cells, scale)
    middle = turnbull_estimate(seen.pooled(into, destinations), top, PRIOR, (coarse, fine))
    found = np.empty((seen.groups, len(cells.edges)))
    for number in range(destinations):  # one at a time: it stays within the processor's cache
        mine = into == number
        part = seen.where(mine, np.cumsum(mine) - 1, int(mine.sum()))
        found[mine] = turnbull_estimate(part, middle[number : number + 1], PRIOR, (fine,))
    return Densities(top, middle, found, scale)


def _smooth_enough(everything: Intervals, unsmoothed: Floats, scale: float, cells: TimeGrid) -> tuple[Floats, float]:
    """Return the estimate of all messages together, and the scale at which it is smooth.

    Some things recover at a stroke, as when something restarts every minute. A smooth estimate then makes what was seen
    far less likely than one that need not be smooth.
    """
    start = flat(cells)
    likely = likelihood(unsmoothed, everything, start, 0.0)[0]
    for _ in range(_HALVINGS):
        found = turnbull_estimate(
            everything, start, 1.0, (Smoother.of(cells, COARSE * scale), Smoother.of(cells, scale))
        )
        if likelihood(found, everything, start, 0.0)[0] >= likely - MISFIT:
            return found, scale
        scale /= 2
    return turnbull_estimate(everything, start, 1.0, (Smoother.of(cells, scale),)), scale


def _unsmoothed(seen: Intervals, into: Ints, destinations: int, top: Floats) -> Floats:
    """Return a second opinion: the same where recovery is not taken to be smooth. `top` is such an estimate of all."""
    middle = rough(seen.pooled(into, destinations), top, PRIOR)
    return expected(rough(seen, middle[into], PRIOR), seen)


def _sums(shares: Floats, messages: Floats) -> Floats:
    """Turn the numbers of messages in each cell into the share by each edge."""
    sums = np.zeros_like(shares)
    np.cumsum(shares[:, :-1], axis=1, out=sums[:, 1:])
    return sums / np.maximum(messages, 1e-300)[:, None]


def _known(seen: Intervals, cells: TimeGrid, messages: Floats) -> tuple[Floats, Floats]:
    """Return two shares by each edge: known to have recovered, and not known to be failing.

    The second one has one value more, for a later time than all edges.
    """
    size = len(cells.edges)
    low, high = np.zeros((seen.groups, size + 1)), np.zeros((seen.groups, size + 1))
    np.add.at(low, (seen.group, seen.hi), seen.n)
    np.add.at(high, (seen.group, seen.lo + 1), seen.n)
    every = np.maximum(messages, 1e-300)[:, None]
    return np.cumsum(low[:, :-1], axis=1) / every, np.cumsum(high, axis=1) / every


def _support(messages: Floats) -> Floats:
    return np.clip(np.ceil(messages * SUPPORT_SHARE), 1.0, SUPPORT)


def _reached(seen: Intervals, cells: TimeGrid, messages: Floats) -> tuple[Ints, Ints]:
    """Return the last edge at which each group was looked at, and the last at which enough of its messages were."""
    last = np.where(seen.hi < cells.never, seen.hi, seen.lo)
    at = np.zeros((seen.groups, len(cells.edges)))
    np.add.at(at, (seen.group, last), seen.n)
    later = np.cumsum(at[:, ::-1], axis=1)[:, ::-1]  # looked at by this edge or later
    reached = (later > 0).sum(axis=1) - 1
    horizon = (later >= _support(messages)[:, None]).sum(axis=1) - 1
    return np.maximum(reached, 0), np.maximum(horizon, 0)


def _guesses(healed: Floats, seen: Intervals, into: Ints, cells: TimeGrid) -> Floats:
    """Return a guess for each edge: a part of what recovered between the looks at the destination around it."""
    looked = _looked(seen, cells)
    guess = np.zeros_like(healed)
    for number in range(seen.groups):
        looks = np.flatnonzero(looked[number])
        mine = np.flatnonzero(into == number)
        if not len(looks):
            continue
        part, before, after = _between(looks, cells)
        guess[mine] = part * (healed[mine][:, after] - healed[mine][:, before])
    return guess


def _looked(seen: Intervals, cells: TimeGrid) -> Bools:
    """Return at which edges, and near them, enough messages of each group were tried."""
    size = len(cells.edges)
    at = np.zeros((seen.groups, size + 1))
    np.add.at(at, (seen.group, seen.lo), seen.n)
    np.add.at(at, (seen.group, seen.hi), seen.n)
    at[:, 0] = 0.0
    sums = np.concatenate([np.zeros((seen.groups, 1)), np.cumsum(at[:, :-1], axis=1)], axis=1)
    first = np.searchsorted(cells.logs, cells.logs - NEAR)
    behind = np.searchsorted(cells.logs, cells.logs + NEAR, side="right")
    near = sums[:, behind] - sums[:, first]
    found: Bools = (near >= _support(seen.messages)[:, None]) & (at[:, :-1] > 0)
    return found


def _between(looks: Ints, cells: TimeGrid) -> tuple[Floats, Ints, Ints]:
    """Return, for each edge, which part of its gap's messages is a guess, and the looks before and after the edge."""
    edges = np.arange(len(cells.edges))
    behind = np.searchsorted(looks, edges, side="right")  # looks at this edge or before it
    before = np.where(behind > 0, looks[np.maximum(behind - 1, 0)], 0)
    after = looks[np.minimum(behind, len(looks) - 1)]
    after = np.where(before == edges, edges, np.maximum(after, before))
    start = np.where(behind > 0, cells.logs[before], cells.logs[after] - math.log(BELOW))
    width = cells.logs[after] - start
    share = np.where(behind > 0, np.minimum(_GUESS * (width / math.log(2)) ** 2, _WORST), _WORST)
    place = np.divide(cells.logs - start, width, out=np.zeros(len(edges)), where=width > 0)
    place = np.where(behind > 0, place, np.maximum(place, _EARLY))
    return share * 4 * np.clip(place * (1 - place), 0.0, None), before, after
