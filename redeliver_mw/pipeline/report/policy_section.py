# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Renders the section on what to change: a policy for each destination, and the results that others would have had."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from . import policy_sentences
from .axis_scales import Scale, Tick, rounds, steps
from .markup import Markup, join, stranger, tag
from .policy_advice import Advice, AdviceCandidate
from .sentences import many, were
from .svg_axes import Anchor, Box, bottom_axis, labels, left_axis, line, picture, place, text
from .tables import Column, both, key, number, section, swatch, table, when
from .units import count, share, short

SHOWN: Final = 6  # destinations
_TITLE: Final = "What to change"
_LEAD: Final = (
    "Every policy was played through on the messages that failed. One is worth having if no other has fewer deaths, "
    "fewer attempts and quicker recovery all at once, and if it is not quick only by giving up on what recovers later."
)


_LOOKED_FOR: Final = {
    "healing": "a change of recovery",
    "failures": "a change of what fails",
    "volume": "a change of volume",
    "load": "recovery that depends on load",
    "host": "recovery that depends on the host",
}
_RADIUS: Final = 5.5


def advising(advice: Sequence[Advice]) -> Markup:
    if not advice:
        return section("advice", _TITLE, "No other policies were played through, so there is nothing to recommend.")
    hidden = ", ".join(f"{one.destination}: {policy_sentences.title(one)}" for one in advice[SHOWN:])
    return section(
        "advice",
        _TITLE,
        _LEAD,
        _key(),
        *(_advice(index, one) for index, one in enumerate(advice[:SHOWN], 1)),
        tag("p", f"Without a picture here: {many(len(advice) - SHOWN, 'destination')}: ", stranger(hidden, 600))
        if hidden
        else None,
    )


def _advice(index: int, one: Advice) -> Markup:
    head = tag("h3", stranger(one.destination, 60), f": {policy_sentences.title(one)}")
    sentences = tag("ul", *(tag("li", sentence) for sentence in policy_sentences.advice_texts(one)), class_="prose")
    chart = both(lambda name, width: pareto_chart(name, one, width), f"pareto-{index}", 500)
    trial = tag("pre", tag("code", stranger(one.experiment.toml, 1000))) if one.experiment is not None else None
    left = tag("div", head, *_taken(one), _results(one), sentences, trial)
    split = tag("div", left, tag("div", chart), class_="split")
    return tag("article", split, _figures(one), _candidates(one), class_="advice")


def _results(advice: Advice) -> Markup | None:
    """Render the results of each policy by itself, above all estimates."""
    if not advice.results:
        return None
    columns = (
        Column("policy", "name"),
        Column("messages", "num"),
        Column("recovered", "num"),
        Column("attempts", "num"),
    )
    rows = [
        (
            tag("code", stranger(one.policy_version or "without a version", 40)),
            count(one.messages),
            join([share(one.recovered), tag("small", f"{share(one.recovered_lo)} to {share(one.recovered_hi)}")]),
            f"{one.attempts:.2f}",
        )
        for one in advice.results
    ]
    caption = "What each policy and arm came to by itself, with 99 % intervals. This was seen; all else is estimated."
    return table(caption, columns, rows)


def _figures(advice: Advice) -> Markup | None:
    """Render the results of checks that could weaken the advice."""
    if not advice.figures:
        return None
    columns = (Column("looked for", "name"), Column("found", "name"), Column("", "name"))
    rows = [
        (
            _LOOKED_FOR[one.subject],
            stranger(one.text, 300),
            tag("strong", "more than chance") if one.broken else "chance",
        )
        for one in advice.figures
    ]
    caption = (
        "What would weaken this: what comes is taken to be like what was, and one message to recover like another."
    )
    return table(caption, columns, rows)


def _taken(one: Advice) -> list[Markup]:
    """Render the policy to use, and the one that it replaces."""
    verb = {"stay": "keep", "guess": "try"}.get(one.kind, "take")
    best = None if one.kind == "unknown" and one.reasons else one.best
    if one.kind == "unknown":
        verb = "perhaps"
    lines = [(verb, best), ("today", one.today if one.kind != "stay" else None)]
    return [_policy(word, policy, one) for word, policy in lines if policy is not None]


def _policy(verb: str, one: AdviceCandidate, advice: Advice) -> Markup:
    shown = tag("code", stranger(one.policy, 300))
    return tag("p", tag("span", verb, class_="verb"), _letter(one, advice), shown, class_="policy")


def _candidates(advice: Advice) -> Markup | None:
    if not advice.front:
        return None
    columns = (
        Column("no.", "id"),
        Column("policy", "name"),
        Column("die", "num"),
        Column("recover", "num"),
        Column("attempts each", "num"),
        Column("wasted", "num"),
        Column("half by", "num"),
        Column("95 % by", "num"),
        Column("not known", "num"),
    )
    rows = [
        (
            _letter(one, advice),
            tag("code", stranger(one.policy, 120)),
            share(one.dies),
            _heals(one),
            f"{one.attempts:.2f}",
            count(one.wasted),
            when(one.half_s),
            when(one.most_s),
            share(one.unseen),
        )
        for one in advice.front
    ]
    hidden = advice.candidates - len(advice.front)
    rest = f" {many(hidden, 'other policy', 'other policies')} {were(hidden)} played through, too." if hidden else ""
    caption = (
        f"Those worth having, on {many(advice.messages, 'message')} that failed. Wasted: attempts at those that die. "
        "Not known: the share of which history cannot tell."
    )
    return table(caption + rest, columns, rows)


def _letter(one: AdviceCandidate, advice: Advice) -> Markup:
    """Render a candidate's letter with the mark that it has in the picture."""
    if advice.best is not None and one.letter == advice.best.letter:
        return number(one.letter, "best")
    return number(one.letter, "today" if advice.today is not None and one.letter == advice.today.letter else "")


def _heals(one: AdviceCandidate) -> Markup:
    lo, hi = share(one.heals_lo), share(one.heals_hi)
    return join([share(one.heals), tag("small", f"{lo} to {hi}") if lo != hi else None])


def _key() -> Markup:
    return key(
        (swatch("mark best", "dot"), "recommended"),
        (swatch("mark today", "square"), "today"),
        (swatch("mark", "dot"), "worth having"),
        (swatch("mark guessed", "dot"), "tries when nothing was tried yet"),
        (swatch("dot", "dot"), "not worth having"),
    )


def pareto_chart(name: str, advice: Advice, width: int, height: int = 300) -> Markup | None:
    """Draw the cost of each candidate policy, to the right, against the number of messages dead-lettered, upwards.

    None without a candidate. The labels are the letters of the table; a candidate without room has no label.
    """
    if not advice.front:
        return None
    most = max([one.attempts for one in advice.front] + [x for x, _ in advice.dots])
    deadliest = max([one.dies for one in advice.front] + [y for _, y in advice.dots])
    across, up = rounds(most, 6), [level for level in rounds(deadliest, 4) if level <= 1]
    x, y = Scale(0, across[-1], 48, width - 16), Scale(0, up[-1], height - 44, 26)
    anchors = [Anchor(x(one.attempts), y(one.dies), _label(one, advice), _RADIUS) for one in _by_weight(advice)]
    bounds = Box(x.start, 16, width, y.start)
    parts = [
        text(0, 12, "messages that die"),
        left_axis(y, [Tick(value, share(value)) for value in up], x.start, x.end),
        bottom_axis(x, [Tick(value, short(value)) for value in across], y.end, y.start),
        text(x.end, height - 6, "attempts for each message that fails", anchor="end"),
        *(tag("circle", cx=x(at), cy=y(dies), r=2, class_="dot") for at, dies in advice.dots),
        line(_front(x, y, advice.front), "front"),
        *(_mark(x(one.attempts), y(one.dies), one, advice) for one in reversed(_by_weight(advice))),
        labels(place(anchors, bounds)),
    ]
    description = f"{len(advice.front)} of {advice.candidates} policies are marked; their numbers are in the table."
    return picture(name, width, height, "What each policy costs, and how many messages die", description, parts)


def _by_weight(advice: Advice) -> list[AdviceCandidate]:
    """Return the candidates with those that the text names first: their labels are placed first, on top."""
    spoken = {one.policy for one in (advice.best, advice.today) if one}
    return sorted(advice.front, key=lambda one: one.policy not in spoken)


def _label(one: AdviceCandidate, advice: Advice) -> str:
    if advice.best and one.policy == advice.best.policy:
        return f"{one.letter} best"
    return f"{one.letter} today" if advice.today and one.policy == advice.today.policy else one.letter


def _front(x: Scale, y: Scale, front: Sequence[AdviceCandidate]) -> list[tuple[float, float]]:
    """Return the minimum of dead letters for each number of attempts, with a step at each policy."""
    least, corners = 2.0, []
    for one in sorted(front, key=lambda one: (one.attempts, one.dies)):
        if one.dies < least:
            least = one.dies
            corners.append((x(one.attempts), y(least)))
    return steps(corners)


def _mark(x: float, y: float, one: AdviceCandidate, advice: Advice) -> Markup:
    """Draw a mark: a square for the policy used today; hollow for one that would try later than anything was tried."""
    title = tag("title", f"{one.letter}: {one.attempts:.2f} attempts, {share(one.dies)} die")
    class_ = "mark guessed" if one.extrapolated else "mark"
    if advice.best and one.policy == advice.best.policy:
        class_ += " best"
    if advice.today and one.policy == advice.today.policy:
        return tag("rect", title, x=x - 5, y=y - 5, width=10, height=10, class_=f"{class_} today")
    return tag("circle", title, cx=x, cy=y, r=_RADIUS, class_=class_)
