# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps in the store what the processes of an App share for their notifications: their outages, and known failures.

The outages of an App are one text with a version. A process writes the text only if its version is still the one that
the process has read, so of several processes that find the same outage one notifies. The tables are a set of their own
beside those of the store, with their own version.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from sqlalchemy import BigInteger, Column, Connection, Integer, MetaData, Table, Text, select, update
from sqlalchemy.dialects import postgresql, sqlite

from ..redaction import clean
from ..storage.table_set import TableSet, prepare
from .selection import LETTER_STATES
from .store import Store
from .tables import STORE, letters

metadata = MetaData()
versions = Table("redeliver_notify_version", metadata, Column("version", Integer, nullable=False))
outages = Table(
    "redeliver_notify_outage",
    metadata,
    Column("app", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("state", Text, nullable=False),  # JSON: `notifications.grouping.OutageGroups`
    Column("changed_us", BigInteger, nullable=False),
)
failures = Table(
    "redeliver_notify_failure",
    metadata,
    Column("fingerprint", Text, primary_key=True),
    Column("app", Text, nullable=False),  # where it was seen first
    Column("seen_us", BigInteger, nullable=False),
)
NOTIFICATIONS: Final = TableSet(
    name="store",
    metadata=metadata,
    versions=versions,
    version=1,
    upgrades={},
    errors=STORE.errors,
    cure_missing="Name the store with --store",
    cure_no_tables="Start the App with App(operations=URL, notify=…)",
    cure_older="Start the App once with this redeliver-mw: that upgrades them",
)
BUSY_TIMEOUT: Final = 2.0  # seconds to wait for another program's lock, or for a connection


class _OthersWereFirst(Exception):
    """Means that another process has written the outages since they were read."""


class SharedOutages:
    """Reads and writes the outages of one App. For one thread at a time.

    Raises ConfigError for a URL that is no store's. The methods raise StoreError if the database cannot be used, and
    ConfigError if the tables do not fit.
    """

    def __init__(self, url: str, app: str) -> None:
        self._store = Store(url, busy_timeout=BUSY_TIMEOUT)
        self._app = clean(app)
        self._is_open = False

    @property
    def where(self) -> str:
        """Return the URL of the store without secrets."""
        return self._store.where

    def read(self) -> tuple[int, str]:
        """Return the version and the text; 0 and an empty text if there is none yet."""
        self._open()
        columns = outages.c
        asked = select(columns.version, columns.state).where(columns.app == self._app)
        with self._store.reading() as connection:
            row = connection.execute(asked).first()
        return (0, "") if row is None else (row.version, row.state)

    def known(self, fingerprints: Collection[str]) -> set[str]:
        """Return those of the fingerprints that an App has written, or that a letter of the store has."""
        if not fingerprints:
            return set()
        self._open()
        found: set[str] = set()
        with self._store.reading() as connection:
            for some in _slices(sorted(fingerprints), 500):
                written = select(failures.c.fingerprint).where(failures.c.fingerprint.in_(some))
                # naming the states lets the database use the index, which begins with the state
                listed = letters.c.state.in_(LETTER_STATES) & letters.c.fingerprint.in_(some)
                dead = select(letters.c.fingerprint).where(listed).distinct()
                for asked in (written, dead):
                    found.update(str(one) for one in connection.execute(asked).scalars())
        return found

    def write(self, version: int, state: str, new: Collection[str], at_us: int) -> bool:
        """Write the text in the place of the one of `version`, and fingerprints as known ones.

        Returns False, with nothing written, if another process has been first.
        """
        self._open()
        try:
            with self._store.writing() as connection:
                if not self._replace(connection, version, state, at_us):
                    raise _OthersWereFirst
                if new:
                    rows = [{"fingerprint": one, "app": self._app, "seen_us": at_us} for one in sorted(new)]
                    connection.execute(_insert(connection, failures).on_conflict_do_nothing(), rows)
        except _OthersWereFirst:
            return False
        return True

    def close(self) -> None:
        """Disconnect. A second call does nothing."""
        self._store.close()
        self._is_open = False

    def _replace(self, connection: Connection, version: int, state: str, at_us: int) -> bool:
        if version == 0:  # nobody has written yet: whoever changes this row is the first
            row = {"app": self._app, "version": 0, "state": "", "changed_us": at_us}
            connection.execute(_insert(connection, outages).values(row).on_conflict_do_nothing())
        read = (outages.c.app == self._app) & (outages.c.version == version)
        changed = update(outages).where(read).values(version=version + 1, state=state, changed_us=at_us)
        return bool(connection.execute(changed).rowcount)

    def _open(self) -> None:
        if not self._is_open:
            self._store.open()
            with self._store.writing() as connection:
                prepare(connection, self._store.where, NOTIFICATIONS)
            self._is_open = True


def _insert(connection: Connection, table: Table) -> Any:
    return (postgresql if connection.dialect.name == "postgresql" else sqlite).insert(table)


def _slices(values: Sequence[str], size: int) -> list[Sequence[str]]:
    return [values[at : at + size] for at in range(0, len(values), size)]
