# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds histories as intervals: between which times each message recovered, counted, as arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ..arrays import Bools, Floats, Ints


@dataclass(frozen=True)
class Intervals:
    """Holds histories by the times between which each message recovered, as numbers of edges.

    Equal histories are counted together.

    A message of group `group[i]` failed at edge `lo[i]` for the last time and succeeded at edge `hi[i]`, which is
    `TimeGrid.never` if it did not; there are `n[i]` of them. Always lo < hi.
    """

    group: Ints
    lo: Ints
    hi: Ints
    n: Floats
    groups: int
    _places: dict[int, tuple[Ints, Ints]] = field(default_factory=dict, init=False, compare=False, repr=False)

    @cached_property
    def messages(self) -> Floats:
        """Return the number of messages of each group. The estimate asks for these numbers at each of its steps."""
        return summed(self.group, self.n, self.groups)

    def places(self, edges: int) -> tuple[Ints, Ints]:
        """Return where each `lo` and each `hi` stands in a table of groups x `edges` whose rows are joined to one.

        The places are computed once, since the estimate asks for them at each of its steps.
        """
        if edges not in self._places:
            self._places[edges] = self.group * edges + self.lo, self.group * edges + self.hi
        return self._places[edges]

    def pooled(self, into: Ints, groups: int) -> Intervals:
        """Return the same histories in fewer groups: the group `group[i]` becomes `into[group[i]]`."""
        return counted(into[self.group], self.lo, self.hi, self.n, groups)

    def where(self, wanted: Bools, into: Ints, groups: int) -> Intervals:
        """Return the histories of the groups that are wanted, which are numbered anew."""
        kept = wanted[self.group]
        return Intervals(into[self.group[kept]], self.lo[kept], self.hi[kept], self.n[kept], groups)


def summed(at: Ints, weight: Floats, size: int) -> Floats:
    """Add up the weights of each place from 0 on, for `size` places or more."""
    return np.bincount(at, weight, size).astype(np.float64, copy=False)


def counted(group: Ints, lo: Ints, hi: Ints, n: Floats, groups: int) -> Intervals:
    """Return intervals of which no two are equal, in one order, whatever the order of the rows was."""
    width = int(hi.max(initial=0)) + 1
    code = (group * width + lo) * width + hi
    codes, at = np.unique(code, return_inverse=True)
    return Intervals(codes // (width * width), codes // width % width, codes % width, summed(at, n, len(codes)), groups)
