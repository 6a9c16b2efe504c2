# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Handlers that do as they are told and remember it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...message import Delivery


class Trouble(Exception):
    """What handlers of the contract raise."""


@dataclass(frozen=True, slots=True)
class Run:
    """One call of a handler: what it was given, and when (monotonic seconds)."""

    body: bytes
    count: int  # the delivery count it was shown
    at: float
    redelivered: bool
    delivery: Delivery


class Handler:
    """Calls `act` with each delivery; `runs` tells of every call, also of those that raised. Thread-safe."""

    def __init__(self, now: Callable[[], float], act: Callable[[Delivery], Any] | None = None) -> None:
        self._now, self._act = now, act
        self._lock = threading.Lock()
        self.runs: list[Run] = []
        self.done: Counter[bytes] = Counter()  # bodies of the runs that succeeded

    def __call__(self, delivery: Delivery) -> None:
        self._ran(delivery)
        if self._act is not None:
            self._act(delivery)
        with self._lock:
            self.done[delivery.body] += 1

    def decoded(self, value: Any, delivery: Delivery) -> None:
        """For `decode=`."""
        self(delivery)

    def _ran(self, delivery: Delivery) -> None:
        run = Run(delivery.body, delivery.delivery_count, self._now(), delivery.redelivered, delivery)
        with self._lock:
            self.runs.append(run)

    def of(self, body: bytes) -> list[Run]:
        """The runs of one body."""
        return [run for run in self.runs if run.body == body]


def fail(delivery: Delivery) -> None:
    """Always."""
    raise Trouble("it never works")


def fail_first(times: int) -> Callable[[Delivery], None]:
    """The first `times` runs of each body fail, whatever the deliveries say of themselves."""
    seen: Counter[bytes] = Counter()

    def act(delivery: Delivery) -> None:
        seen[delivery.body] += 1
        if seen[delivery.body] <= times:
            raise Trouble(f"not yet: run {seen[delivery.body]} of this body")

    return act


def fail_if(sick: Callable[[Delivery], bool]) -> Callable[[Delivery], None]:
    """Those that are `sick`."""

    def act(delivery: Delivery) -> None:
        if sick(delivery):
            raise Trouble("this one is sick")

    return act
