# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Thousands of waiting stories on one timer of the connection's: a heap of (due, token). And one call to come."""

from __future__ import annotations

import heapq
from collections.abc import Callable

Cancel = Callable[[], None]  # takes a timer back; from any thread, and more than once
SLACK = 1e-6  # seconds: what two floats may differ by


def cancellable(fn: Callable[[], None]) -> tuple[Callable[[], None], Cancel]:
    """`fn` for a loop whose timers cannot be taken back from another thread, and what makes it do nothing."""
    wanted = True

    def cancel() -> None:
        nonlocal wanted
        wanted = False

    def due() -> None:
        if wanted:
            fn()

    return due, cancel


class SingleTimer:
    """One call of `fn`, set anew each time; of a hand-driven part, whose turns others would do on a thread."""

    def __init__(self, call_later: Callable[[float, Callable[[], None]], Cancel], fn: Callable[[], None]) -> None:
        self._call_later, self._fn = call_later, fn
        self._cancel: Cancel | None = None

    @property
    def is_set(self) -> bool:
        return self._cancel is not None

    def set(self, seconds: float) -> None:
        """Call in so many seconds, and at no other time."""
        self.off()
        self._cancel = self._call_later(seconds, self._fn)

    def off(self) -> None:
        if self._cancel is not None:
            self._cancel()
            self._cancel = None


class Timers:
    """Not thread-safe. `wait` and `forget` by token; `fire(token)` is called once for each that runs out.

    `call_later` is the adapter's, `now` its monotonic clock in seconds. A cancelled wait stays in the heap
    until its time, and is passed over then.
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
        self._next = float("inf")  # when the adapter's timer runs out
        self._cancel: Cancel | None = None

    def __len__(self) -> int:
        return len(self._due)

    def wait(self, token: int, seconds: float) -> None:
        """Fire in so many seconds; takes the place of an earlier wait of this token."""
        due = self._now() + seconds
        self._due[token] = due
        heapq.heappush(self._heap, (due, token))
        self._arm()

    def forget(self, token: int) -> None:
        self._due.pop(token, None)

    def run_out(self) -> None:
        """Fire whatever is due. Called by the adapter's timer."""
        self._next, self._cancel = float("inf"), None
        now = self._now() + SLACK
        while self._heap and self._heap[0][0] <= now:
            due, token = heapq.heappop(self._heap)
            if self._due.get(token) == due:
                del self._due[token]
                self._fire(token)
        self._arm()

    def _arm(self) -> None:
        """One timer of the adapter's, for the earliest that still counts."""
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        if self._heap and self._heap[0][0] < self._next:
            if self._cancel is not None:
                self._cancel()
            self._next = self._heap[0][0]
            self._cancel = self._call_later(max(0.0, self._next - self._now()), self.run_out)
