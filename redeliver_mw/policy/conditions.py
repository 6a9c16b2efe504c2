# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Which exceptions a rule (`retry_on`, `fatal`, `ignore`) speaks of. Pure, as far as predicates are."""

from __future__ import annotations

import functools
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass


class Condition(ABC):
    """A frozen yes or no to an exception."""

    @abstractmethod
    def matches(self, error: BaseException) -> bool:
        """May raise what a user's predicate raises."""

    @abstractmethod
    def __str__(self) -> str:
        """The same text in every process: it goes into the policy's version."""


@dataclass(frozen=True)
class Always(Condition):
    """`answer`, whatever the exception is."""

    answer: bool

    def matches(self, error: BaseException) -> bool:
        return self.answer

    def __str__(self) -> str:
        return "any exception" if self.answer else "no exception"


@dataclass(frozen=True)
class OfType(Condition):
    """The exception is one of `types`, or a subclass."""

    types: tuple[type[BaseException], ...]

    def matches(self, error: BaseException) -> bool:
        return isinstance(error, self.types)

    def __str__(self) -> str:
        return " or ".join(name_of(kind) for kind in self.types) or "no exception"


@dataclass(frozen=True)
class Predicate(Condition):
    """The user's own function says yes."""

    function: Callable[[BaseException], object]

    def matches(self, error: BaseException) -> bool:
        return bool(self.function(error))

    def __str__(self) -> str:
        return f"{name_of(self.function)}()"


@dataclass(frozen=True)
class Message(Condition):
    """The exception's text equals `text`, or begins as `pattern` says."""

    text: str | None = None
    pattern: re.Pattern[str] | None = None

    def matches(self, error: BaseException) -> bool:
        if self.pattern is not None:
            return self.pattern.match(str(error)) is not None
        return str(error) == self.text

    def __str__(self) -> str:
        if self.pattern is None:
            return f"message {self.text!r}"
        return f"message like {self.pattern.pattern!r} ({self.pattern.flags})"


@dataclass(frozen=True)
class Not(Condition):
    """The inner condition says no."""

    inner: Condition

    def matches(self, error: BaseException) -> bool:
        return not self.inner.matches(error)

    def __str__(self) -> str:
        return f"not ({self.inner})"


@dataclass(frozen=True)
class AnyOf(Condition):
    """One of the parts says yes."""

    parts: tuple[Condition, ...]

    def matches(self, error: BaseException) -> bool:
        return any(part.matches(error) for part in self.parts)

    def __str__(self) -> str:
        return " or ".join(f"({part})" for part in self.parts)


@dataclass(frozen=True)
class AllOf(Condition):
    """All parts say yes."""

    parts: tuple[Condition, ...]

    def matches(self, error: BaseException) -> bool:
        return all(part.matches(error) for part in self.parts)

    def __str__(self) -> str:
        return " and ".join(f"({part})" for part in self.parts)


def name_of(thing: object) -> str:
    """Module and name of a class or function, without anything that differs from process to process."""
    while isinstance(thing, functools.partial):
        thing = thing.func
    owner = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{owner.__module__}.{owner.__qualname__}"


def says(rule: Condition, error: BaseException, *, in_doubt: bool) -> bool:
    """The answer of a rule; `in_doubt` where a predicate of the user's raises."""
    try:
        return rule.matches(error)
    except Exception:  # the user's predicate is broken; the message must not pay for it
        return in_doubt
