# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Provides `ManualClock`, moved by hand, and the loops that callbacks run on.

A loop runs callbacks one after the other. On a `ManualClock` nothing runs by itself: all loops share the clock's
agenda, and `advance()` runs the agenda on the calling thread, in an order that is always the same. On any other clock a
loop has one daemon thread of its own, which waits while there is nothing to do.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from ..clock import Clock, Moment
from ..timers import Cancel

logger = logging.getLogger("redeliver_mw.memory")

NEW_YEAR_2026 = 1_767_225_600.0  # 2026-01-01T00:00:00Z
_GRAIN = 1e-9  # so that ten advances by 0.1 reach a timer of 1.0
ClockCallback = Callable[[], None]


class ClockLoop(Protocol):
    """Runs callbacks one after the other. Thread-safe."""

    def call_soon(self, fn: ClockCallback, /) -> None: ...
    def call_later(self, seconds: float, fn: ClockCallback, /) -> Cancel: ...
    # run what is ready, then `fn`, and nothing more
    def finish(self, fn: ClockCallback, timeout: float, /) -> None: ...


def loop_for(clock: Clock, name: str, lock: AbstractContextManager[object] | None = None) -> ClockLoop:
    """Return a loop on this clock.

    With a `lock` every callback runs under the lock, and the thread ends while there is nothing to wait for; this is
    meant for a broker's own loop.
    """
    return _HandLoop(clock) if isinstance(clock, ManualClock) else _ThreadLoop(clock, name, lock)


class _Timer:
    __slots__ = ("agenda", "fn", "owner")

    def __init__(self, agenda: _Agenda, owner: ClockLoop, fn: ClockCallback) -> None:
        self.agenda, self.owner = agenda, owner
        self.fn: ClockCallback | None = fn

    def cancel(self) -> None:
        if self.fn is not None:
            self.fn = None
            self.agenda.forgotten += 1


class _Agenda:
    """Holds callbacks to run at once, in order, and callbacks to run at an instant, in order of time.

    Not thread-safe.
    """

    def __init__(self) -> None:
        self.ready: deque[tuple[ClockLoop, ClockCallback]] = deque()
        self.forgotten = 0  # cancelled timers that are still in the heap
        self._timers: list[tuple[float, int, _Timer]] = []
        self._order = itertools.count()

    def add(self, when: float, owner: ClockLoop, fn: ClockCallback) -> _Timer:
        timer = _Timer(self, owner, fn)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        if self.forgotten > 64 and self.forgotten * 2 > len(self._timers):  # so that memory does not grow
            self._timers = [entry for entry in self._timers if entry[2].fn is not None]
            heapq.heapify(self._timers)
            self.forgotten = 0
        return timer

    def next_instant(self) -> float | None:
        while self._timers and self._timers[0][2].fn is None:
            heapq.heappop(self._timers)
            self.forgotten -= 1
        return self._timers[0][0] if self._timers else None

    def pop_due(self, now: float) -> float | None:
        """Make the first timer that is due ready; return its instant, at most a grain after `now`."""
        when = self.next_instant()
        if when is None or when > now + _GRAIN:
            return None
        timer = heapq.heappop(self._timers)[2]
        if timer.fn is not None:
            self.ready.append((timer.owner, timer.fn))
            timer.fn = None
        return when


class ManualClock:
    """Stands still until `advance()` is called. For one thread.

    The clock starts at monotonic 0.0 and at 2026-01-01T00:00:00Z.
    """

    def __init__(self) -> None:
        self._mono = 0.0
        self._ahead = NEW_YEAR_2026  # of the wall clock over the monotonic one
        self._agenda = _Agenda()
        self._busy = False

    def now(self) -> Moment:
        return Moment(self._mono, self._mono + self._ahead)

    def wall_step(self, seconds: float) -> None:
        """Step the wall clock forward, or back with a negative number of seconds; the monotonic clock is unaffected."""
        self._ahead += seconds

    def advance(self, seconds: float) -> None:
        """Let `seconds` >= 0 pass. Every timer that falls due runs at its own instant.

        If called from within a callback, it only moves the clocks: the one thread is busy, so timers that fall due
        meanwhile run late. Exceptions of a callback are raised here.
        """
        if not seconds >= 0:
            raise ValueError(f"time goes forward: {seconds!r}")
        goal = self._mono + seconds
        if not self._busy:
            self.run_until_idle()
            while (when := self._agenda.next_instant()) is not None and when <= goal + _GRAIN:
                self._mono = max(self._mono, when)
                self.run_until_idle()
        self._mono = max(self._mono, goal)

    def run_until_idle(self, limit: int = 1_000_000) -> int:
        """Run everything that is due now, and what follows from that; return the number of callbacks.

        Raises RuntimeError after `limit` callbacks, because something loops.
        """
        if self._busy:
            raise RuntimeError("run_until_idle() was called from within a callback")
        for done in range(limit):
            if not self.step():
                return done
        raise RuntimeError(f"still not idle after {limit} callbacks")

    def is_due(self) -> bool:
        """Return whether `step` has a callback to run. The clock then reads the timer's own instant, or a later one."""
        agenda = self._agenda
        while not agenda.ready:
            when = agenda.pop_due(self._mono)
            if when is None:
                return False
            # it may be a grain away, and nobody may read a time before the timer's instant
            self._mono = max(self._mono, when)
        return True

    def step(self) -> bool:
        """Run one callback that is due now; return False if none is."""
        if not self.is_due():
            return False
        fn = self._agenda.ready.popleft()[1]
        self._busy = True
        try:
            fn()
        finally:
            self._busy = False
        return True


class _HandLoop:
    """Uses a share of a `ManualClock`'s agenda."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._agenda = clock._agenda
        self._finished = False

    def call_soon(self, fn: ClockCallback, /) -> None:
        if not self._finished:
            self._agenda.ready.append((self, fn))

    def call_later(self, seconds: float, fn: ClockCallback, /) -> Cancel:
        def run() -> None:
            if not self._finished:
                fn()

        return self._agenda.add(self._clock.now().mono + max(0.0, seconds), self, run).cancel

    def finish(self, fn: ClockCallback, timeout: float, /) -> None:
        while own := [entry for entry in self._agenda.ready if entry[0] is self]:
            for entry in own:
                self._agenda.ready.remove(entry)
                entry[1]()
        fn()
        self._finished = True


class _ThreadLoop:
    """Runs callbacks on a daemon thread, which is started when it is first needed."""

    def __init__(self, clock: Clock, name: str, lock: AbstractContextManager[object] | None) -> None:
        self._clock, self._name, self._brief = clock, name, lock is not None
        self._lock: AbstractContextManager[object] = nullcontext() if lock is None else lock
        self._agenda = _Agenda()
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._finished = False

    def call_soon(self, fn: ClockCallback, /) -> None:
        with self._wake:
            self._agenda.ready.append((self, fn))
            self._start()

    def call_later(self, seconds: float, fn: ClockCallback, /) -> Cancel:
        with self._wake:
            timer = self._agenda.add(self._clock.now().mono + max(0.0, seconds), self, fn)
            self._start()

        def cancel() -> None:
            with self._wake:
                timer.cancel()

        return cancel

    def finish(self, fn: ClockCallback, timeout: float, /) -> None:
        if threading.current_thread() is self._thread:
            raise RuntimeError("close() was called on the adapter's own thread")
        done = threading.Event()

        def last() -> None:
            try:
                fn()
            finally:
                self._finished = True
                done.set()

        self.call_soon(last)
        done.wait(timeout)

    def _start(self) -> None:
        """Start the thread. Called with the lock held."""
        if self._thread is None and not self._finished:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._wake.notify()

    def _run(self) -> None:
        while batch := self._due():
            for _, fn in batch:
                if self._finished:
                    return
                try:
                    with self._lock:
                        fn()
                except Exception:
                    logger.exception("a callback on %s raised", self._name)

    def _due(self) -> deque[tuple[ClockLoop, ClockCallback]]:
        """Wait for callbacks that are due and return them; empty if the thread is to end."""
        agenda = self._agenda
        with self._wake:
            while not self._finished:
                while agenda.pop_due(self._clock.now().mono) is not None:
                    pass
                if agenda.ready:
                    batch, agenda.ready = agenda.ready, deque()
                    return batch
                when = agenda.next_instant()
                if when is None and self._brief:
                    break
                rest = None if when is None else min(when - self._clock.now().mono, threading.TIMEOUT_MAX)
                self._wake.wait(rest)
            self._thread = None
            return deque()
