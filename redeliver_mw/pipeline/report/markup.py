# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Elements of HTML and SVG, escaped by construction: text is text unless it is `Markup` already.

What comes from records was written by strangers. `foreign` makes it harmless to look at, too: what would steer the
page or the eye (control characters, marks that turn the direction of writing, what has no width) is spelled out.

    >>> tag("b", "1 < 2", class_="big")
    '<b class="big">1 &lt; 2</b>'
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from html import escape
from typing import Final

_SPELLED: Final = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
_BLANKS: Final = str.maketrans({"\n": " ", "\r": " ", "\t": " "})
_MARKS: Final = 3  # combining marks on one letter; with more of them a word climbs over the lines around it


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def tag(name: str, /, *children: str | None, **attributes: object) -> Markup:
    """One element. Of an attribute's name a trailing `_` is left off, other `_` are `-`; None leaves it out."""
    inside = join(children)
    head = name + "".join(_attribute(key, value) for key, value in attributes.items())
    return Markup(f"<{head}>{inside}</{name}>" if inside or name not in _EMPTY else f"<{head}/>")


def join(parts: Iterable[str | None], between: str = "") -> Markup:
    """Markup as it is, text escaped, None left out."""
    return Markup(_safe(between).join(_safe(part) for part in parts if part is not None))


def foreign(text: str, limit: int = 160) -> str:
    """A stranger's text on one line, at most `limit` characters and what it takes to spell out those that steer."""
    found, marks = [], 0
    for letter in text[: limit + 1].translate(_BLANKS):
        category = unicodedata.category(letter)
        marks = marks + 1 if category in ("Mn", "Me") else 0
        if marks <= _MARKS:
            found.append(ascii(letter)[1:-1] if category in _SPELLED else letter)
    cut = len(text) > limit
    return "".join(found[:limit]).strip() + ("…" if cut else "")


def stranger(text: str, limit: int = 80) -> Markup:
    """The same as an element with a direction of its own: it cannot turn the words around it."""
    return tag("bdi", foreign(text, limit))


# void in HTML, or without children in our SVG: written so that a parser of XML takes them, too
_EMPTY: Final = frozenset({"meta", "br", "col", "circle", "line", "path", "polygon", "polyline", "rect", "stop"})


def _safe(part: str) -> str:
    return part if isinstance(part, Markup) else escape(part)


def _attribute(key: str, value: object) -> str:
    if value is None:
        return ""
    shown = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    return f' {key.rstrip("_").replace("_", "-")}="{escape(shown)}"'
