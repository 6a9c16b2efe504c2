# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Who of one source may go to a handler, and who waits for an earlier message of the same key. Pure.

Each key that is about has a *lane*. Its *head* is the one message that may be run; what comes after it waits. A head
that has failed keeps its place while it is held here, and while a copy of it is on its way back; its lane is *sick*
then. What waits in sick lanes takes room that healthy messages need, so it is bounded, in number and time. Where a
bound is met, either the rest is parked in limbo, or it is let go: the sick one loses its place, and the others go on,
in their order, without it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Iterator
from dataclasses import dataclass, field

from ..message import Delivery

LEAST_REST = 1.0  # seconds that the rest is parked at the least; else as long again as the lane has been sick
BETWEEN = 0.001  # seconds between two of a lane that are parked, so that they come back in their order
BEHIND = 0.5  # seconds between those that are parked again, which come one after the other, and those that are new


@dataclass(slots=True, eq=False)
class WaitingDelivery:
    """A message behind the head of its lane."""

    delivery: Delivery
    since: float | None = None  # since when it has waited for one that is being retried
    name: str | None = None  # its message key, if it has been here before

    @property
    def is_new(self) -> bool:
        return self.name is None


@dataclass(slots=True, eq=False)
class KeyLane:
    """What is about of one key. Times are monotonic seconds."""

    key: Hashable
    head: Delivery | None = None
    waiting: deque[WaitingDelivery] = field(default_factory=deque)
    sick_since: float | None = None  # None: its head has not failed
    awaited: str = ""  # the head left, and comes again under this message key
    away_until: float = 0.0  # when it is not awaited any longer
    parked_until: float = 0.0  # when the last that was parked comes back
    round_at: float = 0.0  # when the first does
    again: int = 0  # how many of these were parked before
    anew: int = 0  # and how many were not
    back: int = 0  # how many went back to the broker, which may not say so when they come again

    @property
    def is_free(self) -> bool:
        """Nobody has its first place."""
        return self.head is None and not self.awaited


@dataclass(slots=True)
class Admitted:
    """What follows from a step: these go on, and these are parked, for so many seconds."""

    go: list[Delivery] = field(default_factory=list)
    park: list[tuple[Delivery, float]] = field(default_factory=list)
    gave_up: str = ""  # why a bound was met

    def join(self, more: Admitted) -> None:
        self.go += more.go
        self.park += more.park
        self.gave_up = self.gave_up or more.gave_up


class KeyLanes:
    """The lanes of one source. `now` is monotonic seconds; `room`: how many may wait in sick lanes, all together."""

    def __init__(self, most: int | None, longest: float, *, parks: bool) -> None:
        self._most, self._longest, self._parks = most, longest, parks
        self._lanes: dict[Hashable, KeyLane] = {}
        self._heads: dict[Delivery, KeyLane] = {}
        self._awaited: dict[str, KeyLane] = {}
        self._troubled: set[KeyLane] = set()  # sick ones, and free ones with something parked; there are few of them

    @property
    def waiting(self) -> int:
        """Messages that wait for their turn."""
        return sum(len(lane.waiting) for lane in self._lanes.values())

    @property
    def behind(self) -> int:
        """Those of them that wait for one that is being retried."""
        return sum(len(lane.waiting) for lane in self._troubled if lane.sick_since is not None)

    @property
    def sick(self) -> int:
        """Messages that are being retried here, held or running."""
        return sum(lane.sick_since is not None and lane.head is not None for lane in self._troubled)

    def has(self, delivery: Delivery) -> bool:
        """It is the first of its key. From any thread."""
        return delivery in self._heads

    # -- what happens ------------------------------------------------------------------------------

    def come(self, delivery: Delivery, key: Hashable, now: float, room: int, *, name: str | None = None) -> Admitted:
        """It has arrived. `name`: its message key, or what stands for it, if it has been here before."""
        if name is not None and (lane := self._awaited.pop(name, None)) is not None:
            lane.awaited = ""
            return self._first(lane, delivery)
        if key is None:
            return Admitted([delivery])
        lane = self._lanes.setdefault(key, KeyLane(key))
        if lane.back:
            lane.back, name = lane.back - 1, name or ""
        waiter = WaitingDelivery(delivery, None if lane.sick_since is None else now, name)
        if waiter.is_new and now < lane.parked_until:
            return self._park(lane, [waiter], now)  # behind what is parked already
        if lane.is_free:
            return self._first(lane, delivery)
        lane.waiting.append(waiter)
        return self._bound(lane, now, room)

    def rests(self, delivery: Delivery, now: float, room: int) -> Admitted:
        """It failed, and will be run again here."""
        lane = self._heads.get(delivery)
        return Admitted() if lane is None else self._sickens(lane, now, room)

    def leaves(self, delivery: Delivery, name: str, until: float, now: float, room: int) -> Admitted:
        """It failed, and comes again under `name`; not awaited any longer than `until`."""
        lane = self._heads.get(delivery)
        if lane is None or name in self._awaited:
            return self.end(delivery, now)
        del self._heads[delivery]
        if (come := next((waiter for waiter in lane.waiting if waiter.name == name), None)) is not None:
            lane.waiting.remove(come)  # it was quicker than the word of it
            return self._first(lane, come.delivery)
        lane.head, lane.awaited, lane.away_until = None, name, until
        self._awaited[name] = lane
        return self._sickens(lane, now, room)

    def end(self, delivery: Delivery, now: float) -> Admitted:
        """It is over, or somebody else's: the next of its key may go on."""
        lane = self._heads.get(delivery)
        return Admitted() if lane is None else self._next(lane, now)

    def lost(self, generation: int, running: Collection[Delivery], now: float) -> Admitted:
        """A generation is over. Whose handler still runs keeps its place until that has ended."""
        going = Admitted()
        for lane in list(self._lanes.values()):
            stay = deque(w for w in lane.waiting if w.delivery.generation != generation)
            lane.back, lane.waiting = len(lane.waiting) - len(stay), stay
            head = lane.head
            if head is not None and head.generation == generation and head not in running:
                lane.back += 1
                going.join(self._next(lane, now))
        return going

    def look(self, now: float, room: int) -> Admitted:
        """Time has passed."""
        going = Admitted()
        for lane in [lane for lane in self._lanes.values() if lane in self._troubled]:
            if lane.awaited and lane.away_until <= now:
                going.join(self._next(lane, now))
            elif (until := self._until(lane)) is not None and until <= now:
                going.join(self._give_up(lane, len(lane.waiting), now, f"they have waited for {self._longest:g} s"))
            elif lane.is_free:
                self._sweep(lane, now)
        return going

    def next_look(self) -> float | None:
        """When time alone changes something; None: never."""
        return min(self._times(), default=None)

    def take_waiting(self) -> list[Delivery]:
        """Whatever waits: it waits here no longer."""
        taken = [waiter.delivery for lane in self._lanes.values() for waiter in lane.waiting]
        for lane in self._lanes.values():
            lane.waiting.clear()
        return taken

    # -- one lane ------------------------------------------------------------------------------------

    def _first(self, lane: KeyLane, delivery: Delivery) -> Admitted:
        lane.head = delivery
        self._heads[delivery] = lane
        return Admitted([delivery])

    def _next(self, lane: KeyLane, now: float) -> Admitted:
        """Its first place is free."""
        if lane.head is not None:
            del self._heads[lane.head]
        self._awaited.pop(lane.awaited, None)
        lane.head, lane.awaited, lane.sick_since = None, "", None
        self._troubled.discard(lane)
        if lane.waiting:
            return self._first(lane, lane.waiting.popleft().delivery)
        self._sweep(lane, now)
        return Admitted()

    def _sweep(self, lane: KeyLane, now: float) -> None:
        if lane.parked_until <= now:
            del self._lanes[lane.key]
            self._troubled.discard(lane)
        else:
            self._troubled.add(lane)

    def _sickens(self, lane: KeyLane, now: float, room: int) -> Admitted:
        if lane.sick_since is None:
            lane.sick_since = now
            self._troubled.add(lane)
        for waiter in lane.waiting:
            waiter.since = now if waiter.since is None else waiter.since
        return self._bound(lane, now, room)

    # -- bounds --------------------------------------------------------------------------------------

    def _bound(self, lane: KeyLane, now: float, room: int) -> Admitted:
        """No more wait behind a sick one than may."""
        if lane.sick_since is None:
            return Admitted()
        above = self.behind - room
        if self._most is not None:
            above = max(above, len(lane.waiting) - self._most)
        if above <= 0 or not lane.waiting:
            return Admitted()
        return self._give_up(lane, min(above, len(lane.waiting)), now, "more of them wait than may")

    def _give_up(self, lane: KeyLane, above: int, now: float, why: str) -> Admitted:
        """The last so many wait no longer: they are parked, or all of the lane is let go."""
        if self._parks:
            gone = [lane.waiting.pop() for _ in range(above)]
            going = self._park(lane, gone[::-1], now)
        else:
            going = self._next(lane, now)
        going.gave_up = why
        return going

    def _park(self, lane: KeyLane, waiters: list[WaitingDelivery], now: float) -> Admitted:
        """For as long again as the lane has been sick, in rounds: who comes back too early is put in front again."""
        if lane.round_at <= now:
            sick_for = 0.0 if lane.sick_since is None else now - lane.sick_since
            lane.round_at, lane.again, lane.anew = now + max(LEAST_REST, sick_for), 0, 0
        parked = []
        for waiter in waiters:
            lane.again += not waiter.is_new
            lane.anew += waiter.is_new
            due = lane.round_at + (BEHIND + lane.anew * BETWEEN if waiter.is_new else lane.again * BETWEEN)
            lane.parked_until = max(lane.parked_until, due)
            parked.append((waiter.delivery, due - now))
        return Admitted(park=parked)

    def _until(self, lane: KeyLane) -> float | None:
        """How long those behind a sick one wait at the most."""
        since = lane.waiting[0].since if lane.waiting and lane.sick_since is not None else None
        return None if since is None else since + self._longest

    def _times(self) -> Iterator[float]:
        for lane in self._troubled:
            if lane.awaited:
                yield lane.away_until
            if (until := self._until(lane)) is not None:
                yield until
            if lane.is_free:
                yield lane.parked_until
