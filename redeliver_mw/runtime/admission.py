# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Which deliveries a runner takes on: those that arrive, in their turn, and those that its gate lets through."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ..clock import Clock
from ..flow.sequencer import KeySequencer
from ..message import Delivery, Destination
from ..redelivery.commands import Arrived, Input
from ..redelivery.interceptor import Interceptor
from ..redelivery.tracking import SourcePlan
from .workers import WorkerPool


class DeliveryGate(Protocol):
    """Lets deliveries through to their handlers once it is on record that they are there.

    Called from any thread; none of these waits.
    """

    def arrived(self, batch: Sequence[Delivery], /) -> None: ...
    def run(self, delivery: Delivery, /) -> None: ...
    def ended(self, delivery: Delivery, /) -> None: ...  # its run, or it will not be run
    def fed(self) -> None: ...  # the interceptor has dealt with an input; its lock is held
    def stop(self) -> list[Delivery]: ...  # lets nothing through from now on; answers what waited


class Admission:
    """The adapter tells it of arrivals; the gate's `Boss`, and the usher's `Host`. A runner is one."""

    _interceptor: Interceptor
    _plans: Mapping[Destination, SourcePlan]
    _crews: Mapping[Destination, WorkerPool]
    _clock: Clock
    _lock: threading.RLock
    _live: set[int]
    feed: Callable[[Input], None]
    stopping: bool
    _gate: DeliveryGate | None
    _usher: KeySequencer | None
    trouble: str = ""  # why no source is handed anything; empty: there is none

    # -- arrivals, on the adapter's thread ----------------------------------------------------------

    def arrived(self, batch: Sequence[Delivery], /) -> None:
        if self.stopping:
            return  # they stay unsettled, and are the broker's again when we close
        self.pass_on(batch if self._usher is None else self._usher.come(batch))

    def pass_on(self, batch: Sequence[Delivery], /) -> None:
        """It is their turn. Any thread."""
        if self._gate is not None:
            return self._gate.arrived(batch)
        fresh: dict[Destination, list[Delivery]] = {}
        for d in batch:
            if d.redelivered or d.reader.marked(d.native) or self._interceptor.awaits(d):
                self._take_on(d)
            else:
                fresh.setdefault(d.destination, []).append(d)
        for source, deliveries in fresh.items():
            self._crews[source].put(deliveries)

    def set_aside(self, delivery: Delivery, due_us: int, /) -> None:
        """Its turn is not soon: it is parked until then. Any thread."""
        self._take_on(delivery, aside_us=due_us)

    def run_now(self, delivery: Delivery, /) -> None:
        """Run a message that could not be parked and whose turn it is. Any thread."""
        with self._lock:
            if not self.stopping and delivery.generation in self._live:
                self._crews[delivery.destination].put((delivery,), first=True)

    def _take_on(self, delivery: Delivery, *, aside_us: int = 0) -> None:
        """What was lost meanwhile is the broker's again, and comes back."""
        with self._lock:
            if not self.stopping and delivery.generation in self._live:
                self.feed(Arrived(delivery, self._clock.now(), aside_us))

    def waiting(self, source: Destination) -> int:
        """Messages of this source that wait for one of their key."""
        return 0 if self._usher is None else self._usher.waiting(source)

    def uncopyable(self, source: Destination) -> int:
        """Messages of this source that stay unsettled here since no exact copy of them can be made."""
        return self._interceptor.uncopyable_of(source)

    def is_ordered(self, source: Destination, /) -> bool:
        """Return whether messages of this source are kept in order by key."""
        return self._usher is not None and self._usher.orders(source)

    def give_back(self, source: Destination, leaving: Sequence[Delivery], /) -> list[Delivery]:
        """These go back to the broker; answers what waited for its turn, and goes with them."""
        return [] if self._usher is None else self._usher.give_back(source, leaving)

    # -- what the gate lets through, on its thread --------------------------------------------------

    def awaits(self, delivery: Delivery, /) -> bool:
        """Has it a past, although nothing on it says so?"""
        return self._interceptor.awaits(delivery)

    def admit(self, batch: Sequence[Delivery], /) -> None:
        """These have a past."""
        for delivery in batch:
            self._take_on(delivery)

    def hand(self, batch: Sequence[Delivery], /, *, first: bool) -> None:
        """It is on record that a handler has these."""
        source = batch[0].destination
        self._crews[source].put(batch, first=first)

    def can_run(self, source: Destination, /) -> bool:
        return not self._crews[source].paused

    def in_trouble(self, why: str, /) -> None:
        self.trouble = why
