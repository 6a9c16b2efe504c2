# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Computes how long attempts take, and how late they begin, by destination and failure.

A failing attempt often takes longer than one that succeeds: it waits for a dependency until a timeout. A schedule of
attempts is therefore made with the durations of the failing attempts of the same failure. Failures whose attempts take
about as long share one distribution, so that few schedules have to be made.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final, Literal

import numpy as np

from ...errors import ConfigError
from ..arrays import Floats, Ints
from .observations import ObservationRow
from .time_grid import times

Kind = Literal["failing", "late", "success"]
KINDS: Final[tuple[Kind, ...]] = ("failing", "late", "success")
PATHS: Final = 32  # quantiles of a distribution, and ways in which a schedule falls
SHORT: Final = 0.02  # seconds: whatever takes less is alike
LEAST: Final = 10  # attempts; with fewer the destination's distribution is taken, and then that of all
_NAMES: Final = ("destination", "fingerprint", "kind", "bin", "n")

Group = tuple[str, str]


@dataclass(frozen=True, eq=False)
class AttemptTimes:
    """Holds the times of the attempts of some failures, in seconds.

    - `failing`: PATHS quantiles of how long a failing attempt takes.
    - `late`: PATHS quantiles of how much later than its delay says an attempt begins.
    - `success_s`: the mean time that a successful attempt takes.
    """

    failing: Floats
    late: Floats
    success_s: float = 0.0

    @classmethod
    def constant(cls, late_s: float = 0.0, failing_s: float = 0.0, success_s: float = 0.0) -> AttemptTimes:
        """Return times that are the same for all attempts."""
        return cls(np.full(PATHS, failing_s), np.full(PATHS, late_s), success_s)

    @cached_property
    def is_constant(self) -> bool:
        """Return whether all attempts take the same time, and are late by the same."""
        return bool(np.ptp(self.failing) == 0 and np.ptp(self.late) == 0)

    @cached_property
    def soonest(self) -> tuple[float, float]:
        """Return how late an attempt begins at least, and how long a failing one takes at least."""
        return float(self.late.min()), float(self.failing.min())

    def failing_of(self, attempt: int) -> Floats:
        """Return how long the failing attempt of this number takes in each of PATHS ways."""
        return self.failing[_shuffled(attempt, 1)]

    def late_of(self, attempt: int) -> Floats:
        """Return how late the attempt of this number begins in each of PATHS ways."""
        return self.late[_shuffled(attempt, 2)]

    def failing_until(self, attempts: int) -> Floats:
        """Return how long the failing attempts up to this number take (attempts x PATHS): `failing_of` for all."""
        return self.failing[_all_shuffled(attempts, 1)]

    def late_until(self, attempts: int) -> Floats:
        """Return how late the attempts up to this number begin (attempts x PATHS): `late_of` for all."""
        return self.late[_all_shuffled(attempts, 2)]


class TimesByGroup:
    """Holds the attempt times of each group of messages; groups that are alike share one object."""

    def __init__(self, groups: Sequence[Group], rows: Iterable[ObservationRow], otherwise: AttemptTimes) -> None:
        found = _counts(rows)
        places = {destination: [group for group in found if group[0] == destination] for destination, _ in groups}
        keys = [_class_of(_of_group(group, found, places[group[0]])) for group in groups]
        alike: dict[tuple[int, int, int], list[Group]] = defaultdict(list)
        for group, key in zip(groups, keys, strict=True):
            if key is not None:
                alike[key].append(group)
        whole = {key: _times(_of_several(members, found, places)) for key, members in alike.items()}
        self.of: tuple[AttemptTimes, ...] = tuple(otherwise if key is None else whole[key] for key in keys)


@lru_cache(maxsize=20_000)
def _shuffled(attempt: int, kind: int) -> Ints:
    # every quantile once, in an order of its own for each attempt: the same for all policies
    return np.random.default_rng([attempt, kind, PATHS]).permutation(PATHS)


@lru_cache(maxsize=8)
def _all_shuffled(attempts: int, kind: int) -> Ints:
    rows = [_shuffled(attempt, kind) for attempt in range(1, attempts + 1)]
    return np.array(rows, dtype=np.int64).reshape(-1, PATHS)


def _counts(rows: Iterable[ObservationRow]) -> dict[Group, dict[Kind, dict[int, float]]]:
    found: dict[Group, dict[Kind, dict[int, float]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(float)))
    for number, row in enumerate(rows):
        try:
            destination, fingerprint, kind, at, n = (row[name] for name in _NAMES)
        except (KeyError, ValueError, IndexError, TypeError):
            cure = f"It needs {', '.join(_NAMES)}"
            raise ConfigError(
                "no row of attempt times", where=f"row {number}", cure=cure, code="backtest-input"
            ) from None
        if kind not in KINDS or not isinstance(at, int) or at < 0:
            cure = f"Give one of {', '.join(KINDS)}, and a bin of time"
            raise ConfigError(
                f"no row of attempt times: {kind!r:.80}, {at!r:.80}",
                where=f"row {number}",
                cure=cure,
                code="backtest-input",
            )
        found[destination, fingerprint or ""][kind][at] += n
    return found


_Found = Mapping[Group, Mapping[Kind, Mapping[int, float]]]
_Samples = dict[Kind, tuple[Floats, Floats]]


def _merged(groups: Iterable[Group], found: _Found, kind: Kind) -> tuple[Floats, Floats]:
    """Return seconds, ascending, and how often they occur."""
    bins: dict[int, float] = defaultdict(float)
    for group in groups:
        for at, n in found.get(group, {}).get(kind, {}).items():
            bins[at] += n
    numbers = np.array(sorted(bins), dtype=np.int64)
    return times(numbers) if len(numbers) else np.zeros(0), np.array([bins[at] for at in sorted(bins)])


def _of_group(group: Group, found: _Found, neighbours: Sequence[Group]) -> _Samples:
    """Return the times of a group; of its destination or of all where it has too few."""
    samples: _Samples = {}
    for kind in KINDS:
        for several in ((group,), neighbours, tuple(found)):
            samples[kind] = _merged(several, found, kind)
            if samples[kind][1].sum() >= LEAST:
                break
    return samples


def _of_several(members: Sequence[Group], found: _Found, places: Mapping[str, Sequence[Group]]) -> _Samples:
    several = [_of_group(group, found, places[group[0]]) for group in members]
    return {
        kind: (np.concatenate([one[kind][0] for one in several]), np.concatenate([one[kind][1] for one in several]))
        for kind in KINDS
    }


def _class_of(samples: _Samples) -> tuple[int, int, int] | None:
    """Return what groups that are alike have in common: means within a doubling. None if nothing is known."""
    if not len(samples["failing"][0]):
        return None
    first, second, third = (_octave(_mean(*samples[kind])) for kind in KINDS)
    return first, second, third


def _octave(seconds: float) -> int:
    return round(math.log2(max(seconds, SHORT) / SHORT))


def _mean(seconds: Floats, n: Floats) -> float:
    return float((seconds * n).sum() / n.sum()) if len(n) else 0.0


def _times(samples: _Samples) -> AttemptTimes:
    return AttemptTimes(_quantiles(*samples["failing"]), _quantiles(*samples["late"]), _mean(*samples["success"]))


def _quantiles(seconds: Floats, n: Floats) -> Floats:
    """Return PATHS quantiles whose mean is that of all: the means of parts that are equally large."""
    if not len(seconds):
        return np.zeros(PATHS)
    order = np.argsort(seconds, kind="stable")
    seconds, ends = seconds[order], np.cumsum(n[order])
    sums = np.concatenate([[0.0], np.cumsum(seconds * n[order])])
    marks = np.linspace(0.0, ends[-1], PATHS + 1)
    upto: Any = np.interp(marks, np.concatenate([[0.0], ends]), sums)
    found: Floats = np.round(np.diff(upto) * PATHS / ends[-1], 9)  # equal times stay equal
    return found
