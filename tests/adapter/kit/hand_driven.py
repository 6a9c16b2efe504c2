# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds timers and a clock that tests of the adapter kit move by hand."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable


class HandDrivenTimers:
    """Runs what is due when the test says that time passes; nothing else."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._numbers = itertools.count()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []

    @property
    def waiting(self) -> int:
        """Return how many calls are to come, taken back or not."""
        return len(self._heap)

    def monotonic(self) -> float:
        return self.now

    def call_later(self, seconds: float, fn: Callable[[], None], /) -> None:
        heapq.heappush(self._heap, (self.now + seconds, next(self._numbers), fn))

    def advance(self, seconds: float) -> None:
        """Let time pass, and run each call at its time."""
        until = self.now + seconds
        while self._heap and self._heap[0][0] <= until:
            due, _, fn = heapq.heappop(self._heap)
            self.now = due
            fn()
        self.now = until
