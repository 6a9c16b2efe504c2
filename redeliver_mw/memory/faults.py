# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Provides `Faults`: a plan of what is to go wrong on a memory broker, deterministic."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass
from typing import Literal, Protocol

from ..message import Destination

FaultKind = Literal["refuse", "silence", "late", "missing", "drop_settle"]


class Breakable(Protocol):
    """Is the part of the broker that its faults use."""

    def cut(self) -> None: ...
    def block(self) -> None: ...
    def unblock(self) -> None: ...


@dataclass(slots=True)
class Fault:
    """Is one line of the plan. `times` None means until `clear()`."""

    kind: FaultKind
    target: Destination | None  # None: any
    times: int | None
    stored: bool = False  # whether the broker stored the copy before it went silent
    seconds: float = 0.0
    text: str = ""


class Faults:
    """Plans the faults of one `MemoryBroker`.

    Each method adds to the plan; the earliest matching fault is used first. Thread-safe.

    Targets are written as everywhere (`"dlq.orders"`, `"topic:prices"`, a `Destination`); None means any. `seed`
    decides the few things that are random on real brokers.
    """

    def __init__(self, seed: int = 0) -> None:
        self._plan: list[Fault] = []
        self._lock = threading.Lock()
        self._random = random.Random(seed)
        self._broker: Breakable | None = None
        self.drop_counts: bool | None = None  # on Artemis, whether a cut adds a count to every prefetched message

    def refuse(
        self, target: str | Destination | None = None, times: int | None = 1, text: str = "refused on purpose"
    ) -> None:
        """Refuse the next `times` publishes."""
        self._add(Fault("refuse", _target(target), times, text=text))

    def silence(self, target: str | Destination | None = None, times: int | None = 1, *, stored: bool = False) -> None:
        """Never answer the next `times` publishes; `stored` tells whether the broker stored the copy."""
        self._add(Fault("silence", _target(target), times, stored=stored))

    def late(self, target: str | Destination | None, seconds: float, times: int | None = 1) -> None:
        """Store the next `times` publishes at once, and answer them only after `seconds`."""
        self._add(Fault("late", _target(target), times, stored=True, seconds=seconds))

    def missing(self, target: str | Destination, times: int | None = None) -> None:
        """Make the target missing and impossible to declare, for publishing and checking."""
        self._add(Fault("missing", _target(target), times, text=f"no queue {target}"))

    def drop_settle(self, times: int = 1) -> None:
        """Lose the next `times` batches of settlements after they were written: the connection is cut on the way."""
        self._add(Fault("drop_settle", None, times))

    def cut(self) -> None:
        """Cut every connection now; unsettled messages are queued again. Adapters reconnect."""
        self._attached().cut()

    def block(self) -> None:
        """Raise a memory alarm: publishes wait, neither refused nor answered."""
        self._attached().block()

    def unblock(self) -> None:
        self._attached().unblock()

    def clear(self) -> None:
        """Forget the faults that are still planned, and lift the memory alarm."""
        with self._lock:
            self._plan.clear()
        if self._broker is not None:
            self._broker.unblock()

    def attach(self, broker: Breakable) -> None:
        """Attach the plan to a broker. Called by the broker."""
        self._broker = broker

    def take(self, target: Destination | None, *kinds: FaultKind) -> Fault | None:
        """Return the fault that is due for `target` and use it up once. Called by broker and adapter."""
        if not self._plan:
            return None
        with self._lock:
            for fault in self._plan:
                if fault.kind in kinds and fault.target in (None, target):
                    if fault.times is not None:
                        fault.times -= 1
                        if fault.times <= 0:
                            self._plan.remove(fault)
                    return fault
        return None

    def toss(self, probability: float) -> bool:
        """Return the random outcome of Artemis' race at a lost connection."""
        return self._random.random() < probability if self.drop_counts is None else self.drop_counts

    def _add(self, fault: Fault) -> None:
        if fault.times is None or fault.times > 0:
            with self._lock:
                self._plan.append(fault)

    def _attached(self) -> Breakable:
        if self._broker is None:
            raise RuntimeError("these faults belong to no broker yet: MemoryBroker(faults=...)")
        return self._broker


def _target(target: str | Destination | None) -> Destination | None:
    return None if target is None else Destination.parse(target)
