# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Provides the parts of all pictures: a frame with its texts, axes, paths, and labels that do not overlap. Pure.

A picture is drawn at the size at which it is shown, in pixels, so that its letters are as large as the page's. Colours
come from the page's style: an element's class says what the element is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from .axis_scales import Scale, Tick
from .markup import Markup, foreign, join, tag

LETTER: Final = 7.0  # pixels of an average letter at 12 px, rather too wide than too narrow
LINE: Final = 15.0


class Box(NamedTuple):
    """Is a rectangle of the picture, in pixels; `top` is above `bottom`, which is the larger number."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )

    def within(self, other: Box) -> bool:
        inside = self.left >= other.left and self.right <= other.right
        return inside and self.top >= other.top and self.bottom <= other.bottom


class Anchor(NamedTuple):
    """Is a mark that needs a label; the first anchors get the best places."""

    x: float
    y: float
    text: str
    radius: float = 5.0


@dataclass(frozen=True)
class Label:
    """Places the label of `anchor`; `far`: so far away that a line has to lead there."""

    anchor: Anchor
    box: Box
    far: bool


def picture(name: str, width: int, height: float, title: str, description: str, parts: Iterable[str]) -> Markup:
    """Return a whole drawing. `name` is unique on the page; `title` and `description` describe the drawing in words."""
    return tag(
        "svg",
        tag("title", title, id=f"{name}-title"),
        tag("desc", description, id=f"{name}-desc"),
        *parts,
        class_="chart",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        viewBox=f"0 0 {width} {height:.0f}",
        width=width,
        height=f"{height:.0f}",
    )


def text(x: float, y: float, words: str, class_: str = "note", anchor: str | None = None) -> Markup:
    return tag("text", words, x=x, y=y, class_=class_, text_anchor=anchor)


def bottom_axis(scale: Scale, ticks: Sequence[Tick], top: float, bottom: float) -> Markup:
    """Draw thin lines from `top` to `bottom` at each tick, and labels below, inside of the axis' ends."""
    parts: list[str] = []
    for tick in ticks:
        x, half = scale(tick.value), len(tick.label) * LETTER / 2
        at = min(max(x, half), scale.end + 10 - half)
        parts += [
            tag("line", x1=x, x2=x, y1=top, y2=bottom + 4, class_="grid"),
            text(at, bottom + 4 + LINE, tick.label, anchor="middle"),
        ]
    parts.append(tag("line", x1=scale.start, x2=scale.end, y1=bottom, y2=bottom, class_="axis"))
    return join(parts)


def left_axis(scale: Scale, ticks: Sequence[Tick], left: float, right: float) -> Markup:
    """Draw thin lines across at each tick, and labels to the left."""
    parts: list[str] = []
    for tick in ticks:
        y = scale(tick.value)
        parts += [
            tag("line", x1=left, x2=right, y1=y, y2=y, class_="grid"),
            text(left - 6, y + 4, tick.label, anchor="end"),
        ]
    return join(parts)


def line(points: Sequence[tuple[float, float]], class_: str) -> Markup:
    return tag("path", d=_path(points), class_=class_, fill="none")


def area(upper: Sequence[tuple[float, float]], lower: Sequence[tuple[float, float]], class_: str) -> Markup:
    """Draw the area between two lines that run in the same direction."""
    return tag("path", d=_path([*upper, *reversed(lower)]) + "Z", class_=class_)


def place(anchors: Sequence[Anchor], bounds: Box) -> list[Label]:
    """Return labels that overlap neither each other nor any mark.

    An anchor without room has no label, because a table contains the same data.
    """
    marks = [Box(a.x - a.radius, a.y - a.radius, a.x + a.radius, a.y + a.radius) for a in anchors]
    placed: list[Label] = []
    for anchor in anchors:
        taken = [*marks, *(label.box for label in placed)]
        for box, far in _places(anchor):
            if box.within(bounds) and not any(box.meets(other) for other in taken):
                placed.append(Label(anchor, box, far))
                break
    return placed


def labels(placed: Iterable[Label], class_: str = "label") -> Markup:
    """Draw the texts of `place`, and lines to distant labels."""
    parts: list[str] = []
    for label in placed:
        middle = (label.box.left + label.box.right) / 2
        if label.far:
            near = label.box.bottom if label.box.bottom < label.anchor.y else label.box.top
            parts.append(tag("line", x1=label.anchor.x, y1=label.anchor.y, x2=middle, y2=near, class_="lead"))
        parts.append(text(middle, label.box.bottom - 4, label.anchor.text, class_, "middle"))
    return join(parts)


def shortened(words: str, pixels: float) -> str:
    """Return another program's text, cut to fit into `pixels`, and made harmless."""
    letters = max(int(pixels / LETTER), 2)
    harmless = foreign(words, letters)
    return harmless if len(harmless) <= letters else harmless[: letters - 1] + "…"


def _places(anchor: Anchor) -> Iterable[tuple[Box, bool]]:
    """Return places for a label, the best first: beside its mark, above, below, in the corners, then further away."""
    wide = len(anchor.text) * LETTER + 6
    for far in (0.0, 14.0, 28.0, 44.0, 62.0):
        gap = anchor.radius + 3 + far
        for right, down in ((1, 0), (-1, 0), (0, -1), (0, 1), (1, -1), (-1, -1), (1, 1), (-1, 1)):
            x = anchor.x + right * (gap + wide / 2)
            y = anchor.y + down * (gap + LINE / 2)
            yield Box(x - wide / 2, y - LINE / 2, x + wide / 2, y + LINE / 2), far > 0


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) if points else ""
