# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The page: one file of HTML that needs nothing else, no script and no network.

Its style is named by its hash in a Content-Security-Policy that allows nothing besides, so that a mistake of ours
cannot become a stranger's script.
"""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from typing import Final

from . import sentences
from .actions import todo
from .facts import Facts
from .failures_section import failing, paying, wasting
from .markup import Markup, foreign, join, tag
from .policy_section import advising
from .timeline_section import lettering, storming, timing
from .units import count, duration, moment, share

LIMIT: Final = 1_000_000  # bytes


def page(facts: Facts) -> str:
    """The whole page, well-formed also as XML but for its first line."""
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
    """What a person on call does about it, the most worth first."""
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
