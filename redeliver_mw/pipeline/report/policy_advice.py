# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Compares other policies and recommends one, from rows of the back-test. Pure.

A destination has one policy, so only rows for all failures of a destination count. Where the back-test has rows for
single failures only, they are combined: shares and means are weighted by messages; of times the longest is taken, which
is a bound for the whole.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from string import ascii_uppercase
from typing import Final, Literal

from ..backtest.assessment import ColumnChange, Confidence
from ..backtest.assumptions import Figure, PolicyResult
from ..schemas import Row
from .failures import text

AdviceKind = Literal["change", "stay", "guess", "unknown", "none"]

DESTINATIONS: Final = 6
FRONT: Final = 8  # candidates with a letter of their own
DOTS: Final = 300  # other candidates in the picture
TRIED: Final = 3


@dataclass(frozen=True, kw_only=True)
class AdviceCandidate:
    """Describes one policy at one destination, with its predicted results for the messages that failed there.

    `heals` is the share of them that would have recovered, between `heals_lo` and `heals_hi`. Times in seconds since a
    message's first failure; None if not known. `unseen`: the share of them whose result depends on times at which
    nothing was ever tried; `extrapolated` if that share is too large to rely on the other numbers.
    """

    letter: str  # on the page; empty for candidates that are only dots
    policy: str
    messages: int
    heals: float
    heals_lo: float
    heals_hi: float
    dies: float
    attempts: float  # for each message
    wasted: float  # attempts at messages that were dead-lettered, all of them
    half_s: float | None  # by then at least half of those that recover have recovered
    most_s: float | None  # by then at least 95 % of them
    unseen: float
    extrapolated: bool
    pareto: bool

    @property
    def dead(self) -> float:
        """Return the number of messages that would have been dead-lettered."""
        return self.dies * self.messages


@dataclass(frozen=True, kw_only=True)
class Tried:
    """Compares the back-test with observations.

    Of the `messages` under one policy the share `observed` recovered within `within_s` seconds; `predicted` was the
    share computed from the histories of other policies. `wrong`: the two differ by more than chance.
    """

    policy_version: str
    messages: int
    within_s: float
    predicted: float
    observed: float
    wrong: bool


@dataclass(frozen=True, kw_only=True)
class ExperimentToTry:
    """Describes an arm that goes on until `until_s` seconds after the first failure, as a policy file.

    `messages` have to fail until a difference is visible, which takes `days`; at most the share `gain_most` of the
    messages would recover in addition.
    """

    toml: str
    until_s: float
    messages: int
    days: float | None
    gain_most: float


@dataclass(frozen=True, kw_only=True)
class Advice:
    """Recommends a policy for one destination, by its kind.

    `change` to `best`; `stay` with `today`: no policy that history can judge is better; `guess`: `best` tries at times
    at which nothing was tried yet; `unknown`: it is not known whether `best` is better, or no advice is possible, for
    the `reasons`; `none`: there is no best.
    """

    destination: str
    kind: AdviceKind
    messages: int
    today: AdviceCandidate | None
    best: AdviceCandidate | None
    front: tuple[AdviceCandidate, ...]  # with letters, by attempts; includes `today` and `best`
    dots: tuple[tuple[float, float], ...]  # attempts and share of dead-lettered messages of the others
    candidates: int  # of all
    objective: str  # the aim for which `best` was chosen, in words; may be empty
    tried: tuple[Tried, ...]  # how accurate the back-test was here, where that is known; the wrong ones first
    confidence: Confidence = "not known"
    reasons: tuple[str, ...] = ()  # why there is no advice
    weak: tuple[str, ...] = ()  # what the advice assumes
    figures: tuple[Figure, ...] = ()  # results of checks that could weaken the advice
    results: tuple[PolicyResult, ...] = ()  # the results of each policy and arm by itself, if there are several
    changes: tuple[ColumnChange, ...] = ()
    experiment: ExperimentToTry | None = None

    def change(self, column: str) -> ColumnChange | None:
        """Return by how much a column changes, if that is known."""
        return next((one for one in self.changes if one.column == column), None)


def advise(rows: Iterable[Row], choices: Iterable[Row], checks: Iterable[Row] = ()) -> tuple[Advice, ...]:
    """Return the advice, first for destinations where most messages would be saved.

    `choices` says which candidate each destination has, and should have: `destination`, `today`, `best`, None if not
    known, and `objective`, the aim for which `best` was chosen; and the back-test's assessment: `confidence`,
    `withheld`, `reasons`, `weak`, `figures`, `results`, `changes` and `experiment`. `checks` are the back-test's own:
    `destination` and the fields of `Tried`.
    """
    chosen = {row["destination"]: row for row in choices}
    tried: dict[str, list[Tried]] = defaultdict(list)
    for row in checks:
        tried[row["destination"]].append(_tried(row))
    sorted_rows: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["destination"] is not None:
            sorted_rows[row["destination"]][row["candidate"]].append(row)
    found = [
        _advice(name, policies, chosen.get(name, {}), tried.get(name, ())) for name, policies in sorted_rows.items()
    ]
    return tuple(sorted(found, key=lambda one: (-saved(one), -one.messages, one.destination)))


def saved(advice: Advice) -> float:
    """Return the number of dead letters that would be avoided; below 0: additional ones."""
    if advice.kind == "unknown":
        return 0.0
    return advice.today.dead - advice.best.dead if advice.today and advice.best else 0.0


def _advice(destination: str, policies: Mapping[str, Sequence[Row]], choice: Row, tried: Sequence[Tried]) -> Advice:
    whole = {policy: _together(policy, rows) for policy, rows in policies.items()}
    wanted = [choice.get("today"), choice.get("best")]
    worth = _worth_having(whole.values(), whole.get(wanted[0] or ""))
    front = _lettered(worth, [whole[name] for name in wanted if name in whole])
    named = {one.policy: one for one in front}
    today, best = (named.get(name or "") for name in wanted)
    dots = {(round(one.attempts, 2), round(one.dies, 3)) for one in whole.values() if one.policy not in named}
    return Advice(
        destination=destination,
        kind=_kind(today, best, choice),
        messages=max(one.messages for one in whole.values()),
        today=today,
        best=best,
        front=front,
        dots=tuple(sorted(dots)[:: -(-len(dots) // DOTS) or 1]),
        candidates=len(whole),
        objective=choice.get("objective") or "",
        tried=tuple(sorted(tried, key=lambda one: (not one.wrong, -one.messages, one.policy_version))[:TRIED]),
        confidence=choice.get("confidence", "not known"),
        reasons=tuple(map(text, choice.get("reasons", ()))),
        weak=tuple(map(text, choice.get("weak", ()))),
        figures=tuple(Figure(**one) for one in choice.get("figures", ())),
        results=tuple(PolicyResult(**one) for one in choice.get("results", ())),
        changes=tuple(ColumnChange(**one) for one in choice.get("changes", ())),
        experiment=ExperimentToTry(**trial) if (trial := choice.get("experiment")) else None,
    )


def _together(policy: str, rows: Sequence[Row]) -> AdviceCandidate:
    """Return one candidate at one destination, over all the failures there."""
    rows = [row for row in rows if row["error_fingerprint"] is None] or rows
    messages = sum(row["messages"] for row in rows)

    def mean(name: str) -> float:
        return sum(row[name] * row["messages"] for row in rows) / messages if messages else 0.0

    healing = [row for row in rows if row["p_recover"] * row["messages"] > 0]
    return AdviceCandidate(
        letter="",
        policy=text(policy),
        messages=messages,
        heals=mean("p_recover"),
        heals_lo=mean("p_recover_lo"),
        heals_hi=mean("p_recover_hi"),
        dies=mean("dead_letter_share"),
        attempts=mean("attempts_per_message"),
        wasted=sum(row["wasted_attempts"] for row in rows),
        half_s=_longest(healing, "ttr_p50_s"),
        most_s=_longest(healing, "ttr_p95_s"),
        unseen=mean("extrapolated_share"),
        extrapolated=any(row["extrapolated"] for row in rows),
        pareto=any(row["pareto"] for row in rows),
    )


def _tried(row: Row) -> Tried:
    return Tried(
        policy_version=text(row["policy_version"]),
        messages=row["messages"],
        within_s=row["within_s"],
        predicted=row["predicted"],
        observed=row["observed"],
        wrong=row["wrong"],
    )


def _longest(rows: Sequence[Row], name: str) -> float | None:
    """Return the longest time; None if one of them is not known, because then nothing bounds the whole."""
    times = [row[name] for row in rows]
    return None if not times or None in times else max(times)


def _worth_having(judged: Iterable[AdviceCandidate], today: AdviceCandidate | None) -> list[AdviceCandidate]:
    """Return the Pareto front, without candidates that are fast only because they give up early.

    Such a candidate dead-letters more messages than today, and another dead-letters fewer with fewer attempts.
    """
    least, found = math.inf, []
    for one in sorted((one for one in judged if one.pareto), key=lambda one: (one.attempts, one.dies)):
        if one.dies <= least or (today is not None and one.dies <= today.dies):
            found.append(one)
        least = min(least, one.dies)
    return found


def _lettered(front: Sequence[AdviceCandidate], kept: Sequence[AdviceCandidate]) -> tuple[AdviceCandidate, ...]:
    """Return at most FRONT candidates, evenly from the fewest attempts to the most, in addition to those of `kept`.

    Of candidates with equal numbers, the first of `kept`, or the one with the shortest text.
    """
    alike = {_numbers(one): one for one in sorted(front, key=lambda one: (-len(one.policy), one.policy))}
    alike = {numbers: one for numbers, one in alike.items() if numbers not in {_numbers(one) for one in kept}}
    ranked = sorted(alike.values(), key=lambda one: (one.attempts, one.dies, one.policy))
    room = max(FRONT - len(kept), 1)
    step = max(len(ranked) - 1, 1) / max(room - 1, 1)
    some = ranked if len(ranked) <= room else [ranked[round(number * step)] for number in range(room)]
    shown = {one.policy: one for one in (*some, *kept)}
    ordered = sorted(shown.values(), key=lambda one: (one.attempts, one.dies, one.policy))
    return tuple(replace(one, letter=letter) for one, letter in zip(ordered, ascii_uppercase, strict=False))


def _numbers(one: AdviceCandidate) -> tuple[float | None, ...]:
    """Return the numbers with the precision with which a person compares them."""
    most_s = None if one.most_s is None else float(f"{one.most_s:.2g}")
    return round(one.attempts, 2), round(one.dies, 3), most_s


def _kind(today: AdviceCandidate | None, best: AdviceCandidate | None, choice: Row) -> AdviceKind:
    if best is None:
        return "none"
    if choice.get("withheld"):
        return "unknown"
    if today is not None and today.policy == best.policy:
        return "stay"
    if best.extrapolated:
        return "guess"
    return "change" if choice.get("confidence", "not known") != "not known" else "unknown"
