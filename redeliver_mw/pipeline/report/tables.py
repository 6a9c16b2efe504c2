# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Renders sections, tables and the small pieces between them, as HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from .markup import Markup, join, tag
from .units import duration

Cell = str | None
NONE: Final = "-"  # in a cell without a value


class Column(NamedTuple):
    """Is a column of a table: its heading, and its class in the page."""

    name: str
    class_: str | None = None  # `num`: numbers, right-aligned


def section(name: str, title: str, lead: str, *parts: Cell) -> Markup:
    """Render a section of the page, which `#name` links to."""
    return tag("section", tag("h2", title), tag("p", lead, class_="lead"), *parts, id=name)


def note(words: str) -> Markup:
    return tag("p", words, class_="note")


def number(shown: object, class_: str = "") -> Markup:
    """Render the number of a failure or a storm, or the letter of a policy."""
    return tag("span", str(shown), class_=f"no {class_}".strip())


def when(seconds: float | None) -> str:
    """Return a time span for a cell."""
    return NONE if seconds is None else duration(seconds)


def table(caption: str, columns: Sequence[Column], rows: Iterable[Sequence[Cell]], class_: str = "stack") -> Markup:
    """Render a table.

    On a narrow screen a `stack` shows each row as a block, each cell under its column's name.
    """
    head = tag("tr", *(tag("th", column.name, class_=column.class_, scope="col") for column in columns))
    body = [tag("tr", *(_cell(cell, column) for cell, column in zip(cells, columns, strict=True))) for cells in rows]
    whole = tag(
        "table", tag("caption", caption) if caption else None, tag("thead", head), tag("tbody", *body), class_=class_
    )
    return tag("div", whole, class_="scroll")


def both(draw: Callable[[str, int], Markup | None], name: str, wide: int, narrow: int = 328) -> Markup | None:
    """Render a picture twice, for a wide screen and for a narrow one, so that its letters keep their size."""
    pictures = [(draw(f"{name}-{class_}", width), class_) for width, class_ in ((wide, "wide"), (narrow, "narrow"))]
    return join(tag("figure", picture, class_=class_) for picture, class_ in pictures if picture) or None


def key(*entries: tuple[Markup, str]) -> Markup:
    """Render the key to the colours of a picture."""
    return tag("ul", *(tag("li", swatch, words) for swatch, words in entries), class_="key")


def swatch(class_: str, kind: str = "area") -> Markup:
    """Render a sample of a mark in the key: an `area`, a `line`, a `dot` or a `square`."""
    shapes = {
        "area": tag("rect", x=0, y=1, width=14, height=10, class_=class_),
        "line": tag("line", x1=0, x2=14, y1=6, y2=6, class_=class_),
        "dot": tag("circle", cx=7, cy=6, r=2 if class_ == "dot" else 5, class_=class_),
        "square": tag("rect", x=2, y=1, width=10, height=10, class_=class_),
    }
    return tag("svg", shapes[kind], viewBox="0 0 14 12", width=14, height=12, aria_hidden="true")


def _cell(cell: Cell, column: Column) -> Markup:
    return tag("td", tag("span", cell), class_=column.class_, data_label=column.name)
