# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Renders the page's sections on events over time: clocks, storms, dead letters, messages that do not recover."""

from __future__ import annotations

from typing import Final

from . import clocks, sentences
from .charts import flow_chart, storm_chart
from .clocks import Clocks
from .failures import Failures
from .letters import Flow, Poison
from .markup import Markup, join, stranger, tag
from .storms import Storms
from .tables import NONE, Column, both, key, note, number, section, swatch, table
from .units import count, date, duration, moment, short

STORMS: Final = 10


def timing(known: Clocks) -> Markup | None:
    """Render the problems of the clocks on which all times depend. None if there are none."""
    lines = clocks.sentences(known)
    if not lines:
        return None
    return section("clocks", "Clocks", lines[0], *(tag("p", line) for line in [*lines[1:], clocks.cure(known)]))


def storming(storms: Storms | None) -> Markup | None:
    """Render storms. None if there was no attempt."""
    if storms is None:
        return None
    colours = key((swatch("first"), "first attempts"), (swatch("again"), "repeated attempts; below, storms"))
    chart = both(lambda name, width: storm_chart(name, storms, width), "storm-chart", 1080)
    return section("storms", "Storms", sentences.storms_text(storms), colours, chart, _storms(storms))


def lettering(flow: Flow, poison: Poison, failures: Failures) -> Markup:
    """Render dead letters over time and by reason, and messages that do not recover."""
    if not flow.lines:
        return section("letters", "Dead letters", sentences.flow_text(flow))
    chart = both(lambda name, width: flow_chart(name, flow, width), "flow-chart", 526)
    colours = key((swatch("came"), "came"), (swatch("left"), "sent back")) if chart else None
    halves = tag("div", tag("div", colours, chart), tag("div", _flow(flow)), class_="split")
    return section("letters", "Dead letters", sentences.flow_text(flow), halves, _poison(poison, failures))


def _storms(storms: Storms) -> Markup | None:
    shown = storms.storms[:STORMS]
    if not shown:
        return None
    columns = (
        Column("no.", "id"),
        Column("destination", "name"),
        Column("began, UTC"),
        Column("lasted"),
        Column("first attempts", "num"),
        Column("repeated", "num"),
        Column("at its worst", "num"),
    )
    rows = [
        (
            number(one.number),
            stranger(one.destination),
            moment(one.first_s),
            duration(one.end_s - one.first_s),
            count(one.attempts - one.retries),
            count(one.retries),
            f"{short(one.peak)} to 1",
        )
        for one in shown
    ]
    hidden = len(storms.storms) - len(shown) + storms.others
    again = sum(one.retries for one in storms.storms[STORMS:]) + storms.others_retries
    rest = f"{sentences.many(hidden, 'other storm')} with {sentences.many(again, 'repeated attempt')} not listed."
    caption = "Those with most repeated attempts. At its worst: attempts to each first one, in ten seconds."
    return join([table(caption, columns, rows), note(rest) if hidden else None])


def _flow(flow: Flow) -> Markup:
    columns = (
        Column("destination", "name"),
        Column("reason"),
        Column("came", "num"),
        Column("sent back", "num"),
        Column("oldest", "num"),
    )
    rows = [
        (
            stranger(one.destination, 60),
            stranger(one.reason, 40) if one.reason else NONE,
            count(one.came),
            count(one.left),
            NONE if one.oldest_s is None else date(one.oldest_s),
        )
        for one in flow.lines
    ]
    others = sentences.many(flow.others, "other line")
    rest = f"{others}: {count(flow.others_came)} came, {count(flow.others_left)} sent back."
    return join([table("", columns, rows), note(rest) if flow.others else None])


def _poison(poison: Poison, failures: Failures) -> Markup | None:
    if not poison.messages:
        return None
    numbers = {(one.destination, one.fingerprint): one.number for one in failures.shown}
    columns = (
        Column("message", "name"),
        Column("destination", "name"),
        Column("failure"),
        Column("now"),
        Column("attempts", "num"),
        Column("replays", "num"),
        Column("last tried, UTC"),
    )
    rows = []
    for one in poison.messages:
        place = numbers.get((one.destination, one.fingerprint))
        failure = number(place) if place is not None else NONE
        rows.append(
            (
                tag("code", stranger(one.message_key, 40)),
                stranger(one.destination, 60),
                failure,
                sentences.end(one.verdict),
                count(one.attempts),
                count(one.replays),
                moment(one.last_s),
            )
        )
    head = (tag("h3", "Messages that died", class_="apart"), tag("p", sentences.poison_text(poison)))
    return join([*head, table("Those with most attempts that are not well.", columns, rows)])
