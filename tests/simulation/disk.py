# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds the world's database: SQLite in memory, with points in it.

The database outlives the processes of a history.
"""

from __future__ import annotations

import functools
import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sqlalchemy import event
from sqlalchemy.engine import Engine as DatabaseEngine

from redeliver_mw.crash_safety.store import ALONE
from redeliver_mw.storage.database import Database

from .parts import Died

if TYPE_CHECKING:
    from .life import Life
    from .world import World

URL = "sqlite:///file:simulation?mode=memory&cache=shared&uri=true"
_PLACE = "file:simulation?mode=memory&cache=shared"
WORLDS: list[World] = []  # the one that is at it now


class WatchedCursor(sqlite3.Cursor):
    def execute(self, statement: str, *parameters: Any) -> Any:
        self.connection.point("sql", statement)
        return super().execute(statement, *parameters)

    def executemany(self, statement: str, *parameters: Any) -> Any:
        self.connection.point("sql", statement)
        return super().executemany(statement, *parameters)


class WatchedConnection(sqlite3.Connection):
    """Makes a point of every statement, and two of a commit.

    The connection dies with its process, and what was not committed is gone.
    """

    life: Life | None = None
    wrote = False  # in this transaction

    def point(self, what: str, statement: str = "") -> None:
        life = self.life
        if life is None:
            return
        if life.dead:
            raise Died
        life.world.point(what)
        writes = (what == "commit" and self.wrote) or statement[:6] in ("INSERT", "UPDATE", "DELETE", "CREATE")
        self.wrote = what == "sql" and (self.wrote or writes) and statement[:5] != "BEGIN"
        if writes and life.world.weather.disk_full:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error

    def cursor(self, *_: Any) -> Any:
        return super().cursor(WatchedCursor)

    def commit(self) -> None:
        self.point("commit")
        super().commit()
        self.point("committed")

    def rollback(self) -> None:
        if self.life is None or not self.life.dead:
            super().rollback()

    def close(self) -> None:
        if self.life is None or not self.life.dead:
            super().close()

    def die(self) -> None:
        with suppress(sqlite3.ProgrammingError):  # closed already
            super().rollback()
            super().close()


@event.listens_for(DatabaseEngine, "do_connect")
def _connected(dialect: Any, record: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
    if not WORLDS:
        return None
    connection = sqlite3.connect(_PLACE, uri=True, factory=WatchedConnection, check_same_thread=False, timeout=0.0)
    world = WORLDS[-1]
    connection.life = world.life
    if world.life is not None:
        world.life.connections.append(connection)
    return connection


_engines: dict[Any, DatabaseEngine] = {}
_make_engine = Database._made


def one_engine(database: Database, *, durable: bool = True) -> DatabaseEngine:
    """Return the same engine for every process of every history, with a new connection.

    The engine keeps the statements that it has compiled.
    """
    kind = (durable, database._lasting)
    if kind not in _engines:
        _engines[kind] = _made_and_met(database, durable=durable)
    _engines[kind].dispose(close=False)
    return _engines[kind]


def _made_and_met(database: Database, *, durable: bool) -> DatabaseEngine:
    """Return an engine that has met its database.

    What an engine asks its database at their first meeting is no point of the history that happens to be first.
    """
    made, worlds = _make_engine(database, durable=durable), WORLDS.copy()
    WORLDS.clear()
    try:
        made.connect().close()
    finally:
        WORLDS[:] = worlds
    return made


class Disk:
    """Keeps what is on it until the next history begins."""

    def __init__(self) -> None:
        self._anchor = sqlite3.connect(_PLACE, uri=True, check_same_thread=False, timeout=0.0, isolation_level=None)
        database = Database(URL)
        database.open()  # makes the tables
        database.close()
        names = self._anchor.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        self._tables = [name for (name,) in names if "version" not in name and not name.startswith("sqlite_")]

    def wipe(self) -> None:
        for name in self._tables:
            self._anchor.execute(f'DELETE FROM "{name}"')

    def parked(self) -> list[tuple[str, str]]:
        """Return body and target of everything in limbo.

        Raises sqlite3.OperationalError in the middle of a transaction.
        """
        found = self._anchor.execute(
            "SELECT msg_body, port_name FROM dms_limbo_msg JOIN dms_limbo_body USING (msg_id)"
        ).fetchall()
        return [(bytes(body).decode(), str(target)) for body, target in found]

    def alone(self, run: str) -> list[str]:
        """Return the keys of what that run of the program had alone in a handler, as the next one will read it."""
        marked = "SELECT message FROM redeliver_limbo_ledger WHERE run = ? AND mark = ?"
        return [key for (key,) in self._anchor.execute(marked, (run, ALONE))]


@functools.cache
def disk() -> Disk:
    """Return the one disk for all histories of this process."""
    return Disk()
