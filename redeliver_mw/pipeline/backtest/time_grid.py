# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Cuts time into cells, evenly by its logarithm, with an edge wherever history has tried something.

The bins of the mart `recovery` that occur become edges, neighbours within 3 % being one edge at their mean. Between
edges that are far apart, and below the first down to a 64th of it, come further ones, so that a message may heal there
too. At most some 400 edges are made of bins: where the bins span more, more of them are one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np

from ..arrays import Floats, Ints
from .intervals import summed

MOST: Final = 400  # edges that are made of bins
_STEP: Final = math.log(2) / 24  # bins nearer than this are one edge
_FILL: Final = math.log(2) / 8  # edges farther apart than this get more between them
_BELOW: Final = 24  # edges below the first bin
BELOW: Final = 64.0  # the lowest of them is at such a part of it


@dataclass(frozen=True)
class TimeGrid:
    """Divides time into cells: cell c lies behind edge c, and the last one has no end.

    `edges` are in seconds, ascending, and the first one is 0. `bins` occur in the history; `edge` is the number of the
    edge that stands for each.
    """

    edges: Floats
    bins: Ints
    edge: Ints
    smoothers: dict[float, Any] = field(default_factory=dict, compare=False, repr=False)  # made for these edges

    @property
    def never(self) -> int:
        """Return the number that stands for the edge of a message that did not recover."""
        return len(self.edges)

    @cached_property
    def logs(self) -> Floats:
        """Return the logarithms of the edges; that of 0 is one doubling below the next."""
        logs: Floats = np.log(np.maximum(self.edges, self.edges[1] / 2))
        return logs

    def numbers(self, bins: Ints) -> Ints:
        """Return the numbers of the edges of bins that occur in the history."""
        return self.edge[np.searchsorted(self.bins, bins)]


def times(bins: Ints) -> Floats:
    """Return the middle of each bin in seconds; as `bins.lower_edge`, for arrays."""
    middle: Floats = (_lower(bins) + _lower(bins + 1)) / 2e6
    return middle


def cells_of(bins: Ints, n: Floats) -> TimeGrid:
    """Return the grid for a history in which each of `bins`, one or more, above 0, in any order, occurs `n` times."""
    found, at = np.unique(bins, return_inverse=True)
    weight = summed(at, n, len(found))
    logs: Floats = np.log(times(found))
    made, numbers = _joined(logs, weight, max(_STEP, (logs[-1] - logs[0]) / MOST))
    filled, places = _filled(made)
    edges = np.concatenate([[0.0], np.exp(filled)])
    return TimeGrid(edges, found, places[numbers] + 1)


def _lower(bins: Ints) -> Ints:
    shift = np.maximum(0, bins // 128 - 1)
    lower: Ints = (bins - shift * 128) << shift
    return lower


def _joined(logs: Floats, weight: Floats, step: float) -> tuple[Floats, Ints]:
    """Join neighbours within a step into one; return these, and the number of the one that each went into."""
    starts, begun = [], -math.inf
    for number, log in enumerate(logs):
        if log > begun + step:
            starts.append(number)
            begun = log
    first = np.zeros(len(logs), dtype=np.int64)
    first[starts] = 1
    numbers = np.cumsum(first) - 1
    return summed(numbers, logs * weight, 0) / summed(numbers, weight, 0), numbers


def _filled(made: Floats) -> tuple[Floats, Ints]:
    """Add edges in wide gaps and below the first; return all edges, and where those that were there are now."""
    gaps = np.diff(made)
    pieces = np.concatenate([[_BELOW], np.maximum(1, np.ceil(gaps / _FILL)).astype(np.int64)])
    before = np.concatenate([[made[0] - math.log(BELOW)], made[:-1]])
    runs = [np.linspace(low, high, count + 1)[1:] for low, high, count in zip(before, made, pieces, strict=True)]
    return np.concatenate([before[:1], *runs]), np.cumsum(pieces)
