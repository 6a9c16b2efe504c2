# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for exceptions of which history knows only the class's name, so that rules by exception can be asked.

A record keeps `error_type`, the bare name of a class: not its module, not what it inherits from. Of such a name this is
made, the first that fits: the signal of ours (`Reject`, `RetryAfter`); a class of that name that one of the policy's
rules speaks of; a built-in exception; else a new class of that name, which only a rule that names it matches. What a
rule reads in the exception itself, its text or what a function of the user's looks at, is not there.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator

from ...errors import Reject, RetryAfter
from ...policy import RedeliveryPolicy
from ...policy.conditions import AllOf, Always, AnyOf, Condition, Message, Named, Not, OfType, Predicate


def stand_in(name: str, policy: RedeliveryPolicy) -> BaseException:
    """An exception of which this policy can be asked as of one whose class has that name. Runs no code of the user's
    but the class's `__new__`."""
    if name == Reject.__name__:
        return Reject()
    if name == RetryAfter.__name__:
        return RetryAfter(0.0)  # for how long is not known: the policy's own delay counts
    for kind in _kinds(name, policy):
        try:
            return kind.__new__(kind)
        except Exception:  # it wants arguments that nobody has
            continue
    return _new(name, "")


def has_rules(policy: RedeliveryPolicy) -> bool:
    """Does this policy decide by exception?"""
    return any(rule is not None for rule in _rules(policy))


def is_guess(name: str, policy: RedeliveryPolicy) -> bool:
    """Would the real exception perhaps be decided otherwise than its stand-in?"""
    parts = [part for rule in _rules(policy) if rule is not None for part in _parts(rule)]
    if any(isinstance(part, Predicate | Message) for part in parts):
        return True
    named = any(name in _names(part) for part in parts)
    # what a class inherits from is known of built-in ones alone
    return not named and not _is_built_in(name) and any(isinstance(part, Named | OfType) for part in parts)


def _kinds(name: str, policy: RedeliveryPolicy) -> Iterator[type[BaseException]]:
    for rule in _rules(policy):
        for part in _parts(rule) if rule is not None else ():
            if isinstance(part, OfType):
                yield from (kind for kind in part.types if kind.__name__ == name)
            elif isinstance(part, Named):
                yield from (type(_new(name, full)) for full in part.names if full.rpartition(".")[2] == name)
    if _is_built_in(name):
        yield getattr(builtins, name)


def _new(name: str, full: str) -> BaseException:
    made = type(name, (Exception,), {"__module__": full.rpartition(".")[0]})()
    assert isinstance(made, Exception)
    return made


def _is_built_in(name: str) -> bool:
    kind = getattr(builtins, name, None)
    return isinstance(kind, type) and issubclass(kind, BaseException)


def _names(part: Condition) -> set[str]:
    match part:
        case OfType(types):
            return {kind.__name__ for kind in types}
        case Named(names):
            return {name.rpartition(".")[2] for name in names}
    return set()


def _rules(policy: RedeliveryPolicy) -> tuple[Condition | None, ...]:
    return policy.fatal, policy.ignore, policy.retry_on


def _parts(rule: Condition) -> Iterator[Condition]:
    match rule:
        case Not(inner):
            yield from _parts(inner)
        case AnyOf(parts) | AllOf(parts):
            for part in parts:
                yield from _parts(part)
        case Always():
            pass
        case _:
            yield rule
