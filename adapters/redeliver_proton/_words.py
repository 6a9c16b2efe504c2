# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Settlements on their way: many callers, one wake-up, each to the link of its generation."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from redeliver_mw.message import Delivery
from redeliver_proton._once import Salts
from redeliver_proton._source import Source, Word

log = logging.getLogger("redeliver_mw.proton")


class Words:
    """`add` from any thread, `write` on the loop's. `live`: the sources by generation."""

    def __init__(self, live: Mapping[int, Source], salts: Salts) -> None:
        self._live, self._salts = live, salts
        self._given: deque[tuple[Sequence[tuple[Delivery, Word]], Callable[[], None] | None]] = deque()

    def add(self, words: Sequence[tuple[Delivery, Word]], written: Callable[[], None] | None) -> bool:
        """Whether a `write` has to be asked for: they are the first since the last one."""
        first = not self._given
        self._given.append((words, written))
        return first

    def write(self) -> None:
        """Every word that was given until now; those of a lost generation are dropped (rule 2)."""
        touched: set[Source] = set()
        told: list[Callable[[], None]] = []
        while self._given:
            words, written = self._given.popleft()
            fresh = [self._decide(delivery, word, touched) for delivery, word in words]
            if written is not None and any(fresh):
                told.append(written)
        for source in touched:
            source.write()
        for written in told:
            written()

    def _decide(self, delivery: Delivery, word: Word, touched: set[Source]) -> bool:
        source = self._live.get(delivery.generation)
        if source is None:
            log.debug("%r is of a lost generation: not settled", delivery)
            return False
        source.decide(delivery.tag, word)
        if delivery.known:
            self._salts.settled(delivery)
        touched.add(source)
        return True
