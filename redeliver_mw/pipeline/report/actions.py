# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What a person on call does about all this: a few lines, those worth most first. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from . import clocks, policy_sentences
from .facts import Facts
from .failures import FailureGroup
from .markup import Markup, join, stranger
from .sentences import failure_name, many, were
from .units import count, duration, moment, share

_OF_A_KIND: Final = 3
_LIMIT: Final = 8


@dataclass(frozen=True)
class ReportStep:
    """`what` to do, and `why`."""

    what: Markup
    why: str


def todo(facts: Facts) -> list[ReportStep]:
    """Nothing to do, nothing said."""
    steps = [
        *_clocks(facts),
        *_hopeless(facts),
        *_policies(facts),
        *_untold(facts),
        *_storms(facts),
        *_letters(facts),
    ]
    return steps[:_LIMIT]


def _clocks(facts: Facts) -> Iterator[ReportStep]:
    """Clocks first: what else is said is no surer than the times are."""
    if cure := clocks.cure(facts.clocks):
        yield ReportStep(join([cure]), clocks.told(facts.clocks)[0])


def _hopeless(facts: Facts) -> Iterator[ReportStep]:
    """What never heals is not worth a second attempt."""
    never = [one for one in facts.failures.shown if one.healing.verdict == "never" and one.waste.attempts]
    for one in never[:_OF_A_KIND]:
        yield ReportStep(
            join(
                [f"Stop retrying failure {one.number} in ", _name(one.destination), ": ", stranger(failure_name(one))]
            ),
            f"None of {many(one.healing.messages, 'message')} ever healed; {_spent(one)} went for nothing. Name its "
            "class in fatal=, and it is dead-lettered at once.",
        )


def _policies(facts: Facts) -> Iterator[ReportStep]:
    wanted = [one for one in facts.advice if one.kind in ("change", "guess") and one.today is not None]
    for one in wanted[:_OF_A_KIND]:
        if one.best is not None:
            verb = "Change the policy of " if one.kind == "change" else "Try another policy on a few messages of "
            yield ReportStep(
                join([verb, _name(one.destination), f": {policy_sentences.gain(one)}."]), policy_sentences.sure(one)
            )


def _untold(facts: Facts) -> Iterator[ReportStep]:
    """Where the policy in use is not known nothing can be called better, so the reader has to name it."""
    by_why: dict[str, list[str]] = defaultdict(list)
    for one in facts.untold:
        by_why[one.why].append(one.destination)
    for why, places in list(by_why.items())[:_OF_A_KIND]:
        shown = [_name(place) for place in places[:_OF_A_KIND]]
        names = [part for name in shown for part in (", ", name)][1:]
        hidden = len(places) - len(shown)
        more = f" and {many(hidden, 'other destination')}" if hidden else ""
        yield ReportStep(
            join(["Name the policy in use at ", *names, f"{more} with --policy."]),
            f"No other one can be called better until then: {why}.",
        )


def _storms(facts: Facts) -> Iterator[ReportStep]:
    if facts.storms and facts.storms.storms:
        worst = facts.storms.storms[0]
        first = many(worst.attempts - worst.retries, "first attempt")
        lasted = duration(worst.end_s - worst.first_s)
        why = (
            f"From {moment(worst.first_s)} UTC on it retried {count(worst.retries)} times in {lasted}, beside {first}."
        )
        yield ReportStep(join(["Put a breaker on ", _name(worst.destination), "."]), why)


def _letters(facts: Facts) -> Iterator[ReportStep]:
    came, left = facts.flow.came, facts.flow.left
    if came > left:
        why = f"{count(came)} came, {share(left / came)} of them {were(left)} sent back."
        yield ReportStep(join([f"Look at {many(came - left, 'dead letter')} that nobody has sent back."]), why)


def _spent(one: FailureGroup) -> str:
    return f"{many(one.waste.attempts, 'attempt')} and {duration(one.waste.handler_s)} of handler time"


def _name(destination: str) -> Markup:
    return stranger(destination, 60)
