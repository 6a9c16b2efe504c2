# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Destination patterns of ActiveMQ and of Artemis: what they match, and which of several is the closest. Pure.

Names are words with dots between them.

- ActiveMQ: `*` is one word, `>` at the end is any number of words, none included.
- Artemis: `*` is one word, `#` at the end is any number of words, none included.

So `A.>` and `A.#` match `A`, `A.B` and `A.B.C`, and do not match `AB`. A wildcard is a word of its own: in
`A*` the star is a letter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cmp_to_key
from typing import Literal

from ..errors import PolicyError

Syntax = Literal["activemq", "artemis"]
_ONE = "*"
_REST = {"activemq": ">", "artemis": "#"}


class Pattern:
    """One pattern, read once. Frozen by convention; usable from any thread."""

    __slots__ = ("_fixed", "literal", "rest", "syntax", "text", "words")

    def __init__(self, text: str, syntax: Syntax) -> None:
        """PolicyError for an empty pattern, or one with words behind the wildcard that takes the rest."""
        rest = _REST[syntax]
        words = text.split(".")
        if not text:
            raise PolicyError("an empty destination pattern", cure=f"Write a name, or {rest} for all")
        if rest in words[:-1]:
            raise PolicyError(
                f"{rest} is not the last word of the pattern {text!r:.200}",
                cure=f"Put {rest} at the end; in between, {_ONE} is one word",
            )
        self.text, self.syntax = text, syntax
        self.rest = words[-1] == rest
        self.words = words[:-1] if self.rest else words
        self.literal = not self.rest and _ONE not in words
        self._fixed = [(at, word) for at, word in enumerate(self.words) if word != _ONE]

    def matches(self, words: Sequence[str]) -> bool:
        """Does it match a name, given as its words?"""
        if len(words) != len(self.words) and not (self.rest and len(words) > len(self.words)):
            return False
        return all(words[at] == word for at, word in self._fixed)

    def contains(self, other: Pattern) -> bool:
        """Does it match whatever `other` matches?"""
        if other.rest and not self.rest:
            return False
        if len(other.words) != len(self.words) and not (self.rest and len(other.words) > len(self.words)):
            return False
        return all(other.words[at] == word for at, word in self._fixed)


def closest(name: str, matching: Iterable[Pattern]) -> Pattern | None:
    """ActiveMQ's choice out of the patterns that match `name`: the name itself, else the pattern that lies
    inside the others; of patterns that do not lie in each other, the first by its text."""
    inner: list[Pattern] = []
    for pattern in from_inside(matching):
        if pattern.text == name:
            return pattern
        if not any(pattern.contains(other) for other in inner):
            inner.append(pattern)
    return min(inner, key=lambda pattern: pattern.text, default=None)


def from_inside(patterns: Iterable[Pattern]) -> list[Pattern]:
    """In an order in which none stands behind one that contains it: the most words written out first."""
    return sorted(patterns, key=lambda one: (-len(one._fixed), one.rest, -len(one.words), one.text))


def by_precedence(patterns: Iterable[Pattern]) -> list[Pattern]:
    """Artemis' order of precedence, the closest first.

    No wildcard before `*` only before any `#`; of several with `#` the longer text first; of several with `*`
    only, the one that has a word where the other has the star, compared from the left.
    """
    return sorted(patterns, key=_precedence)


def _rank(pattern: Pattern) -> int:
    return 2 if pattern.rest else 0 if pattern.literal else 1


def _compare(one: Pattern, other: Pattern) -> int:
    if _rank(one) != _rank(other):
        return _rank(one) - _rank(other)
    if one.rest:
        return len(other.text) - len(one.text)
    for left, right in zip(one.words, other.words, strict=False):
        if (left == _ONE) != (right == _ONE):
            return 1 if left == _ONE else -1
    return 0


_precedence = cmp_to_key(_compare)
