# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines which exceptions a rule (`retry_on`, `fatal`, `ignore`) applies to. Pure, as far as predicates are."""

from __future__ import annotations

import builtins
import difflib
import functools
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..errors import PolicyError

_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")
_BUILTINS = {
    name: thing
    for name, thing in vars(builtins).items()
    if isinstance(thing, type) and issubclass(thing, BaseException)
}


class Condition(ABC):
    """Answers yes or no for an exception. Frozen."""

    @abstractmethod
    def matches(self, error: BaseException) -> bool:
        """Return the answer. May raise whatever a user's predicate raises."""

    @abstractmethod
    def __str__(self) -> str:
        """Return the same text in every process, because it is part of the policy's version."""


@dataclass(frozen=True)
class Always(Condition):
    """Answers `answer`, whatever the exception is."""

    answer: bool

    def matches(self, error: BaseException) -> bool:
        """Return `answer`."""
        return self.answer

    def __str__(self) -> str:
        return "any exception" if self.answer else "no exception"


@dataclass(frozen=True)
class OfType(Condition):
    """Applies if the exception is one of `types`, or of a subclass."""

    types: tuple[type[BaseException], ...]

    def matches(self, error: BaseException) -> bool:
        """Return whether the exception is an instance of one of the types."""
        return isinstance(error, self.types)

    def __str__(self) -> str:
        return " or ".join(name_of(kind) for kind in self.types) or "no exception"


@dataclass(frozen=True)
class Named(Condition):
    """Applies if the exception's class, or a base class, has one of these dotted names.

    This is for policies in files: nothing is imported, so that a policy can be read where the driver that raises the
    exception is not installed. A name under which a module only re-exports a class (`requests.ConnectionError`) counts
    once that module is loaded, which is the case when its exceptions are raised.
    """

    names: tuple[str, ...]

    @classmethod
    def of(cls, names: Sequence[object]) -> Condition:
        """Return `OfType` if all names are built in, like `TimeoutError`.

        Raises PolicyError for text that cannot name an exception.
        """
        known = tuple(_checked(name) for name in names)
        kinds = [kind for name in known if (kind := _BUILTINS.get(name.removeprefix("builtins.")))]
        return OfType(tuple(kinds)) if len(kinds) == len(known) else cls(known)

    def matches(self, error: BaseException) -> bool:
        """Return whether one of the names is that of the exception's class or of a base class."""
        kinds = type(error).__mro__
        own = {name_of(kind) for kind in kinds}
        return any(name in own or _passed_on(name) in kinds for name in self.names)

    def __str__(self) -> str:
        return " or ".join(self.names)


@dataclass(frozen=True)
class Predicate(Condition):
    """Applies if the user's own function says yes."""

    function: Callable[[BaseException], object]

    def matches(self, error: BaseException) -> bool:
        """Return whether the function returns a true value. Raises what the function raises."""
        return bool(self.function(error))

    def __str__(self) -> str:
        return f"{name_of(self.function)}()"


@dataclass(frozen=True)
class Message(Condition):
    """Applies if the exception's text equals `text`, or begins as `pattern` requires."""

    text: str | None = None
    pattern: re.Pattern[str] | None = None

    def matches(self, error: BaseException) -> bool:
        """Return whether the exception's text equals `text`; with `pattern`, whether the text begins with a match."""
        if self.pattern is not None:
            return self.pattern.match(str(error)) is not None
        return str(error) == self.text

    def __str__(self) -> str:
        if self.pattern is None:
            return f"message {self.text!r}"
        return f"message like {self.pattern.pattern!r} ({self.pattern.flags})"


@dataclass(frozen=True)
class Not(Condition):
    """Applies if the inner condition does not."""

    inner: Condition

    def matches(self, error: BaseException) -> bool:
        """Return the opposite of the inner condition."""
        return not self.inner.matches(error)

    def __str__(self) -> str:
        return f"not ({self.inner})"


@dataclass(frozen=True)
class AnyOf(Condition):
    """Applies if one of the parts does."""

    parts: tuple[Condition, ...]

    def matches(self, error: BaseException) -> bool:
        """Return whether one of the parts applies; the parts after that one are not asked."""
        return any(part.matches(error) for part in self.parts)

    def __str__(self) -> str:
        return " or ".join(f"({part})" for part in self.parts)


@dataclass(frozen=True)
class AllOf(Condition):
    """Applies if all parts do."""

    parts: tuple[Condition, ...]

    def matches(self, error: BaseException) -> bool:
        """Return whether all parts apply; the parts after one that does not are not asked."""
        return all(part.matches(error) for part in self.parts)

    def __str__(self) -> str:
        return " and ".join(f"({part})" for part in self.parts)


def name_of(thing: object) -> str:
    """Return module and name of a class or function, without anything that differs from process to process."""
    while isinstance(thing, functools.partial):
        thing = thing.func
    owner = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{owner.__module__}.{owner.__qualname__}"


def says(rule: Condition, error: BaseException, *, in_doubt: bool) -> bool:
    """Return the answer of a rule; `in_doubt` if a predicate of the user's raises."""
    try:
        return rule.matches(error)
    except Exception:  # the user's predicate is broken, and the message must not be lost for that
        return in_doubt


def _checked(name: object) -> str:
    if isinstance(name, str) and name in _BUILTINS:
        return f"builtins.{name}"
    if isinstance(name, str) and _DOTTED.fullmatch(name):
        return name
    near = difflib.get_close_matches(name, _BUILTINS, n=1) if isinstance(name, str) else []
    meant = f"Did you mean {near[0]!r}? " if near else ""
    raise PolicyError(
        f"{name!r:.200} is no exception",
        cure=f"{meant}Write its dotted name, package.module.Error; only built-in ones go without a module",
        code="policy-reference",
    )


def _passed_on(name: str) -> object:
    module, _, attribute = name.rpartition(".")
    return getattr(sys.modules.get(module), attribute, None)
