# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Renders the page: one HTML file without scripts, network access or other files.

A Content-Security-Policy allows only the page's style, by its hash, so that a mistake of ours cannot let another
program's text run as a script.
"""

from __future__ import annotations

from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from typing import Final

from . import clocks, policy_sentences, sentences
from .facts import Facts
from .failures import FailureGroup
from .failures_section import failing, paying, wasting
from .markup import Markup, foreign, join, stranger, tag
from .policy_section import advising
from .sentences import failure_name, many, were
from .timeline_section import lettering, storming, timing
from .units import count, duration, moment, share

LIMIT: Final = 1_000_000  # bytes
_OF_A_KIND: Final = 3
_MOST_STEPS: Final = 8


def page(facts: Facts) -> str:
    """Return the whole page, well-formed also as XML except for its first line."""
    style = _style()
    policy = f"default-src 'none'; style-src '{_hash(style)}'; base-uri 'none'; form-action 'none'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", f"Redelivery report, {sentences.period(facts)}"),
        tag("style", Markup(style)),
    )
    sections = _sections(facts)
    body = tag("body", tag("div", _top(facts), tag("main", *sections), _footer(facts), class_="page"))
    return "<!doctype html>\n" + tag("html", head, body, lang="en") + "\n"


def _sections(facts: Facts) -> list[Markup]:
    if not facts.totals.messages:
        return [tag("section", tag("p", sentences.empty_cure()))]
    found = [
        timing(facts.clocks),
        advising(facts.advice),
        failing(facts.failures),
        paying(facts.attempts),
        storming(facts.storms),
        wasting(facts.failures),
        lettering(facts.flow, facts.poison, facts.failures),
    ]
    return [section for section in found if section is not None]


def _top(facts: Facts) -> Markup:
    kicker = join([tag("bdi", foreign(facts.lake, 120)), f" · {sentences.period(facts)}"])
    return tag(
        "header",
        tag("p", "Redelivery report · ", kicker, class_="kicker"),
        tag("h1", sentences.headline(facts)),
        _tiles(facts) if facts.totals.messages else None,
        _todo(facts),
        class_="top",
    )


def _tiles(facts: Facts) -> Markup:
    totals, waste = facts.totals, facts.failures.waste
    tiles = (
        ("messages", count(totals.messages), f"{count(totals.attempts)} attempts", None),
        ("failed at least once", count(totals.failed), f"{share(totals.failed / totals.messages)} of all", None),
        ("died", count(totals.dead), f"{share(totals.dead / (totals.failed or 1))} of those that failed", "bad"),
        ("wasted", duration(waste.handler_s), f"{count(waste.attempts)} attempts at messages that died", "bad"),
    )
    return tag(
        "dl",
        *(
            tag(
                "div",
                tag("dt", name),
                tag("dd", number, class_=f"big {class_ or ''}".strip()),
                tag("dd", note, class_="note"),
            )
            for name, number, note, class_ in tiles
        ),
        class_="tiles",
    )


def _todo(facts: Facts) -> Markup | None:
    """Render the steps for a person on call, the most valuable first."""
    steps = todo(facts)
    if not steps:
        return None
    items = (
        tag("li", tag("div", tag("p", one.what, class_="what"), tag("p", one.why, class_="why") if one.why else None))
        for one in steps
    )
    return tag("section", tag("h2", "What to do"), tag("ol", *items, class_="todo"), id="todo")


def _footer(facts: Facts) -> Markup:
    return tag("footer", f"Made {moment(facts.made_s)} UTC by redeliver-mw. All times are UTC.")


def _style() -> str:
    return files(__package__).joinpath("page.css").read_text("utf-8")


def _hash(style: str) -> str:
    return "sha256-" + b64encode(sha256(style.encode()).digest()).decode()


@dataclass(frozen=True)
class ReportStep:
    """Describes `what` to do, and `why`."""

    what: Markup
    why: str


def todo(facts: Facts) -> list[ReportStep]:
    """Return the steps for a person on call: a few lines, the most valuable first; none if there is nothing to do."""
    steps = [
        *_clocks(facts),
        *_hopeless(facts),
        *_policies(facts),
        *_untold(facts),
        *_storms(facts),
        *_letters(facts),
    ]
    return steps[:_MOST_STEPS]


def _clocks(facts: Facts) -> Iterator[ReportStep]:
    """Yield steps about clocks, which come first, because all other results depend on the times."""
    if cure := clocks.cure(facts.clocks):
        yield ReportStep(join([cure]), clocks.sentences(facts.clocks)[0])


def _hopeless(facts: Facts) -> Iterator[ReportStep]:
    """Yield a step for each failure that never recovers: a second attempt is not worth it."""
    never = [one for one in facts.failures.shown if one.healing.verdict == "never" and one.waste.attempts]
    for one in never[:_OF_A_KIND]:
        yield ReportStep(
            join(
                [f"Stop retrying failure {one.number} in ", _name(one.destination), ": ", stranger(failure_name(one))]
            ),
            f"None of {many(one.healing.messages, 'message')} ever recovered; {_spent(one)} went for nothing. Name its "
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
    """Yield a step that asks the reader for policies in use that are not known: nothing can be called better there."""
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
