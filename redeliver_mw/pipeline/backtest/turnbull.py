# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
r"""Estimates when messages recover, from intervals: the self-consistent estimate (Turnbull's), many groups at once.

A message's time to heal T is never seen, only an interval that holds it. The estimate is the distribution p over cells
that equals what it says of the messages itself::

    p[c]  =  (sum over histories of P(T in cell c | T in its interval; p)  +  k q[c])  /  (n + k)

found by going on from p to the right side again and again (EM). Each step makes the likelihood larger. q is the
prior: for a failure its destination's distribution, for a destination that of all; k is as many messages, so that
small groups lean on it and large ones do not.

Where all histories have tried at the same few times, any way to share an interval's messages out among its cells is as
likely as any other, and EM keeps the one it starts with; where they have tried at many times it ends, if it is let, in
spikes. So steps go on in turn with smoothing the logarithm of the density (a lognormal is a parabola there, a constant
rate of healing nearly a line, and both stay nearly what they are), until no such round changes much; steps are last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from ..arrays import Floats
from .intervals import Intervals, summed
from .time_grid import TimeGrid

TOLERANCE: Final = 2e-4  # of a group's messages: when no round moves more of them past any edge, it is done
ROUNDS: Final = 30  # of steps and smoothing, at most
_STEPS: Final = 10  # in a round
_LAST: Final = 5  # after the last smoothing
_ROUGH: Final = 30  # without smoothing: more would end in spikes
_LEAST: Final = 1e-12  # a density below is none
_FLATTEST: Final = 0.2  # how fast the density falls towards 0, at least: as t to this power


class Smoother:
    """Finds the line nearest to given values whose second derivative is small (Whittaker's smoother).

    Straight lines stay as they are. Everything that is shorter than `scale`, in logarithms of time, is smoothed away.
    """

    @classmethod
    def of(cls, cells: TimeGrid, scale: float) -> Smoother:
        """Return the smoother of some cells, which is made once for each scale."""
        made: dict[float, Smoother] = cells.smoothers
        if scale not in made:
            made[scale] = cls(cells, scale)
        return made[scale]

    def __init__(self, cells: TimeGrid, scale: float) -> None:
        logs = cells.logs[1:]
        middle = (logs[1:] + logs[:-1]) / 2
        step = np.diff(middle)
        left, right, both = step[:-1], step[1:], step[:-1] + step[1:]
        rows = np.arange(len(middle) - 2)
        bend = np.zeros((len(rows), len(middle)))
        bend[rows, rows] = 2 / (left * both)
        bend[rows, rows + 1] = -2 / (left * right)
        bend[rows, rows + 2] = 2 / (right * both)
        self._width = np.diff(logs)
        stiff = np.diag(self._width) + scale**4 * bend.T @ ((both / 2)[:, None] * bend)
        self._smooth = np.linalg.solve(stiff, np.diag(self._width)).T

    def __call__(self, p: Floats) -> Floats:
        """Return `p` (groups x cells) with its density smooth; the share that never recovers stays as it is."""
        width = self._width
        logs = np.log(np.maximum(p[:, 1:-1] / width, _LEAST)) @ self._smooth
        smooth = np.empty_like(p)
        smooth[:, 1:-1] = np.exp(logs) * width
        slope = 2 * (logs[:, 1] - logs[:, 0]) / (width[0] + width[1])
        smooth[:, 0] = np.exp(logs[:, 0]) / np.maximum(slope, _FLATTEST)
        finite = 1 - p[:, -1:]
        smooth[:, :-1] *= finite / smooth[:, :-1].sum(axis=1, keepdims=True)
        smooth[:, -1] = p[:, -1]
        return smooth


def flat(cells: TimeGrid) -> Floats:
    """Return the prior of all: every doubling of time is as likely as any other, and as never."""
    p = np.empty((1, len(cells.edges)))
    p[0, 0] = p[0, -1] = math.log(2)
    p[0, 1:-1] = np.diff(cells.logs[1:])
    p /= p.sum()
    return p


def scale_of(seen: Intervals, cells: TimeGrid) -> float:
    """Return a third of the usual distance between two attempts at a message, in logarithms of time."""
    between = (seen.lo > 0) & (seen.hi < cells.never)
    gaps = cells.logs[seen.hi[between]] - cells.logs[seen.lo[between]]
    if not len(gaps):
        return math.log(2) / 3
    order = np.argsort(gaps)
    count = np.cumsum(seen.n[between][order])
    middle = gaps[order][np.searchsorted(count, count[-1] / 2)]
    return float(min(max(middle / 3, math.log(2) / 8), math.log(2)))


def expected(p: Floats, seen: Intervals) -> Floats:
    """Return how many messages of each group recover in each cell (groups x cells), if `p` is how they recover."""
    groups, cells = p.shape
    edges = cells + 1
    below = np.zeros((groups, edges))
    np.add.accumulate(p, axis=1, out=below[:, 1:])
    first, behind = seen.places(edges)
    inside = below.take(behind) - below.take(first)
    weight = seen.n / np.maximum(inside, 1e-300, out=inside)
    turn = summed(first, weight, groups * edges)
    turn -= summed(behind, weight, groups * edges)
    found: Floats = np.maximum(np.add.accumulate(turn.reshape(groups, edges), axis=1)[:, :-1], 0.0)
    found *= p
    total = np.add.reduce(found, axis=1)
    found *= (seen.messages / np.maximum(total, 1e-300))[:, None]
    return found


def step(p: Floats, seen: Intervals, prior: Floats, strength: float) -> Floats:
    """Take one step of EM: the right side of the equation above."""
    return _step(p, seen, strength * prior, (seen.messages + strength)[:, None])


def _step(p: Floats, seen: Intervals, leaning: Floats, every: Floats) -> Floats:
    """Return the right side of the equation: `leaning` are the messages of the prior, `every` counts all messages."""
    found = expected(p, seen)
    found += leaning
    found /= every
    return found


def likelihood(p: Floats, seen: Intervals, prior: Floats, strength: float) -> Floats:
    """Return what no step of EM makes smaller, for each group: the log likelihood, with the prior's messages."""
    below = np.concatenate([np.zeros((len(p), 1)), np.cumsum(p, axis=1)], axis=1)
    inside = below[seen.group, seen.hi] - below[seen.group, seen.lo]
    seen_part = summed(seen.group, seen.n * np.log(np.maximum(inside, 1e-300)), seen.groups)
    prior_part: Floats = strength * (prior * np.log(np.maximum(p, 1e-300))).sum(axis=1)
    return seen_part + prior_part


def turnbull_estimate(
    seen: Intervals, prior: Floats, strength: float, smoothers: Sequence[Smoother], start: Floats | None = None
) -> Floats:
    """Return the estimate for every group (groups x cells), from `prior`, one line for all or one for each.

    It begins with `start`, or else with the prior. With each smoother, rounds of steps and smoothing until none moves
    more than TOLERANCE of a group's messages; at most ROUNDS. A coarse smoother first finds the large slopes, for which
    a fine one needs many rounds.
    """
    prior = np.ascontiguousarray(np.broadcast_to(prior, (seen.groups, prior.shape[1])))
    p = prior if start is None else start
    for smoother in smoothers:
        for _ in range(ROUNDS):
            before, p = p, smoother(_steps(p, seen, prior, strength, _STEPS))
            if np.abs(np.cumsum(p - before, axis=1)).max(initial=0.0) < TOLERANCE:
                break
    return _steps(p, seen, prior, strength, _LAST)


def rough(seen: Intervals, prior: Floats, strength: float) -> Floats:
    """Return an estimate for every group without smoothing, by steps from `prior`: one line for all or one for each."""
    prior = np.ascontiguousarray(np.broadcast_to(prior, (seen.groups, prior.shape[1])))
    return _steps(prior, seen, prior, strength, _ROUGH)


def _steps(p: Floats, seen: Intervals, prior: Floats, strength: float, count: int) -> Floats:
    leaning, every = strength * prior, (seen.messages + strength)[:, None]  # the same in all steps
    for _ in range(count):
        p = _step(p, seen, leaning, every)
    return p
