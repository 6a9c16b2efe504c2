# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Asks the back-test for the page: for each destination the policy in use, similar ones, and the best. No Spark."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Final, NamedTuple

from ...errors import ConfigError
from ...policy import PolicyMap, RedeliveryPolicy, load_policies
from ...policy.model import TEXT_LIMIT
from ...redaction import redact
from ..backtest.assessment import NOTHING_ELSE, LakeEvidence, assess
from ..backtest.history import History
from ..backtest.objective import Objective, recommend
from ..backtest.rows import Candidate
from ..backtest.search import Searched, search
from ..schemas import Row
from .failures import Key

DESTINATIONS: Final = 12  # those with most failed messages
# A policy with fewer decisions than this share of the most frequent one's is not the usual policy.
_SELDOM: Final = 0.05
_DELAY_WITHIN: Final = 0.02  # a delay in the records equals one in the text within this share,
_DELAY_WITHIN_S: Final = 0.001  # or within this many seconds

CUT_OFF: Final = f"its text in the journal is cut off after {TEXT_LIMIT} characters"
NO_TEXT: Final = "the journal has a name or a description of it, and no text that can be read"
ARMS_ALONE: Final = "the journal has records of its arms alone"
UNSHOWN: Final = (
    "its text in the journal has another version than its records, and none of them shows that the text is all of it"
)

PoliciesInUse = RedeliveryPolicy | PolicyMap


class Compared(NamedTuple):
    """Holds rows as `facts.MartRows` takes them."""

    backtest: list[Row]
    choices: list[Row]


class ToldPolicies(NamedTuple):
    """Holds the policies in use, by destination, as the journal records them.

    `policies` are those that are recorded completely; `untold` gives the reason for each of the others, as the end of a
    sentence.
    """

    policies: dict[str, RedeliveryPolicy]
    untold: dict[str, str]


def in_use(rows: Iterable[Row]) -> dict[str, RedeliveryPolicy]:
    """Return the policy of each destination that the journal spells out. `rows` as of `told_in_use`."""
    return told_in_use(rows).policies


def told_in_use(rows: Iterable[Row]) -> ToldPolicies:
    """Read the policy that each destination has from its records.

    `rows`: `destination`, `policy` (its text), `policy_version`, `policy_arm`, how many failures it decided (`n`), when
    last (`last_us`), and `seen`, its decisions after each number of failures. The policy in use is the latest of those
    that decided often. Its text counts if it is complete: if the version that this release computes for the text is
    that of the records, or, because another release may have computed that version, if the decisions in the records are
    those of the text.
    """
    by_place: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_place[row["destination"]].append(row)
    found = ToldPolicies({}, {})
    for place, every in by_place.items():
        ways = [row for row in every if row["policy_arm"] in (None, "main")]
        read = _read(_usual(ways)) if ways else ARMS_ALONE
        if isinstance(read, str):
            found.untold[place] = read
        else:
            found.policies[place] = read
    return found


def _usual(ways: Sequence[Row]) -> Row:
    most = max(row["n"] for row in ways)
    return max((row for row in ways if row["n"] >= most * _SELDOM), key=lambda row: row["last_us"])


def untold_among(destinations: Iterable[str], found: ToldPolicies) -> list[Row]:
    """Return the destinations whose policy in use is not known, and why: rows of `facts.MartRows.untold`."""
    return [
        {"destination": place, "why": found.untold.get(place, "the journal has no record of its decisions")}
        for place in destinations
        if place not in found.policies
    ]


def compared(
    history: History,
    policies: Mapping[str, PoliciesInUse],
    objectives: Sequence[Objective],
    progress: Callable[[str, int, int], None] | None = None,
    evidence: LakeEvidence = NOTHING_ELSE,
) -> Compared:
    """Return each candidate's row where most messages failed, which candidate is in use, and which is best.

    The first objective with a better candidate than the policy in use counts; if there is none, the first objective.
    """
    backtest: list[Row] = []
    choices: list[Row] = []
    places = _busiest(history)
    for number, place in enumerate(places):
        if progress is not None:
            progress(f"comparing policies for {place}", number, len(places))
        given = policies.get(place)
        # The policies to compare with have no arms either.
        like = given.resolve(place).alone if given is not None else RedeliveryPolicy()
        present = Candidate(redact(like.text), like)
        found = search(history, present, like, objectives[0], destination=place)
        backtest += [row.as_dict() for row in found.rows]
        if given is not None:
            choices.append(_choice(history, found, objectives, present, place, evidence))
    return Compared(backtest, choices)


def estimates(history: History, wanted: Iterable[Key]) -> list[Row]:
    """Return the most likely curves of these failures, as points."""
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
    evidence: LakeEvidence,
) -> Row:
    found = [recommend(searched.rows, objective, present.name, destination=place) for objective in objectives]
    chosen = next((one for one in found if one.is_change), found[0])
    best = chosen.best.candidate if chosen.best is not None else None
    candidate = next((one for one in searched.candidates if chosen.is_change and one.name == best), present)
    assessed = assess(history, present, candidate, chosen.objective, evidence, destination=place)
    row = {"destination": place, "objective": chosen.objective.text, "today": present.name, "best": best}
    fields = asdict(replace(assessed, experiment=None))
    trial = assessed.experiment
    if trial is not None:
        fields["experiment"] = {
            "toml": redact(trial.toml),
            "until_s": trial.until_s,
            "messages": trial.messages,
            "days": assessed.days,
            "gain_most": trial.gain_most,
        }
    return row | fields


def _busiest(history: History) -> list[str]:
    failed: Counter[str] = Counter()
    for (place, _), messages in zip(history.curves.groups, history.curves.messages, strict=True):
        failed[place] += round(float(messages))
    return [place for place, _ in sorted(failed.items(), key=lambda item: (-item[1], item[0]))[:DESTINATIONS]]


def _read(row: Row) -> RedeliveryPolicy | str:
    """Return the policy of a record, or why its text is not known to be complete."""
    text = row["policy"]
    if len(text) >= TEXT_LIMIT and text.endswith("..."):
        return CUT_OFF
    try:
        policy = load_policies(text).resolve(row["destination"])
    except ConfigError:
        return NO_TEXT
    if policy.version == row["policy_version"]:
        return policy
    seen = row.get("seen") or ()
    for one in seen:
        if otherwise := _otherwise(policy, one):
            return f"the journal's text of it is not all of it: {otherwise}"
    # The version of an arm is that of the whole experiment.
    return policy if row["policy_arm"] == "main" or any(_bears_out(policy, one) for one in seen) else UNSHOWN


def _otherwise(policy: RedeliveryPolicy, seen: Row) -> str:
    """Return what most records did after a number of failures that the policy would not do; empty if there is nothing.

    Single records may differ, because a handler may have asked for a longer delay, or not to be counted.
    """
    failures, redelivered, exhausted = seen["failures"], seen["redelivered"], seen["exhausted"]
    if redelivered > exhausted and policy.stop.met(failures, 0.0):
        return f"after failure {failures} it ends a message, and the records show another attempt"
    if exhausted > redelivered and not policy.stop.met(failures, math.inf):
        return f"after failure {failures} it tries again, and the records show the end"
    if redelivered and seen["least_us"] is not None and not _is_delay(policy, seen):
        least, wanted = seen["least_us"] / 1e6, policy.backoff.span(failures).base
        return f"after failure {failures} it waits {wanted:g} s, and the records show {least:g} s"
    return ""


def _is_delay(policy: RedeliveryPolicy, seen: Row) -> bool:
    _, low, high = policy.backoff.span(seen["failures"])
    low, high = low * (1 - _DELAY_WITHIN) - _DELAY_WITHIN_S, high * (1 + _DELAY_WITHIN) + _DELAY_WITHIN_S
    return bool(seen["most_us"] / 1e6 >= low and seen["least_us"] / 1e6 <= high)


def _bears_out(policy: RedeliveryPolicy, seen: Row) -> bool:
    """Return whether the records prove this policy, rather than only not contradicting it."""
    ended = seen["exhausted"] and policy.stop.met(seen["failures"], 0.0)
    return bool(ended or (seen["redelivered"] and seen["least_us"] is not None))
