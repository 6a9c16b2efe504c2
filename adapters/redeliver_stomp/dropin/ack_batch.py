# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Writes ACK frames that follow each other closely as one.

Each write of its own wakes the broker and the thread that reads; so acks wait for the end of the turn, for a few
milliseconds, or for a few dozen of them. A callback that turns out slow holds them back no longer than until the
connection's reading thread sees anything, a heart-beat for example.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

TOGETHER = 64
MOMENT = 0.003  # seconds


class AckBatch:
    """Collects ACK frames that follow each other closely, and writes them as one.

    The thread that flushes calls `write`, one thread at a time. `alive` tells whether the connection that the acks are
    for is still there.
    """

    def __init__(
        self,
        write: Callable[[bytes], None],
        clock: Callable[[], float] = time.monotonic,
        alive: Callable[[], bool] = lambda: True,
    ) -> None:
        self._write, self._clock, self._alive = write, clock, alive
        self._waiting: list[bytes] = []
        self._since = 0.0
        self._lock = threading.Lock()

    def add(self, frame: bytes) -> bool:
        """Add an ACK. Return True for the first one: the caller then calls `flush` at the end of the turn."""
        with self._lock:
            waiting = self._waiting
            waiting.append(frame)
            first = len(waiting) == 1
            now = self._clock()
            if first:
                self._since = now
        if len(waiting) >= TOGETHER or now - self._since > MOMENT:
            self.flush()
        return first

    def write_now(self, frames: list[bytes]) -> None:
        """Write these, and what waits. From any thread.

        Nothing is written once the connection is lost: an id could mean another message on the next one.
        """
        with self._lock:
            if self._alive():
                waiting, self._waiting = self._waiting, []
                self._write(b"".join([*waiting, *frames]))

    def flush(self) -> None:
        """Write what waits; from any thread."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
            if waiting:
                self._write(b"".join(waiting))

    def flush_old(self) -> None:
        if self._waiting and self._clock() - self._since > MOMENT:
            self.flush()

    def drop(self) -> None:
        """Drop all ACKs: the connection is lost, and the broker has their messages again."""
        with self._lock:
            self._waiting = []
