# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Finds the candidates that no other one beats: the Pareto front."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from ..arrays import Bools, Floats
from .rows import BacktestRow

_SAME: Final = 1e-9  # numbers that differ by less, as a part, are equal
_LINES: Final = 500  # that are compared with all at a time


def with_front(rows: Sequence[BacktestRow]) -> list[BacktestRow]:
    """Return the rows of one destination and failure with `pareto` filled in.

    Fewer dead letters, fewer attempts per message, a shorter time in which 95 % of the recoveries have come: a row is
    on the front if no other is at least as good in all three and better in one. What is extrapolated takes no part: it
    is not known to be good at anything. Where nothing recovers there is no time, which is worse than any.
    """
    known = [number for number, row in enumerate(rows) if not row.extrapolated]
    best = _front(np.array([_costs(rows[number]) for number in known]).reshape(-1, 3))
    front = {number for number, wins in zip(known, best, strict=True) if wins}
    return [replace(row, pareto=True) if number in front else row for number, row in enumerate(rows)]


def _costs(row: BacktestRow) -> tuple[float, float, float]:
    late = math.inf if row.ttr_p95_s is None else row.ttr_p95_s
    return row.dead_letter_share, row.attempts_per_message, late


def _front(costs: Floats) -> Bools:
    wins = np.ones(len(costs), dtype=np.bool_)
    most = costs * (1 + _SAME)
    less = costs * (1 - _SAME)
    for at in range(0, len(costs), _LINES):
        mine = slice(at, at + _LINES)
        as_good = np.all(costs[None, :, :] <= most[mine, None, :], axis=2)
        better = np.any(costs[None, :, :] < less[mine, None, :], axis=2)
        wins[mine] = ~np.any(as_good & better, axis=1)
    return wins
