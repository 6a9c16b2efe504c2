# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Questions put to a history as the command line puts them: these candidates, or the best for each destination."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ...policy import PolicyMap, RedeliveryPolicy
from .history import By, History
from .objective import Objective, Recommendation, recommend
from .rows import BacktestRow, Candidate
from .search import search


@dataclass(frozen=True)
class PolicyChoice:
    """What to take for one destination, or for all (None); `policies` are those of the row to go by."""

    destination: str | None
    recommendation: Recommendation
    policies: RedeliveryPolicy | PolicyMap


@dataclass(frozen=True)
class BacktestAnswer:
    """All rows, and what they come to."""

    rows: tuple[BacktestRow, ...]
    choices: tuple[PolicyChoice, ...]

    def policies(self) -> RedeliveryPolicy | PolicyMap | None:
        """The best, to be put into a file: by destination where there is a choice for each. None: nothing to change."""
        if not any(choice.recommendation.is_change for choice in self.choices):
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
) -> BacktestAnswer:
    """Return the rows of `History.backtest`, and which candidate to take instead of `present`, one of them."""
    rows = history.backtest(candidates, by=by, destination=destination)
    found = recommend(rows, objective, present, destination=destination)
    wanted = (found.best or found.present).candidate
    policies = next(one.policies for one in candidates if one.name == wanted)
    return BacktestAnswer(tuple(rows), (PolicyChoice(destination, found, policies),))


def searched(
    history: History,
    present: Candidate,
    objective: Objective,
    destinations: Iterable[str],
    *,
    others: Callable[[RedeliveryPolicy], Sequence[Candidate]] = lambda _: (),
) -> BacktestAnswer:
    """For each destination its present policy, others, and what a search finds: its best, and what is on the front.

    `others` are made from the policy that the destination has.
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
        wanted = (choice.best or choice.present).candidate
        changed = {one.name: one.policies for one in found.candidates} if choice.is_change else {}
        policies = changed.get(wanted, in_use)
        kept = {now.name, wanted, *(one.name for one in given)}
        rows += [row for row in found.rows if row.pareto or row.candidate in kept]
        choices.append(PolicyChoice(place, choice, policies))
    return BacktestAnswer(tuple(rows), tuple(choices))


def _exactly(choice: PolicyChoice) -> str:
    """As a key of a PolicyMap, of a queue: a name that looks like `topic:…` stays the name of a queue."""
    return f"queue:{choice.destination}"
