# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Multiplexes many timers onto a single adapter timer, using a heap of (due, token).

Also provides a restartable one-shot timer.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

Cancel = Callable[[], None]  # cancels a timer; thread-safe, and may be called more than once
SLACK = 1e-6  # seconds: the largest difference between two floats that counts as none


def cancellable(fn: Callable[[], None]) -> tuple[Callable[[], None], Cancel]:
    """Return `fn` wrapped for a loop, and a function that disarms it.

    This is for loops whose timers cannot be cancelled from another thread.
    """
    wanted = True

    def cancel() -> None:
        nonlocal wanted
        wanted = False

    def due() -> None:
        if wanted:
            fn()

    return due, cancel


class SingleTimer:
    """Calls `fn` once after a delay that can be set anew.

    Stands in for the worker thread when a test drives the clock by hand.
    """

    def __init__(self, call_later: Callable[[float, Callable[[], None]], Cancel], fn: Callable[[], None]) -> None:
        self._call_later, self._fn = call_later, fn
        self._cancel: Cancel | None = None

    @property
    def is_set(self) -> bool:
        return self._cancel is not None

    def set(self, seconds: float) -> None:
        """Call `fn` after this many seconds, and cancel any earlier call."""
        self.off()
        self._cancel = self._call_later(seconds, self._fn)

    def off(self) -> None:
        if self._cancel is not None:
            self._cancel()
            self._cancel = None


class Timers:
    """Waits for many tokens at once; `fire(token)` is called once for each token whose time has come. Not thread-safe.

    `call_later` is the adapter's, `now` its monotonic clock in seconds. A cancelled wait stays in the heap until its
    time and is skipped then.
    """

    def __init__(
        self,
        call_later: Callable[[float, Callable[[], None]], Cancel],
        now: Callable[[], float],
        fire: Callable[[int], None],
    ) -> None:
        self._call_later, self._now, self._fire = call_later, now, fire
        self._heap: list[tuple[float, int]] = []
        self._due: dict[int, float] = {}
        self._next = float("inf")  # when the adapter's timer fires
        self._cancel: Cancel | None = None

    def __len__(self) -> int:
        return len(self._due)

    def wait(self, token: int, seconds: float) -> None:
        """Fire after this many seconds; replaces an earlier wait of this token."""
        due = self._now() + seconds
        self._due[token] = due
        heapq.heappush(self._heap, (due, token))
        self._arm()

    def forget(self, token: int) -> None:
        self._due.pop(token, None)

    def run_out(self) -> None:
        """Fire every token that is due. Called by the adapter's timer."""
        self._next, self._cancel = float("inf"), None
        now = self._now() + SLACK
        while self._heap and self._heap[0][0] <= now:
            due, token = heapq.heappop(self._heap)
            if self._due.get(token) == due:
                del self._due[token]
                self._fire(token)
        self._arm()

    def _arm(self) -> None:
        """Set the adapter's timer to the earliest wait that is not cancelled."""
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        if self._heap and self._heap[0][0] < self._next:
            if self._cancel is not None:
                self._cancel()
            self._next = self._heap[0][0]
            self._cancel = self._call_later(max(0.0, self._next - self._now()), self.run_out)
