# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Who may go to a handler now: all, or one suspect alone, or nobody. No I/O, no clock; one caller."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ..message import Delivery, Destination

NONE, TOGETHER, ALONE = 0, 1, 2  # how a message runs, as the ledger's rows have it
PATIENCE = 60.0  # seconds that a suspect may keep others waiting, and that others may keep a suspect waiting

PendingPlace = tuple[Destination, str]  # of a line in the ledger: source and key


@dataclass(slots=True, eq=False)
class Pending:
    """A delivery on its way to its handler."""

    delivery: Delivery
    key: str  # of its line; of a message without an id, that was not in a handler yet, its twin key
    twin: str = ""  # of a message without an id: all identical ones share it
    batch: PendingBatch | None = None  # of a message without a past, once it is handed on

    @property
    def place(self) -> PendingPlace:
        return self.delivery.destination, self.key

    @property
    def suspect_place(self) -> PendingPlace:
        """By what it is known as a suspect: of identical messages without an id, any may be the one."""
        return self.delivery.destination, self.twin or self.key


@dataclass(slots=True, eq=False)
class PendingBatch:
    """Messages of one source without a past, handed on together."""

    number: int
    source: Destination
    members: list[Pending]
    left: int


@dataclass(slots=True)
class Admission:
    """Who is to be handed on, and how that is to be written down first."""

    ones: list[Pending]
    mark: int  # of those that have lines of their own
    batches: list[PendingBatch] = field(default_factory=list)
    marks: dict[PendingPlace, int] = field(default_factory=dict)  # lines whose mark changes by it
    fresh: Sequence[Pending] = ()


class SuspectIsolation:
    """`choose` says who may pass, `let` that they have; in between it is written down, or nothing has happened.

    While a suspect is out, nobody else is: for `PATIENCE` seconds at most, then it is marked like the others.
    """

    def __init__(self) -> None:
        self.again: deque[Pending] = deque()  # with a past, before all others
        self.waiting: deque[Pending] = deque()
        self.suspects: deque[Pending] = deque()
        self.suspected: set[PendingPlace] = set()
        self.marks: dict[PendingPlace, int] = {}  # of those that are out and have lines of their own
        self._out: dict[Delivery, Pending] = {}  # handed on, and not ended
        self._alone: Pending | None = None
        self._since = 0.0  # monotonic: since when a suspect runs alone, or waits to
        self._numbers = itertools.count(1)

    @property
    def crowd(self) -> int:
        """Deliveries that were let through, and of which no end was heard."""
        return len(self._out)

    @property
    def crowded(self) -> bool:
        """Somebody waits for the end of a run. From any thread."""
        return bool(self.again or self.waiting or self.suspects or self._alone is not None)

    @property
    def stuck(self) -> bool:
        """Somebody waits, and time alone may let them through."""
        return self.crowded and bool(self.suspects or self.again or self.waiting)

    def held_back(self) -> list[Delivery]:
        """Who was not let through. From any thread: each copy is made at one stroke."""
        waiting = [*self.again.copy(), *self.waiting.copy(), *self.suspects.copy()]
        return [one.delivery for one in waiting]

    def come(self, one: Pending, now: float, *, suspect: bool = False) -> None:
        """One with a past is to be run."""
        if not (suspect or one.suspect_place in self.suspected):
            return self.again.append(one)
        if not self.suspects and self._alone is None:
            self._since = now
        self.suspects.append(one)

    def end(self, delivery: Delivery, now: float) -> Pending | None:
        """A run is over, or will not be; whose it was. The last of a batch has left it with none."""
        one = self._out.pop(delivery, None)
        if one is None:
            return None
        if one.batch is not None:
            one.batch.left -= 1
            return one
        self.suspected.discard(one.suspect_place)
        self.marks.pop(one.place, None)
        if one is self._alone:
            self._alone, self._since = None, now
        return one

    def choose(self, fresh: Sequence[Pending], now: float, can_run: Callable[[Destination], bool]) -> Admission:
        """Who may pass of those that wait and of `fresh`."""
        waited = now - self._since
        suspect = next((one for one in self.suspects if can_run(one.delivery.destination)), None)
        if self._alone is not None and waited < PATIENCE:
            return Admission([], TOGETHER, fresh=fresh)
        if self._alone is None and suspect is not None and not self._out:
            return self._choice([suspect], ALONE, fresh)
        if self._alone is None and suspect is not None and waited < PATIENCE:
            return Admission([], TOGETHER, fresh=fresh)
        others = [*self.again, *self.waiting, *fresh]
        return self._choice([suspect, *others] if suspect is not None else others, TOGETHER, fresh)

    def _choice(self, ones: list[Pending], mark: int, fresh: Sequence[Pending]) -> Admission:
        by_source: dict[Destination, list[Pending]] = {}
        marks: dict[PendingPlace, int] = {}
        for one in ones:
            if not one.delivery.known:
                by_source.setdefault(one.delivery.destination, []).append(one)
            elif one.key:
                marks[one.place] = mark
        if ones and self._alone is not None:  # it is not alone any more
            marks[self._alone.place] = TOGETHER
        batches = [PendingBatch(next(self._numbers), source, some, len(some)) for source, some in by_source.items()]
        return Admission(ones, mark, batches, marks, fresh)

    def line_of(self, place: PendingPlace, choice: Admission) -> Pending | None:
        """Whose line it is, of those whose mark changes."""
        return next((one for one in [*choice.ones, self._alone] if one is not None and one.place == place), None)

    def let(self, choice: Admission, now: float) -> None:
        """It is written down: they pass, and the other fresh ones wait."""
        going = set(choice.ones)
        self.again = _without(self.again, going)
        self.suspects = _without(self.suspects, going)
        self.waiting = _without([*self.waiting, *choice.fresh], going)
        for batch in choice.batches:
            for one in batch.members:
                one.batch = batch
        self.marks |= choice.marks
        self._out |= {one.delivery: one for one in choice.ones}
        if choice.ones:
            self._alone = choice.ones[0] if choice.mark == ALONE else None
            self._since = now


def _without(ones: Iterable[Pending], gone: set[Pending]) -> deque[Pending]:
    return deque(one for one in ones if one not in gone)
