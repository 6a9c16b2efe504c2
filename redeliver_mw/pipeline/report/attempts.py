# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Finds which repeated attempts are worthwhile, from rows of the mart `attempt_curve`, summed over the days. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .failures import text
from .healing import wilson

LINES: Final = 12
COLUMNS: Final = 10


@dataclass(frozen=True, kw_only=True)
class Chance:
    """Counts how often the attempt with this number was made, and succeeded; Wilson bounds at 95 %."""

    attempt: int
    n: int
    accepted: int
    p_success: float
    lo: float
    hi: float


@dataclass(frozen=True, kw_only=True)
class AttemptLine:
    """Holds attempts at messages that had failed with this type of error before; empty: with none that is known."""

    destination: str
    error_type: str
    chances: tuple[Chance, ...]  # by attempt
    later: int  # attempts with a higher number


@dataclass(frozen=True, kw_only=True)
class Attempts:
    """Holds the kinds of error with most repeated attempts, and the number of others."""

    lines: tuple[AttemptLine, ...]
    others: int


def attempts(curve: Iterable[Mapping[str, Any]]) -> Attempts:
    sums: dict[tuple[str, str], dict[int, tuple[int, int]]] = defaultdict(dict)
    for row in curve:
        if row["attempt"] < 2:
            continue  # nothing had failed before the first attempt
        line = sums[row["destination"], row["error_type"] or ""]
        n, accepted = line.get(row["attempt"], (0, 0))
        line[row["attempt"]] = n + row["n"], accepted + row["n_accepted"]
    keys = sorted(sums, key=lambda key: (-sum(n for n, _ in sums[key].values()), key))
    return Attempts(lines=tuple(_line(key, sums[key]) for key in keys[:LINES]), others=len(keys[LINES:]))


def _line(key: tuple[str, str], line: Mapping[int, tuple[int, int]]) -> AttemptLine:
    return AttemptLine(
        destination=key[0],
        error_type=text(key[1]),
        chances=tuple(_chance(attempt, *line[attempt]) for attempt in sorted(line) if attempt <= COLUMNS),
        later=sum(n for attempt, (n, _) in line.items() if attempt > COLUMNS),
    )


def _chance(attempt: int, n: int, accepted: int) -> Chance:
    lo, hi = wilson(accepted, n)
    return Chance(attempt=attempt, n=n, accepted=accepted, p_success=accepted / n if n else 0.0, lo=lo, hi=hi)
