# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds `Store`, the database of dead letters and operations, and where it is if nobody says."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from sqlalchemy import Connection

from ..storage.database import Database
from .tables import STORE

VARIABLE = "REDELIVER_STORE"
BUSY_TIMEOUT = 30.0  # seconds to wait for another program's lock


def location(given: str | None = None, environment: Mapping[str, str] = os.environ) -> str:
    """Return the URL of the store: the given one, else `REDELIVER_STORE`, else a file in the user's state folder."""
    if given or (given := environment.get(VARIABLE)):
        return given
    return f"sqlite:///{_user_file(environment)}"


def _user_file(environment: Mapping[str, str]) -> Path:
    state = environment.get("XDG_STATE_HOME", "")
    folder = Path(state) if os.path.isabs(state) else Path("~/.local/state").expanduser()
    return folder / "redeliver" / "store.db"


class Store:
    """Is one connection to a store. Thread-safe: one transaction runs at a time. A context manager; see `open`.

    Raises ConfigError or MissingExtra for a URL that cannot be a store's.
    """

    def __init__(self, url: str, *, create: bool = True, busy_timeout: float = BUSY_TIMEOUT) -> None:
        self._url, self._create, self._busy_timeout = url, create, busy_timeout
        self._database = Database(url, STORE, busy_timeout=busy_timeout, large=True)
        if self._database.is_sqlite and self._database.file is None:
            raise STORE.errors.url(
                "a store in memory would lose the letters that it takes from a queue",
                where=self.where,
                cure="Name a file, as in sqlite:///store.db",
            )

    @property
    def where(self) -> str:
        """Return the URL without secrets."""
        return self._database.where

    def open(self) -> Self:
        """Connect. With `create`, missing tables and a missing SQLite file are made, for this user's eyes only.

        Raises ConfigError if the tables do not fit, and StoreError if the database cannot be used.
        """
        if self._create:
            self._make_file()
        self._database.open(create=self._create)
        return self

    def close(self) -> None:
        """Disconnect. A second call does nothing."""
        self._database.close()

    def another(self) -> Store:
        """Return a further connection to the same database, which is not open yet, and whose tables have to be there.

        Each connection runs one transaction at a time, so a program that serves several people needs several.
        """
        return Store(self._url, create=False, busy_timeout=self._busy_timeout)

    def reading(self) -> AbstractContextManager[Connection]:
        """Return a transaction that only reads, and makes nobody wait. It raises StoreError."""
        return self._database.reading()

    def writing(self) -> AbstractContextManager[Connection]:
        """Return a transaction: at its end all of it is stored durably, or nothing is. It raises StoreError."""
        return self._database.writing()

    def _make_file(self) -> None:
        """Make the file before SQLite does, because SQLite gives its other files the permissions of this one."""
        file = self._database.file
        if file is None or file.exists():
            return
        with suppress(OSError):  # SQLite reports it better
            if file == _user_file(os.environ):
                file.parent.parent.mkdir(parents=True, exist_ok=True)
                file.parent.mkdir(mode=0o700, exist_ok=True)
            os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
