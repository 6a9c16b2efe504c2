# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Turns the mart `recovery` into arrays: which messages failed where, and between which times each recovered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, Final, Protocol

import numpy as np

from ...errors import ConfigError
from ..arrays import Bools, Floats, Ints
from ..time_bins import bin_of
from .intervals import Intervals, counted
from .time_grid import TimeGrid, cells_of

SHORTEST: Final = bin_of(1000)  # nothing shorter than a millisecond is told apart
NEVER: Final = -1  # instead of the bin of a success
_NAMES: Final = ("destination", "fingerprint", "policy_version", "lo_bin", "hi_bin", "n")
_COLUMNS: Final = itemgetter(*_NAMES)
_Key = tuple[str, str, str, int, int, int]


class ObservationRow(Protocol):
    """Stands for anything that has columns by name: a dict, a row of Spark's."""

    def __getitem__(self, name: str, /) -> Any: ...


@dataclass(frozen=True)
class Observations:
    """Holds histories, of which equal ones are counted together; all arrays have the same length.

    `groups` are pairs of destination and fingerprint, sorted; a failure without a fingerprint has the empty one.
    `lo` and `hi` are bins, at least SHORTEST; `lo` 0 where a message failed once, `hi` NEVER where none succeeded.
    `slice` numbers the stretch of time in which a message failed first; all stretches are as long.
    """

    groups: tuple[tuple[str, str], ...]
    versions: tuple[str, ...]
    group: Ints
    version: Ints
    lo: Ints
    hi: Ints
    n: Floats
    slice: Ints

    @property
    def destinations(self) -> tuple[str, ...]:
        return tuple(sorted({destination for destination, _ in self.groups}))

    def where(self, wanted: Bools) -> Observations:
        """Return the wanted histories only. All groups stay as they are, also those without histories."""
        names = ("group", "version", "lo", "hi", "n", "slice")
        return replace(self, **{name: getattr(self, name)[wanted] for name in names})

    def at(self, destination: str) -> Observations:
        """Return the histories of one destination only, and its groups alone."""
        mine = np.array([place == destination for place, _ in self.groups])
        kept = self.where(mine[self.group])
        groups = tuple(group for group in self.groups if group[0] == destination)
        return replace(kept, groups=groups, group=(np.cumsum(mine) - 1)[kept.group])

    def cells(self) -> TimeGrid:
        """Return the cells for these histories; if no message was ever tried again, some cells around a second."""
        bins = np.concatenate([self.lo[self.lo > 0], self.hi[self.hi != NEVER]])
        n = np.concatenate([self.n[self.lo > 0], self.n[self.hi != NEVER]])
        return cells_of(bins, n) if len(bins) else cells_of(np.array([bin_of(1_000_000)]), np.ones(1))

    def intervals(self, cells: TimeGrid) -> Intervals:
        """Return the histories by the edges of cells that were made of these histories, or of more.

        Where a success is not later than the failure before it, as clocks may have it, the success counts.
        """
        lo, hi = np.zeros(len(self.lo), dtype=np.int64), np.full(len(self.hi), cells.never)
        lo[self.lo > 0] = cells.numbers(self.lo[self.lo > 0])
        hi[self.hi != NEVER] = cells.numbers(self.hi[self.hi != NEVER])
        return counted(self.group, np.minimum(lo, hi - 1), hi, self.n, len(self.groups))


def observations_of(rows: Iterable[ObservationRow]) -> Observations:
    """Return the histories of rows as schemas.RECOVERY has them, in any order; of other columns only `slice` is read.

    ConfigError for what is no such row, and if there is none at all.
    """
    counts: dict[_Key, int] = {}
    for number, row in enumerate(rows):
        key, n = _checked(row, number)
        if n:
            counts[key] = counts.get(key, 0) + n
    if not counts:
        raise ConfigError(
            "no message has failed in these histories, so there is nothing to judge a policy by",
            cure="Compact journals in which something failed, or look at a longer time",
            code="history-empty",
        )
    return _arrays(counts)


def _arrays(counts: Mapping[_Key, int]) -> Observations:
    keys = sorted(counts)
    groups = tuple(sorted({key[:2] for key in keys}))
    versions = tuple(sorted({key[2] for key in keys}))
    places = {group: number for number, group in enumerate(groups)}
    names = {version: number for number, version in enumerate(versions)}
    table = np.array([(places[key[:2]], names[key[2]], *key[3:]) for key in keys], dtype=np.int64)
    n = np.array([float(counts[key]) for key in keys])
    return Observations(groups, versions, table[:, 0], table[:, 1], table[:, 2], table[:, 3], n, table[:, 4])


def _slice(row: ObservationRow) -> Any:
    try:
        return row["slice"]
    except (KeyError, ValueError, IndexError):
        return 0


def _checked(row: ObservationRow, number: int) -> tuple[_Key, int]:
    try:
        destination, fingerprint, version, lo, hi, n = _COLUMNS(row)
    except (KeyError, ValueError, IndexError, TypeError):
        raise _no_row(number, f"it needs {', '.join(_NAMES)}") from None
    if not isinstance(destination, str):
        raise _no_row(number, f"destination is {destination!r:.80}")
    for name, value in (("fingerprint", fingerprint), ("policy_version", version)):
        if not isinstance(value, str | None):
            raise _no_row(number, f"{name} is {value!r:.80}")
    time = _slice(row)
    for name, value in (("lo_bin", lo), ("hi_bin", 0 if hi is None else hi), ("n", n), ("slice", time)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise _no_row(number, f"{name} is {value!r:.80}")
    first = max(lo, SHORTEST) if lo else 0
    last = NEVER if hi is None else max(hi, SHORTEST)
    return (destination, fingerprint or "", version or "", first, last, time), n


def _no_row(number: int, why: str) -> ConfigError:
    return ConfigError(
        f"no row of the mart recovery: {why}",
        where=f"row {number}",
        cure="Hand over the mart as it is",
        code="backtest-input",
    )
