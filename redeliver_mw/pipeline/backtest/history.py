# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Prepares the histories of a lake once, and then answers for any number of candidates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Final, Literal, NamedTuple

import numpy as np

from ...errors import ConfigError
from ...policy.formats.diagnostics import nearest
from ..arrays import Bools
from .attempt_times import AttemptTimes, TimesByGroup
from .curves import Curves, curves_again, curves_of
from .evaluation import SUMS, Evaluation, Mixture, evaluate, quantiles
from .observations import ObservationRow, Observations, observations_of
from .pareto_front import with_front
from .rows import BacktestRow, Candidate, GroupKey, row_of
from .strata import Stratification, Stratum

By = Literal["all", "destination", "fingerprint"]
_WANTED: Final = (0.5, 0.95)
_SHOWN: Final = 10


class History:
    """Holds what is known of messages that failed. It is made of rows of the mart `recovery`, in any order.

    - `error_types`: the class's name for a fingerprint, for policies that decide by exception.
    - `at_once`: fingerprints that no policy tries again unless its `retry_on` names them: rejected, undecodable.
    - `attempt_times`: how long attempts take and how late they begin: rows with `destination`, `fingerprint`, `kind`
      (`failing`, `late`, `success`), `bin` of time and `n`.
    - `attempt_s`: seconds by which every attempt is late, for failures of which `attempt_times` says nothing.

    Raises ConfigError if there is no row, or if one is no row of the mart.
    """

    def __init__(
        self,
        rows: Iterable[ObservationRow] | Observations,
        *,
        error_types: Mapping[str, str] | None = None,
        at_once: Collection[str] = (),
        attempt_times: Iterable[ObservationRow] = (),
        attempt_s: float = 0.0,
    ) -> None:
        observations = rows if isinstance(rows, Observations) else observations_of(rows)
        taking = TimesByGroup(observations.groups, attempt_times, AttemptTimes.constant(attempt_s)).of
        self._take(observations, taking, error_types or {}, at_once)

    def _take(
        self,
        histories: Observations,
        taking: tuple[AttemptTimes, ...],
        error_types: Mapping[str, str],
        at_once: Collection[str],
    ) -> None:
        cells = histories.cells()
        self.histories = histories
        self.curves: Curves = curves_of(histories.groups, histories.intervals(cells), cells)
        self._taking, self._error_types, self._at_once = taking, error_types, at_once
        self._sorting = Stratification(histories.groups, error_types, at_once, taking)
        self._mixtures: dict[bytes, Mixture] = {}

    def at(self, destination: str) -> History:
        """Return what is known of one destination alone: this history itself, if there is no other one."""
        if self.destinations == (destination,):
            return self
        taking = dict(zip(self.histories.groups, self._taking, strict=True))
        here = self.histories.at(destination)
        found = History.__new__(History)
        found._take(here, tuple(taking[group] for group in here.groups), self._error_types, self._at_once)
        return found

    def only(self, wanted: Bools) -> History:
        """Return what some of the histories tell by themselves."""
        found = History.__new__(History)
        found._take(self.histories.where(wanted), self._taking, self._error_types, self._at_once)
        return found

    def without(self, left_out: Bools) -> History:
        """Return what the histories but these tell, to see how much hangs on them; its rows are never flagged."""
        found = copy(self)
        found.histories = self.histories.where(~left_out)
        cells = self.curves.cells
        found.curves = curves_again(self.curves, found.histories.intervals(cells))
        found._mixtures = {}
        return found

    @property
    def destinations(self) -> tuple[str, ...]:
        """Return the destinations at which messages failed, sorted."""
        return self.histories.destinations

    def horizon(self, destination: str | None = None) -> float:
        """Return how far history has looked at a destination, or anywhere, in seconds.

        Raises ConfigError for a destination without failures.
        """
        self._must_know(destination)
        here = [destination in (None, name) for name, _ in self.histories.groups]
        return float(self.curves.horizon[here].max())

    def backtest(
        self, candidates: Sequence[Candidate], *, by: By = "destination", destination: str | None = None
    ) -> list[BacktestRow]:
        """Return what would have become of the messages under each candidate, in the candidates' order.

        `by` says how fine the rows are: a row for all messages; also one for each destination; also one for each
        fingerprint there. With `destination`, all rows are about that one. Raises ConfigError for a destination without
        failures, for two candidates of one name, and for a policy that cannot be followed.
        """
        _must_differ([candidate.name for candidate in candidates])
        self._must_know(destination)
        until = self.curves.longest * 1.1
        units = [self._sorting.units(one.policies, until, destination) for one in candidates]
        rows: list[list[BacktestRow]] = []
        for place, wanted in self._levels(by, destination):
            rows.append(with_front(self._rows([one.name for one in candidates], units, place, wanted)))
        return [level[number] for number in range(len(candidates)) for level in rows]

    def notes(self, candidates: Iterable[Candidate]) -> list[str]:
        """Return what the rows do not say: whose rules by exception cannot be asked as in the runtime."""
        found = []
        for candidate in candidates:
            unclear, nameless = self._sorting.unclear(candidate.policies)
            if unclear:
                found.append(f"{candidate.name}: its rules by exception see only the name of {_listed(unclear)}")
            if nameless:
                found.append(f"{candidate.name}: its rules by exception were not asked where the error has no name")
        return found

    def _must_know(self, destination: str | None) -> None:
        if destination is None or destination in self.destinations:
            return
        near = nearest(destination, self.destinations)
        cure = f"Did you mean {near!r}?" if near else f"Take one of {_listed(self.destinations)}"
        raise ConfigError(
            "no message of it has failed in these histories",
            where=f"{destination!r:.200}",
            cure=cure,
            code="history-empty",
        )

    def _levels(self, by: By, destination: str | None) -> Iterator[tuple[GroupKey, Bools]]:
        every = self.curves.messages > 0
        if destination is None:
            yield GroupKey(None, None), every
        if by == "all" and destination is None:
            return
        places = np.array([place for place, _ in self.histories.groups], dtype=object)
        for name in self.destinations if destination is None else (destination,):
            mine = every & (places == name)
            if mine.any():
                yield GroupKey(name, None), mine
            for number in np.flatnonzero(mine) if by == "fingerprint" else ():
                one = np.zeros_like(mine)
                one[number] = True
                yield GroupKey(name, self.histories.groups[number][1]), one

    def _rows(
        self, names: Sequence[str], units: Sequence[Sequence[Stratum]], place: GroupKey, wanted: Bools
    ) -> list[BacktestRow]:
        """Return a row for each candidate at one place.

        Schedules for the same messages are judged together, those with jitter apart from those without.
        """
        jobs: dict[tuple[bytes, int], list[tuple[int, Stratum]]] = defaultdict(list)
        within: dict[int, bytes] = {}
        for number, several in enumerate(units):
            for unit in several:
                if id(unit.groups) not in within:
                    within[id(unit.groups)] = (unit.groups & wanted).tobytes()
                jobs[within[id(unit.groups)], len(unit.schedule.times)].append((number, unit))
        parts: list[list[_Part]] = [[] for _ in names]
        for (groups, _), pairs in jobs.items():
            if any(groups):
                mixture = self._mixture(groups)
                found = evaluate(mixture, [unit.schedule for _, unit in pairs])
                middles = quantiles(*found.points, _WANTED)
                sums = found.sums()
                for line, (number, unit) in enumerate(pairs):
                    messages = mixture.messages * unit.share
                    parts[number].append(_Part(messages, sums[line], found, line, middles[line].tolist()))
        return [_row(name, place, part) for name, part in zip(names, parts, strict=True)]

    def _mixture(self, groups: bytes) -> Mixture:
        if groups not in self._mixtures:
            self._mixtures[groups] = Mixture.of(self.curves, np.frombuffer(groups, dtype=np.bool_))
        return self._mixtures[groups]


class _Part(NamedTuple):
    """Holds what one candidate does with some of the messages: a line of fates."""

    messages: float
    sums: dict[str, float]
    fates: Evaluation
    line: int
    times: list[float]


def _row(name: str, place: GroupKey, parts: Sequence[_Part]) -> BacktestRow:
    """Put the parts together into one row, weighted by their messages."""
    if len(parts) == 1:
        return row_of(name, place, parts[0].messages, parts[0].sums, parts[0].times)
    messages = sum(part.messages for part in parts)
    every = [(part.messages / messages, part.sums) for part in parts]
    sums = {key: sum(share * one[key] for share, one in every) for key in SUMS}
    healing = [part for part, (_, one) in zip(parts, every, strict=True) if one["recovered"] > 0]
    if len(healing) == 1:
        return row_of(name, place, messages, sums, healing[0].times)
    times = np.concatenate([np.zeros(1), *(part.fates.points[0][part.line] for part in healing)])
    weights = np.concatenate([np.zeros(1), *(part.fates.points[1][part.line] * part.messages for part in healing)])
    return row_of(name, place, messages, sums, quantiles(times[None], weights[None], _WANTED)[0].tolist())


def _must_differ(names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ConfigError(
                "two candidates are called so", where=f"{name:.200}", cure="Give each once", code="backtest-input"
            )
        seen.add(name)


def _listed(names: Collection[str]) -> str:
    shown = ", ".join(sorted(names)[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
