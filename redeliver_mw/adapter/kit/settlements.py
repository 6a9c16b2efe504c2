# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Settlements on their way to an adapter's thread: many callers, one wake-up, each to the source of its generation."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from ...message import Delivery

log = logging.getLogger("redeliver_mw.adapter")

AnySettlement = TypeVar("AnySettlement")


class SettlementWriter(Protocol):
    """A source whose words were decided, one after the other, and are written at once."""

    def write(self) -> None: ...


class SettlementQueue(Generic[AnySettlement]):
    """`add` from any thread, `write` on the adapter's.

    `wake` lets the adapter's thread call `write`. `decide(delivery, word)` takes a word and answers the source that
    has to be told to write, or None where the delivery's generation is over: its word is dropped (settle-once).
    """

    def __init__(
        self, decide: Callable[[Delivery, AnySettlement], SettlementWriter | None], wake: Callable[[], None]
    ) -> None:
        self._decide, self._wake = decide, wake
        self._given: deque[tuple[Sequence[tuple[Delivery, AnySettlement]], Callable[[], None] | None]] = deque()
        self._woken = False

    def add(self, words: Sequence[tuple[Delivery, AnySettlement]], written: Callable[[], None] | None) -> None:
        """`written` is called once one of them has been written, and not at all where all were dropped."""
        self._given.append((words, written))
        if not self._woken:  # asked after the append, and cleared before the reading: no word stays behind
            self._woken = True
            self._wake()

    def write(self) -> None:
        """Every word that was given until now."""
        self._woken = False
        touched: set[SettlementWriter] = set()
        told: list[Callable[[], None]] = []
        while self._given:
            words, written = self._given.popleft()
            writers = {writer for delivery, word in words if (writer := self._taken(delivery, word)) is not None}
            touched |= writers
            if written is not None and writers:
                told.append(written)
        for writer in touched:
            writer.write()
        for written in told:
            written()

    def _taken(self, delivery: Delivery, word: AnySettlement) -> SettlementWriter | None:
        writer = self._decide(delivery, word)
        if writer is None:
            log.debug("%r is of a lost generation: not settled", delivery)
        return writer
