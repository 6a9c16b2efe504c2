# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Which messages a candidate treats alike: by destination, and by error where its policy decides by exception."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...errors import Reject
from ...policy import PolicyMap, RedeliveryPolicy
from .arrays import Array, Bools
from .attempt_times import AttemptTimes
from .placeholder_exceptions import has_rules, is_guess, stand_in
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
        """Every group once, or every one of a destination. ConfigError where a policy cannot be followed until then."""
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
        """Errors that a rule might judge otherwise if it saw them; and whether there are some without a name."""
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
