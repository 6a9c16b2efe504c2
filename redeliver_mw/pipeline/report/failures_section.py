# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Renders the sections on failures: the kinds, when they recover, which attempts are worthwhile, and the waste."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from . import sentences
from .attempts import COLUMNS, AttemptLine, Attempts, Chance
from .charts import bar, healing_curve
from .failures import FailureGroup, Failures
from .healing import RecoveryCurve
from .markup import Markup, join, stranger, tag
from .tables import NONE, Column, key, note, number, section, swatch, table, when
from .units import count, duration, share, short

CURVES: Final = 9
BARS: Final = 10
_SHADES: Final = (0.01, 0.1, 0.3, 0.6)  # a cell is one shade darker from each of these shares on


def failing(failures: Failures) -> Markup:
    """Render the failures as a table, and recovery curves for those with data."""
    if not failures.shown:
        return section("failures", "What fails", "Nothing failed.")
    ways = len(failures.shown) + (failures.others.failures if failures.others else 0)
    lead = f"{sentences.many(ways, 'way')} of failing, those first that wasted most time on messages that died."
    cards = [card for failure in failures.shown if (card := _card(failure)) is not None][:CURVES]
    return section(
        "failures",
        "What fails, and when it recovers",
        lead,
        _failures(failures.shown),
        note(sentences.others_text(failures.others)) if failures.others else None,
        _curve_key() if cards else None,
        tag("div", *cards, class_="cards") if cards else None,
    )


def paying(attempts: Attempts) -> Markup | None:
    """Render how often the second, third, … attempt succeeds, coloured. None if no message was tried twice."""
    if not attempts.lines:
        return None
    lead = (
        "Of the attempts with this number, how many succeeded, by what the message had failed with before. "
        "Where fewer than one in a hundred do, and no later one is better, retrying is hopeless."
    )
    left_out = (
        f"{sentences.many(attempts.others, 'other kind')} of error {sentences.were(attempts.others)} left out here."
    )
    return section(
        "attempts",
        "Which attempts still pay",
        lead,
        _shaded(attempts.lines),
        note(left_out) if attempts.others else None,
    )


def wasting(failures: Failures) -> Markup | None:
    """Render the handler time that had no use. None if no message was dead-lettered."""
    costly = [one for one in failures.shown if one.waste.attempts][:BARS]
    if not costly:
        return None
    most = max(one.waste.handler_s for one in costly) or 1.0
    rest = failures.waste.handler_s - sum(one.waste.handler_s for one in costly)
    columns = (
        Column("no.", "id"),
        Column("destination", "name"),
        Column("failure", "name"),
        Column("", "bars"),
        Column("handler time", "num"),
        Column("attempts", "num"),
        Column("of them hopeless", "num"),
    )
    rows = [
        (
            number(one.number),
            stranger(one.destination, 40),
            stranger(sentences.failure_name(one), 60),
            bar(one.waste.handler_s / most, one.waste.hopeless / one.waste.attempts),
            duration(one.waste.handler_s),
            count(one.waste.attempts),
            count(one.waste.hopeless),
        )
        for one in costly
    ]
    return section(
        "waste",
        "Waste",
        sentences.waste_text(failures.waste),
        key((swatch("came"), "attempts at messages that died"), (swatch("hopeless"), "the hopeless part of them")),
        table("", columns, rows),
        note(f"All others together: {duration(rest)}.") if rest > 0.0005 else None,
    )


def _failures(shown: Sequence[FailureGroup]) -> Markup:
    columns = (
        Column("no.", "id"),
        Column("destination", "name"),
        Column("failure", "name"),
        Column("verdict"),
        Column("messages", "num"),
        Column("recovered", "num"),
        Column("half by", "num"),
        Column("95 % by", "num"),
        Column("tried for", "num"),
    )
    return table("", columns, [_failure(one) for one in shown])


def _failure(one: FailureGroup) -> Sequence[Markup | str]:
    healing = one.healing
    alike = tag("small", f"one of {count(one.alike)} much alike") if one.alike > 1 else None
    return (
        number(one.number),
        stranger(one.destination, 60),
        join([stranger(sentences.failure_name(one), 90), alike]),
        _verdict(healing),
        count(healing.messages),
        share(healing.healed / healing.messages) if healing.messages else NONE,
        when(healing.half_s),
        when(healing.most_s),
        when(healing.watched_s or None),
    )


def _verdict(healing: RecoveryCurve) -> Markup:
    return tag("span", sentences.VERDICTS[healing.verdict], class_=f"chip {healing.verdict}")


def _card(failure: FailureGroup) -> Markup | None:
    title = f"How much of failure {failure.number} had recovered by when"
    curve = healing_curve(f"failure-{failure.number}", failure.healing, title)
    if curve is None:
        return None
    head = (number(failure.number), tag("h3", stranger(failure.destination, 60)), _verdict(failure.healing))
    error = tag("p", stranger(sentences.failure_name(failure), 110), class_="error")
    return tag(
        "article",
        tag("header", *head),
        error,
        curve,
        tag("p", sentences.failure_text(failure), class_="prose"),
        class_="card",
    )


def _curve_key() -> Markup:
    return key(
        (swatch("certain", "line"), "seen to have recovered"),
        (swatch("likely", "line"), "most likely"),
        (swatch("band"), "what may be, with 95 % confidence: between two attempts nobody looks"),
        (swatch("unseen"), "later than anything was tried"),
    )


def _shaded(lines: Sequence[AttemptLine]) -> Markup:
    last = max(chance.attempt for line in lines for chance in line.chances)
    head = [tag("th", "before", class_="name", scope="col")]
    head += [tag("th", f"{attempt}.", scope="col") for attempt in range(2, last + 1)]
    body = [_shaded_row(line, last) for line in lines]
    caption = f"Success by attempt, and how many attempts were made; of more than {COLUMNS}, the first {COLUMNS}."
    parts = (tag("caption", caption), tag("thead", tag("tr", *head)), tag("tbody", *body))
    return tag("div", tag("table", *parts, class_="heat"), class_="scroll")


def _shaded_row(line: AttemptLine, last: int) -> Markup:
    cells = {chance.attempt: _chance(chance) for chance in line.chances}
    error = stranger(line.error_type, 60) if line.error_type else sentences.NO_ERROR
    name = tag("td", stranger(line.destination, 40), tag("small", error), class_="name")
    return tag("tr", name, *(cells.get(attempt, tag("td")) for attempt in range(2, last + 1)))


def _chance(chance: Chance) -> Markup:
    title = f"{count(chance.accepted)} of {count(chance.n)}; 95 % confidence: {share(chance.lo)} to {share(chance.hi)}"
    shade = sum(chance.p_success >= limit for limit in _SHADES)
    return tag("td", share(chance.p_success), tag("small", short(chance.n)), class_=f"h{shade}", title=title)
