# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements `redeliver pipeline backtest LAKE`: predicts other policies' results for failed messages."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from ...errors import ConfigError
from ...policy import PolicyMap, RedeliveryPolicy
from ...policy.formats import LANGUAGES
from ...redaction import redact
from ..arguments import Json, read_policies
from ..help import example
from .options import Conf, LakeFolder, Master, Since, Until, spark
from .tables import check_file, listed, print_rows, sentences, written_to

if TYPE_CHECKING:
    from ...pipeline.backtest import BacktestRow, Candidate, Check, History, Objective, Shape
    from ...pipeline.backtest.assessment import LakeEvidence
    from ...pipeline.backtest.queries import BacktestAnswer
    from ...pipeline.report.backtest_input import ToldPolicies

IN_PART = 3
IN_USE = "in use"
FEW = 50  # up to this many candidates are all shown, and for --json are evaluated at the finest level


class ByOption(StrEnum):
    """Lists the values of --by."""

    every = "all"
    destination = "destination"
    fingerprint = "fingerprint"


_FINE: Final[Mapping[ByOption, Literal["all", "destination", "fingerprint"]]] = {
    ByOption.every: "all",
    ByOption.destination: "destination",
    ByOption.fingerprint: "fingerprint",
}

Candidates = Annotated[
    list[str] | None,
    typer.Option(
        "--candidate", metavar="POLICY", help="A policy's text, a URL that carries one, a file; several times"
    ),
]
Grid = Annotated[
    str | None,
    typer.Option("--grid", metavar="GRID", help="Many: 'attempts=3-8 initial=1,2,5 multiplier=1,2 cap=60 jitter=0.2'"),
]
Search = Annotated[
    bool, typer.Option("--search", help="Look for a better policy for each destination; so it is without a candidate")
]
Present = Annotated[
    str | None,
    typer.Option(
        "--present", metavar="POLICY", help="The policies in use; else the first candidate, else as the journal tells"
    ),
]
Goal = Annotated[str, typer.Option("--objective", metavar="NAME", help="fewer-dead-letters, fewer-attempts or sooner")]
OneDestination = Annotated[str | None, typer.Option("--destination", metavar="NAME", help="Only what failed there")]
Finest = Annotated[ByOption, typer.Option("--by", help="How fine the rows are")]
Write = Annotated[str | None, typer.Option("--write", metavar="FILE", help="Write the best policy into a file")]
To = Annotated[str, typer.Option("--to", metavar="LANGUAGE", help=f"Of --write, one of: {', '.join(LANGUAGES)}")]
Lossy = Annotated[bool, typer.Option("--lossy", help="Write the nearest where the language cannot say all")]


def register(group: typer.Typer) -> None:
    """Add the command."""
    group.command("backtest", epilog=example("redeliver pipeline backtest lake --candidate policy.toml"))(backtest)


def backtest(
    lake: LakeFolder,
    candidate: Candidates = None,
    destination: OneDestination = None,
    by: Finest = ByOption.every,
    grid: Grid = None,
    search: Search = False,
    present: Present = None,
    objective: Goal = "fewer-dead-letters",
    write: Write = None,
    to: To = "native",
    lossy: Lossy = False,
    since: Since = None,
    until: Until = None,
    master: Master = None,
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Hold policies against the messages that failed: how many would have recovered, when, after how many attempts.

    A row for each candidate. With --search, or without a candidate, for each destination the policy in use and the
    best one found. With --json all rows, also those of each destination and failure.
    """
    from ...pipeline import Lake
    from ...pipeline.backtest import how_wrong, lake_input
    from ...pipeline.report.backtest_input import ToldPolicies
    from ...pipeline.report.job import told_policies
    from ...pipeline.time_range import whole_days

    # invalid options are reported before Spark is started
    whole_days(since, until)
    check_file(write, to)
    asked = _asked(candidate, grid, present, objective, destination, search)
    place = Lake(lake)
    with spark(master, conf) as session:
        marts = place.marts()
        known = lake_input.known(session, marts, since=since, until=until)
        used = ToldPolicies({}, {})
        if asked.present is None:
            used = told_policies(session, marts, since=since, until=until)
    checks = how_wrong(known.apart)
    answer = asked.answer(known.history, used, ByOption.fingerprint if as_json else by, known.evidence(checks))
    if as_json:
        print(json.dumps([row.as_dict() for row in answer.rows], allow_nan=False))
    else:
        print_rows(asked.table(answer, by))
    _tell(asked, answer, known.history, checks, used)
    done = write is None or written_to(answer, Path(write), to, lossy)
    if not done or (asked.compares(answer) and any(choice.is_withheld for choice in answer.choices)):
        raise typer.Exit(IN_PART)


@dataclass(frozen=True)
class _Asked:
    """Holds the parsed options; `present` is None if the policies in use are to be read from the journal."""

    given: Sequence[Candidate]
    shapes: Sequence[Shape]
    present: Candidate | None
    objective: Objective
    destination: str | None
    search: bool

    def compares(self, answer: BacktestAnswer) -> bool:
        """Return whether there are policies to choose between."""
        return self.search or len({row.candidate for row in answer.rows}) > 1

    def answer(self, history: History, told_of: ToldPolicies, by: ByOption, evidence: LakeEvidence) -> BacktestAnswer:
        """Return the back-test's answer for a history.

        `told_of` are the policies in use, as far as the journal records them.
        """
        from ...pipeline.backtest import Candidate
        from ...pipeline.backtest.queries import judged, searched
        from ...pipeline.report.backtest_input import untold_among

        used = told_of.policies
        history.horizon(self.destination)  # raises an error for a destination that does not exist
        places = history.destinations if self.destination is None else (self.destination,)
        now = self.present or Candidate(IN_USE, PolicyMap({f"queue:{name}": one for name, one in used.items()}))
        untold = [] if self.present else [place for place in places if place not in used]
        if untold and (len(untold) == len(places) or not self.search):
            why = "; ".join(sorted({row["why"] for row in untold_among(untold, told_of)}))
            what = f"the journal does not tell which policy is in use: {why}"
            raise ConfigError(
                what, where=listed(untold)[:200], cure="Name it with --present POLICY", code="present-policy-unknown"
            )
        others = [one for one in self.given if one is not now]
        if self.search:
            usable = [place for place in places if place not in untold]
            made_too = partial(self._with_made, others)
            return searched(history, now, self.objective, usable, others=made_too, evidence=evidence)
        made = self._made(self._like(now.policies)) if self.shapes else []
        names = {now.name, *(one.name for one in others)}
        candidates = [now, *others, *(one for one in made if one.name not in names)]
        fine = by if len(candidates) <= FEW else ByOption.every
        return judged(
            history,
            candidates,
            now.name,
            self.objective,
            by=_FINE[fine],
            destination=self.destination,
            evidence=evidence,
        )

    def table(self, answer: BacktestAnswer, by: ByOption) -> list[BacktestRow]:
        """Return the rows for a person: at the requested level, and with many candidates only the relevant ones."""
        names = {one.name for one in self.given} | {one.recommendation.present.candidate for one in answer.choices}
        best = {(one.destination, one.recommendation.best) for one in answer.choices}
        few = len({row.candidate for row in answer.rows}) <= FEW
        return [
            row
            for row in answer.rows
            if self._is_as_fine(row, by)
            and (row.candidate in names or (row.destination, row) in best or (not self.search and (few or row.pareto)))
        ]

    def _is_as_fine(self, row: BacktestRow, by: ByOption) -> bool:
        if self.search or (by is ByOption.every and self.destination is not None):
            return row.error_fingerprint is None
        wanted = {
            ByOption.every: (True, True),
            ByOption.destination: (False, True),
            ByOption.fingerprint: (False, False),
        }[by]
        return (row.destination is None, row.error_fingerprint is None) == wanted

    def _with_made(self, others: Sequence[Candidate], like: RedeliveryPolicy) -> list[Candidate]:
        return [*others, *self._made(like)]

    def _made(self, like: RedeliveryPolicy) -> list[Candidate]:
        return [shape.candidate(like) for shape in self.shapes]

    def _like(self, policies: RedeliveryPolicy | PolicyMap) -> RedeliveryPolicy:
        """Return the policy whose rules and targets a grid's candidates take over.

        Raises ConfigError unless there is only one.
        """
        if self.destination is not None or isinstance(policies, RedeliveryPolicy) or not policies.entries:
            return policies.resolve(self.destination or "")
        what = "a grid is made of one policy, and several are in use"
        raise ConfigError(
            what,
            where="--grid",
            cure="Name one --destination, or one policy with --present",
            code="backtest-input",
        )


def _asked(
    candidate: Sequence[str] | None,
    grid: str | None,
    present: str | None,
    objective: str,
    destination: str | None,
    search: bool,
) -> _Asked:
    """Return the parsed options. Raises PolicyError or ConfigError if they are invalid."""
    from ...pipeline.backtest import Candidate, objective_of, read_grid

    given = [Candidate(_title(one), read_policies(one, None, False)) for one in candidate or ()]
    shapes = read_grid(grid) if grid is not None else []
    now = Candidate(IN_USE, read_policies(present, None, False)) if present is not None else None
    nothing = not (given or shapes)
    return _Asked(
        given, shapes, now or (given[0] if given else None), objective_of(objective), destination, search or nothing
    )


def _title(given: str) -> str:
    """Return a candidate's title in rows: its text in one line, or the file's name, without secrets."""
    return redact(" ".join(given.split()))


def _tell(asked: _Asked, answer: BacktestAnswer, history: History, checks: Sequence[Check], used: ToldPolicies) -> None:
    """Print to stderr which policy to use, what was left out, and the back-test's error where it is known."""
    for choice in answer.choices:
        if asked.compares(answer):
            for line in sentences(choice):
                print(line, file=sys.stderr)
    judged = {choice.destination for choice in answer.choices}
    if asked.search and asked.destination is None and asked.present is None:
        for line in _not_looked_at([place for place in history.destinations if place not in judged], used):
            print(line, file=sys.stderr)
    for note in history.notes(asked.given):
        print(f"note: {listed([note])}", file=sys.stderr)
    here = [check for check in checks if asked.destination in (None, check.destination)]
    for check in here:
        if check.wrong:
            print(f"note: {listed([str(check)])}", file=sys.stderr)
    if not here:
        why = "history knows one policy, or too little of another"
        print(f"note: how wrong the back-test is here is not known: {why}", file=sys.stderr)


def _not_looked_at(places: Sequence[str], used: ToldPolicies) -> Iterator[str]:
    """Yield a sentence for each group of destinations without advice for one reason, with the cure."""
    from ...pipeline.report.backtest_input import untold_among

    by_why: dict[str, list[str]] = {}
    for row in untold_among(places, used):
        by_why.setdefault(row["why"], []).append(row["destination"])
    for why, names in by_why.items():
        yield f"not looked at: {listed(names)}: {why}. Name the policy with --destination and --present"
