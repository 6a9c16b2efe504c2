# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Groups messages that a candidate treats alike: by destination, and by error if its policy looks at exceptions.

Of an exception history knows only the class's name, `error_type`: not its module, not what it inherits from. Rules by
exception are asked of a stand-in, the first of these that fits: the signal of ours (`Reject`, `RetryAfter`); a class of
that name that one of the policy's rules speaks of; a built-in exception; else a new class of that name, which only a
rule that names it matches. What a rule reads in the exception itself, its text or what a function of the user's looks
at, is not there.
"""

from __future__ import annotations

import builtins
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...errors import Reject, RetryAfter
from ...policy import PolicyMap, RedeliveryPolicy
from ...policy.conditions import AllOf, Always, AnyOf, Condition, Message, Named, Not, OfType, Predicate
from ..arrays import Array, Bools
from .attempt_times import AttemptTimes
from .schedule import AttemptSchedule, schedule


class Stratum(NamedTuple):
    """Groups of messages, and what a candidate does with all of them, or with this share where it has arms."""

    groups: Bools
    schedule: AttemptSchedule
    share: float


class Stratification:
    """Groups by what policies may tell them apart by. `error_types` is by fingerprint; see `History`."""

    def __init__(
        self,
        groups: Sequence[tuple[str, str]],
        error_types: Mapping[str, str],
        at_once: Collection[str],
        taking: Sequence[AttemptTimes],
    ) -> None:
        self._taking: dict[AttemptTimes, Bools] = {
            one: np.array([other is one for other in taking], dtype=np.bool_) for one in dict.fromkeys(taking)
        }
        self._places: Array = np.array([destination for destination, _ in groups], dtype=object)
        self._types: Array = np.array([error_types.get(fingerprint, "") for _, fingerprint in groups], dtype=object)
        self._at_once = np.array([fingerprint in at_once for _, fingerprint in groups], dtype=np.bool_)
        self._dead = self._at_once | (self._types == Reject.__name__)
        self._destinations = tuple(dict.fromkeys(self._places))
        self._seen: dict[bytes, Bools] = {}
        self._plain: dict[tuple[str, ...], list[tuple[Bools, BaseException | None]]] = {}

    def units(self, policies: RedeliveryPolicy | PolicyMap, until: float, only: str | None = None) -> list[Stratum]:
        """Return every group once, or every group of one destination.

        Raises ConfigError if a policy cannot be followed until `until`.
        """
        found: dict[RedeliveryPolicy, list[str]] = defaultdict(list)
        for destination in self._destinations if only is None else (only,):
            found[policies.resolve(destination)].append(destination)
        return [
            Stratum(groups, schedule(arm.policy, until, taking=taking, error=error), arm.propensity)
            for policy, destinations in found.items()
            for arm in policy.apart
            for groups, error, taking in self._timed(arm.policy, tuple(destinations))
        ]

    def unclear(self, policies: RedeliveryPolicy | PolicyMap) -> tuple[set[str], bool]:
        """Return errors that a rule might judge otherwise if it saw them, and whether there are some without a name."""
        found, nameless = set(), False
        for destination in self._destinations:
            names = set(self._types[self._places == destination])
            for _, _, policy in policies.resolve(destination).apart:
                if has_rules(policy):
                    nameless |= "" in names
                    found |= {name for name in names - {""} if is_guess(name, policy)}
        return found, nameless

    def _timed(
        self, policy: RedeliveryPolicy, destinations: tuple[str, ...]
    ) -> Iterator[tuple[Bools, BaseException | None, AttemptTimes]]:
        """Yield the groups that a policy treats alike and whose attempts take as long."""
        for groups, error in self._alike(policy, destinations):
            for taking, those in self._taking.items():
                mine = self._both(groups, those)
                if mine is not None:
                    yield mine, error, taking

    def _both(self, groups: Bools, those: Bools) -> Bools | None:
        # the same object for the same groups, by which `History` knows them again; None: there are none
        if len(self._taking) == 1:
            return groups
        both = groups & those
        return self._seen.setdefault(both.tobytes(), both) if both.any() else None

    def _alike(
        self, policy: RedeliveryPolicy, destinations: tuple[str, ...]
    ) -> list[tuple[Bools, BaseException | None]]:
        if has_rules(policy):
            return list(self._by_error(policy, np.isin(self._places, destinations)))
        if destinations not in self._plain:
            mine = np.isin(self._places, destinations)
            parts: list[tuple[Bools, BaseException | None]] = [
                (mine & ~self._dead, None),
                (mine & self._dead, Reject()),
            ]
            self._plain[destinations] = [part for part in parts if part[0].any()]
        return self._plain[destinations]

    def _by_error(self, policy: RedeliveryPolicy, mine: Bools) -> Iterator[tuple[Bools, BaseException | None]]:
        for name in dict.fromkeys(self._types[mine]):
            alike = mine & (self._types == name)
            error = stand_in(name, policy) if name else None
            if error is None or not policy.retries(error):
                if (dead := alike & self._at_once).any():
                    yield dead, Reject()
                alike &= ~self._at_once
            if alike.any():
                yield alike, error


def stand_in(name: str, policy: RedeliveryPolicy) -> BaseException:
    """Return an exception of which this policy can be asked as of one whose class has that name.

    The only code of the user's that this runs is the class's `__new__`.
    """
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
    """Return whether this policy decides by exception."""
    return any(rule is not None for rule in _rules(policy))


def is_guess(name: str, policy: RedeliveryPolicy) -> bool:
    """Return whether the policy might decide otherwise for the real exception than for its stand-in."""
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
