# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Which exceptions a rule (`retry_on`, `fatal`, `ignore`) speaks of. Pure, as far as predicates are."""

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
class Named(Condition):
    """The exception's class, or one it inherits from, has one of these dotted names.

    For policies in files: nothing is imported, so that a policy can be read where the driver that raises the
    exception is not installed. A name under which a module only passes a class on (`requests.ConnectionError`)
    counts once that module is loaded, as it is when its exceptions are raised.
    """

    names: tuple[str, ...]

    @classmethod
    def of(cls, names: Sequence[object]) -> Condition:
        """`OfType` if all are built in, like `TimeoutError`; PolicyError for what is no name of an exception."""
        known = tuple(_checked(name) for name in names)
        kinds = [kind for name in known if (kind := _BUILTINS.get(name.removeprefix("builtins.")))]
        return OfType(tuple(kinds)) if len(kinds) == len(known) else cls(known)

    def matches(self, error: BaseException) -> bool:
        kinds = type(error).__mro__
        own = {name_of(kind) for kind in kinds}
        return any(name in own or _passed_on(name) in kinds for name in self.names)

    def __str__(self) -> str:
        return " or ".join(self.names)


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
    )


def _passed_on(name: str) -> object:
    module, _, attribute = name.rpartition(".")
    return getattr(sys.modules.get(module), attribute, None)
