# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Decides which messages of one source may run, and which wait for an earlier one of the same key. Pure.

Each key that is about has a *lane*: the line of its messages, each in a *place* of its own. The message in the first
place may be run; those behind it wait. A message that has failed keeps its place while it is held here, and while a
copy of it is on its way back; its lane is *retrying* then. Messages that wait in retrying lanes take room that healthy
messages need, so they are bounded, in number and time. Where a bound is met, either the last of them are parked in
limbo, each keeping its place, or the retrying one loses its place, and the others go on, in their order, without it.

A parked message comes back as a copy, whenever that is, and takes its own place again: no date decides on the order.
Behind a parked one everything that arrives for its key is parked too, so the line in the limbo has no holes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count

from ..message import Delivery
from ..redelivery.order_places import PlaceKind

LEAST_DELAY, MOST_DELAY = (
    1.0,
    10.0,
)  # seconds that messages are parked; in between as long as the lane has been retrying
GAP = 2048  # between the numbers of two places, for messages that come again in front of parked ones
TAKE_OVER = 20.0  # seconds until what another process has parked is published by this one, at the latest


@dataclass(slots=True, eq=False)
class Place:
    """Holds the place of one message in its lane. Times are monotonic seconds."""

    lane: KeyLane
    number: int
    delivery: Delivery | None  # None: away, and expected under `name`
    name: str = ""  # its message key, once it is known
    began: bool = False  # it has gone on
    parks: bool = False  # it is being parked: neither waiting nor away yet
    stays: bool = False  # it could not be parked, and is not to be tried again
    behind: bool = False  # it was parked for an earlier one's sake
    noted: bool = False  # in the limbo's database, or on its way there
    doubted: bool = False  # the limbo did not take it, so it may not be there
    since: float | None = None  # since when it has waited for one that is being retried
    until: float = 0.0  # while it is away: it is not waited for any longer

    @property
    def waits(self) -> bool:
        """Return whether a message is here that has not gone on."""
        return self.delivery is not None and not self.began and not self.parks

    @property
    def is_parked(self) -> bool:
        """Return whether it is in the limbo, or on its way there or back, for the sake of an earlier one."""
        return self.behind and (self.delivery is None or self.parks)


def _number(place: Place) -> int:
    return place.number


@dataclass(slots=True, eq=False)
class KeyLane:
    """Holds the line of one key. Times are monotonic seconds."""

    key: Hashable
    text: str = ""  # the key as text, once a place of it was noted
    line: list[Place] = field(default_factory=list)  # ascending numbers
    here: dict[Place, None] = field(default_factory=dict)  # those of them whose message is here
    retrying_since: float | None = None  # None: its first message has not failed, and is here
    round_at: float = 0.0  # when the messages that are parked now come back
    back: int = 0  # messages without a name that went back to the broker, which may not say so when they come again

    @property
    def waiting(self) -> list[Place]:
        """Return the places of the messages that wait here, in their order."""
        return sorted((place for place in self.here if place.waits), key=_number)


@dataclass(slots=True)
class Admitted:
    """Holds what follows from a step: messages that go on, those to park until a time, places no longer needed."""

    go: list[Delivery] = field(default_factory=list)
    park: list[tuple[Delivery, float]] = field(default_factory=list)  # until when, monotonic seconds
    gave_up: str = ""  # why a bound was met
    over: list[tuple[str, int]] = field(default_factory=list)  # of noted places: the key's text, and the number

    def join(self, more: Admitted) -> None:
        self.go += more.go
        self.park += more.park
        self.gave_up = self.gave_up or more.gave_up
        self.over += more.over


class KeyLanes:
    """Holds the lanes of one source.

    `now` is monotonic seconds. `room` is how many messages may wait in retrying lanes, all together.

    `name_of` gives the message key of a delivery, which is empty for a message without an id.
    """

    def __init__(
        self, most: int | None, longest: float, *, parks: bool, name_of: Callable[[Delivery], str] = lambda _: ""
    ) -> None:
        self._most, self._longest, self._parks, self._name_of = most, longest, parks, name_of
        self._lanes: dict[Hashable, KeyLane] = {}
        self._restored: dict[str, KeyLane] = {}  # by the key's text: lanes of which no message has come yet
        self._places: dict[Delivery, Place] = {}
        self._names: dict[str, list[Place]] = {}
        self._troubled: dict[KeyLane, None] = {}  # those that are looked at as time passes; there are few of them
        self._last = 0  # number
        self._adrift = False  # a connection was lost, and nothing has come since: nobody's time runs out meanwhile

    @property
    def waiting(self) -> int:
        """Return how many messages wait for their turn."""
        return sum(len(lane.waiting) for lane in self._lanes.values())

    @property
    def behind(self) -> int:
        """Return how many of the waiting messages wait for one that is being retried."""
        return sum(len(lane.waiting) for lane in self._troubled if lane.retrying_since is not None)

    @property
    def retrying(self) -> int:
        """Return how many messages are being retried here, held or running."""
        return sum(lane.retrying_since is not None and lane.line[0].began for lane in self._troubled if lane.line)

    def has(self, delivery: Delivery) -> bool:
        """Return whether it has a place. Any thread."""
        return delivery in self._places

    def expects(self, key: Hashable) -> bool:
        """Return whether messages of this key went back, and may come again without a mark that says so."""
        return bool(self._restored) or (key in self._lanes and any(p.delivery is None for p in self._lanes[key].line))

    # -- what happens ------------------------------------------------------------------------------

    def come(
        self, delivery: Delivery, key: Hashable, now: float, room: int, *, name: str | None = None, text: str = ""
    ) -> Admitted:
        """Take a message that has arrived; `name` is its message key if it may have come before."""
        self._ashore(now)
        if name:
            place = next((p for p in self._names.get(name, ()) if p.delivery is None), None)
        else:
            place = None if name is None or key is None else self._nameless(key, text)
        had_failed = place is not None and not place.behind
        if place is None:
            if key is None:
                return Admitted([delivery])
            place = self._new_place(self._lanes.get(key) or self._adopted(key, text), name or "")
        elif key is not None and place.lane.key is None and key not in self._lanes:
            self._adopted(key, place.lane.text)
        lane = place.lane
        self._arrives(place, delivery)
        place.since = None if lane.retrying_since is None else now
        going = self._go_on(lane, now, retrying=had_failed)
        if self._parks and not place.behind and self._is_behind_parked(place):
            going.join(self._park(lane, [place], now))
        else:
            going.join(self._bound(lane, now, room))
        return going

    def retries(self, delivery: Delivery, now: float, room: int) -> Admitted:
        """Note that a delivery has failed and will be run again here."""
        place = self._places.get(delivery)
        if place is None or place.lane.line[0] is not place or place.parks:
            return Admitted()
        return self._begin_retrying(place.lane, now, room)

    def leaves(self, delivery: Delivery, name: str, until: float, now: float, room: int) -> Admitted:
        """Expect a message to come again under `name`, and wait for it no longer than `until`."""
        place = self._places.get(delivery)
        if place is None:
            return Admitted()
        if self._is_double(place, name):  # the earlier place is kept, and there may be one copy for both
            for other in self._names[name]:
                other.until = max(other.until, until)
            return self.end(delivery, now)
        lane = place.lane
        quicker = next((p for p in self._names.get(name, ()) if p is not place and p.waits and p.lane is lane), None)
        if quicker is not None:  # it was quicker than the word of it
            come = quicker.delivery
            assert come is not None
            going = self._end(quicker)
            self._away(place)
            self._arrives(place, come)
            going.join(self._go_on(lane, now, retrying=not place.behind))
            return going
        self._away(place)
        self._named(place, name)
        place.until = until
        if lane.line[0] is place:
            return self._begin_retrying(lane, now, room)
        return self._go_on(lane, now)

    def stays(self, delivery: Delivery, now: float) -> Admitted | None:
        """Take back a message that could not be parked. Return None if it may run; else it waits for its turn."""
        place = self._places.get(delivery)
        if place is None or place.began:
            return None
        place.parks, place.stays = False, True
        if place.lane.line[0] is place:
            place.began, place.lane.retrying_since = True, None
            self._watch(place.lane)
            return None
        return Admitted()

    def is_known(self, delivery: Delivery) -> bool:
        """Return whether it goes on after it could not be parked: it is in other hands already."""
        place = self._places.get(delivery)
        return place is not None and place.stays

    def end(self, delivery: Delivery, now: float) -> Admitted:
        """Note that a delivery is over, or somebody else's: the next one of its key may go on."""
        place = self._places.get(delivery)
        if place is None:
            return Admitted()
        going = self._end(place)
        going.join(self._go_on(place.lane, now))
        return going

    def lost(self, generation: int, running: Collection[Delivery], now: float) -> Admitted:
        """Note that a generation is over.

        A message whose handler still runs keeps its place until the handler has ended.
        """
        gone = [d for d in self._places if d.generation == generation]
        for delivery in gone:
            if delivery in running:
                self._places[delivery].lane.back += 1  # it comes again, too
        return self._back([d for d in gone if d not in running], now)

    def give_back(self, leaving: Iterable[Delivery], now: float) -> tuple[list[Delivery], Admitted]:
        """Note that messages go back to the broker, and return all that waits, which goes with them."""
        waiting = [place.delivery for lane in self._lanes.values() for place in lane.waiting if place.delivery]
        waiting = [delivery for delivery in waiting if not self._places[delivery].stays]
        return waiting, self._back([*waiting, *(d for d in leaving if d in self._places)], now)

    def look(self, now: float, room: int) -> Admitted:
        """Look at what has changed because time has passed."""
        going = Admitted()
        for lane in list(self._troubled):
            first = lane.line[0]
            if first.delivery is None and first.until <= now and not self._adrift:
                going.join(self._end(first))
                going.join(self._go_on(lane, now))
            elif (until := self._until(lane)) is not None and until <= now:
                why = f"they have waited for {self._longest:g} s"
                going.join(self._give_up(lane, len(lane.waiting), now, why))
        return going

    def next_look(self) -> float | None:
        """Return when time alone changes something; None means never."""
        return min(self._times(), default=None)

    # -- over the end of a process -------------------------------------------------------------------

    def restore(
        self, number: int, text: str, name: str, kind: PlaceKind, *, due: float, parked: bool, now: float
    ) -> bool:
        """Take over a place that an earlier process has noted; False for a second one of the same message.

        Called in the order of the numbers, before anything comes.
        """
        self._last = max(self._last, number)
        lane = self._restored.get(text)
        if lane is not None and any(place.lane is lane for place in self._names.get(name, ())):
            return False
        if lane is None:
            lane = self._restored[text] = KeyLane(None, text)
        place = Place(lane, number, None, noted=True)
        place.behind = kind is PlaceKind.BEHIND
        place.until = max(due, now + TAKE_OVER) + self._longest if parked else now + self._longest
        lane.line.append(place)
        lane.retrying_since = now
        self._named(place, name)
        self._troubled[lane] = None
        return True

    def note(self, delivery: Delivery, name: str, text: str) -> list[tuple[int, str, PlaceKind]] | None:
        """Return what is to be remembered before the message leaves by a copy of that name.

        That is its place, and those in front of it that are not noted yet, also what is being parked by another thread.
        None if it has no place, or shares one with an earlier delivery of the same message.
        """
        place = self._places.get(delivery)
        if place is None or self._is_double(place, name):
            return None
        place.lane.text = place.lane.text or text
        found = []
        ahead = (other for other in place.lane.here if other.number < place.number)
        for other in sorted((other for other in ahead if other.doubted or not other.noted), key=_number):
            other.noted, other.doubted = True, False
            found.append((other.number, other.name or self._name_of_place(other), PlaceKind.HERE))
        place.noted, place.doubted = True, False
        self._named(place, name)
        found.append((place.number, name, PlaceKind.BEHIND if place.behind else PlaceKind.IN_FRONT))
        return found

    def doubt(self, text: str, numbers: Collection[int]) -> None:
        """Note these places of the key with this text again as soon as one behind them is noted.

        The limbo did not take them.
        """
        for place in (place for lane in self._lanes.values() if lane.text == text for place in lane.here):
            place.doubted |= place.number in numbers

    def text_of(self, delivery: Delivery) -> str:
        """Return the text of its key."""
        place = self._places.get(delivery)
        return "" if place is None else place.lane.text

    def noted(self, delivery: Delivery) -> tuple[str, int] | None:
        """Return its key's text and the number of its place, if that is noted."""
        place = self._places.get(delivery)
        return (place.lane.text, place.number) if place is not None and place.noted else None

    # -- places ----------------------------------------------------------------------------------------

    def _adopted(self, key: Hashable, text: str) -> KeyLane:
        lane = self._restored.pop(text, None) if text else None
        if lane is None:
            lane = KeyLane(key)
        lane.key = key
        self._lanes[key] = lane
        return lane

    def _new_place(self, lane: KeyLane, name: str) -> Place:
        """Make a place in the line.

        It is at the end; for a message that went back, behind those that were never parked; for a message that has a
        place already, right behind that.
        """
        twin = next((p for p in self._names.get(name, ()) if p.lane is lane), None) if name else None
        ahead = next((n for n, p in enumerate(lane.line) if p.behind and not p.began), None) if lane.back else None
        self._last += GAP
        place = Place(lane, self._last, None)
        if twin is not None:
            taken = {p.number for p in lane.line}
            place.number = next(number for number in count(twin.number + 1) if number not in taken)
        elif ahead is not None:
            below = lane.line[ahead - 1].number if ahead else lane.line[0].number - GAP * GAP
            place.number = below + max(1, (lane.line[ahead].number - below) // (lane.back + 1))
        lane.back = max(0, lane.back - 1)
        insort(lane.line, place, key=_number)
        self._named(place, name)
        return place

    def _nameless(self, key: Hashable, text: str) -> Place | None:
        """Return the first place of a key that a message without an id left; whichever comes first was in front."""
        lane = self._lanes.get(key) or self._restored.get(text)
        return None if lane is None else next((p for p in lane.line if p.delivery is None and not p.name), None)

    def _named(self, place: Place, name: str) -> None:
        if name != place.name:
            self._unnamed(place)
            place.name = name
            if name:
                self._names.setdefault(name, []).append(place)

    def _is_double(self, place: Place, name: str) -> bool:
        """Return whether an earlier place is that of the same message, which was given to us twice."""
        lane, number = place.lane, place.number
        return any(p.lane is lane and p.number < number for p in self._names.get(name, ()))

    def _unnamed(self, place: Place) -> None:
        if place.name and (known := self._names.get(place.name)) is not None:
            known.remove(place)
            if not known:
                del self._names[place.name]

    def _arrives(self, place: Place, delivery: Delivery) -> None:
        place.delivery = delivery
        self._places[delivery] = place
        place.lane.here[place] = None
        delivery.in_line = True

    def _is_behind_parked(self, place: Place) -> bool:
        n = bisect_left(place.lane.line, place.number, key=_number)
        return n > 0 and place.lane.line[n - 1].is_parked

    def _name_of_place(self, place: Place) -> str:
        return "" if place.delivery is None else self._name_of(place.delivery)

    def _away(self, place: Place) -> None:
        """Note that the message of a place is not here any more."""
        if place.delivery is not None:
            del self._places[place.delivery]
            place.delivery.in_line = False
            place.lane.here.pop(place, None)
        place.delivery, place.began, place.parks, place.since = None, False, False, None

    def _end(self, place: Place) -> Admitted:
        """Remove its place."""
        lane = place.lane
        self._away(place)
        self._unnamed(place)
        del lane.line[bisect_left(lane.line, place.number, key=_number)]
        return Admitted(over=[(lane.text, place.number)] if place.noted else [])

    def _back(self, deliveries: Iterable[Delivery], now: float) -> Admitted:
        """Note that the broker has deliveries again. They come in its order, copies and parked messages by name."""
        going, lanes = Admitted(), dict[KeyLane, None]()
        for delivery in deliveries:
            place = self._places[delivery]
            lanes[place.lane] = None
            name = place.name or (self._name_of(delivery) if place.noted or place.parks else "")
            if name or (place.noted and not place.parks):
                self._away(place)
                self._named(place, name)
                place.until = now + self._longest
                continue
            place.lane.back += not place.parks
            going.join(self._end(place))
        for lane in lanes:
            going.join(self._go_on(lane, now))
        self._adrift = True
        return going

    def _ashore(self, now: float) -> None:
        """Note that a message comes again after a loss: from now on the others are due, too."""
        if self._adrift:
            self._adrift = False
            for place in (place for lane in self._troubled for place in lane.line if place.delivery is None):
                place.until = max(place.until, now + self._longest)

    # -- one lane ------------------------------------------------------------------------------------

    def _go_on(self, lane: KeyLane, now: float, *, retrying: bool = False) -> Admitted:
        """Let the first message go on, if it has not. `retrying`: it has failed before.

        Forget a lane without messages.
        """
        if not lane.line:
            if self._lanes.get(lane.key) is lane:
                del self._lanes[lane.key]
            if self._restored.get(lane.text) is lane:
                del self._restored[lane.text]
            lane.retrying_since = None
            self._troubled.pop(lane, None)
            return Admitted()
        first, going = lane.line[0], Admitted()
        if first.waits:
            assert first.delivery is not None
            first.began, first.since = True, None
            going.go.append(first.delivery)
            if not retrying:
                lane.retrying_since = None
        elif not first.began:  # its turn has come, and it is in limbo
            self._wait_from(lane, now)
        self._watch(lane)
        return going

    def _wait_from(self, lane: KeyLane, now: float) -> None:
        """Note since when the messages that are here wait for one that is being retried."""
        if lane.retrying_since is None:
            lane.retrying_since = now
        for place in lane.here:
            if place.waits and place.since is None:
                place.since = now

    def _watch(self, lane: KeyLane) -> None:
        if lane.retrying_since is None and not lane.line[-1].is_parked:
            self._troubled.pop(lane, None)
        else:
            self._troubled[lane] = None

    def _begin_retrying(self, lane: KeyLane, now: float, room: int) -> Admitted:
        self._wait_from(lane, now)
        self._troubled[lane] = None
        return self._bound(lane, now, room)

    # -- bounds --------------------------------------------------------------------------------------

    def _bound(self, lane: KeyLane, now: float, room: int) -> Admitted:
        """Let no more messages wait behind a retrying one than may wait."""
        if lane.retrying_since is None:
            return Admitted()
        waiting = len(lane.waiting)
        above = self.behind - room
        if self._most is not None:
            above = max(above, waiting - self._most)
        if above <= 0 or not waiting:
            return Admitted()
        return self._give_up(lane, min(above, waiting), now, "more of them wait than may")

    def _give_up(self, lane: KeyLane, above: int, now: float, why: str) -> Admitted:
        """End the waiting of the last `above` messages: park them, or let all of the lane go."""
        if self._parks:
            going = self._park(lane, [place for place in lane.waiting if not place.stays][-above:], now)
        else:
            going = self._end(lane.line[0])
            going.join(self._go_on(lane, now))
        going.gave_up = why
        return going

    def _park(self, lane: KeyLane, places: list[Place], now: float) -> Admitted:
        """Park places. What comes back before the lane has been retrying for twice as long is parked again."""
        if lane.round_at <= now:
            retrying_for = 0.0 if lane.retrying_since is None else now - lane.retrying_since
            lane.round_at = now + max(LEAST_DELAY, min(retrying_for, MOST_DELAY))
        going = Admitted()
        for place in places:
            assert place.delivery is not None
            place.parks, place.behind, place.since = True, True, None
            place.until = lane.round_at + self._longest
            going.park.append((place.delivery, lane.round_at))
        self._watch(lane)
        return going

    def _until(self, lane: KeyLane) -> float | None:
        """Return until when messages wait behind a retrying one at the most; None means that there is no bound."""
        if lane.retrying_since is None:
            return None
        since = [place.since for place in lane.here if place.waits and not place.stays and place.since is not None]
        return min(since) + self._longest if since else None

    def _times(self) -> Iterator[float]:
        for lane in self._troubled:
            first = lane.line[0]
            if first.delivery is None and not self._adrift:
                yield first.until
            if (until := self._until(lane)) is not None:
                yield until
