# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Destination patterns of ActiveMQ and of Artemis: what they match, and which of several comes first. Pure.

Names are words with dots between them.

- ActiveMQ: a word that is `*` stands for one word, `>` at the end for any number of words, none included. A
  star among letters is a letter. A comma separates patterns: `A,B.>` is both.
- Artemis: `*` stands for one word, or among letters for a part of one; `#` at the end for any number of words,
  none included. The name of a queue, `ADDRESS::QUEUE`, is matched by what matches its address.

So `A.>` and `A.#` match `A`, `A.B` and `A.B.C`, and do not match `AB`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cmp_to_key, lru_cache
from typing import Literal

from ..errors import PolicyError

Syntax = Literal["activemq", "artemis"]


class Pattern:
    """One pattern, read once. Not changed afterwards; usable from any thread.

    `words` are its words without the wildcard that takes the rest, which `rest` tells; `literal` if it is a
    plain name, `partial` if a star stands among letters and counts.
    """

    __slots__ = ("_fixed", "literal", "partial", "rest", "syntax", "text", "words")

    def __init__(self, text: str, syntax: Syntax) -> None:
        """PolicyError for an empty pattern, or one in which anything follows the wildcard that takes the rest."""
        self.text, self.syntax = text, syntax
        if syntax == "artemis":
            self._read_artemis()
        else:
            self._read_activemq()
        self._fixed = [(at, word) for at, word in enumerate(self.words) if word != "*"]
        self.literal = not self.rest and not self.partial and len(self._fixed) == len(self.words)

    def matches(self, name: str, words: Sequence[str] | None = None) -> bool:
        """Does it match a name? `words` are the name's, if the caller has them already."""
        words = name.split(".") if words is None else words
        # to Artemis an empty word is none: no star stands for it, and a dot at the end is no more words
        closely = self.partial or (self.syntax == "artemis" and "" in words)
        return self._fits(words) if closely else self._covers(words)

    def contains(self, other: Pattern) -> bool:
        """Does it match whatever `other` matches? For patterns whose stars are words."""
        return (self.rest or not other.rest) and self._covers(other.words)

    def _covers(self, words: Sequence[str]) -> bool:
        if len(words) != len(self.words) and not (self.rest and len(words) > len(self.words)):
            return False
        return all(words[at] == word for at, word in self._fixed)

    def _fits(self, words: Sequence[str]) -> bool:
        # word by word: one regular expression of many stars can take for ever
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
    """The pattern; the same object for the same text. PolicyError if it is none."""
    return Pattern(text, syntax)


def patterns_of(text: str, syntax: Syntax) -> list[Pattern]:
    """The patterns in a text: one, but for ActiveMQ's commas. PolicyError if it is none."""
    if syntax == "artemis":
        return [pattern_of(text, syntax)]
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return [pattern_of(part, syntax) for part in parts or [""]]


def from_inside(patterns: Iterable[Pattern]) -> list[Pattern]:
    """In an order in which none stands behind one that contains it: the most words written out first."""
    return sorted(patterns, key=inside_key)


def inside_key(one: Pattern) -> tuple[int, bool, int, str]:
    """What `from_inside` sorts by."""
    return (-len(one._fixed), one.rest, -len(one.words), one.text)


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


def by_precedence(patterns: Iterable[Pattern]) -> list[Pattern]:
    """As Artemis sorts: no wildcard before stars only before any `#`; of several with `#` the longer text first;
    of several with stars, from the left, the one that has a word where the other has a star."""
    return sorted(patterns, key=precedence_key)


def _rank(one: Pattern) -> int:
    return 2 if one.rest else 1 if "*" in one.text else 0


def _compare(one: Pattern, other: Pattern) -> int:
    if _rank(one) != _rank(other):
        return _rank(one) - _rank(other)
    if one.rest or not _rank(one):
        # two names match alike where one has its queue's name behind it: that one is closer
        return len(other.text) - len(one.text)
    for left, right in zip(one.words, other.words, strict=False):
        if (left == "*") != (right == "*"):
            return 1 if left == "*" else -1
    return len(one.text) - len(other.text)


precedence_key = cmp_to_key(_compare)


def _fits(letters: Sequence[str], word: str) -> bool:
    """Are these the letters of a word, in their order, with one letter or more wherever a star stood between them?"""
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
        return PolicyError("an empty destination pattern", cure=f"Write a name, or {rest} for all")
    return PolicyError(
        f"{rest} is not the end of the pattern {text!r:.200}",
        cure=f"Put {rest} at the end; in between, * is one word",
    )
