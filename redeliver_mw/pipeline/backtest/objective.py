# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Chooses the candidate to take: by an objective, and the row that meets it best."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ...errors import ConfigError
from .rows import COUNTS_WITHIN, BacktestRow

_SAME: Final = 1e-6  # numbers that differ by less, as a part, are equal
NEARLY: Final = 0.1  # so much of the best gain is given up for messages that recover sooner


@dataclass(frozen=True)
class Objective:
    """Make the column `minimise` small, and let none of `at_most` be above what it is with the present policy.

    Of candidates that gain nearly as much as the best one, the one under which messages recover soonest.
    """

    name: str
    minimise: str
    at_most: tuple[str, ...]
    text: str


OBJECTIVES: Final = {
    one.name: one
    for one in (
        Objective(
            "fewer-dead-letters",
            "dead_letter_share",
            ("attempts_per_message",),
            "as few dead letters as can be had with no more attempts per message than now",
        ),
        Objective(
            "fewer-attempts",
            "attempts_per_message",
            ("dead_letter_share",),
            "as few attempts per message as can be had with no more dead letters than now",
        ),
        Objective(
            "sooner",
            "ttr_mean_s",
            ("dead_letter_share", "attempts_per_message"),
            "recovered as soon as can be had with no more dead letters and attempts than now",
        ),
    )
}


@dataclass(frozen=True)
class Recommendation:
    """Holds the row to go by, `best`, and that of the policy in use, `present`.

    Both are the same row where nothing is better by more than the back-test can tell. `best` is None if history cannot
    judge the present policy, to which all are held.
    """

    objective: Objective
    present: BacktestRow
    best: BacktestRow | None

    @property
    def is_change(self) -> bool:
        """Is another policy better than the present one?"""
        return self.best is not None and self.best.candidate != self.present.candidate


def objective_of(name: str) -> Objective:
    """Return one of OBJECTIVES. Raises ConfigError if `name` is none of them."""
    if name not in OBJECTIVES:
        raise ConfigError(
            "there is no such objective",
            where=f"{name!r:.80}",
            cure=f"Take one of {', '.join(OBJECTIVES)}",
            code="option-value",
        )
    return OBJECTIVES[name]


def recommend(
    rows: Iterable[BacktestRow], objective: Objective, present: str, *, destination: str | None = None
) -> Recommendation:
    """Recommend the candidate that meets the objective best, by rows about all messages or about one destination's.

    That is, of the candidates that gain at least nine tenths of what the best one gains, the soonest; of equals the one
    with fewer dead letters, then attempts, then the first by name. A candidate with extrapolated numbers is never
    recommended, and neither is one that is better by 1 % or less: the back-test is not more exact. Raises ConfigError
    if `present` is none of the candidates there.
    """
    place = [row for row in rows if (row.destination, row.error_fingerprint) == (destination, None)]
    now = next((row for row in place if row.candidate == present), None)
    if now is None:
        raise ConfigError(
            "the present policy is not among the candidates",
            where=f"{present!r:.200}",
            cure="Add it",
            code="backtest-input",
        )
    if now.extrapolated:
        return Recommendation(objective, now, None)
    best = ranked(place, objective, now)[0]  # `now` is among them
    better = _value(best, objective.minimise) < (1 - COUNTS_WITHIN) * _value(now, objective.minimise)
    return Recommendation(objective, now, best if better else now)


def ranked(rows: Iterable[BacktestRow], objective: Objective, now: BacktestRow) -> Sequence[BacktestRow]:
    """Return the rows that may be recommended, the best first.

    No row is compared with a present policy that cannot be judged.
    """
    allowed = [row for row in rows if is_allowed(row, objective, now)]
    if now.extrapolated:
        return sorted(allowed, key=lambda row: _order(row, objective.minimise))
    least = min(_at_worst(row, objective.minimise) for row in allowed or [now])
    today = _value(now, objective.minimise)
    nearly = least + NEARLY * max(0.0, today - least) if math.isfinite(today) else least

    def order(row: BacktestRow) -> tuple[float | str, ...]:
        if _at_worst(row, objective.minimise) <= nearly * (1 + _SAME):
            return (0, *_order(row, "ttr_mean_s"))
        return (1, *_order(row, objective.minimise))

    return sorted(allowed, key=order)


def furthest(rows: Iterable[BacktestRow], objective: Objective, now: BacktestRow) -> Sequence[BacktestRow]:
    """Return the rows that may be recommended, the one that gains most first, however long messages take under it."""
    allowed = [row for row in rows if is_allowed(row, objective, now)]
    return sorted(allowed, key=lambda row: _order(row, objective.minimise))


def is_allowed(row: BacktestRow, objective: Objective, now: BacktestRow) -> bool:
    """Return whether a candidate may be recommended; nothing is held to a present policy that cannot be judged."""
    if row.extrapolated or now.extrapolated:
        return not row.extrapolated
    return all(_value(row, name) <= _value(now, name) * (1 + _SAME) for name in objective.at_most)


def _order(row: BacktestRow, first: str) -> tuple[float | str, ...]:
    names = (first, "dead_letter_share", "attempts_per_message", "ttr_mean_s")
    return (*(round(_value(row, name), 9) for name in names), row.candidate)


def _at_worst(row: BacktestRow, name: str) -> float:
    """Return a column as bad as it may be, since history looked at other times.

    Of two rows that are as good, the one that is known is better.
    """
    return _value(row, name) + (row.extrapolated_share if name == "dead_letter_share" else 0.0)


def _value(row: BacktestRow, name: str) -> float:
    """Return the value of a column; a time that is not there is longer than any."""
    value = getattr(row, name)
    return math.inf if value is None else float(value)
