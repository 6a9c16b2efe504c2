# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""How far chance may have led the back-test, found by leaving out one stretch of time after another.

The messages of one outage recover together, so they are no independent witnesses. The time that history covers is cut
into blocks longer than the longest outage; the back-test is asked anew without each block in turn, and the spread of
its answers is the standard error (the delete-one-block jackknife, for blocks of unequal size).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from ..arrays import Bools, Floats, Ints
from .history import By, History
from .intervals import summed
from .observations import Observations
from .rows import BacktestRow, Candidate

MOST: Final = 16  # blocks
Z90: Final = 1.6449  # of a normal distribution: 90 % lie within, on both sides together
Z95: Final = 1.9600
Z99: Final = 2.5758

Statistics = Mapping[str, float]
Stretch = Literal["the first half", "the second", "the first three quarters", "the last"]


@dataclass(frozen=True)
class Blocks:
    """Histories cut into stretches of time: `number` is the block of each history, `weights` the messages of each."""

    number: Ints
    weights: Floats

    @property
    def effective(self) -> float:
        """How many blocks of equal size would tell as much."""
        total = float(self.weights.sum())
        return total**2 / float((self.weights**2).sum()) if total else 0.0


@dataclass(frozen=True)
class StandardErrors:
    """The standard errors of some numbers, and the degrees of freedom behind them."""

    errors: Mapping[str, float]
    freedom: float

    def within(self, name: str, z: float) -> float:
        """Return by how much a number may be off to either side; `z` says how sure that is."""
        error = self.errors.get(name, math.inf)
        return 0.0 if error == 0 else student(z, self.freedom) * error


def blocks_of(histories: Observations, outage_share: float = 0.0) -> Blocks:
    """Cut histories into at most MOST blocks, each longer than an outage that takes such a share of the time."""
    slices = int(histories.slice.max(initial=0)) + 1
    length = max(1, math.ceil(slices / MOST), math.ceil(outage_share * slices) + (1 if outage_share > 0 else 0))
    numbers = np.minimum(histories.slice // length, max(slices // length - 1, 0))
    return Blocks(numbers, summed(numbers, histories.n, 0))


def spread(blocks: Blocks, whole: Statistics, without: Callable[[Bools], Statistics]) -> StandardErrors:
    """Return the standard errors of the numbers of `whole`; `without` tells them without some of the histories.

    A number that is not there without some block has an endless error.
    """
    full = np.flatnonzero(blocks.weights)
    answers = [without(blocks.number == one) for one in full]
    names = [name for name in whole if all(name in answer for answer in answers)]
    errors = dict.fromkeys(whole, math.inf)
    if len(full) > 1:
        part = blocks.weights[full] / blocks.weights.sum()
        for name in names:
            errors[name] = _error(whole[name], np.array([answer[name] for answer in answers]), part)
    return StandardErrors(errors, max(blocks.effective - 1, 1.0))


def with_sampling(
    history: History,
    rows: Sequence[BacktestRow],
    candidates: Sequence[Candidate],
    *,
    by: By = "destination",
    destination: str | None = None,
    outage_share: float = 0.0,
) -> list[BacktestRow]:
    """Return the rows with bounds that allow for chance as well: the 95 % interval.

    Where all histories are of one stretch of time, chance cannot be estimated, and the rows are as they were.
    """
    blocks = blocks_of(history.histories, outage_share)
    if np.count_nonzero(blocks.weights) < 2:
        return list(rows)

    def bounds(answer: Iterable[BacktestRow]) -> Statistics:
        return {
            f"{name} {_key(row)}": getattr(row, name) for row in answer for name in ("p_recover_lo", "p_recover_hi")
        }

    def without(left_out: Bools) -> Statistics:
        return bounds(history.without(left_out).backtest(candidates, by=by, destination=destination))

    found = spread(blocks, bounds(rows), without)
    return [
        replace(
            row,
            p_recover_lo=max(0.0, row.p_recover_lo - found.within(f"p_recover_lo {_key(row)}", Z95)),
            p_recover_hi=min(1.0, row.p_recover_hi + found.within(f"p_recover_hi {_key(row)}", Z95)),
        )
        for row in rows
    ]


def _key(row: BacktestRow) -> tuple[str, str | None, str | None]:
    return row.candidate, row.destination, row.error_fingerprint


def halves(histories: Observations) -> tuple[Bools, Bools]:
    """Return which histories belong to the first half of the time, and which to the second."""
    slices = int(histories.slice.max(initial=0)) + 1
    first: Bools = histories.slice < slices // 2
    return first, ~first


def stretches(histories: Observations) -> dict[Stretch, Bools]:
    """Return which histories belong to which part of the time, for the parts that are compared."""
    first, second = halves(histories)
    slices = int(histories.slice.max(initial=0)) + 1
    late: Bools = histories.slice >= slices * 3 // 4
    return {"the first half": first, "the second": second, "the first three quarters": ~late, "the last": late}


def student(z: float, freedom: float) -> float:
    """Return the quantile of Student's distribution where a normal one has `z`, by its series in 1 / `freedom`."""
    n = max(freedom, 3.0)
    terms: Sequence[float] = (
        z,
        (z**3 + z) / (4 * n),
        (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2),
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3),
    )
    return sum(terms)


def _error(whole: float, without: Floats, part: Floats) -> float:
    # Busing, Meijer and van der Leeden, 1999: pseudo-values weighted by the size of what was left out
    count, times = len(part), 1 / part
    estimate = count * whole - float(((1 - part) * without).sum())
    pseudo = times * whole - (times - 1) * without
    return math.sqrt(float(((pseudo - estimate) ** 2 / (times - 1)).sum()) / count)
