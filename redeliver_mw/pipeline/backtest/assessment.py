# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Decides how sure a recommendation is, and whether there may be one at all.

The policy in use is predicted first, and held against what was observed. Then the difference between it and the best
candidate gets one interval, in which three things are put together: what history cannot tell (it looked at other
times), chance in the history (by leaving out one block of time after another), and chance in the next period, which is
taken to be as long. *Sure* means that the 99 % interval lies on one side, *fairly sure* the 90 % one; else it is *not
known* whether the candidate is better.

There is no recommendation at all where there are too few messages or blocks, where the policy in use is not predicted
as it was observed, where arms or other policies contradict the prediction, or where the first half of the time and the
second one differ by more than chance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from ..arrays import Bools
from .assumptions import Figure, PolicyResult, figures, largest_of, results
from .calibration import LEAST, Check
from .experiment import Experiment, experiment
from .history import History
from .objective import Objective
from .observations import NEVER
from .rows import COUNTS_WITHIN, TIMES_WITHIN, BacktestRow, Candidate
from .sampling import Z90, Z95, Z99, Blocks, StandardErrors, Statistics, Stretch, blocks_of, halves, spread, stretches

Confidence = Literal["sure", "fairly sure", "not known"]

LEAST_MESSAGES: Final = 100  # that failed
LEAST_BLOCKS: Final = 6.0  # independent stretches of time, of equal size
OFF: Final = 0.02  # by so much the policy in use may be predicted wrong, beside chance
ATTEMPTS_OFF: Final = 0.05  # by such a part may the attempts of the two halves of the time differ, beside chance
UNTRIED: Final = 0.001  # a share of messages whose fate hangs on times at which nothing was tried
COLUMNS: Final = ("dead_letter_share", "attempts_per_message", "ttr_mean_s", "ttr_p50_s", "ttr_p95_s")
_SHARES: Final = ("p_recover", "dead_letter_share")
_NEXT: Final = math.sqrt(2)  # the next period has its own chance, as large as that of the history


@dataclass(frozen=True, kw_only=True)
class ColumnChange:
    """Says how one column changes: from `now` to `best`, by something between `lo` and `hi`.

    The bounds are those of the 95 % interval for the next period, if what comes is like what was.
    """

    column: str
    now: float
    best: float
    lo: float
    hi: float


@dataclass(frozen=True, kw_only=True)
class Assessment:
    """Says what to think of a recommendation for one destination.

    - `confidence`: *not known* also where nothing is recommended.
    - `withheld`: no advice may be given; `reasons` says why, and what would help.
    - `weak`: what is taken for granted and cannot be looked for, a sentence each.
    - `figures`: what was looked for in history that would make it so, and whether it was found.
    - `results`: what each policy and arm in the history came to by itself, where there are several.
    """

    confidence: Confidence
    withheld: bool
    reasons: tuple[str, ...] = ()
    weak: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    results: tuple[PolicyResult, ...] = ()
    changes: tuple[ColumnChange, ...] = ()
    messages: int = 0
    blocks: float = 0.0
    experiment: Experiment | None = None  # where no change is advised, and messages still recovered at the end
    days: float | None = None  # until so many messages have failed as the experiment needs

    @property
    def is_advice(self) -> bool:
        """Return whether the candidate may be called better."""
        return not self.withheld and self.confidence != "not known"


@dataclass(frozen=True)
class LakeEvidence:
    """Holds what is known of a lake beside its histories.

    - `observed`: rows with `destination`, `policy_version`, `messages`, `recovered`, `attempts`, `last_us`, and of the
      messages that recovered, as far as clocks can be trusted, their number `timed` and `waited_us`, together.
    - `checks`: of `how_wrong`.
    - `hosts`: rows with `destination`, `host`, `retries` and how many of those `recovered` the message.
    - `outage_share`: the longest outage of each destination as a share of the time; `days`: how long that is.
    """

    observed: Sequence[Mapping[str, Any]] = ()
    checks: Sequence[Check] = ()
    hosts: Sequence[Mapping[str, Any]] = ()
    outage_share: Mapping[str, float] = field(default_factory=dict)
    days: float | None = None

    def outage(self, destination: str | None) -> float:
        """Return the share of the time that the longest outage took there, or anywhere."""
        if destination is not None:
            return self.outage_share.get(destination, 0.0)
        return max(self.outage_share.values(), default=0.0)


NOTHING_ELSE: Final = LakeEvidence()


def assess(
    history: History,
    present: Candidate,
    best: Candidate,
    objective: Objective,
    evidence: LakeEvidence,
    *,
    destination: str | None = None,
) -> Assessment:
    """Return how sure it is that `best` is better than `present`; they are the same where nothing is recommended."""
    here = history if destination is None else history.at(destination)
    histories = here.histories
    blocks = blocks_of(histories, evidence.outage(destination))
    messages = round(float(histories.n.sum()))
    if (why := _too_little(messages, blocks)) is not None:
        return Assessment(
            confidence="not known", withheld=True, reasons=(why,), messages=messages, blocks=blocks.effective
        )
    candidates = (present,) if best is present else (present, best)
    rows = _rows(here, candidates, destination)
    whole = _statistics(rows)
    found = spread(blocks, whole, lambda left_out: _without(here, left_out, candidates, destination))
    spans = stretches(histories)
    halved = {name: here.only(spans[name]) for name in _HALVES}  # both are asked twice
    parts = {
        name: _part(halved[name] if name in halved else here.only(span), candidates, destination)
        for name, span in spans.items()
    }
    checks = [one for one in evidence.checks if destination in (None, one.destination)]
    effect = _design_effect(whole["now p_recover"], found.errors["now p_recover"], messages)
    in_use = _of_present(evidence.observed, destination)
    reasons = [
        *(
            _not_as_observed(whole, found, in_use)
            or _not_as_observed_apart(here, halved.values(), present, in_use, destination, max(effect, 1.0))
        ),
        *(f"{check}" for check in checks if check.wrong),
        *_drift(whole, found, parts, is_change=best is not present),
    ]
    changes = tuple(_change(name, rows, whole, found) for name in COLUMNS if f"now {name}" in whole)
    looked_for = figures(histories, blocks, [row for row in evidence.hosts if row["destination"] == destination])
    weak = [] if checks else [_ASSUMPTION]
    confidence = _confidence(objective, rows, whole, found) if best is not present else "not known"
    untried = rows[1].extrapolated_share > UNTRIED
    if confidence == "sure" and untried and not checks:
        confidence = "fairly sure"
    confidence = confidence if not reasons else "not known"
    trial = None
    if confidence == "not known" and destination is not None:
        trial = experiment(here, present.policies.resolve(destination), design_effect=effect)
    return Assessment(
        confidence=confidence,
        withheld=bool(reasons),
        reasons=tuple(reasons),
        weak=tuple(weak),
        figures=looked_for,
        results=results(evidence.observed, destination),
        changes=changes,
        messages=messages,
        blocks=blocks.effective,
        experiment=trial,
        days=evidence.days * trial.messages / messages if trial and evidence.days else None,
    )


_ASSUMPTION: Final = (
    "all messages were tried by one schedule, so whether a message recovers with the number of its attempts or with "
    "time is not known; it is taken to be time. An arm with other delays would show it"
)


_Rows = tuple[BacktestRow, BacktestRow]  # of the policy in use, and of the candidate


def _rows(history: History, candidates: Sequence[Candidate], destination: str | None) -> _Rows:
    rows = history.backtest(candidates, by="all", destination=destination)
    return rows[0], rows[-1]


def _without(history: History, left_out: Bools, candidates: Sequence[Candidate], destination: str | None) -> Statistics:
    if left_out.all():
        return {}
    return _statistics(_rows(history.without(left_out), candidates, destination))


def _part(part: History, candidates: Sequence[Candidate], destination: str | None) -> Statistics:
    """Return the statistics of a part of the time, with what it cannot tell of either since it looked elsewhere."""
    if not part.curves.messages.any():
        return {}
    rows = _rows(part, candidates, destination)
    now, best = (row.extrapolated_share for row in rows)
    return {**_statistics(rows), "unknown of now": now, "unknown of change": now + best}


def _statistics(rows: _Rows) -> Statistics:
    now, best = rows
    found: dict[str, float] = {}
    for name in (*COLUMNS, "p_recover"):
        values = getattr(now, name), getattr(best, name)
        if None not in values:
            found |= {f"now {name}": values[0], f"change {name}": values[1] - values[0]}
    return found


def _design_effect(share: float, error: float, messages: int) -> float:
    """Return how many messages tell as much as one independent message would."""
    chance = share * (1 - share) / messages
    return error**2 / chance if chance and math.isfinite(error) else 1.0


def _too_little(messages: int, blocks: Blocks) -> str | None:
    if messages < LEAST_MESSAGES:
        return f"only {messages} messages failed here, and {LEAST_MESSAGES} are needed; a longer time would help"
    if blocks.effective < LEAST_BLOCKS:
        return (
            f"the {messages} messages that failed here tell no more than {blocks.effective:.1f} independent stretches "
            f"of time, as messages of one outage recover together, and {LEAST_BLOCKS:g} are needed; a longer time "
            "would help"
        )
    return None


def _of_present(rows: Iterable[Mapping[str, Any]], destination: str | None) -> Mapping[str, Any] | None:
    """Return what was observed of the policy that was last in use, of those that many messages met."""
    here = [row for row in rows if row["destination"] == destination]
    most = max((row["messages"] for row in here), default=0)
    often = [row for row in here if row["messages"] >= most * 0.05 and row["messages"] >= LEAST_MESSAGES / 2]
    return max(often, key=lambda row: row["last_us"]) if often else None


def _not_as_observed(whole: Statistics, found: StandardErrors, observed: Mapping[str, Any] | None) -> list[str]:
    if observed is None:
        return []
    messages = observed["messages"]
    recovered, attempts = observed["recovered"] / messages, observed["attempts"] / messages
    predicted = whole["now p_recover"]
    if abs(predicted - recovered) > OFF + found.within("now p_recover", Z99):
        return [f"{_IN_USE} recover {predicted:.1%} of the messages that fail, and {recovered:.1%} did. {_HELP}"]
    predicted = whole["now attempts_per_message"]
    if abs(predicted - attempts) > OFF * attempts + found.within("now attempts_per_message", Z99):
        return [
            f"{_IN_USE} need {predicted:.3g} attempts for each message that fails, and {attempts:.3g} were made. "
            f"{_HELP}"
        ]
    timed = observed.get("timed") or 0
    if timed < LEAST or "now ttr_mean_s" not in whole:
        return []
    predicted, waited = whole["now ttr_mean_s"], observed["waited_us"] / timed / 1e6
    if abs(predicted - waited) > 2 * TIMES_WITHIN * max(predicted, waited) + found.within("now ttr_mean_s", Z99):
        return [
            f"{_IN_USE} let messages recover after {predicted:.3g} s, on average, and they did after {waited:.3g} s. "
            f"{_HELP}"
        ]
    return []


def _not_as_observed_apart(
    history: History,
    halved: Iterable[History],
    present: Candidate,
    observed: Mapping[str, Any] | None,
    destination: str | None,
    effect: float,
) -> list[str]:
    """Hold the shares that recover against those that did, by failure and half of the time: one test of all of them.

    `effect`: how many messages tell as much as one independent message would.
    """
    version = (observed or {}).get("policy_version") or ""
    if version not in history.histories.versions:
        return []
    histories = history.histories
    # of a message that failed once, or whose times are not known, nothing can be concluded
    mine = (histories.version == histories.versions.index(version)) & ((histories.lo > 0) | (histories.hi != NEVER))
    cells = []
    names = ("", " in the first half of the time", " in the second half")
    for name, half, part in zip(names, _spans(history), (history, *halved), strict=True):
        for row in part.backtest([present], by="fingerprint", destination=destination):
            if row.error_fingerprint is None or row.extrapolated_share > OFF:
                continue
            group = histories.groups.index((row.destination or "", row.error_fingerprint))
            these = mine & half & (histories.group == group)
            messages = float(histories.n[these].sum())
            if messages >= LEAST:
                did = float(histories.n[these & (histories.hi != NEVER)].sum()) / messages
                cells.append((row.error_fingerprint, name, row.p_recover, did, messages, row.extrapolated_share))
    for fingerprint, name, predicted, did, messages, unknown in cells:
        chance = math.sqrt(max(did * (1 - did), 1 / messages) / messages * effect)
        if abs(predicted - did) > OFF + unknown + largest_of(len(cells)) * chance:
            failure = f"failure {fingerprint[:12]}" if fingerprint else "failures without a fingerprint"
            return [
                f"{_IN_USE} recover {predicted:.1%} of the messages with {failure}{name}, and {did:.1%} did. {_HELP}"
            ]
    return []


_IN_USE: Final = "the policy in use is predicted to"
_HELP: Final = "An arm, or another policy named as the one in use, would help"


def _spans(history: History) -> tuple[Bools, Bools, Bools]:
    first, second = halves(history.histories)
    every: Bools = first | second
    return every, first, second


def _drift(
    whole: Statistics, found: StandardErrors, parts: Mapping[Stretch, Statistics], *, is_change: bool
) -> Iterable[str]:
    names = ("now p_recover", "change p_recover") if is_change else ("now p_recover",)
    for before, after, times in _COMPARED:
        first, second = parts[before], parts[after]
        for name in (*names, "now attempts_per_message"):
            if name not in first or name not in second:
                if before == "the first half":
                    yield "messages failed in one half of the time only, so it cannot be seen whether anything changes"
                    return
                continue
            chance = times * found.within_apart(name, Z95)
            if name == "now attempts_per_message":
                allowed = ATTEMPTS_OFF * whole[name] + chance
            else:
                unknown = f"unknown of {name.partition(' ')[0]}"
                allowed = COUNTS_WITHIN + chance + first[unknown] + second[unknown]
            if abs(second[name] - first[name]) > allowed:
                yield _drifted(name, before, after, first, second)
                return


_HALVES: Final[tuple[Stretch, Stretch]] = ("the first half", "the second")
# A part of the time has fewer messages than the whole, so the difference of two has so many times its error.
_COMPARED: Final[tuple[tuple[Stretch, Stretch, float], ...]] = (
    ("the first half", "the second", math.sqrt(2 + 2)),
    ("the first three quarters", "the last", math.sqrt(4 / 3 + 4) * Z99 / Z95),  # a second look: a little more strictly
)


def _drifted(name: str, before: Stretch, after: Stretch, first: Statistics, second: Statistics) -> str:
    if name == "now attempts_per_message":
        seen = (
            f"a message that fails would have taken {first[name]:.3g} attempts in {before} of the time under the "
            f"policy in use, and {second[name]:.3g} in {after}"
        )
    else:
        seen = (
            f"{first['now p_recover']:.1%} of the messages that fail would have recovered in {before} of the "
            f"time under the policy in use, and {second['now p_recover']:.1%} in {after}"
        )
    return f"{seen}: what comes is not like what was. A look at the later time alone (--since) would help"


def _beside_chance(name: str, row: BacktestRow) -> float:
    """Return by how much a column may be off since history looked at other times, or not so far."""
    if row.extrapolated_share <= UNTRIED:
        return 0.0
    if name in _SHARES:
        return row.extrapolated_share
    value = float(getattr(row, name) or 0.0)
    return (COUNTS_WITHIN if name == "attempts_per_message" else TIMES_WITHIN) * value


def _half_width(name: str, rows: _Rows, found: StandardErrors, z: float) -> float:
    return _beside_chance(name, rows[1]) + _NEXT * found.within(f"change {name}", z)


def _change(name: str, rows: _Rows, whole: Statistics, found: StandardErrors) -> ColumnChange:
    change, half = whole[f"change {name}"], _half_width(name, rows, found, Z95)
    now = whole[f"now {name}"]
    return ColumnChange(column=name, now=now, best=now + change, lo=change - half, hi=change + half)


def _confidence(objective: Objective, rows: _Rows, whole: Statistics, found: StandardErrors) -> Confidence:
    name = objective.minimise
    if f"change {name}" not in whole or rows[1].extrapolated:
        return "not known"
    change, beside = whole[f"change {name}"], _beside_chance(name, rows[1])
    if change + beside + found.within(f"change {name}", Z99) < 0:
        return "sure"
    return "fairly sure" if change + beside + found.within(f"change {name}", Z90) < 0 else "not known"
