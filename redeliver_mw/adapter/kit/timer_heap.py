# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds the timers of a loop that an adapter runs by itself: calls that are due at a time, earliest first."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable


class LoopTimer:
    """Calls something once, later; `cancel` from any thread."""

    __slots__ = ("_fn",)

    def __init__(self, fn: Callable[[], object]) -> None:
        self._fn: Callable[[], object] | None = fn

    def cancel(self) -> None:
        """Let go of what was to be called."""
        self._fn = None

    @property
    def waits(self) -> bool:
        """Return whether the timer is still to be called."""
        return self._fn is not None

    def run(self) -> None:
        """Call it now, unless it was cancelled or called already. On the loop's thread."""
        fn, self._fn = self._fn, None
        if fn is not None:
            fn()


class TimerHeap:
    """Keeps the timers of one loop. On the loop's thread; timers that are due at one time come in order of `add`."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, LoopTimer]] = []
        self._numbers = itertools.count()

    def add(self, due: float, timer: LoopTimer) -> None:
        """Keep a timer that is due at a time, seconds on the loop's clock."""
        heapq.heappush(self._heap, (due, next(self._numbers), timer))

    def take(self, now: float) -> LoopTimer | None:
        """Take out the earliest timer that is due and not cancelled; None if there is none."""
        while self._heap and self._heap[0][0] <= now:
            timer = heapq.heappop(self._heap)[2]
            if timer.waits:
                return timer
        return None

    def next_due(self) -> float | None:
        """Return when the next timer is due that is not cancelled; None if there is none."""
        while self._heap and not self._heap[0][2].waits:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
