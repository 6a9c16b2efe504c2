# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Decides which deliveries may run: all of them, one suspect in isolation, or none. Pure; not thread-safe."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ..message import Delivery, Destination

NONE, TOGETHER, ALONE = 0, 1, 2  # how a message runs, as stored in the ledger's rows
PATIENCE = 60.0  # seconds that a suspect may delay other messages, and that other messages may delay a suspect

PendingPlace = tuple[Destination, str]  # the source and key of a line in the ledger


@dataclass(slots=True, eq=False)
class Pending:
    """Holds a delivery on its way to its handler."""

    delivery: Delivery
    key: str  # the key of its line; for a message without an id that was not with a handler yet, its twin key
    twin: str = ""  # for a message without an id: shared by all identical messages
    batch: PendingBatch | None = None  # for a message without a past, once it is handed on

    @property
    def place(self) -> PendingPlace:
        return self.delivery.destination, self.key

    @property
    def suspect_place(self) -> PendingPlace:
        """Return the place that identifies a suspect: of identical messages without an id, any may be the suspect."""
        return self.delivery.destination, self.twin or self.key


@dataclass(slots=True, eq=False)
class PendingBatch:
    """Holds messages of one source without a past, handed on together."""

    number: int
    source: Destination
    members: list[Pending]
    left: int


@dataclass(slots=True)
class Admission:
    """Lists the deliveries to hand on, and the marks to write first."""

    ones: list[Pending]
    mark: int  # for those that have lines of their own
    batches: list[PendingBatch] = field(default_factory=list)
    marks: dict[PendingPlace, int] = field(default_factory=dict)  # lines whose mark changes with this admission
    fresh: Sequence[Pending] = ()


class SuspectIsolation:
    """Decides which deliveries may pass. `choose` returns them, and `let` notes that they have passed.

    Between the two calls the choice is written to the database; if that fails, nothing has happened. While a suspect is
    out, no other delivery passes, for `PATIENCE` seconds at most. After that the suspect is marked like the others.
    """

    def __init__(self) -> None:
        self.again: deque[Pending] = deque()  # deliveries with a past, before all others
        self.waiting: deque[Pending] = deque()
        self.suspects: deque[Pending] = deque()
        self.suspected: set[PendingPlace] = set()
        self.marks: dict[PendingPlace, int] = {}  # of deliveries that are out and have lines of their own
        self._out: dict[Delivery, Pending] = {}  # handed on, and not finished
        self._alone: Pending | None = None
        self._since = 0.0  # monotonic: since when a suspect runs alone, or waits to run alone
        self._numbers = itertools.count(1)

    @property
    def crowd(self) -> int:
        """Return the number of deliveries that passed and have not finished."""
        return len(self._out)

    @property
    def crowded(self) -> bool:
        """Return whether a delivery waits for the end of a run. Any thread."""
        return bool(self.again or self.waiting or self.suspects or self._alone is not None)

    @property
    def stuck(self) -> bool:
        """Return whether a delivery waits that may pass with time alone."""
        return self.crowded and bool(self.suspects or self.again or self.waiting)

    def held_back(self) -> list[Delivery]:
        """Return the deliveries that did not pass. Any thread: each copy is made in one step."""
        waiting = [*self.again.copy(), *self.waiting.copy(), *self.suspects.copy()]
        return [one.delivery for one in waiting]

    def come(self, one: Pending, now: float, *, suspect: bool = False) -> None:
        """Add a delivery with a past, to be run."""
        if not (suspect or one.suspect_place in self.suspected):
            return self.again.append(one)
        if not self.suspects and self._alone is None:
            self._since = now
        self.suspects.append(one)

    def end(self, delivery: Delivery, now: float) -> Pending | None:
        """Note that a run is over, or will not begin, and return its entry.

        The last of a batch leaves the batch empty.
        """
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
        """Return which of the waiting deliveries and of `fresh` may pass."""
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
        if ones and self._alone is not None:  # the suspect is no longer alone
            marks[self._alone.place] = TOGETHER
        batches = [PendingBatch(next(self._numbers), source, some, len(some)) for source, some in by_source.items()]
        return Admission(ones, mark, batches, marks, fresh)

    def line_of(self, place: PendingPlace, choice: Admission) -> Pending | None:
        """Return the delivery that a line belongs to, if the line's mark changes."""
        return next((one for one in [*choice.ones, self._alone] if one is not None and one.place == place), None)

    def let(self, choice: Admission, now: float) -> None:
        """Let the chosen deliveries pass after the choice was written; the other fresh ones wait."""
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
