# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Asks a history as the command line asks it: about given candidates, or for the best one of each destination."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ...policy import PolicyMap, RedeliveryPolicy
from .assessment import NOTHING_ELSE, Assessment, LakeEvidence, assess
from .history import By, History
from .objective import Objective, Recommendation, recommend
from .rows import BacktestRow, Candidate
from .sampling import with_sampling
from .search import search


@dataclass(frozen=True)
class PolicyChoice:
    """Says what to take for one destination, or for all (None); `policies` are those of the row to go by.

    `assessment` says how sure that is, and whether there may be any advice.
    """

    destination: str | None
    recommendation: Recommendation
    policies: RedeliveryPolicy | PolicyMap
    assessment: Assessment

    @property
    def is_withheld(self) -> bool:
        """Return whether nothing may be advised, though history can judge the policy in use."""
        return self.recommendation.best is not None and self.assessment.withheld

    @property
    def is_advice(self) -> bool:
        """Return whether another policy may be called better than the one in use."""
        return self.recommendation.is_change and self.assessment.is_advice


@dataclass(frozen=True)
class BacktestAnswer:
    """Holds all rows, and the choices that follow from them."""

    rows: tuple[BacktestRow, ...]
    choices: tuple[PolicyChoice, ...]

    def policies(self) -> RedeliveryPolicy | PolicyMap | None:
        """Return the best policies, to be put into a file: by destination where there is a choice for each.

        None means that there is nothing to change. A destination without advice keeps its policy.
        """
        if not any(choice.is_advice for choice in self.choices):
            return None
        if len(self.choices) == 1:
            return self.choices[0].policies
        return PolicyMap(
            {_exactly(choice): choice.policies.resolve(choice.destination or "") for choice in self.choices}
        )


def judged(
    history: History,
    candidates: Sequence[Candidate],
    present: str,
    objective: Objective,
    *,
    by: By = "destination",
    destination: str | None = None,
    evidence: LakeEvidence = NOTHING_ELSE,
) -> BacktestAnswer:
    """Return the rows of `History.backtest`, and which candidate to take instead of `present`, one of them."""
    rows = history.backtest(candidates, by=by, destination=destination)
    found = recommend(rows, objective, present, destination=destination)
    named = {one.name: one for one in candidates}
    now, best = named[present], named[(found.best or found.present).candidate]
    assessment = assess(history, now, best, objective, evidence, destination=destination)
    outage_share = evidence.outage(destination)
    rows = with_sampling(history, rows, candidates, by=by, destination=destination, outage_share=outage_share)
    policies = best.policies if assessment.is_advice else now.policies
    return BacktestAnswer(tuple(rows), (PolicyChoice(destination, found, policies, assessment),))


def searched(
    history: History,
    present: Candidate,
    objective: Objective,
    destinations: Iterable[str],
    *,
    others: Callable[[RedeliveryPolicy], Sequence[Candidate]] = lambda _: (),
    evidence: LakeEvidence = NOTHING_ELSE,
) -> BacktestAnswer:
    """Judge, for each destination, its present policy, others, and what a search finds.

    Of what the search finds, the rows hold its best candidate and the candidates on the front. `others` are made from
    the policy that the destination has.
    """
    rows: list[BacktestRow] = []
    choices: list[PolicyChoice] = []
    for place in destinations:
        in_use = present.policies.resolve(place)
        like = in_use.alone  # those it is compared with have no arms either
        now = Candidate(present.name, like)
        given = others(like)
        found = search(history, now, like, objective, destination=place, others=given)
        choice = recommend(found.rows, objective, now.name, destination=place)
        named = {one.name: one for one in found.candidates}
        best = named[(choice.best or choice.present).candidate]
        assessment = assess(history, now, best, objective, evidence, destination=place)
        policies = best.policies if choice.is_change and assessment.is_advice else in_use
        kept = {now.name, best.name, *(one.name for one in given)}
        shown = [row for row in found.rows if row.pareto or row.candidate in kept]
        asked = [named[row.candidate] for row in shown]
        share = evidence.outage(place)
        rows += with_sampling(history.at(place), shown, asked, by="all", destination=place, outage_share=share)
        choices.append(PolicyChoice(place, choice, policies, assessment))
    return BacktestAnswer(tuple(rows), tuple(choices))


def _exactly(choice: PolicyChoice) -> str:
    """Return a key of a PolicyMap that names a queue: a name that looks like `topic:…` stays the name of a queue."""
    return f"queue:{choice.destination}"
