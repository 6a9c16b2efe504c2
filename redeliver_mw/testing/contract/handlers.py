# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Offers handlers that do as instructed and remember their runs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...message import Delivery


class Trouble(Exception):
    """Is the exception that handlers of the contract raise."""


@dataclass(frozen=True, slots=True)
class Run:
    """Holds one call of a handler: its input, and when (monotonic seconds)."""

    body: bytes
    count: int  # the delivery count that the handler saw
    at: float
    redelivered: bool
    delivery: Delivery


class Handler:
    """Calls `act` with each delivery; `runs` holds every call, including those that raised. Thread-safe."""

    def __init__(self, now: Callable[[], float], act: Callable[[Delivery], Any] | None = None) -> None:
        """Call `act` for each delivery, or nothing; `now` is the time in seconds at which a run is noted."""
        self._now, self._act = now, act
        self._lock = threading.Lock()
        self.runs: list[Run] = []
        self.done: Counter[bytes] = Counter()  # bodies of the successful runs

    def __call__(self, delivery: Delivery) -> None:
        self._ran(delivery)
        if self._act is not None:
            self._act(delivery)
        with self._lock:
            self.done[delivery.body] += 1

    def decoded(self, value: Any, delivery: Delivery) -> None:
        """Handle a decoded message, for `decode=`."""
        self(delivery)

    def _ran(self, delivery: Delivery) -> None:
        run = Run(delivery.body, delivery.delivery_count, self._now(), delivery.redelivered, delivery)
        with self._lock:
            self.runs.append(run)

    def of(self, body: bytes) -> list[Run]:
        """Return the runs of one body."""
        return [run for run in self.runs if run.body == body]


def fail(delivery: Delivery) -> None:
    """Fail always."""
    raise Trouble("it never works")


def fail_first(times: int) -> Callable[[Delivery], None]:
    """Return a handler that fails the first `times` runs of each body, whatever the deliveries' own counts are."""
    seen: Counter[bytes] = Counter()

    def act(delivery: Delivery) -> None:
        seen[delivery.body] += 1
        if seen[delivery.body] <= times:
            raise Trouble(f"not yet: run {seen[delivery.body]} of this body")

    return act


def fail_if(failing: Callable[[Delivery], bool]) -> Callable[[Delivery], None]:
    """Return a handler that fails for deliveries for which `failing` returns True."""

    def act(delivery: Delivery) -> None:
        if failing(delivery):
            raise Trouble("this one is failing")

    return act
