# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Finds patterns by their words, so that only the few that can match are tested. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from .patterns import Pattern

T = TypeVar("T")
DEEPEST = 8  # words: longer patterns are distinguished by their first ones, and the tree stays small


class WordTree(Generic[T]):
    """Holds values under patterns. A found value may match; the caller tests further."""

    __slots__ = ("_below", "_here")

    def __init__(self) -> None:
        self._here: list[T] = []
        self._below: dict[str, WordTree[T]] = {}

    def add(self, pattern: Pattern, value: T) -> None:
        """Add a value under a pattern; a pattern may have several."""
        node = self
        for word in pattern.words[:DEEPEST]:
            if pattern.partial and "*" in word and word != "*":
                break  # such a word matches many, and the rest depends on it
            node = node._below.setdefault(word, WordTree())
        node._here.append(value)

    def matching(self, words: Sequence[str]) -> list[T]:
        """Return the values of all patterns that match a name of these words, and of a few that do not."""
        found, level = list(self._here), [self]
        for word in words[:DEEPEST]:
            level = [node._below[each] for node in level for each in {word, "*"} if each in node._below]
            for node in level:
                found += node._here
        return found

    def overlapping(self, pattern: Pattern) -> Iterator[T]:
        """Yield the values of all patterns that match a name that this one matches too, and of a few that do not.

        For patterns whose stars are words.
        """
        nodes = [(self, 0)]
        while nodes:
            node, at = nodes.pop()
            yield from node._here
            if at < len(pattern.words):
                word = pattern.words[at]
                words = node._below if word == "*" else {word, "*"} & node._below.keys()
                nodes += [(node._below[each], at + 1) for each in words]
            elif pattern.rest:
                nodes += [(below, at) for below in node._below.values()]
