# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What a runner does with the deliveries that its gate lets through."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from .commands import Arrived, Input
from .interceptor import Interceptor, Plan
from .message import Delivery, Destination
from .ports import Clock
from .workers import Crew


class Admission:
    """The gate's `Boss`; a runner is one. Called on the gate's thread."""

    _interceptor: Interceptor
    _plans: Mapping[Destination, Plan]
    _crews: Mapping[Destination, Crew]
    _clock: Clock
    _lock: threading.RLock
    _live: set[int]
    feed: Callable[[Input], None]
    stopping: bool
    trouble: str = ""  # why no source is handed anything; empty: there is none

    def awaits(self, delivery: Delivery, /) -> bool:
        """Has it a past, although nothing on it says so?"""
        return self._interceptor.awaits(delivery)

    def admit(self, batch: Sequence[Delivery], /) -> None:
        """These have a past, or no id. What was lost meanwhile is the broker's again, and comes back."""
        for delivery in batch:
            with self._lock:
                if self.stopping or delivery.generation not in self._live:
                    continue
                delivery.plan = self._plans[delivery.destination]
                self.feed(Arrived(delivery, self._clock.now(), stamp=True))

    def hand(self, batch: Sequence[Delivery], /, *, first: bool) -> None:
        """It is on record that a handler has these."""
        source = batch[0].destination
        plan = self._plans[source]
        for delivery in batch:
            delivery.plan = delivery.plan or plan
        self._crews[source].put(batch, first=first)

    def can_run(self, source: Destination, /) -> bool:
        return not self._crews[source].paused

    def in_trouble(self, why: str, /) -> None:
        self.trouble = why
