# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Lends connections to the store to threads. Each connection runs one transaction at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ..operations import Store
from ..operations.tokens import prepare_tokens

KEPT = 8  # connections that stay open while nobody uses them


class Connections:
    """Opens connections to one store as they are needed, and keeps some for the next request. Thread-safe."""

    def __init__(self, store: Store) -> None:
        """Lend connections to the database of this store, which stays as it is."""
        self._store = store
        self._lock = threading.Lock()
        self._idle: list[Store] = []
        self._prepared = False
        self._closed = False

    @contextmanager
    def lend(self) -> Iterator[Store]:
        """Lend a connection to this thread. Raises ConfigError or StoreError if the store cannot be opened."""
        with self._lock:
            found = self._idle.pop() if self._idle else None
        store = self.open() if found is None else found
        try:
            yield store
        finally:
            with self._lock:
                kept = len(self._idle) < KEPT and not self._closed
                if kept:
                    self._idle.append(store)
            if not kept:
                store.close()

    def open(self) -> Store:
        """Return a new connection, which the caller closes. Raises ConfigError, StoreError."""
        store = self._store.another().open()
        with self._lock:
            if self._prepared:
                return store
        try:
            prepare_tokens(store)
        except BaseException:
            store.close()
            raise
        with self._lock:
            self._prepared = True
        return store

    def close(self) -> None:
        """Close what is not lent. A later `lend` works, and closes its connection at its end."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for store in idle:
            store.close()
