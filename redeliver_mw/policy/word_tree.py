# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Patterns found by their words, so that of many only the few are looked at that can match. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from .patterns import Pattern

T = TypeVar("T")
DEEPEST = 8  # words: what is longer is told apart by its first ones, and the tree stays small


class WordTree(Generic[T]):
    """Values under patterns. What it finds may match; whoever asks looks closer."""

    __slots__ = ("_below", "_here")

    def __init__(self) -> None:
        self._here: list[T] = []
        self._below: dict[str, WordTree[T]] = {}

    def add(self, pattern: Pattern, value: T) -> None:
        """A value under a pattern; several may stand under one."""
        node = self
        for word in pattern.words[:DEEPEST]:
            if pattern.partial and "*" in word and word != "*":
                break  # such a word is any that fits, and what follows hangs on it
            node = node._below.setdefault(word, WordTree())
        node._here.append(value)

    def matching(self, words: Sequence[str]) -> list[T]:
        """The values of all patterns that match a name of these words, and of a few that do not."""
        found, level = list(self._here), [self]
        for word in words[:DEEPEST]:
            level = [node._below[each] for node in level for each in {word, "*"} if each in node._below]
            for node in level:
                found += node._here
        return found

    def overlapping(self, pattern: Pattern) -> Iterator[T]:
        """The values of all patterns that match a name which this one matches too, and of a few that do not.

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
