# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the adapter's one thread: calls from other threads, timers, and work at the end of a turn."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from redeliver_mw.adapter.kit.timer_heap import LoopTimer, TimerHeap

log = logging.getLogger("redeliver_mw.stomp")

TURN = 1000  # calls at most before what is to be written goes out


class StompLoop:
    """Runs one thing after the other on its thread. A fault in one of them is logged and passed to `fault`."""

    def __init__(self, name: str, fault: Callable[[BaseException], None] = lambda _: None) -> None:
        self._queue: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._timers = TimerHeap()
        self._soon: dict[Callable[[], Any], None] = {}
        self._fault = fault
        self._over = False
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self.thread.start()

    def stop(self) -> None:
        """Stop after what was called until now. From any thread."""
        self._queue.put(None)

    def call(self, fn: Callable[[], Any]) -> None:
        """Call `fn` on the loop's thread, as soon as it comes to it. From any thread."""
        self._queue.put(fn)

    def at_end_of_turn(self, fn: Callable[[], Any]) -> None:
        """Call `fn` once, after all that waits now. On the loop's thread only; the same function counts once."""
        self._soon[fn] = None

    def call_later(self, seconds: float, fn: Callable[[], Any]) -> LoopTimer:
        """Call `fn` after `seconds` on the monotonic clock. From any thread."""
        timer = LoopTimer(fn)
        due = time.monotonic() + max(0.0, seconds)
        if threading.current_thread() is self.thread:
            self._timers.add(due, timer)
        else:
            self.call(lambda: self._timers.add(due, timer))
        return timer

    def _run(self) -> None:
        while not self._over:
            self._do(self._next())
            for _ in range(TURN):
                try:
                    self._do(self._queue.get_nowait())
                except Empty:
                    break
            now = time.monotonic()
            while (timer := self._timers.take(now)) is not None:
                self._do(timer.run)
            while self._soon:
                soon, self._soon = self._soon, {}
                for fn in soon:
                    self._do(fn)

    def _next(self) -> Callable[[], Any]:
        due = self._timers.next_due()
        timeout = due - time.monotonic() if due is not None else None
        if timeout is not None and timeout <= 0:
            return _nothing
        try:
            return self._queue.get(timeout=timeout) or self._end
        except Empty:
            return _nothing

    def _do(self, fn: Callable[[], Any] | None) -> None:
        try:
            (fn or self._end)()
        except Exception as error:  # a fault of ours: what is unsettled stays the broker's
            log.exception("a fault on the connection's thread")
            self._fault(error)

    def _end(self) -> None:
        self._over = True


def _nothing() -> None:
    pass
