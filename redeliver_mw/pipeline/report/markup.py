# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Builds elements of HTML and SVG, escaped by construction: text is text unless it is `Markup` already.

Contents of records were written by other programs. `foreign` makes them harmless to look at, too: characters that would
affect the page or the reader's view (control characters, marks that change the direction of writing, characters without
a width) are spelled out.

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
_MARKS: Final = 3  # combining marks on one letter; more of them would overlap the lines around


class Markup(str):
    """Is text that is markup already."""

    __slots__ = ()


def tag(name: str, /, *children: str | None, **attributes: object) -> Markup:
    """Return one element.

    A trailing `_` of an attribute's name is dropped, other `_` become `-`; None omits the attribute.
    """
    inside = join(children)
    head = name + "".join(_attribute(key, value) for key, value in attributes.items())
    return Markup(f"<{head}>{inside}</{name}>" if inside or name not in _EMPTY else f"<{head}/>")


def join(parts: Iterable[str | None], between: str = "") -> Markup:
    """Join parts: markup is kept, text is escaped, None is omitted."""
    return Markup(_safe(between).join(_safe(part) for part in parts if part is not None))


def foreign(text: str, limit: int = 160) -> str:
    """Return another program's text on one line, at most `limit` characters plus the escapes of control characters."""
    found, marks = [], 0
    for letter in text[: limit + 1].translate(_BLANKS):
        category = unicodedata.category(letter)
        marks = marks + 1 if category in ("Mn", "Me") else 0
        if marks <= _MARKS:
            found.append(ascii(letter)[1:-1] if category in _SPELLED else letter)
    cut = len(text) > limit
    return "".join(found[:limit]).strip() + ("…" if cut else "")


def stranger(text: str, limit: int = 80) -> Markup:
    """Return another program's text as an element with its own direction, which cannot affect the text around it."""
    return tag("bdi", foreign(text, limit))


# void in HTML, or without children in our SVG: written so that an XML parser accepts them, too
_EMPTY: Final = frozenset({"meta", "br", "col", "circle", "line", "path", "polygon", "polyline", "rect", "stop"})


def _safe(part: str) -> str:
    return part if isinstance(part, Markup) else escape(part)


def _attribute(key: str, value: object) -> str:
    if value is None:
        return ""
    shown = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    return f' {key.rstrip("_").replace("_", "-")}="{escape(shown)}"'
