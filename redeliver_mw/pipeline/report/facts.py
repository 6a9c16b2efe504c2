# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Computes the page's contents as plain data from rows of the marts and of the back-test, lists of dicts. No Spark.

Long lists are shortened: each has its first items, and the sums of the others. Names ending in `_s` are float seconds;
points in time count from 1970, UTC. Texts come from other programs, and are cut to a length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from ..schemas import Row
from .attempts import Attempts, attempts
from .clocks import Clocks, clocks
from .failures import Failures, failures, text
from .letters import Flow, Poison, flow, poison
from .policy_advice import Advice, advise
from .storms import Storms, storms

_DEAD: Final = frozenset({"dead_lettered", "discarded"})


@dataclass(frozen=True, kw_only=True)
class MartRows:
    """Holds the rows read from the lake: rows of the marts, or sums over columns that the page does not need.

    `outcomes` is `messages` counted: `outcome` and `n`. `episodes` is `storms` from the beginning of each storm to its
    end: `destination`, `first_us`, `end_us`, `attempts`, `retries`, `peak`. `verdicts` is `poison` counted: `verdict`
    and `n`. `flow_by_day` and `flow_by_reason` are `dead_letter_flow`. `estimates` are points of the back-test's curve
    for a failure: `destination`, `fingerprint`, `after_s` and `healed`, the share that recovers by then. `choices` and
    `checks`: see `advise`. `untold`: each `destination` of which the policy in use is not known, and `why`. `clocks`
    and `order`: see `clocks.clocks`.
    """

    outcomes: Sequence[Row] = ()
    attempt_curve: Sequence[Row] = ()
    recovery: Sequence[Row] = ()
    fingerprints: Sequence[Row] = ()
    waste: Sequence[Row] = ()
    poison: Sequence[Row] = ()
    verdicts: Sequence[Row] = ()
    storms: Sequence[Row] = ()
    episodes: Sequence[Row] = ()
    flow_by_day: Sequence[Row] = ()
    flow_by_reason: Sequence[Row] = ()
    estimates: Sequence[Row] = ()
    backtest: Sequence[Row] = ()
    choices: Sequence[Row] = ()
    checks: Sequence[Row] = ()
    untold: Sequence[Row] = ()
    clocks: Sequence[Row] = ()
    order: Sequence[Row] = ()


@dataclass(frozen=True, kw_only=True)
class UntoldPolicy:
    """Gives the reason that a destination's policy in use is not known. No policy can be called better there."""

    destination: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Counts messages and attempts.

    `failed`: at least once; these recovered, were dead-lettered, or are `open`: not ended.
    """

    messages: int
    attempts: int
    failed: int
    healed: int
    dead: int
    open: int


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Holds the contents of the whole page. `made_s` is when it was made."""

    lake: str
    made_s: float
    totals: Totals
    failures: Failures
    attempts: Attempts
    storms: Storms | None  # None: there was no attempt at all
    flow: Flow
    poison: Poison
    advice: tuple[Advice, ...]
    untold: tuple[UntoldPolicy, ...]
    clocks: Clocks

    def as_json(self) -> dict[str, Any]:
        """Return the same numbers under the same names."""
        return asdict(self)


def facts(rows: MartRows, *, lake: str, made_s: float) -> Facts:
    found = storms(rows.storms, rows.episodes)
    return Facts(
        lake=lake,
        made_s=made_s,
        totals=_totals(rows.outcomes, found),
        failures=failures(rows.recovery, rows.waste, rows.fingerprints, rows.estimates),
        attempts=attempts(rows.attempt_curve),
        storms=found,
        flow=flow(rows.flow_by_day, rows.flow_by_reason),
        poison=poison(rows.poison, rows.verdicts),
        advice=advise(rows.backtest, rows.choices, rows.checks),
        untold=tuple(UntoldPolicy(destination=text(one["destination"]), why=one["why"]) for one in rows.untold),
        clocks=clocks(rows.clocks, rows.order),
    )


def _totals(outcomes: Iterable[Row], found: Storms | None) -> Totals:
    ends: Counter[str] = Counter()
    for row in outcomes:
        ends[row["outcome"]] += row["n"]
    failed, healed, dead = sum(ends.values()), ends["accepted"], sum(ends[word] for word in _DEAD)
    return Totals(
        messages=max(found.first_attempts, failed) if found else failed,
        attempts=found.first_attempts + found.retries if found else 0,
        failed=failed,
        healed=healed,
        dead=dead,
        open=failed - healed - dead,
    )
