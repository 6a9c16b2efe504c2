# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines destination patterns of ActiveMQ and of Artemis: what they match, and which of several comes first. Pure.

Names are words separated by dots.

- ActiveMQ: a word that is `*` stands for one word, `>` at the end for any number of words, none included. A star inside
  a word is an ordinary character. A comma separates patterns: `A,B.>` is both.
- Artemis: `*` stands for one word, or inside a word for a part of it; `#` at the end for any number of words, none
  included. A pattern that matches an address also matches the name of its queue, `ADDRESS::QUEUE`.

So `A.>` and `A.#` match `A`, `A.B` and `A.B.C`, and do not match `AB`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cmp_to_key, lru_cache
from typing import Literal

from ..errors import PolicyError

Syntax = Literal["activemq", "artemis"]


class Pattern:
    """Is one pattern, parsed once. Not changed afterwards; thread-safe.

    `words` are its words without the wildcard for any number of words, which `rest` indicates; `literal` if it is a
    plain name, `partial` if a star is inside a word and counts.
    """

    __slots__ = ("_fixed", "literal", "partial", "rest", "syntax", "text", "words")

    def __init__(self, text: str, syntax: Syntax) -> None:
        """Parse the pattern.

        Raises PolicyError if it is empty, or if anything follows the wildcard for any number of words.
        """
        self.text, self.syntax = text, syntax
        if syntax == "artemis":
            self._read_artemis()
        else:
            self._read_activemq()
        self._fixed = [(at, word) for at, word in enumerate(self.words) if word != "*"]
        self.literal = not self.rest and not self.partial and len(self._fixed) == len(self.words)

    def matches(self, name: str, words: Sequence[str] | None = None) -> bool:
        """Return whether the pattern matches a name. `words` are the name's, if the caller has them already."""
        words = name.split(".") if words is None else words
        # To Artemis an empty word is no word: no star stands for it, and a dot at the end adds no words.
        closely = self.partial or (self.syntax == "artemis" and "" in words)
        return self._fits(words) if closely else self._covers(words)

    def contains(self, other: Pattern) -> bool:
        """Return whether the pattern matches everything that `other` matches. For patterns whose stars are words."""
        return (self.rest or not other.rest) and self._covers(other.words)

    def _covers(self, words: Sequence[str]) -> bool:
        if len(words) != len(self.words) and not (self.rest and len(words) > len(self.words)):
            return False
        return all(words[at] == word for at, word in self._fixed)

    def _fits(self, words: Sequence[str]) -> bool:
        # Word by word, because one regular expression of many stars can take for ever.
        if not self.words:
            return self.rest
        more = words[len(self.words) :]
        if len(words) < len(self.words) or (more and not self.rest) or (len(more) == 1 and not more[0]):
            return False
        return all(_fits(own.split("*"), word) for own, word in zip(self.words, words, strict=False))

    def _read_activemq(self) -> None:
        words = self.text.split(".")
        self.rest, self.partial = words[-1] == ">", False
        while words and words[-1] == ">":  # `A.>.>` is `A.>`
            words.pop()
        if not self.text or ">" in words:
            raise _no_pattern(self.text, ">")
        self.words = words

    def _read_artemis(self) -> None:
        if not self.text or "#" in self.text[:-1]:
            raise _no_pattern(self.text, "#")
        self.rest = self.text.endswith("#")
        head = self.text.removesuffix("#").removesuffix(".") if self.rest else self.text
        self.words = head.split(".") if self.text != "#" else []  # `.#` begins with an empty word
        self.partial = "*" in head and any("*" in word and word != "*" for word in self.words)


@lru_cache(maxsize=4096)
def pattern_of(text: str, syntax: Syntax) -> Pattern:
    """Return the pattern; the same object for the same text. Raises PolicyError if the text is not a pattern."""
    return Pattern(text, syntax)


def patterns_of(text: str, syntax: Syntax) -> list[Pattern]:
    """Return the patterns in a text: one, except for ActiveMQ's commas. Raises PolicyError if one is not a pattern."""
    if syntax == "artemis":
        return [pattern_of(text, syntax)]
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return [pattern_of(part, syntax) for part in parts or [""]]


def from_inside(patterns: Iterable[Pattern]) -> list[Pattern]:
    """Return the patterns in an order in which none follows one that contains it: the most literal words first."""
    return sorted(patterns, key=inside_key)


def inside_key(one: Pattern) -> tuple[int, bool, int, str]:
    """Return the sort key of `from_inside`."""
    return (-len(one._fixed), one.rest, -len(one.words), one.text)


def closest(name: str, matching: Iterable[Pattern]) -> Pattern | None:
    """Return ActiveMQ's choice among the patterns that match `name`, or None.

    The choice is the name itself, else the pattern that the others contain; of patterns that do not contain each other,
    the first by its text.
    """
    inner: list[Pattern] = []
    for pattern in from_inside(matching):
        if pattern.text == name:
            return pattern
        if not any(pattern.contains(other) for other in inner):
            inner.append(pattern)
    return min(inner, key=lambda pattern: pattern.text, default=None)


def by_precedence(patterns: Iterable[Pattern]) -> list[Pattern]:
    """Return the patterns in Artemis' order.

    A pattern without wildcards comes before one with stars only, and that before any with `#`; of several with `#` the
    longer text comes first; of several with stars, compared from the left, the one that has a word where the other has
    a star.
    """
    return sorted(patterns, key=precedence_key)


def _rank(one: Pattern) -> int:
    return 2 if one.rest else 1 if "*" in one.text else 0


def _compare(one: Pattern, other: Pattern) -> int:
    if _rank(one) != _rank(other):
        return _rank(one) - _rank(other)
    if one.rest or not _rank(one):
        # Two names can match the same queue if one includes the queue's own name: that one is closer.
        return len(other.text) - len(one.text)
    for left, right in zip(one.words, other.words, strict=False):
        if (left == "*") != (right == "*"):
            return 1 if left == "*" else -1
    return len(one.text) - len(other.text)


precedence_key = cmp_to_key(_compare)


def _fits(letters: Sequence[str], word: str) -> bool:
    """Return whether these are the letters of a word, in order, with one letter or more for each star between them."""
    if len(letters) == 1:
        return word == letters[0]
    first, *between, last = letters
    if not word.startswith(first):
        return False
    at = len(first)
    for part in between:
        found = word.find(part, at + 1)
        if found < 0:
            return False
        at = found + len(part)
    return word.endswith(last) and len(word) - len(last) > at


def _no_pattern(text: str, rest: str) -> PolicyError:
    if not text:
        return PolicyError(
            "an empty destination pattern", cure=f"Write a name, or {rest} for all", code="policy-pattern"
        )
    return PolicyError(
        f"{rest} is not the end of the pattern {text!r:.200}",
        cure=f"Put {rest} at the end; in between, * is one word",
        code="policy-pattern",
    )
