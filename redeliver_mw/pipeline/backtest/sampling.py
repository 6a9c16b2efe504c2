# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Finds how far chance may have led the back-test, by leaving out one stretch of time after another.

The messages of one outage recover together, so they are no independent witnesses. The time that history covers is cut
into blocks longer than the longest outage; the back-test is asked anew without each block in turn, and the spread of
its answers is the standard error (the delete-one-block jackknife, for blocks of unequal size).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

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
    """Divides histories into blocks, which are stretches of time.

    `number` is the block of each history, `weights` the messages of each block. `late` says which blocks have more
    messages in the second half of the time than in the first.
    """

    number: Ints
    weights: Floats
    late: Bools

    @property
    def effective(self) -> float:
        """Return how many blocks of equal size would tell as much."""
        total = float(self.weights.sum())
        return total**2 / float((self.weights**2).sum()) if total else 0.0


@dataclass(frozen=True)
class StandardErrors:
    """Holds the standard errors of some numbers, and the degrees of freedom behind them.

    `errors` are those of one world. `errors_apart` are those of a world that may have changed in the middle of the
    time: what one half differs from the other by is not taken for chance, as in a test of two samples.
    """

    errors: Mapping[str, float]
    errors_apart: Mapping[str, float]
    freedom: float

    def within(self, name: str, z: float) -> float:
        """Return by how much a number may be off to either side; `z` says how sure that is."""
        return _within(self.errors.get(name, math.inf), z, self.freedom)

    def within_apart(self, name: str, z: float) -> float:
        """Return the same without what the two halves of the time differ by."""
        return _within(self.errors_apart.get(name, math.inf), z, self.freedom - 1)


def _within(error: float, z: float, freedom: float) -> float:
    return 0.0 if error == 0 else student(z, freedom) * error


def blocks_of(histories: Observations, outage_share: float = 0.0) -> Blocks:
    """Cut histories into at most MOST blocks, each longer than an outage that takes such a share of the time."""
    slices = int(histories.slice.max(initial=0)) + 1
    length = max(1, math.ceil(slices / MOST), math.ceil(outage_share * slices) + (1 if outage_share > 0 else 0))
    numbers = np.minimum(histories.slice // length, max(slices // length - 1, 0))
    weights = summed(numbers, histories.n, 0)
    _, second = halves(histories)
    late: Bools = 2 * summed(numbers, histories.n * second, 0) > weights
    return Blocks(numbers, weights, late)


def spread(blocks: Blocks, whole: Statistics, without: Callable[[Bools], Statistics]) -> StandardErrors:
    """Return the standard errors of the numbers of `whole`; `without` tells them without some of the histories.

    A number that is not there without some block has an endless error.
    """
    full = np.flatnonzero(blocks.weights)
    answers = [without(blocks.number == one) for one in full]
    names = [name for name in whole if all(name in answer for answer in answers)]
    errors, apart = dict.fromkeys(whole, math.inf), dict.fromkeys(whole, math.inf)
    if len(full) > 1:
        part, late = blocks.weights[full] / blocks.weights.sum(), blocks.late[full]
        for name in names:
            found = _pseudo_values(whole[name], np.array([answer[name] for answer in answers]), part)
            errors[name] = _error(found)
            if len(full) > 2:
                apart[name] = _error_apart(found, part, late)
    return StandardErrors(errors, apart, max(blocks.effective - 1, 1.0))


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


class _PseudoValues(NamedTuple):
    """Holds the pseudo-values of a number, one for each block, their centre, and how many such blocks a whole has."""

    values: Floats
    estimate: float
    times: Floats


def _pseudo_values(whole: float, without: Floats, part: Floats) -> _PseudoValues:
    # Busing, Meijer and van der Leeden, 1999: pseudo-values weighted by the size of what was left out
    times = 1 / part
    estimate = len(part) * whole - float(((1 - part) * without).sum())
    return _PseudoValues(times * whole - (times - 1) * without, estimate, times)


def _error(found: _PseudoValues) -> float:
    return math.sqrt(float(((found.values - found.estimate) ** 2 / (found.times - 1)).sum()) / len(found.values))


def _error_apart(found: _PseudoValues, part: Floats, late: Bools) -> float:
    """Return the error with each half about its own centre, which takes one more degree of freedom."""
    count = len(part)
    centres = np.full(count, found.estimate)
    for half in (late, ~late):
        if half.any():
            centres[half] = float((part[half] * found.values[half]).sum() / part[half].sum())
    return math.sqrt(
        float(((found.values - centres) ** 2 / (found.times - 1)).sum()) / count * (count - 1) / (count - 2)
    )
