# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Order by key at work: what arrives for an ordered source goes on only when its turn has come.

A `KeySequencer` stands between the adapter and all that a delivery may meet in an App: what waits for its turn is
known neither to the interceptor nor to a worker pool, so a loss or a stop has nothing to undo.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Protocol

from ..adapter.protocol import Adapter
from ..clock import Clock
from ..message import Delivery, Destination
from ..redelivery.commands import OrderUpdate
from ..redelivery.interceptor import Interceptor
from ..redelivery.ledger import message_key, read_history_headers
from ..timers import Cancel
from .key_lanes import Admitted, KeyLanes
from .ordering import LONGEST, Order

log = logging.getLogger("redeliver_mw")

SequencerStep = Callable[[KeyLanes, float, int], Admitted]  # of lanes, the monotonic time, and how many may wait


class SequencerClient(Protocol):
    """Who deals with those whose turn it is."""

    stopping: bool

    def pass_on(self, batch: Sequence[Delivery], /) -> None: ...
    def set_aside(self, delivery: Delivery, rest: float, /) -> None: ...  # park it for so many seconds


class KeySequencer:
    """One for an App, for those of its sources that have an Order. Safe to call from any thread."""

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
        self._interceptor, self._adapter, self._clock = interceptor, adapter, clock
        self._lanes = {source: _lanes(order) for source, order in orders.items()}
        self._lock = threading.Lock()  # nothing is called with it that takes another
        self._said: set[tuple[Destination, str]] = set()
        self._timer: Cancel | None = None
        self._look_at = float("inf")

    def start(self, host: SequencerClient) -> None:
        self._host = host

    def come(self, batch: Sequence[Delivery], /) -> list[Delivery]:
        """Those of a batch that may go on now, in its order."""
        going: dict[Destination, Admitted] = {}
        passed = []
        for delivery in batch:
            source = delivery.destination
            if source not in self._orders:
                passed.append(delivery)
                continue
            one = self._take_in(delivery)
            passed += one.go
            going.setdefault(source, Admitted()).join(Admitted(park=one.park, gave_up=one.gave_up))
        for source, rest in going.items():
            self._follow(source, rest)
        return passed

    def ended(self, delivery: Delivery, /) -> None:
        """Its handler has succeeded, or will not be called."""
        if (lanes := self._lanes.get(delivery.destination)) is not None and lanes.has(delivery):
            self._do(delivery.destination, lambda lanes, now, _: lanes.end(delivery, now))

    def place(self, c: OrderUpdate) -> None:
        """What the interceptor says of one that may be the first of its key."""
        now = self._clock.now()
        if c.rests:
            self._do(c.delivery.destination, lambda lanes, mono, room: lanes.rests(c.delivery, mono, room))
        elif c.returns:
            until = now.mono + max(0.0, (c.not_before_us or now.us) / 1e6 - now.wall)
            until += self._orders[c.delivery.destination].longest or LONGEST
            self._do(
                c.delivery.destination,
                lambda lanes, mono, room: lanes.leaves(c.delivery, c.returns, until, mono, room),
            )
        else:
            self.ended(c.delivery)

    def lost(self, generation: int, running: Collection[Delivery], /) -> None:
        for source in self._orders:
            self._do(source, lambda lanes, now, _: lanes.lost(generation, running, now))

    def give_back(self, source: Destination, leaving: Iterable[Delivery], /) -> list[Delivery]:
        """These go back to the broker, and what waits goes with them, which is answered."""
        if source not in self._orders:
            return []
        waiting: list[Delivery] = []

        def empty(lanes: KeyLanes, now: float, _: int) -> Admitted:
            waiting.extend(lanes.take_waiting())
            for delivery in leaving:
                lanes.end(delivery, now)
            return Admitted()

        self._do(source, empty)
        return waiting

    def waiting(self, source: Destination) -> int:
        """Messages of this source that wait for their turn."""
        with self._lock:
            return self._lanes[source].waiting if source in self._lanes else 0

    # -- one step ------------------------------------------------------------------------------------

    def _take_in(self, delivery: Delivery) -> Admitted:
        known = delivery.redelivered or delivery.reader.marked(delivery.native)
        name = message_key(delivery, read_history_headers(delivery)) or "" if known else None
        key = self._key_of(delivery)
        if key is None and name is None:
            return Admitted([delivery])
        return self._step(
            delivery.destination, lambda lanes, now, room: lanes.come(delivery, key, now, room, name=name)
        )

    def _key_of(self, delivery: Delivery) -> Hashable:
        try:
            return self._orders[delivery.destination].key_of(delivery)
        except Exception as error:  # the user's own, or a header's odd value
            what = f"no key can be had of a message ({type(error).__name__}: {error}): such messages are free"
            self._say_once(delivery.destination, "key", what)
            return None

    def _do(self, source: Destination, step: SequencerStep) -> None:
        self._follow(source, self._step(source, step))

    def _step(self, source: Destination, step: SequencerStep) -> Admitted:
        with self._lock:
            lanes = self._lanes[source]
            going = step(lanes, self._clock.now().mono, self._room(source, lanes))
            self._interceptor.beside[source] = lanes.behind
            self._set_timer()
            return going

    def _room(self, source: Destination, lanes: KeyLanes) -> int:
        """Return how many may wait behind retrying ones: with held ones, half of the prefetch window."""
        return self._prefetch[source] // 2 - max(lanes.sick, self._interceptor.held_of(source))

    def _follow(self, source: Destination, going: Admitted) -> None:
        if going.gave_up:
            does = "they are parked" if going.park else "they go on without it, and are out of order then"
            why = f"messages wait for an earlier one of their key that is being retried, and {going.gave_up}: {does}"
            self._say_once(source, "order", why)
        if self._host.stopping:
            return
        for delivery, rest in going.park:
            self._host.set_aside(delivery, rest)
        if going.go:
            self._host.pass_on(going.go)

    def _say_once(self, source: Destination, what: str, text: str) -> None:
        level = logging.DEBUG if (source, what) in self._said else logging.WARNING
        self._said.add((source, what))
        log.log(level, "%s: %s", source, text)

    # -- time ----------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        """One timer, for the earliest bound. With the lock held."""
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
    return KeyLanes(order.most, order.longest or LONGEST, parks=order.then == "park")
