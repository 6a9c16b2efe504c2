# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the one thread that owns the connections: sockets, timers, and work that other threads hand in.

proton's engine is driven directly. Its stock `Container` reconnects for ever, resolves and connects outside of
anybody's patience, and needs one byte in a pipe and one wrapped event for every piece of injected work; here many
pieces share one wake-up.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from redeliver_mw.adapter.kit.timer_heap import LoopTimer, TimerHeap

log = logging.getLogger("redeliver_mw.proton")


class StartedTimer(Protocol):
    """Is a timer that has been started, and can be cancelled until its call."""

    def cancel(self) -> None: ...


class CallLoop(Protocol):
    """Calls functions on one thread, at once or later: a `ProtonLoop`, or the container of a drop-in's user."""

    def time(self) -> float: ...
    def call(self, fn: Callable[[], object], /) -> None: ...
    def call_later(self, seconds: float, fn: Callable[[], object], /) -> StartedTimer: ...


class ProtonLoop:
    """Selects, runs what is due, and then lets every pump write what came of it."""

    def __init__(self, name: str, fault: Callable[[BaseException], None]) -> None:
        self._selector: selectors.BaseSelector
        self._ear: socket.socket
        self._bell: socket.socket | None = None
        self._fault = fault
        self._work: deque[Callable[[], object]] = deque()
        self._rung = False
        self._timers = TimerHeap()
        self._stopping = False
        self.pumps: set[Callable[[], None]] = set()
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread; what was asked for before is done first."""
        self._selector = selectors.DefaultSelector()
        self._ear, self._bell = socket.socketpair()
        for end in (self._ear, self._bell):
            end.setblocking(False)
        self._selector.register(self._ear, selectors.EVENT_READ, self._heard)
        self.thread.start()

    # -- from any thread --------------------------------------------------------------------------

    def call(self, fn: Callable[[], object]) -> None:
        """Run `fn` on the thread; nothing once that has ended."""
        self._work.append(fn)
        if not self._rung and threading.get_ident() != self.thread.ident:
            self._rung = True
            self._ring()

    def stop(self, timeout: float) -> None:
        """End the thread, after what it does just now. Not from the thread itself."""
        self._stopping = True
        self._ring()
        self.thread.join(timeout)

    def _ring(self) -> None:
        bell = self._bell
        if bell is not None:
            with contextlib.suppress(OSError):  # it is full of rings already, or the thread has ended
                bell.send(b"!")

    # -- on the thread ----------------------------------------------------------------------------

    @staticmethod
    def time() -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    def call_later(self, seconds: float, fn: Callable[[], object]) -> LoopTimer:
        timer = LoopTimer(fn)
        self._timers.add(self.time() + max(0.0, seconds), timer)
        return timer

    def watch(self, sock: socket.socket, events: int, fn: Callable[[int], None]) -> None:
        """Call `fn` when the socket is ready for `events`; 0: no longer."""
        known = sock in self._selector.get_map()
        if not events:
            if known:
                self._selector.unregister(sock)
        elif known:
            self._selector.modify(sock, events, fn)
        else:
            self._selector.register(sock, events, fn)

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._turn()
            except Exception as error:  # a fault of ours or of the driver: what is unsettled stays the broker's
                log.exception("the connection's thread met a fault; the connection is opened again")
                self._fault(error)
        self._selector.close()
        self._ear.close()
        assert self._bell is not None
        self._bell.close()

    def _turn(self) -> None:
        for key, mask in self._selector.select(self._rest()):
            key.data(mask)
        self._rung = False  # before the work is taken: what is added from now on rings again
        for _ in range(len(self._work)):
            self._work.popleft()()
        now = self.time()
        while (timer := self._timers.take(now)) is not None:
            timer.run()
        for pump in list(self.pumps):
            pump()

    def _rest(self) -> float | None:
        if self._work or self._stopping:
            return 0.0
        due = self._timers.next_due()
        return max(0.0, due - self.time()) if due is not None else None

    def _heard(self, _mask: int) -> None:
        try:
            while self._ear.recv(4096):
                pass
        except BlockingIOError:
            pass
