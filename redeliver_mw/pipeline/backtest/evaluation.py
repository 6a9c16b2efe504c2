# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Schedules held against curves: what would have become of the messages, for many schedules at once.

An attempt at time a succeeds at a message that heals at T <= a. So if F(a) is the share that has healed by a, of all
messages F(a1) recover at the first retry, F(a2) - F(a1) at the second, and so on; and the next retry is made for
1 - F(a) of them. All that is counted here adds up over groups of messages, weighted by how many they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ..arrays import Bools, Floats, Ints
from .curves import Curves
from .schedule import AttemptSchedule, padded

ALIKE: Final = 1 / 64  # two times within this part of each other are one: bins, and how late an attempt is
BEYOND: Final = 1 / 16  # an attempt may be later than the horizon by this part of it
_BIN: Final = 1 / 128  # so wide is a bin of the mart at most, as a part of its time
_CHUNK: Final = 100_000  # numbers in one array: larger ones do not stay in the processor's cache
SUMS: Final = (
    "recovered",
    "low",
    "high",
    "dead",
    "attempts",
    "wasted",
    "waited",
    "beyond",
    "beyond_s",
    "unsure",
    "unsure_attempts",
    "unsure_s",
)


@dataclass(frozen=True)
class Mixture:
    """Holds the curves of several groups as one, over the edges; `high` has one value more, for later times."""

    edges: Floats
    logs: Floats
    messages: float
    healed: Floats
    low: Floats
    high: Floats
    guess: Floats
    horizons: Floats  # ascending, and how many are failing at one of these or at an earlier one
    left: Floats

    @classmethod
    def of(cls, curves: Curves, wanted: Bools) -> Mixture:
        """Return the mixture of the wanted groups, which have messages."""
        n = curves.messages[wanted]
        share = n / n.sum()
        order = np.argsort(curves.horizon[wanted], kind="stable")
        left = np.concatenate([[0.0], np.cumsum((share * curves.left[wanted])[order])])
        rows = (curves.healed, curves.low, curves.high, curves.guess)
        healed, low, high, guess = (share @ row[wanted] for row in rows)
        horizons = curves.horizon[wanted][order]
        return cls(curves.cells.edges, curves.cells.logs, float(n.sum()), healed, low, high, guess, horizons, left)

    def at(self, times: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Return the values of `healed`, `low`, `high` and `guess` at the given times, which are in seconds."""
        before = np.searchsorted(self.edges, times, side="right") - 1
        after = np.minimum(before + 1, len(self.edges) - 1)
        part = self._part(times, before, after)
        low = self.low[np.where(times * (1 + ALIKE) >= self.edges[after], after, before)]
        same = times <= self.edges[before] * (1 + _BIN)
        high = self.high[np.where(same, before, before + 1)]
        high = np.maximum(low, high)
        healed, guess = self.healed[before], self.guess[before]
        healed += part * (self.healed[after] - healed)
        guess += part * (self.guess[after] - guess)
        return np.clip(healed, low, high), low, high, guess

    def beyond(self, last: Floats) -> Floats:
        """Return the share of messages that are failing at their horizon while something is tried later, at `last`."""
        return self.left[np.searchsorted(self.horizons * (1 + BEYOND), last, side="left")]

    def _part(self, times: Floats, before: Ints, after: Ints) -> Floats:
        """Return how far each time is between two edges: by the logarithm of time, and evenly before the first edge."""
        logs = np.log(np.maximum(times, self.edges[1] / 2))
        start = self.logs[before]
        width = self.logs[after] - start
        part = np.divide(logs - start, width, out=np.zeros_like(times), where=width > 0)
        found: Floats = np.where(before == 0, times / self.edges[1], np.clip(part, 0.0, 1.0))
        return found


@dataclass(frozen=True)
class Evaluation:
    """Holds a number for each schedule: shares of messages and means over them.

    - `recovered`, `low`, `high`; `dead`: the share that is given up. `attempts`: of a message; `wasted`: of those that
      are given up.
    - `waited`: mean seconds until it recovered, 0 for a message that did not.
    - `beyond`: the share of which nobody knows, since history did not look so far; `beyond_s`: the seconds at stake.
    - `unsure`, `unsure_attempts`, `unsure_s`: by how much shares, attempts and `waited` may be wrong, since history
      looked at other times.
    - `points`: times and weights of all recoveries, one line for each schedule.
    """

    recovered: Floats
    low: Floats
    high: Floats
    dead: Floats
    attempts: Floats
    wasted: Floats
    waited: Floats
    beyond: Floats
    beyond_s: Floats
    unsure: Floats
    unsure_attempts: Floats
    unsure_s: Floats
    points: tuple[Floats, Floats]

    def sums(self) -> list[dict[str, float]]:
        """Return the numbers of each schedule by their names, those of SUMS."""
        columns = (getattr(self, name).tolist() for name in SUMS)
        return [dict(zip(SUMS, line, strict=True)) for line in zip(*columns, strict=True)]


def evaluate(mixture: Mixture, schedules: Sequence[AttemptSchedule]) -> Evaluation:
    """Return what would have become of the messages under each schedule."""
    ways = max(len(one.times) for one in schedules)
    retries = max(one.times.shape[1] for one in schedules)
    size = max(1, _CHUNK // max(ways * retries, 1))
    parts = [_fates(mixture, schedules[at : at + size], ways, retries) for at in range(0, len(schedules), size)]
    if len(parts) == 1:
        return parts[0]
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in SUMS}
    points = (np.concatenate([part.points[0] for part in parts]), np.concatenate([part.points[1] for part in parts]))
    return Evaluation(**joined, points=points)


def _fates(mixture: Mixture, schedules: Sequence[AttemptSchedule], ways: int, retries: int) -> Evaluation:
    times = np.stack([_all_ways(padded(one.times, retries), ways) for one in schedules])
    made, attempts, last = (
        np.stack([_all_ways(getattr(one, name), ways) for one in schedules]) for name in ("retries", "attempts", "last")
    )
    ends = np.array([one.ends for one in schedules])
    healed, low, high, guess = mixture.at(times)
    start = np.zeros((*made.shape, 1))
    failing = 1 - np.concatenate([start, healed], axis=2)  # after each attempt, the first one included
    counts = np.arange(retries) < made[:, :, None]
    tried = 1 + (failing[:, :, :-1] * counts).sum(axis=2)
    left = failing[:, :, -1]
    tried += np.maximum(attempts - 1 - made, 0.0) * left
    gained = np.diff(1 - failing, axis=2)
    beyond = mixture.beyond(last)
    success_s = np.array([one.success_s for one in schedules])
    between = guess[:, :, :-1] * counts[:, :, 1:]
    return Evaluation(
        recovered=_mean(1 - left),
        low=_mean(_final(low, start)),
        high=_mean(_final(high, start)),
        dead=np.where(ends, _mean(left), 0.0),
        attempts=_mean(tried),
        wasted=np.where(ends, _mean(left * attempts), 0.0),
        waited=_mean((times * gained).sum(axis=2)) + success_s * _mean(1 - left),
        beyond=_mean(beyond),
        beyond_s=_mean(beyond * last),
        unsure=_mean(_final(guess, start)),
        unsure_attempts=_mean(np.sqrt((between**2).sum(axis=2))),
        unsure_s=_mean(np.sqrt(((between * np.diff(times, axis=2)) ** 2).sum(axis=2))),
        points=((times + success_s[:, None, None]).reshape(len(times), -1), gained.reshape(len(times), -1) / ways),
    )


def _all_ways(array: Floats, ways: int) -> Floats:
    """Repeat the only way of a schedule without jitter, so that it counts as all ways."""
    return np.broadcast_to(array, (ways, *array.shape[1:])) if len(array) < ways else array


def _final(table: Floats, start: Floats) -> Floats:
    """Return the last column; 0 where there is none."""
    return np.concatenate([start, table], axis=2)[:, :, -1]


def _mean(table: Floats) -> Floats:
    found: Floats = table.mean(axis=1)
    return found


def quantiles(times: Floats, weights: Floats, wanted: Sequence[float]) -> Floats:
    """Return by which time the `wanted` parts of the weight have come: a line for each line, nan without weight."""
    if not times.shape[1]:
        return np.full((len(times), len(wanted)), np.nan)
    order = np.argsort(times, axis=1, kind="stable")
    sums = np.cumsum(np.take_along_axis(weights, order, axis=1), axis=1)
    total = sums[:, -1:]
    found = np.empty((len(times), len(wanted)))
    for number, part in enumerate(wanted):
        at = np.argmax(sums >= part * total * (1 - 1e-9), axis=1)
        found[:, number] = np.take_along_axis(times, np.take_along_axis(order, at[:, None], axis=1), axis=1)[:, 0]
    return np.where(total > 0, found, np.nan)
