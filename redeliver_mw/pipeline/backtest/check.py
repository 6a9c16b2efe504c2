# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Is the back-test right here? One policy's results foretold from the histories of others, and compared.

The back-test takes for granted that a message heals when it does, however it is tried again. Where retries prolong an
outage, stall what is behind them or are held up, that is wrong, and no history of one policy shows it. Two do: a lake
in which a policy was changed, or in which some messages went to another arm.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from .arrays import Bools, Floats
from .fates import BEYOND, Mixture
from .history import History
from .rows import COUNTS_WITHIN
from .told import Row, Told, told

LEAST: Final = 50  # messages on either side, or there is nothing to compare
_Z: Final = 2.576  # 99 of 100
_PARTS: Final = (0.25, 0.5, 0.75)  # of its recoveries: when a policy's results are looked at


@dataclass(frozen=True, kw_only=True)
class Check:
    """How many of the messages of one policy healed within some seconds, and how many others' histories say would.

    `predicted` from `predicted_from` messages that failed in the same ways under other policies, `observed` of
    `messages`, with the bounds of the 99 % interval. Of the times looked at this is the one at which they differ most.
    `wrong`: by more than chance and 1 %.
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
        """By how much too many were foretold to heal; below 0, too few."""
        return self.predicted - self.observed

    def __str__(self) -> str:
        told = (
            f"{self.destination}: the histories of other policies say that {self.predicted:.1%} of the {self.messages} "
            f"messages of policy {self.policy_version or 'without a version'} heal within {self.within_s:.3g} s; "
            f"{self.observed:.1%} did ({self.observed_lo:.1%} to {self.observed_hi:.1%})"
        )
        if not self.wrong:
            return f"{told}. The back-test holds here"
        why = "healing depends on the policy, or the times were not alike"
        return f"{told}. The back-test is {abs(self.off) * 100:.1f} points off here: {why}"


def how_wrong(rows: Iterable[Row]) -> list[Check]:
    """One check for each destination and policy version with enough messages, and enough of others to foretell it.

    `rows` as for `History`. No checks where history knows one policy only: then nothing can be said.
    """
    every = told(rows)
    checks = []
    for destination in every.destinations:
        here = every.at(destination)
        for number, version in enumerate(here.versions):
            mine = here.version == number
            check = _check(destination, version, here.where(mine), here.where(~mine))
            checks += [] if check is None else [check]
    return checks


def _check(destination: str, version: str, mine: Told, others: Told) -> Check | None:
    if min(mine.n.sum(), others.n.sum()) < LEAST:
        return None
    ours, theirs = _Side(mine), _Side(others)
    found = [one for at in ours.times() if (one := _compared(destination, version, ours, theirs, at)) is not None]
    return max(found, key=lambda pair: pair[0])[1] if found else None


class _Side:
    """The curves of one side; both have the same groups, of which some may have no messages."""

    def __init__(self, histories: Told) -> None:
        self.curves = History(histories).curves
        self.messages = self.curves.messages
        ones = np.eye(len(self.messages), dtype=np.bool_)
        self._each = {number: Mixture.of(self.curves, ones[number]) for number in np.flatnonzero(self.messages)}

    def times(self) -> Iterator[float]:
        """When parts of the recoveries were in, and how far history looked."""
        healed = self.messages @ self.curves.healed
        edges = self.curves.cells.edges
        for part in _PARTS:
            at = int(np.searchsorted(healed, part * healed[-1] * (1 - 1e-9)))
            yield float(edges[min(at, len(edges) - 1)])
        yield float(self.curves.horizon.max())

    def knows(self, at: float) -> Bools:
        """Of which groups it is known what became of them by then."""
        looked = (self.curves.horizon * (1 + BEYOND) >= at) | (self.curves.left <= COUNTS_WITHIN)
        found: Bools = looked & (self.messages > 0)
        return found

    def at(self, at: float) -> tuple[Floats, Floats]:
        """The share of each group that has healed by then, and how much of that is a guess."""
        healed, guess = np.zeros(len(self.messages)), np.zeros(len(self.messages))
        for number, one in self._each.items():
            found, _, _, unsure = one.at(np.array([at]))
            healed[number], guess[number] = found[0], unsure[0]
        return healed, guess


def _compared(destination: str, version: str, ours: _Side, theirs: _Side, at: float) -> tuple[float, Check] | None:
    """The check at that time, and how many times what chance allows it is off."""
    both = ours.knows(at) & theirs.knows(at)
    n, m = ours.messages * both, theirs.messages * both
    if min(n.sum(), m.sum()) < LEAST:
        return None
    share = n / n.sum()
    (seen, seen_guess), (said, said_guess) = ours.at(at), theirs.at(at)
    observed, predicted = float(share @ seen), float(share @ said)
    spread = float((share**2 * (_variance(seen, n) + _variance(said, m)))[both].sum())
    allowed = COUNTS_WITHIN + _Z * math.sqrt(spread) + float(share @ (seen_guess + said_guess))
    low, high = wilson(observed, float(n.sum()))
    check = Check(
        destination=destination, policy_version=version, messages=round(n.sum()), predicted_from=round(m.sum()),
        within_s=at, predicted=predicted, observed=observed, observed_lo=low, observed_hi=high,
        wrong=abs(predicted - observed) > allowed,
    )  # fmt: skip
    return abs(check.off) / allowed, check


def _variance(share: Floats, n: Floats) -> Floats:
    """Of a share of so many; a share of 0 or 1 is not certain either."""
    smoothed = (share * n + 1) / (n + 2)
    return smoothed * (1 - smoothed) / np.maximum(n, 1.0)


def wilson(share: float, n: float) -> tuple[float, float]:
    """The 99 % interval for the chance behind a share of `n`."""
    middle = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z / (1 + _Z**2 / n) * math.sqrt(share * (1 - share) / n + _Z**2 / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)
