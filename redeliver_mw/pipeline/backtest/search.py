# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""A small search for a better policy: a grid scaled to how far history knows, and then steps from the best of it.

1. A grid: first delays from a 256th of the horizon to half of it, factors 1 to 3, caps, 2 to 12 attempts.
2. From the best by the objective: first delay, factor, cap and attempts are made a little larger or smaller, one at a
   time; the best of these is gone on from, until none is better; then the same with half the steps, three times over.

Always the same answer for the same history: nothing is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ...policy import RedeliveryPolicy
from .choosing import Objective, ranked
from .front import with_front
from .grid import Shape, shapes
from .history import History
from .rows import BacktestRow, Candidate

JITTER: Final = 0.2  # wide, so that the histories it makes will tell more
_STEPS: Final = (0.4, 0.2, 0.1, 0.05)
_MOVES: Final = 20  # at most, with each step
_DOUBLINGS: Final = 8
_MULTIPLIERS: Final = (1.0, 1.5, 2.0, 3.0)
_ATTEMPTS: Final = range(2, 13)


@dataclass(frozen=True)
class Searched:
    """All that was judged, `present` first; rows about all messages or one destination's, in the same order."""

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
    """Candidates that are `like` in rules and targets, judged for one destination or all, and `others` with them."""
    return _Search(history, like, objective, destination).run(present, jitter, others)


class _Search:
    """One search. Not for a second one."""

    def __init__(self, history: History, like: RedeliveryPolicy, objective: Objective, destination: str | None) -> None:
        self._history, self._like = history, like
        self._objective, self._destination = objective, destination
        self._candidates: dict[str, Candidate] = {}
        self._rows: dict[str, BacktestRow] = {}
        self._shapes: dict[str, Shape] = {}

    def run(self, present: Candidate, jitter: float, others: Sequence[Candidate]) -> Searched:
        self._judge([present, *others])
        horizon = self._history.horizon(self._destination)
        self._add(_grid(horizon, jitter))
        now = self._rows[present.name]
        for step in _STEPS:
            for _ in range(_MOVES):
                best = self._best(now)
                if best is None or not self._add(_around(best, step)) or self._best(now) == best:
                    break
        rows = with_front(list(self._rows.values()))
        return Searched(tuple(self._candidates.values()), tuple(rows))

    def _best(self, now: BacktestRow) -> Shape | None:
        names = (row.candidate for row in ranked(self._rows.values(), self._objective, now))
        return next((self._shapes[name] for name in names if name in self._shapes), None)

    def _add(self, several: Sequence[Shape]) -> bool:
        """Judges those that are new; says if there was one."""
        fresh = []
        for shape in several:
            candidate = shape.candidate(self._like)
            if candidate.name not in self._candidates:
                self._shapes[candidate.name] = shape
                fresh.append(candidate)
        self._judge(fresh)
        return bool(fresh)

    def _judge(self, candidates: Sequence[Candidate]) -> None:
        if candidates:
            rows = self._history.backtest(candidates, by="all", destination=self._destination)
            self._candidates |= {one.name: one for one in candidates}
            self._rows |= {row.candidate: row for row in rows}


def _grid(horizon: float, jitter: float) -> list[Shape]:
    first = [_plain(horizon / 2**power) for power in range(1, _DOUBLINGS + 1)]
    caps = (None, *(_plain(horizon / part) for part in (16, 8, 4, 2)))
    return shapes(initial=first, attempts=_ATTEMPTS, multiplier=_MULTIPLIERS, cap=caps, jitter=(jitter,))


def _around(shape: Shape, step: float) -> list[Shape]:
    return [one for one in _neighbours(shape, step) if one.multiplier >= 1 and one.attempts > 1 and one.initial > 0]


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
    """Three digits are enough for a policy that a person is to read."""
    return float(f"{value:.3g}")
