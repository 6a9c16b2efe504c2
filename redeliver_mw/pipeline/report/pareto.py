# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Candidate policies as a picture: what each costs, to the right, against how many messages die, upwards. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .axis_scales import Scale, Tick, rounds, steps
from .markup import Markup, tag
from .policy_advice import Advice, AdviceCandidate
from .svg_axes import Anchor, Box, bottom_axis, labels, left_axis, line, picture, place, text
from .units import share, short

_RADIUS: Final = 5.5


def pareto_chart(name: str, advice: Advice, width: int, height: int = 300) -> Markup | None:
    """None without a candidate. The labels are the letters of the table; what has no room for its own has none."""
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
    told = f"{len(advice.front)} of {advice.candidates} policies are marked; their numbers are in the table."
    return picture(name, width, height, "What each policy costs, and how many messages die", told, parts)


def _by_weight(advice: Advice) -> list[AdviceCandidate]:
    """Those that the text speaks of first: they get their labels first, and lie on top."""
    spoken = {one.policy for one in (advice.best, advice.today) if one}
    return sorted(advice.front, key=lambda one: one.policy not in spoken)


def _label(one: AdviceCandidate, advice: Advice) -> str:
    if advice.best and one.policy == advice.best.policy:
        return f"{one.letter} best"
    return f"{one.letter} today" if advice.today and one.policy == advice.today.policy else one.letter


def _front(x: Scale, y: Scale, front: Sequence[AdviceCandidate]) -> list[tuple[float, float]]:
    """The least deaths that can be had for so many attempts, a step at each policy."""
    least, corners = 2.0, []
    for one in sorted(front, key=lambda one: (one.attempts, one.dies)):
        if one.dies < least:
            least = one.dies
            corners.append((x(one.attempts), y(least)))
    return steps(corners)


def _mark(x: float, y: float, one: AdviceCandidate, advice: Advice) -> Markup:
    """A square is what is used today; hollow is what would try later than anything was tried."""
    told = tag("title", f"{one.letter}: {one.attempts:.2f} attempts, {share(one.dies)} die")
    class_ = "mark guessed" if one.extrapolated else "mark"
    if advice.best and one.policy == advice.best.policy:
        class_ += " best"
    if advice.today and one.policy == advice.today.policy:
        return tag("rect", told, x=x - 5, y=y - 5, width=10, height=10, class_=f"{class_} today")
    return tag("circle", told, cx=x, cy=y, r=_RADIUS, class_=class_)
