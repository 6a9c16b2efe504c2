# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a small search for a better policy: a grid scaled to how far history knows, then steps from the best of it.

1. A grid: no retry at all; and first delays from half the horizon down to a 256th of it, or to today's first delay
   where that is less, factors 1 to 3, caps, 2 to 12 attempts. Delays are whole milliseconds, as in every language that
   a policy may be written in, and never 0: a candidate that retries at once would be a hot loop.
2. From the one that would be recommended, and from the one that gains most: first delay, factor, cap and attempts are
   made a little larger or smaller, one at a time; the best of these are gone on from, until none is better; then the
   same with half the steps, three times over.

Always the same answer for the same history: nothing is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ...policy import Backoff, RedeliveryPolicy
from .grid import Shape, doing, shapes
from .history import History
from .objective import Objective, furthest, is_allowed, ranked
from .pareto_front import with_front
from .rows import BacktestRow, Candidate

JITTER: Final = 0.2  # wide, so that the histories it makes will tell more
_STEPS: Final = (0.4, 0.2, 0.1, 0.05)
_MOVES: Final = 20  # at most, with each step
_DOUBLINGS: Final = 8  # of the first delay, at least
_MOST_DOUBLINGS: Final = 20
_MULTIPLIERS: Final = (1.0, 1.5, 2.0, 3.0)
_SLIGHTEST: Final = 1.05  # factors below this are none
_ATTEMPTS: Final = range(2, 13)
_LEAST: Final = 0.001  # seconds of any delay
_ONE_ATTEMPT: Final = Shape(1, _LEAST, 1.0)


@dataclass(frozen=True)
class Searched:
    """Holds all candidates that were judged, `present` first, and their rows in the same order.

    The rows are about all messages, or about one destination's.
    """

    candidates: tuple[Candidate, ...]
    rows: tuple[BacktestRow, ...]


def search(
    history: History,
    present: Candidate,
    like: RedeliveryPolicy,
    objective: Objective,
    *,
    destination: str | None = None,
    jitter: float = JITTER,
    others: Sequence[Candidate] = (),
) -> Searched:
    """Judge candidates that are `like` in rules and targets, and `others` with them, for one destination or for all."""
    return _Search(history, like, objective, destination).run(present, jitter, others)


class _Search:
    """Runs one search. Each object is for one search only."""

    def __init__(self, history: History, like: RedeliveryPolicy, objective: Objective, destination: str | None) -> None:
        self._history, self._like = history, like
        self._objective, self._destination = objective, destination
        self._candidates: dict[str, Candidate] = {}
        self._rows: dict[str, BacktestRow] = {}
        self._allowed: list[BacktestRow] = []  # those that may be recommended: the others need not be looked at again
        self._present = ""  # the name of the policy in use
        self._shapes: dict[str, Shape] = {}
        self._slowed: dict[Backoff, RedeliveryPolicy] = {}  # `like` with each back-off
        self._known: set[tuple[object, ...]] = set()  # what shapes that were tried do

    def run(self, present: Candidate, jitter: float, others: Sequence[Candidate]) -> Searched:
        self._present = present.name
        self._judge([present, *others])
        horizon = self._history.horizon(self._destination)
        self._add(_grid(horizon, self._like.backoff.span(1).base, jitter))
        best = self._best()
        for step in _STEPS:
            for _ in range(_MOVES):
                if not self._add([near for shape in best for near in _around(shape, step)]):
                    break
                before, best = best, self._best()
                if best == before:
                    break
        rows = with_front(list(self._rows.values()))
        return Searched(tuple(self._candidates.values()), tuple(rows))

    def _best(self) -> list[Shape]:
        """Return the shape that would be recommended and the one that gains most, as far as they were found here."""
        found = []
        for order in (ranked, furthest):
            names = (row.candidate for row in order(self._allowed, self._objective, self._rows[self._present]))
            found += [self._shapes[name] for name in names if name in self._shapes][:1]
        return found

    def _add(self, several: Sequence[Shape]) -> bool:
        """Judge the shapes that are new, and return whether there was one."""
        fresh = {done: shape for shape in reversed(several) if (done := doing(shape)) not in self._known}
        self._known |= fresh.keys()
        made = [(self._candidate(shape), shape) for shape in reversed(fresh.values())]
        made = [(one, shape) for one, shape in made if one.name not in self._candidates]
        self._shapes |= {one.name: shape for one, shape in made}
        self._judge([one for one, _ in made])
        return bool(made)

    def _candidate(self, shape: Shape) -> Candidate:
        """Return the candidate of a shape; those with the same back-off remember its delays together."""
        if shape.attempts == 1:
            return shape.candidate(self._like)
        backoff = shape.backoff()
        if backoff not in self._slowed:
            self._slowed[backoff] = self._like.replace(backoff=backoff)
        return shape.candidate(self._slowed[backoff])

    def _judge(self, candidates: Sequence[Candidate]) -> None:
        if candidates:
            rows = self._history.backtest(candidates, by="all", destination=self._destination)
            self._candidates |= {one.name: one for one in candidates}
            self._rows |= {row.candidate: row for row in rows}
            now = self._rows[self._present]
            self._allowed += [row for row in rows if is_allowed(row, self._objective, now)]


def _grid(horizon: float, first_now: float, jitter: float) -> list[Shape]:
    deep = math.ceil(math.log2(horizon / first_now)) if 0 < first_now < horizon else 0
    halves = (_plain(horizon / 2**power) for power in range(1, min(max(deep, _DOUBLINGS), _MOST_DOUBLINGS) + 1))
    first = [delay for delay in halves if delay >= _LEAST]
    caps = (None, *(cap for part in (16, 8, 4, 2) if (cap := _plain(horizon / part)) >= _LEAST))
    several = shapes(initial=first, attempts=_ATTEMPTS, multiplier=_MULTIPLIERS, cap=caps, jitter=(jitter,))
    return [_ONE_ATTEMPT, *several]


def _around(shape: Shape, step: float) -> list[Shape]:
    """Return those that are others, in their plainest form. A shape without a retry has no neighbours."""
    if shape.attempts == 1:
        return []
    near = (_simple(one) for one in _neighbours(shape, step))
    return [one for one in near if one.multiplier >= 1 and one.attempts > 1 and one.initial >= _LEAST and one != shape]


def _simple(shape: Shape) -> Shape:
    return (shape._replace(multiplier=1.0) if shape.multiplier < _SLIGHTEST else shape).normalised()


def _neighbours(shape: Shape, step: float) -> Iterator[Shape]:
    for factor in (1 + step, 1 / (1 + step)):
        yield shape._replace(initial=_plain(shape.initial * factor))
        yield shape._replace(multiplier=_plain(1 + (shape.multiplier - 1) * factor))
        if shape.cap is not None:
            yield shape._replace(cap=_plain(shape.cap * factor))
    yield shape._replace(attempts=shape.attempts + 1)
    yield shape._replace(attempts=shape.attempts - 1)
    if shape.multiplier == 1:
        yield shape._replace(multiplier=_plain(1 + step))


def _plain(value: float) -> float:
    """Return three digits of it, and no part of a millisecond: a person is to read it, and a broker to keep it."""
    return float(f"{round(value, 3):.3g}")
