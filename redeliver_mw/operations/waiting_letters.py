# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Counts the dead letters that wait in the store for somebody to replay, archive or discard them."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import func, select

from .store import Store
from .tables import letters


class Waiting(NamedTuple):
    """Says how many letters wait, and when the oldest was dead-lettered, in seconds since 1970."""

    number: int
    oldest: float


class WaitingLetters:
    """Counts over a connection of its own, which is opened by the first count. Not thread-safe."""

    def __init__(self, store: Store) -> None:
        """Take a store, which need not be open."""
        self._store = store.another()
        self._is_open = False

    def by_source(self, sources: Collection[str]) -> dict[str, Waiting]:
        """Return what waits of each of these sources; a source of which nothing waits is missing. Raises StoreError."""
        if not self._is_open:
            self._store.open()
            self._is_open = True
        asked = (
            select(letters.c.source, func.count(), func.min(letters.c.died_us))
            .where(letters.c.state == "waiting", letters.c.source.in_(sources))
            .group_by(letters.c.source)
        )
        with self._store.reading() as connection:
            return {source: Waiting(number, us / 1e6) for source, number, us in connection.execute(asked)}

    def close(self) -> None:
        """Disconnect."""
        self._store.close()
