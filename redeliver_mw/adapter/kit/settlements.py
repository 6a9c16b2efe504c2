# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Brings settlements to an adapter's thread: many callers, one wake-up, each to the source of its generation."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from ...message import Delivery

log = logging.getLogger("redeliver_mw.adapter")

AnySettlement = TypeVar("AnySettlement")


class SettlementWriter(Protocol):
    """Writes at once the settlements of a source that were decided one after the other."""

    def write(self) -> None: ...


class SettlementQueue(Generic[AnySettlement]):
    """Collects settlements from many threads and writes them on the adapter's.

    `add` is called from any thread, `write` on the adapter's. `wake` lets the adapter's thread call `write`.
    `decide(delivery, settlement)` takes one and returns the source that has to write, or None where the delivery's
    generation is over: its settlement is dropped (settle-once).
    """

    def __init__(
        self, decide: Callable[[Delivery, AnySettlement], SettlementWriter | None], wake: Callable[[], None]
    ) -> None:
        self._decide, self._wake = decide, wake
        self._given: deque[tuple[Sequence[tuple[Delivery, AnySettlement]], Callable[[], None] | None]] = deque()
        self._woken = False

    def add(self, settlements: Sequence[tuple[Delivery, AnySettlement]], written: Callable[[], None] | None) -> None:
        """Add settlements; `written` is called once one of them has been written, and never if all were dropped."""
        self._given.append((settlements, written))
        if not self._woken:  # asked after the append, and cleared before the reading: none stays behind
            self._woken = True
            self._wake()

    def write(self) -> None:
        """Write every settlement that was given until now."""
        self._woken = False
        touched: set[SettlementWriter] = set()
        callbacks: list[Callable[[], None]] = []
        while self._given:
            settlements, written = self._given.popleft()
            writers = {
                writer
                for delivery, settlement in settlements
                if (writer := self._taken(delivery, settlement)) is not None
            }
            touched |= writers
            if written is not None and writers:
                callbacks.append(written)
        for writer in touched:
            writer.write()
        for written in callbacks:
            written()

    def _taken(self, delivery: Delivery, settlement: AnySettlement) -> SettlementWriter | None:
        writer = self._decide(delivery, settlement)
        if writer is None:
            log.debug("%r is of a lost generation: not settled", delivery)
        return writer
