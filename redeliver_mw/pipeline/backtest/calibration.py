# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Compares one policy's results with what the histories of other policies predict for it.

The back-test takes for granted that a message heals when it does, however it is tried again. Where retries prolong an
outage, stall what is behind them or are held up, that is wrong, and no history of one policy shows it. Two do: a lake
in which a policy was changed, or in which some messages went to another arm.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from ..arrays import Bools, Floats
from .evaluation import BEYOND, Mixture
from .history import History
from .observations import ObservationRow, Observations, observations_of
from .rows import COUNTS_WITHIN

LEAST: Final = 50  # messages on either side, or there is nothing to compare
_Z: Final = 2.576  # 99 of 100
_PARTS: Final = (0.25, 0.5, 0.75, 1.0)  # of its recoveries: when a policy's results are looked at


@dataclass(frozen=True, kw_only=True)
class Check:
    """Compares how many messages of one policy recovered within some seconds with what other histories predict.

    `predicted` comes from `predicted_from` messages that failed in the same ways under other policies. `observed` is
    the share of `messages`, with the bounds of the 99 % interval. Of the times looked at, `within_s` is the one at
    which the two shares differ most. `wrong`: they differ by more than chance and 1 %.
    """

    destination: str
    policy_version: str
    messages: int
    predicted_from: int
    within_s: float
    predicted: float
    observed: float
    observed_lo: float
    observed_hi: float
    wrong: bool

    @property
    def off(self) -> float:
        """Return by how much too many were predicted to recover; below 0, too few."""
        return self.predicted - self.observed

    def __str__(self) -> str:
        sentence = (
            f"{self.destination}: the histories of other policies say that {self.predicted:.1%} of the {self.messages} "
            f"messages of policy {self.policy_version or 'without a version'} recover within {self.within_s:.3g} s; "
            f"{self.observed:.1%} did ({self.observed_lo:.1%} to {self.observed_hi:.1%})"
        )
        if not self.wrong:
            return f"{sentence}. The back-test holds here"
        why = "recovery depends on the policy, or the times were not alike"
        return f"{sentence}. The back-test is {abs(self.off) * 100:.1f} points off here: {why}"


def how_wrong(rows: Iterable[ObservationRow]) -> list[Check]:
    """Return a check for each destination and policy version with enough messages, and enough of others to predict it.

    `rows` as for `History`. No checks where history knows one policy only: then nothing can be checked.
    """
    every = observations_of(rows)
    checks = []
    for destination in every.destinations:
        here = every.at(destination)
        for number, version in enumerate(here.versions):
            mine = here.version == number
            check = _check(destination, version, here.where(mine), here.where(~mine))
            checks += [] if check is None else [check]
    return checks


def _check(destination: str, version: str, mine: Observations, others: Observations) -> Check | None:
    if min(mine.n.sum(), others.n.sum()) < LEAST:
        return None
    return _compared(destination, version, _Side(mine), _Side(others))


class _Side:
    """Holds the curves of one side, asked at some times.

    Both sides have the same groups, some of them without messages.
    """

    def __init__(self, histories: Observations) -> None:
        self.curves = History(histories).curves
        self.messages = self.curves.messages

    def knows(self, times: Floats) -> Bools:
        """Return of which groups it is known what became of them by each time (groups x times)."""
        looked = self.curves.horizon[:, None] * (1 + BEYOND) >= times
        known = looked | (self.curves.left <= COUNTS_WITHIN)[:, None]
        found: Bools = known & (self.messages > 0)[:, None]
        return found

    def at(self, times: Floats) -> tuple[Floats, Floats]:
        """Return the share of each group that has recovered by each time, and how much is a guess (groups x times)."""
        healed, guess = np.zeros((len(self.messages), len(times))), np.zeros((len(self.messages), len(times)))
        ones = np.eye(len(self.messages), dtype=np.bool_)
        for number in np.flatnonzero(self.messages):
            healed[number], _, _, guess[number] = Mixture.of(self.curves, ones[number]).at(times)
        return healed, guess


def _compared(destination: str, version: str, ours: _Side, theirs: _Side) -> Check | None:
    """Compare two sides at the time at which they are farthest apart, held against what chance allows.

    The times are those of which a back-test would not be flagged, by either side: elsewhere nothing is known. None if
    there are no such times.
    """
    times = ours.curves.cells.edges[1:]
    both = ours.knows(times) & theirs.knows(times)
    n, m = ours.messages[:, None] * both, theirs.messages[:, None] * both
    share = n / np.maximum(n.sum(axis=0), 1.0)
    (seen, seen_guess), (others, others_guess) = ours.at(times), theirs.at(times)
    observed, predicted = (share * seen).sum(axis=0), (share * others).sum(axis=0)
    guess, own = (share * others_guess).sum(axis=0), (share * seen_guess).sum(axis=0)
    enough = np.minimum(n.sum(axis=0), m.sum(axis=0)) >= LEAST
    sure = np.flatnonzero(enough & (np.maximum(guess, own) <= COUNTS_WITHIN))
    if not len(sure):
        return None
    spread = (share**2 * (_variance(seen, n) + _variance(others, m))).sum(axis=0)
    allowed = COUNTS_WITHIN + _Z * np.sqrt(spread) + guess + own
    off = np.abs(predicted - observed)
    wanted = [int(sure[np.argmin(np.abs(observed[sure] - part * observed[sure[-1]]))]) for part in _PARTS]
    at = max(wanted, key=lambda one: off[one] / allowed[one])
    low, high = wilson(float(observed[at]), float(n[:, at].sum()))
    return Check(
        destination=destination,
        policy_version=version,
        messages=round(n[:, at].sum()),
        predicted_from=round(m[:, at].sum()),
        within_s=float(times[at]),
        predicted=float(predicted[at]),
        observed=float(observed[at]),
        observed_lo=low,
        observed_hi=high,
        wrong=bool(off[at] > allowed[at]),
    )


def _variance(share: Floats, n: Floats) -> Floats:
    """Return the variance of a share of `n` messages; a share of 0 or 1 is not certain either."""
    smoothed = (share * n + 1) / (n + 2)
    return smoothed * (1 - smoothed) / np.maximum(n, 1.0)


def wilson(share: float, n: float) -> tuple[float, float]:
    """Return the 99 % interval for the chance behind a share of `n`."""
    middle = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z / (1 + _Z**2 / n) * math.sqrt(share * (1 - share) / n + _Z**2 / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)
