# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The back-test asked for the page: for each destination the policy in use, others like it, and the best. No Spark."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final, NamedTuple

from ...errors import ConfigError
from ...policy import PolicyMap, RedeliveryPolicy, load_policies
from ...redaction import redact
from ..backtest.assessment import NOTHING_ELSE, Evidence, assess
from ..backtest.history import History
from ..backtest.objective import Objective, recommend
from ..backtest.rows import Candidate
from ..backtest.search import Searched, search
from .failures import Key

DESTINATIONS: Final = 12  # those with most failed messages
_SELDOM: Final = 0.05  # a policy that decided less often than this part of the most frequent one is not the usual one

Row = Mapping[str, Any]
PoliciesInUse = RedeliveryPolicy | PolicyMap


class Compared(NamedTuple):
    """Rows as `facts.Rows` takes them."""

    backtest: list[Row]
    choices: list[Row]


def in_use(rows: Iterable[Row]) -> dict[str, RedeliveryPolicy]:
    """The policy that each destination has, as far as the journal spells it.

    `rows`: `destination`, `policy` (its text), `policy_version`, `policy_arm`, how many failures it decided (`n`), and
    when last (`last_us`). It is the latest of those that decided often; a text that cannot be read, or that does not
    say all of the policy, is none.
    """
    by_place: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row["policy_arm"] in (None, "main"):
            by_place[row["destination"]].append(row)
    found = {}
    for place, ways in by_place.items():
        most = max(row["n"] for row in ways)
        latest = max((row for row in ways if row["n"] >= most * _SELDOM), key=lambda row: row["last_us"])
        if (policy := _read(latest)) is not None:
            found[place] = policy
    return found


def compared(
    history: History,
    policies: Mapping[str, PoliciesInUse],
    objectives: Sequence[Objective],
    progress: Callable[[str, int, int], None] | None = None,
    evidence: Evidence = NOTHING_ELSE,
) -> Compared:
    """Return, where most messages failed, each candidate's row, and which of them is in use and which is best.

    Of the objectives the first counts for which something is better than what is in use; if there is none, the first.
    """
    backtest: list[Row] = []
    choices: list[Row] = []
    places = _busiest(history)
    for number, place in enumerate(places):
        if progress is not None:
            progress(f"comparing policies for {place}", number, len(places))
        given = policies.get(place)
        # Those it is compared with have no arms either.
        like = given.resolve(place).alone if given is not None else RedeliveryPolicy()
        present = Candidate(redact(like.text), like)
        found = search(history, present, like, objectives[0], destination=place)
        backtest += [row.as_dict() for row in found.rows]
        if given is not None:
            choices.append(_choice(history, found, objectives, present, place, evidence))
    return Compared(backtest, choices)


def estimates(history: History, wanted: Iterable[Key]) -> list[Row]:
    """The most likely curves of these failures, point by point."""
    curves = history.curves
    lines = {group: number for number, group in enumerate(curves.groups)}
    return [
        {"destination": key[0], "fingerprint": key[1], "after_s": float(edge), "healed": float(healed)}
        for key in wanted
        if key in lines
        for edge, healed in zip(curves.cells.edges, curves.healed[lines[key]], strict=True)
        if edge > 0
    ]


def _choice(
    history: History,
    searched: Searched,
    objectives: Sequence[Objective],
    present: Candidate,
    place: str,
    evidence: Evidence,
) -> Row:
    found = [recommend(searched.rows, objective, present.name, destination=place) for objective in objectives]
    chosen = next((one for one in found if one.is_change), found[0])
    best = chosen.best.candidate if chosen.best is not None else None
    candidate = next((one for one in searched.candidates if chosen.is_change and one.name == best), present)
    assessed = assess(history, present, candidate, chosen.objective, evidence, destination=place)
    row = {"destination": place, "objective": chosen.objective.text, "today": present.name, "best": best}
    told = asdict(replace(assessed, experiment=None))
    trial = assessed.experiment
    if trial is not None:
        told["experiment"] = {
            "toml": redact(trial.toml),
            "until_s": trial.until_s,
            "messages": trial.messages,
            "days": assessed.days,
            "gain_most": trial.gain_most,
        }
    return row | told


def _busiest(history: History) -> list[str]:
    failed: Counter[str] = Counter()
    for (place, _), messages in zip(history.curves.groups, history.curves.messages, strict=True):
        failed[place] += round(float(messages))
    return [place for place, _ in sorted(failed.items(), key=lambda item: (-item[1], item[0]))[:DESTINATIONS]]


def _read(row: Row) -> RedeliveryPolicy | None:
    """The policy of a record, if its text is all of it."""
    try:
        policy = load_policies(row["policy"]).resolve(row["destination"])
    except ConfigError:
        return None
    return policy if row["policy_arm"] == "main" or policy.version == row["policy_version"] else None
