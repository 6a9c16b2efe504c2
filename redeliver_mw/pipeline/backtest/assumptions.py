# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Looks in the history for what the back-test takes for granted: a figure for each, and whether it is chance.

What comes is taken to be like what was, and one message to recover like another. So the two halves of the time are
compared (how many recovered, what failed, how much), busy stretches of time with calm ones, and hosts with one another.
Chance is that of blocks of time, as in `sampling`, since messages of one outage recover together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from ..arrays import Bools, Floats
from .calibration import LEAST, wilson
from .intervals import summed
from .observations import NEVER, Observations
from .sampling import Z99, Blocks, halves, student

Subject = Literal["healing", "failures", "volume", "load", "host"]

POINTS: Final = 0.02  # shares that differ by less are alike, chance or not
_MANY: Final = 8  # so many things are compared at least before one of them is called the largest
_BUSY: Final = 0.5  # of the messages are in busy stretches


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Says what history shows of one assumption: `text` has the figures; `broken` where it is more than chance."""

    subject: Subject
    text: str
    broken: bool


@dataclass(frozen=True, kw_only=True)
class PolicyResult:
    """Holds what became of the messages of one policy or arm: nothing here is an estimate.

    `recovered` is a share, with the bounds of its 99 % interval; `attempts` are of one message.
    """

    policy_version: str
    messages: int
    recovered: float
    recovered_lo: float
    recovered_hi: float
    attempts: float

    def __str__(self) -> str:
        return (
            f"policy {self.policy_version or 'without a version'}: of {self.messages} messages {self.recovered:.1%} "
            f"recovered ({self.recovered_lo:.1%} to {self.recovered_hi:.1%}), with {self.attempts:.3g} attempts each"
        )


def results(observed: Iterable[Mapping[str, Any]], destination: str | None) -> tuple[PolicyResult, ...]:
    """Return what each policy and arm of a destination came to, where there are several; the most used one first."""
    here = [row for row in observed if row["destination"] == destination and row["messages"] >= LEAST]
    if len(here) < 2:
        return ()
    found = []
    for row in sorted(here, key=lambda one: (-one["messages"], one["policy_version"] or "")):
        messages, recovered = row["messages"], row["recovered"] / row["messages"]
        low, high = wilson(recovered, messages)
        found.append(
            PolicyResult(
                policy_version=row["policy_version"] or "",
                messages=messages,
                recovered=recovered,
                recovered_lo=low,
                recovered_hi=high,
                attempts=row["attempts"] / messages,
            )
        )
    return tuple(found)


def figures(histories: Observations, blocks: Blocks, hosts: Iterable[Mapping[str, Any]] = ()) -> tuple[Figure, ...]:
    """Return what was looked for in the histories of one destination, and found.

    `hosts`: rows with `host`, `retries` and `recovered`, of that destination. Nothing is returned for what cannot be
    compared, as where all messages are of one half.
    """
    most = int(np.argmax(summed(histories.version, histories.n, 0))) if len(histories.n) else 0
    mine = histories.version == most  # a policy that was changed changes what recovers
    first, second = halves(histories)
    found = [
        _recovery(
            "healing", ("in the first half of the time", "in the second"), histories, mine, (first, second), blocks
        ),
        _mix(histories, (first, second), blocks),
        _volume(histories, first, blocks),
        _recovery("load", ("of the busiest times", "of the calm ones"), histories, mine, _busy(histories), blocks),
        _hosts(hosts),
    ]
    return tuple(one for one in found if one is not None)


def _recovery(
    subject: Subject,
    names: tuple[str, str],
    histories: Observations,
    mine: Bools,
    sides: tuple[Bools, Bools],
    blocks: Blocks,
) -> Figure | None:
    """Compare the shares that recovered on two sides."""
    healed = histories.hi != NEVER
    parts = [_by_block(histories, blocks, mine & side & which) for side in sides for which in (healed, ~healed)]
    sums = [float(part.sum()) for part in parts]
    if min(sums[0] + sums[1], sums[2] + sums[3]) < LEAST:
        return None
    one, other = sums[0] / (sums[0] + sums[1]), sums[2] / (sums[2] + sums[3])
    error = _jackknife(np.array(parts), _difference)
    text = (
        f"of the messages {names[0]} {one:.1%} recovered, {names[1]} {other:.1%} (chance makes up to "
        f"{_points(error)} points)"
    )
    return Figure(subject=subject, text=text, broken=abs(other - one) > max(POINTS, error))


def _difference(sums: Floats) -> Floats:
    healed, failing, healed_too, failing_too = sums
    found: Floats = healed_too / np.maximum(healed_too + failing_too, 1.0) - healed / np.maximum(healed + failing, 1.0)
    return found


def _mix(histories: Observations, sides: tuple[Bools, Bools], blocks: Blocks) -> Figure | None:
    """Compare what failed in the two halves: how many messages would have to fail otherwise to make them alike."""
    shares = [summed(histories.group[side], histories.n[side], len(histories.groups)) for side in sides]
    if min(float(one.sum()) for one in shares) < LEAST or len(histories.groups) < 2:
        return None
    change = shares[1] / shares[1].sum() - shares[0] / shares[0].sum()
    apart = float(np.abs(change).sum()) / 2
    most = int(np.argmax(np.abs(change)))
    this = histories.group == most
    parts = [_by_block(histories, blocks, side & which) for side in sides for which in (this, ~this)]
    error = _jackknife(np.array(parts), _difference, among=max(len(histories.groups), _MANY))
    name = histories.groups[most][1][:12] or "without a fingerprint"
    text = (
        f"{apart:.1%} of the messages failed otherwise in the second half of the time than in the first; failure "
        f"{name} changed most, by {change[most] * 100:+.1f} points (chance makes up to {_points(error)})"
    )
    return Figure(subject="failures", text=text, broken=abs(float(change[most])) > max(POINTS, error))


def _volume(histories: Observations, first: Bools, blocks: Blocks) -> Figure | None:
    """Compare how many messages failed in the two halves; chance is how much blocks of one half differ."""
    early, late = float(histories.n[first].sum()), float(histories.n[~first].sum())
    of_first = _by_block(histories, blocks, first)
    inside = [blocks.weights[(of_first > 0) == half] for half in (True, False)]
    if min(early, late) < LEAST or min(map(len, inside)) < 2:
        return None
    error = math.sqrt(sum(len(one) * float(np.var(one, ddof=1)) for one in inside))
    allowed = student(Z99, max(len(blocks.weights) - 2, 1)) * error
    text = f"{early:.0f} messages failed in the first half of the time and {late:.0f} in the second"
    return Figure(subject="volume", text=text, broken=abs(late - early) > max(allowed, 0.1 * (early + late)))


def _busy(histories: Observations) -> tuple[Bools, Bools]:
    """Return the histories of the fewest stretches of time that hold half of the messages, and the others."""
    counts = summed(histories.slice, histories.n, 0)
    order = np.argsort(-counts, kind="stable")
    before = np.cumsum(counts[order]) - counts[order]
    busy = np.zeros(len(counts), dtype=np.bool_)
    busy[order[before < _BUSY * counts.sum()]] = True
    chosen: Bools = busy[histories.slice]
    return chosen, ~chosen


def _hosts(rows: Iterable[Mapping[str, Any]]) -> Figure | None:
    """Compare each host's retries with those of all others; the one that is farthest off is returned."""
    known = [row for row in rows if row["retries"] >= LEAST]
    if len(known) < 2:
        return None
    retries, recovered = (np.array([float(row[name]) for row in known]) for name in ("retries", "recovered"))
    others, others_recovered = retries.sum() - retries, recovered.sum() - recovered
    share, other = recovered / retries, others_recovered / others
    error = np.sqrt(_variance(share, retries) + _variance(other, others))
    at = int(np.argmax(np.abs(share - other) / error))
    allowed = largest_of(len(known)) * float(error[at])
    text = (
        f"host {str(known[at]['host'])[:60]}: {share[at]:.1%} of {retries[at]:.0f} retries succeeded, {other[at]:.1%} "
        f"of those of all other hosts (chance makes up to {_points(allowed)} points)"
    )
    return Figure(subject="host", text=text, broken=abs(float(share[at] - other[at])) > max(POINTS, allowed))


def _variance(share: Floats, n: Floats) -> Floats:
    smoothed = (share * n + 1) / (n + 2)
    found: Floats = smoothed * (1 - smoothed) / n
    return found


def _by_block(histories: Observations, blocks: Blocks, wanted: Bools) -> Floats:
    return summed(blocks.number[wanted], histories.n[wanted], len(blocks.weights))


def _jackknife(parts: Floats, statistic: Callable[[Floats], Floats], among: int = 1) -> float:
    """Return by how much chance may lead a statistic of sums over blocks (sums x blocks), by leaving out each."""
    full = parts[:, parts.sum(axis=0) > 0]
    count = full.shape[1]
    if count < 2:
        return math.inf
    without = statistic(full.sum(axis=1, keepdims=True) - full)
    error = math.sqrt((count - 1) / count * float(((without - without.mean()) ** 2).sum()))
    return student(largest_of(among), count - 1) * error


def largest_of(several: int) -> float:
    """Return how many standard errors the largest of several differences may come to in 99 of 100 cases."""
    return Z99 if several < 2 else math.sqrt(Z99**2 + 2 * math.log(several))


def _points(share: float) -> str:
    return f"{share * 100:.1f}" if math.isfinite(share) else "any number of"
