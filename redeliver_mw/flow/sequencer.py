# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps order by key: what arrives for an ordered source goes on only when its turn has come.

A `KeySequencer` stands between the adapter and all that a delivery may meet in an App: what waits for its turn is
known neither to the interceptor nor to a worker pool, so a loss or a stop has nothing to undo.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Protocol

from ..adapter.protocol import Adapter
from ..clock import Clock
from ..errors import EVENT_CODE
from ..message import Delivery, Destination
from ..redelivery.commands import OrderUpdate
from ..redelivery.headers import read_history_headers
from ..redelivery.identity import TWIN, message_key
from ..redelivery.interceptor import Interceptor
from ..redelivery.order_places import FoundPlace, OrderPlace
from ..timers import Cancel
from .key_lanes import Admitted, KeyLanes
from .ordering import LONGEST, Order

log = logging.getLogger("redeliver_mw")

SequencerStep = Callable[[KeyLanes, float, int], Admitted]  # of lanes, the monotonic time, and how many may wait


class SequencerClient(Protocol):
    """Deals with the deliveries whose turn has come, and with those that are to be parked."""

    stopping: bool

    def pass_on(self, batch: Sequence[Delivery], /) -> None: ...
    def run_now(self, delivery: Delivery, /) -> None: ...  # it was passed on before, and could not be parked
    def set_aside(self, delivery: Delivery, due_us: int, /) -> None: ...  # park it until then
    def forget_places(self, source: Destination, places: Sequence[tuple[str, int]], /) -> None: ...  # noted ones


class KeySequencer:
    """Keeps the order by key in one App, for those of its sources that have an Order. Thread-safe."""

    _host: SequencerClient

    def __init__(
        self,
        orders: Mapping[Destination, Order],
        prefetch: Mapping[Destination, int],
        interceptor: Interceptor,
        adapter: Adapter,
        clock: Clock,
    ) -> None:
        self._orders, self._prefetch = orders, prefetch
        self._adapter, self._clock = adapter, clock
        self._budgets = {source: interceptor.budget_of(source) for source in orders}
        self._lanes = {source: _lanes(order) for source, order in orders.items()}
        self._restored = False  # some places were noted by an earlier process
        self._lock = threading.Lock()  # nothing is called with it that takes another
        self._logged: set[tuple[Destination, str]] = set()
        self._timer: Cancel | None = None
        self._look_at = float("inf")

    def start(self, host: SequencerClient) -> None:
        self._host = host

    def restore(self, source: Destination, found: Iterable[FoundPlace], /) -> list[tuple[str, int]]:
        """Take over the places that an earlier process has noted, before anything is consumed.

        Return those that are of no use, as their keys' texts and numbers.
        """
        useless = []
        now, lanes = self._clock.now(), self._lanes[source]
        for one in sorted(found, key=lambda one: one.place.number):
            place, due = one.place, now.mono + one.place.due_us / 1e6 - now.wall
            parked, mono = one.parked, now.mono
            if not lanes.restore(place.number, place.key, place.name, place.kind, due=due, parked=parked, now=mono):
                useless.append((place.key, place.number))
            self._restored = True
        with self._lock:
            self._set_timer()
        return useless

    def come(self, batch: Sequence[Delivery], /) -> list[Delivery]:
        """Return the deliveries of a batch that may go on now, in the order of the batch."""
        going: dict[Destination, Admitted] = {}
        passed = []
        for delivery in batch:
            source = delivery.destination
            if source not in self._orders:
                passed.append(delivery)
                continue
            one = self._take_in(delivery)
            passed += one.go
            going.setdefault(source, Admitted()).join(Admitted(park=one.park, gave_up=one.gave_up, over=one.over))
        for source, rest in going.items():
            self._follow(source, rest)
        return passed

    def ended(self, delivery: Delivery, /) -> None:
        """Note that the handler of a delivery has succeeded, or will not be called."""
        if (lanes := self._lanes.get(delivery.destination)) is not None and lanes.has(delivery):
            self._do(delivery.destination, lambda lanes, now, _: lanes.end(delivery, now))

    def place(self, c: OrderUpdate) -> None:
        """Take what the interceptor says of a message that has a place in the line of its key."""
        source = c.delivery.destination
        if source not in self._lanes:
            return
        if c.retries:
            self._do(source, lambda lanes, mono, room: lanes.retries(c.delivery, mono, room))
        elif c.returns:
            now = self._clock.now()
            until = now.mono + max(0.0, (c.not_before_us or now.us) / 1e6 - now.wall)
            until += self._orders[source].max_wait or LONGEST
            self._do(source, lambda lanes, mono, room: lanes.leaves(c.delivery, c.returns, until, mono, room))
        elif not (c.left and self._host.stopping):  # what is left at a stop comes again, and has its place then
            self.ended(c.delivery)

    def may_run(self, delivery: Delivery, /) -> bool:
        """Return whether the interceptor may let it run: what could not be parked waits for its turn."""
        if (lanes := self._lanes.get(delivery.destination)) is None or not lanes.has(delivery):
            return True
        with self._lock:
            return lanes.stays(delivery, self._clock.now().mono) is None

    def lost(self, generation: int, running: Collection[Delivery], /) -> None:
        for source in self._orders:
            self._do(source, lambda lanes, now, _: lanes.lost(generation, running, now))

    def give_back(self, source: Destination, leaving: Iterable[Delivery], /) -> list[Delivery]:
        """Note that deliveries go back to the broker, and return the waiting ones, which go back with them."""
        if source not in self._orders:
            return []
        waiting: list[Delivery] = []

        def empty(lanes: KeyLanes, now: float, _: int) -> Admitted:
            found, going = lanes.give_back(leaving, now)
            waiting.extend(found)
            return going

        self._do(source, empty)
        return waiting

    def note(self, delivery: Delivery, name: str, due_us: int, /) -> tuple[OrderPlace, ...]:
        """Return the places to be remembered with a copy, of that name, that is parked: its own is the last of them."""
        if (lanes := self._lanes.get(delivery.destination)) is None or not lanes.has(delivery):
            return ()
        text = self._text_of(delivery)
        with self._lock:
            found = lanes.note(delivery, name, text) or []
            text = lanes.text_of(delivery)
        return tuple(OrderPlace(number, text, known, kind, due_us) for number, known, kind in found)

    def not_noted(self, source: Destination, places: Collection[OrderPlace], /) -> None:
        """Take note that the limbo did not take these places, which `note` gave. Any thread."""
        with self._lock:
            for text in {place.key for place in places}:
                self._lanes[source].doubt(text, [place.number for place in places])

    def noted(self, delivery: Delivery, /) -> tuple[str, int] | None:
        """Return the key's text and the number of its place, if the limbo remembers it."""
        if (lanes := self._lanes.get(delivery.destination)) is None or not lanes.has(delivery):
            return None
        with self._lock:
            return lanes.noted(delivery)

    def orders(self, source: Destination, /) -> bool:
        """Return whether messages of this source are kept in order."""
        return source in self._orders

    def waiting(self, source: Destination) -> int:
        """Return how many messages of this source wait for their turn."""
        with self._lock:
            return self._lanes[source].waiting if source in self._lanes else 0

    # -- one step ------------------------------------------------------------------------------------

    def _take_in(self, delivery: Delivery) -> Admitted:
        key, lanes = self._key_of(delivery), self._lanes[delivery.destination]
        known = delivery.redelivered or delivery.reader.marked(delivery.native) or lanes.expects(key)
        name = _name_of(delivery) if known else None
        if key is None and name is None:
            return Admitted([delivery])
        text = _text(key) if self._restored and key is not None else ""
        return self._step(
            delivery.destination, lambda lanes, now, room: lanes.come(delivery, key, now, room, name=name, text=text)
        )

    def _text_of(self, delivery: Delivery) -> str:
        key = self._key_of(delivery)
        return "" if key is None else _text(key)

    def _key_of(self, delivery: Delivery) -> Hashable:
        try:
            return self._orders[delivery.destination].key_of(delivery)
        except Exception as error:  # the user's own, or a header's odd value
            what = f"no key can be had of a message ({type(error).__name__}: {error}): such messages are free"
            self._say_once(delivery.destination, "order-key-missing", what)
            return None

    def _do(self, source: Destination, step: SequencerStep) -> None:
        self._follow(source, self._step(source, step))

    def _step(self, source: Destination, step: SequencerStep) -> Admitted:
        budget = self._budgets[source]
        with self._lock:
            lanes = self._lanes[source]
            # Half of the prefetch window is for messages that are retried or held, and for those that wait behind them.
            room = self._prefetch[source] // 2 - max(lanes.retrying, len(budget.held))
            going = step(lanes, self._clock.now().mono, room)
            budget.beside = lanes.behind
            self._set_timer()
            return going

    def _follow(self, source: Destination, going: Admitted) -> None:
        if going.gave_up:
            does = "they are parked" if going.park else "they go on without it, and are out of order then"
            why = f"messages wait for an earlier one of their key that is being retried, and {going.gave_up}: {does}"
            self._say_once(source, "order-given-up", why)
        if going.over:
            self._host.forget_places(source, going.over)
        if self._host.stopping:
            return
        for delivery, due in going.park:
            now = self._clock.now()
            self._host.set_aside(delivery, now.us + round((due - now.mono) * 1e6))
        again = [delivery for delivery in going.go if self._lanes[source].is_known(delivery)]
        if fresh := [delivery for delivery in going.go if delivery not in again]:
            self._host.pass_on(fresh)
        for delivery in again:
            self._host.run_now(delivery)

    def _say_once(self, source: Destination, event: str, text: str) -> None:
        level = logging.DEBUG if (source, event) in self._logged else logging.WARNING
        self._logged.add((source, event))
        log.log(level, "%s: %s", source, text, extra={EVENT_CODE: event})

    # -- time ----------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        """Start one timer, for the earliest bound. Called with the lock held."""
        times = [at for lanes in self._lanes.values() if (at := lanes.next_look()) is not None]
        at = min(times, default=float("inf"))
        if at >= self._look_at:
            return  # it looks early enough, and then sees what is next
        if self._timer is not None:
            self._timer()
        self._look_at = at
        self._timer = self._adapter.call_later(max(0.0, at - self._clock.now().mono), self._look)

    def _look(self) -> None:
        with self._lock:
            self._look_at, self._timer = float("inf"), None
        for source in self._orders:
            self._do(source, lambda lanes, now, room: lanes.look(now, room))


def _lanes(order: Order) -> KeyLanes:
    return KeyLanes(order.max_waiting, order.max_wait or LONGEST, parks=order.overflow == "park", name_of=_name_of)


def _name_of(delivery: Delivery) -> str:
    """Return the key under which the message is known.

    It is empty for a message without an id, whose twin key tells it from no other one.
    """
    key = message_key(delivery, past := read_history_headers(delivery)) or ""
    return "" if key.startswith(TWIN) and not past.lineage else key


def _text(key: Hashable) -> str:
    """Return what the limbo remembers of a key: the same in every process, if its type has a repr of its own."""
    return hashlib.sha256(f"{type(key).__name__} {key!r}".encode("utf-8", "backslashreplace")).hexdigest()[:32]
