# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
r"""Reads Java's `.properties` syntax: keys and values with their lines. Pure.

A key ends at the first `=`, `:` or blank; `#` and `!` at the start of a line make a comment; a line that ends in an odd
number of backslashes continues in the next, whose leading blanks do not count. `\t`, `\n`, `\r`, `\f` and
`\uXXXX` are characters, and a backslash before anything else is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ...errors import PolicyError

LARGEST = 10_000_000  # characters
MOST = 50_000  # properties
_BLANKS = " \t\f"
_KEY = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)?", re.DOTALL)
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True, slots=True)
class Property:
    """Holds a key and its value, without escapes, and the line on which it begins, from 1."""

    key: str
    value: str
    line: int


def properties_of(text: str) -> list[Property]:
    """Return all properties in the order of the text. Raises PolicyError with the line for a broken escape."""
    if len(text) > LARGEST:
        raise PolicyError(
            f"more than {LARGEST} characters",
            cure="Cut the file down to what concerns redelivery",
            code="policy-too-large",
        )
    found: list[Property] = []
    for number, line in _logical_lines(text):
        if len(found) >= MOST:
            raise PolicyError(
                f"more than {MOST} properties", where=f"line {number}", cure="Split the file", code="policy-too-large"
            )
        parts = _KEY.fullmatch(line)
        if parts is None:  # a backslash at the very end of the text
            raise PolicyError(
                "nothing follows the backslash", where=f"line {number}", cure="Take it out", code="policy-syntax"
            )
        found.append(Property(_plain(parts[1], number), _plain(parts[2], number), number))
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    waiting: list[str] = []
    first = 0
    for number, natural in enumerate(re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff")), 1):
        line = natural.lstrip(_BLANKS)
        if not waiting:
            if not line or line[0] in "#!":
                continue
            first = number
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        waiting.append(line[:-1] if goes_on else line)
        if not goes_on:
            yield first, "".join(waiting)
            waiting.clear()
    if waiting:
        yield first, "".join(waiting)


def _plain(text: str, line: int) -> str:
    if "\\" not in text:
        return text

    def character(escape: re.Match[str]) -> str:
        what = escape[1] or ""
        if what == "u":
            cure = "Write four hexadecimal digits after it, or two backslashes"
            raise PolicyError(
                r"\u without four hexadecimal digits", where=f"line {line}", cure=cure, code="policy-syntax"
            )
        if len(what) > 1:
            return chr(int(what[1:], 16))
        return _NAMED.get(what, what)

    plain = _ESCAPE.sub(character, text)
    # Two surrogates make one character, as in Java.
    joined = plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if "\ufffd" in joined and "\ufffd" not in plain:
        raise PolicyError(
            "half a character, U+D800 to U+DFFF", where=f"line {line}", cure="Write both halves", code="policy-encoding"
        )
    return joined
