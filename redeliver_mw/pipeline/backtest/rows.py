# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines what a back-test is asked, and what it answers: candidates and rows."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from ...policy import PolicyMap, RedeliveryPolicy

COUNTS_WITHIN: Final = 0.01  # shares and attempts per message are right to this part, or the row is `extrapolated`
TIMES_WITHIN: Final = 0.05  # so is the mean time to this one


class GroupKey(NamedTuple):
    """Says what a row is about; None means all of them."""

    destination: str | None
    fingerprint: str | None


@dataclass(frozen=True)
class Candidate:
    """Holds a policy, or several by destination, that is to be judged. Rows call it by its name."""

    name: str
    policies: RedeliveryPolicy | PolicyMap


@dataclass(frozen=True, kw_only=True)
class BacktestRow:
    """Says what becomes of messages under one candidate, at one destination and failure; None means all of them.

    The columns are those of schemas.BACKTEST. Shares are of `messages`, those that failed at least once. Shares and
    attempts count such messages only; attempts include the first one.

    - `p_recover`: the share that succeeds in the end. `p_recover_lo`: what is known, as if nothing recovered that was
      not seen to; `p_recover_hi`: what is possible, as if everything recovered as soon as it was not looked at any
      more.
    - `dead_letter_share`: the share that is given up, dead-lettered or discarded.
    - `wasted_attempts`: attempts at messages that are given up, all together.
    - `ttr_…_s`: seconds from a message's first failure to its success, over those that succeed; None if none does.
    - `extrapolated_share`: the share of messages whose end is decided where history did not look.
    - `extrapolated`: this share could make shares or attempts wrong by more than 1 %, or the mean time by more than 5
      %. Then times are None. The other numbers hold the estimate between two looks, and nothing that recovers later
      than history looked; `p_recover_lo` alone counts what was seen to recover and nothing else.
    - `pareto`: no other candidate there is as good in dead letters, attempts and `ttr_p95_s`, and better in one.
    """

    candidate: str
    destination: str | None
    error_fingerprint: str | None
    messages: int
    p_recover: float
    p_recover_lo: float
    p_recover_hi: float
    dead_letter_share: float
    attempts_per_message: float
    wasted_attempts: float
    ttr_mean_s: float | None
    ttr_p50_s: float | None
    ttr_p95_s: float | None
    extrapolated_share: float
    extrapolated: bool
    pareto: bool

    def as_dict(self) -> dict[str, Any]:
        """Return the row as a dict with the columns of schemas.BACKTEST, in their order."""
        return asdict(self)


def row_of(candidate: str, place: GroupKey, messages: float, sums: dict[str, float], times: list[float]) -> BacktestRow:
    """Make a row from means over messages (the names of `Fates`) and the median and the 95th percentile of times."""
    recovered, attempts = sums["recovered"], sums["attempts"]
    unknown = min(sums["beyond"] + sums["unsure"], 1.0)
    extrapolated = (
        unknown > COUNTS_WITHIN
        or sums["unsure_attempts"] > COUNTS_WITHIN * attempts
        or sums["unsure_s"] + sums["beyond_s"] > TIMES_WITHIN * max(sums["waited"], 1e-300)
    )
    known = recovered > 0 and not extrapolated
    return BacktestRow(
        candidate=candidate,
        destination=place.destination,
        error_fingerprint=place.fingerprint,
        messages=round(messages),
        p_recover=_share(recovered),
        p_recover_lo=_share(min(sums["low"], recovered)),
        p_recover_hi=_share(max(sums["high"], recovered)),
        dead_letter_share=_share(sums["dead"]),
        attempts_per_message=attempts,
        wasted_attempts=sums["wasted"] * messages,
        ttr_mean_s=sums["waited"] / recovered if known else None,
        ttr_p50_s=times[0] if known and not math.isnan(times[0]) else None,
        ttr_p95_s=times[1] if known and not math.isnan(times[1]) else None,
        extrapolated_share=_share(unknown),
        extrapolated=extrapolated,
        pareto=False,
    )


def _share(value: float) -> float:
    """Return a share that is from 0 to 1, as sums of floats are not always."""
    return min(max(value, 0.0), 1.0)
