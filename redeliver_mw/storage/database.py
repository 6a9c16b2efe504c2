# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Connects to a SQLite file or a PostgreSQL database, runs transactions, and translates errors."""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from ..errors import MissingExtra, RedeliverError
from ..redaction import redact, redact_url
from .schema import LIMBO
from .table_set import ErrorOfTables, TableSet, prepare

_POSTGRESQL_TIME = "SELECT EXTRACT(EPOCH FROM clock_timestamp())"
NOT_OPEN = -1, -1  # the inode of no file
_LARGE_CACHE, _LARGE_LOG = 8000, 4000  # KiB; pages of 4 KiB


class SqliteProblem(NamedTuple):
    """Holds what an error code of SQLite means: the problem, the cure, and the field of `DatabaseErrors`."""

    what: str
    cure: str
    field: str


# SQLite's own codes whose names explain too little.
_LOCKED = SqliteProblem("another program holds it locked", "End what holds it, and try again", "locked")
_OF_SQLITE = {
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_FULL: SqliteProblem("its disk is full", "Make room; nothing was half-written", "disk"),
    sqlite3.SQLITE_READONLY: SqliteProblem(
        "it may not be written to", "Let this user write the file and its folder", "not_writable"
    ),
    sqlite3.SQLITE_CANTOPEN: SqliteProblem(
        "it cannot be opened", "Name a file in a folder that this user may write to", "not_writable"
    ),
    sqlite3.SQLITE_CORRUPT: SqliteProblem(
        "it is damaged", "Save it with `sqlite3 FILE .recover`, or put back a backup", "damaged"
    ),
    sqlite3.SQLITE_NOTADB: SqliteProblem("it is no SQLite database", "Name another file, or move that one away", "url"),
    sqlite3.SQLITE_IOERR: SqliteProblem(
        "its disk cannot be read or written", "Look at the disk, and whether it is full", "disk"
    ),
}


class Database:
    """Holds one connection to one database, used by one thread at a time: `lock` is held for each transaction.

    `tables`: the tables that `open` prepares, and the errors that this database raises. `busy_timeout`: seconds to wait
    for another program's lock. `lasting`: committed data survives a power cut; without it, committed data survives the
    death of the program only, at a lower cost. `large`: transactions write megabytes, so SQLite keeps more pages in
    memory, and writes them back from its log less often. Raises ConfigError or MissingExtra for an invalid URL.
    "LimboError" below stands for the error of these tables.
    """

    def __init__(
        self,
        url: str,
        tables: TableSet = LIMBO,
        *,
        busy_timeout: float = 5.0,
        lasting: bool = True,
        large: bool = False,
    ) -> None:
        self.tables, self._errors = tables, tables.errors
        self.url = _parsed(url, tables)
        self.where = redact_url(url)
        self._folder = Path.cwd()  # the folder of a relative name, wherever the program goes later
        self._busy_timeout = busy_timeout
        self._lasting, self._large = lasting, large
        self.lock = threading.RLock()
        self._engine: Engine | None = None
        self._opened: tuple[int, int] | None = None  # the file that was opened

    @property
    def is_sqlite(self) -> bool:
        return self.url.get_backend_name() == "sqlite"

    @property
    def file(self) -> Path | None:
        """Return SQLite's file; None for a database in memory and for PostgreSQL."""
        name = self.url.database
        if not self.is_sqlite or not name or name == ":memory:" or name.startswith("file:"):
            return None
        return self._folder / name

    @property
    def place(self) -> str:
        """Return a URL that stays the same: a file's with its whole path, a server's without password or driver.

        The user remains in it, because another user may see another schema under the same database.
        """
        if self.file is not None:
            return f"sqlite:///{self.file.resolve()}"
        if self.is_sqlite:
            return self.where
        bare = self.url._replace(drivername="postgresql", password=None).difference_update_query(["password"])
        return redact_url(bare.render_as_string(hide_password=False))

    def open(self, *, create: bool = True) -> None:
        """Connect, and prepare the tables. Raises ConfigError, LimboError."""
        if not create and self.file is not None and not self.file.exists():
            raise self._errors.file_missing("there is no such file", where=self.where, cure=self.tables.cure_missing)
        try:
            self._engine = self._made(durable=create)
            with self.reading():
                self._opened = self._inode()
            with self.writing() if create else self.reading() as connection:
                prepare(connection, self.where, self.tables, create=create)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Disconnect. A second call does nothing."""
        with self.lock:
            engine, self._engine, self._opened = self._engine, None, None
            if engine is not None:
                engine.dispose()

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Run one transaction: at its end all of it is stored durably, or nothing is. Raises LimboError."""
        with self._transaction({}) as connection:
            yield connection
        if self._inode() != self._opened:  # the file was replaced during the write
            raise self._gone()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Read from the database without making anybody wait. Raises LimboError."""
        with self._transaction({"redeliver_reading": True}) as connection:
            yield connection

    def wall_time(self) -> float:
        """Return what the clock of the database shows, in seconds since 1970. Raises LimboError."""
        query = "SELECT (julianday('now') - 2440587.5) * 86400" if self.is_sqlite else _POSTGRESQL_TIME
        with self.reading() as connection:
            return float(connection.execute(text(query)).scalar_one())

    def _open_again(self) -> None:
        """Open the file that has taken the place of ours: SQLite would continue to write into the deleted one."""
        if self.file is None or not self.file.exists():
            raise self._gone()
        assert self._engine is not None
        self._engine.dispose()
        self._opened = self._inode()
        try:
            with self.reading() as connection:
                prepare(connection, self.where, self.tables, create=False)
        except BaseException:
            self._engine.dispose()
            self._opened = NOT_OPEN
            raise

    def _gone(self) -> RedeliverError:
        return self._errors.file_missing("its file was moved or deleted", where=self.where, cure="Put it back")

    def _inode(self) -> tuple[int, int] | None:
        if self.file is None:
            return None
        try:
            found = self.file.stat()
        except OSError:
            return 0, 0
        return found.st_dev, found.st_ino

    @contextmanager
    def _transaction(self, options: dict[str, Any]) -> Iterator[Connection]:
        with self.lock:
            if self._engine is None:
                raise self._errors.closed("it is closed", where=self.where)
            if self._opened is not None and self._inode() != self._opened:
                self._open_again()
            try:
                with self._engine.execution_options(**options).begin() as connection:
                    yield connection
            except SQLAlchemyError as error:
                raise self.problem(error) from error

    def _made(self, *, durable: bool = True) -> Engine:
        if self.is_sqlite:
            arguments: dict[str, Any] = {"timeout": self._busy_timeout, "check_same_thread": False}
            engine = create_engine(self.url, connect_args=arguments, poolclass=StaticPool)
            if durable:
                connected = partial(_sqlite_connected, lasting=self._lasting, patience=self._busy_timeout)
                event.listen(engine, "connect", connected)
            if self._large:
                event.listen(engine, "connect", _sqlite_for_large)
            event.listen(engine, "connect", _sqlite_left_alone)
            event.listen(engine, "begin", _sqlite_begins)
            return engine
        try:
            engine = create_engine(
                self.url,
                pool_size=1,
                max_overflow=0,
                pool_pre_ping=True,
                connect_args={"connect_timeout": max(2, round(self._busy_timeout))},
            )
        except ModuleNotFoundError:
            raise MissingExtra(
                "its driver, psycopg, is not installed", where=self.where, cure="pip install 'redeliver-mw[postgres]'"
            ) from None
        if not self._lasting:
            event.listen(engine, "connect", _postgresql_relaxed)
        return engine

    def problem(self, error: SQLAlchemyError) -> RedeliverError:
        """Return the error that explains a driver's error, with the place and the cure."""
        errors = self._errors
        cause = error.orig if isinstance(error, DBAPIError) else error
        code = getattr(cause, "sqlite_errorcode", None)
        if code is not None and (known := _OF_SQLITE.get(code & 0xFF)):
            made: ErrorOfTables = getattr(errors, known.field)
            return made(known.what, where=self.where, cure=known.cure)
        text = redact(" ".join(str(cause).split()))
        if not self.is_sqlite and isinstance(error, DBAPIError) and getattr(cause, "sqlstate", None) is None:
            return errors.not_reachable(
                f"it cannot be reached: {text}", where=self.where, cure="Is the server up, and the URL right?"
            )
        state = getattr(cause, "sqlstate", None)
        if state == "53100":
            return errors.disk(
                "the server's disk is full", where=self.where, cure="Make room; nothing was half-written"
            )
        if state in ("25006", "42501"):
            return errors.not_writable(
                f"it may not be written to: {text}", where=self.where, cure="Grant this user its tables"
            )
        return errors.refuses(f"the database refuses: {text}", where=self.where, cure="Look at the database")


def _parsed(url: str, tables: TableSet) -> URL:
    example = f"Write sqlite:///{tables.name}.db or postgresql://user@host/database"
    if not isinstance(url, str):
        raise tables.errors.url(f"a value of the type {type(url).__name__} is no database URL", cure=example)
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
    except (ArgumentError, ValueError):
        raise tables.errors.url(f"{redact_url(url)!r} is no database URL", cure=example) from None
    if backend == "postgresql":
        return parsed.set(drivername="postgresql+psycopg")
    if backend != "sqlite" or parsed.drivername not in ("sqlite", "sqlite+pysqlite"):
        raise tables.errors.url(
            f"a {tables.name} cannot be kept in {parsed.drivername!r}", where=redact_url(url), cure=example
        )
    return parsed


def _sqlite_connected(connection: Any, _: object, *, lasting: bool, patience: float) -> None:
    """Configure SQLite so that committed data is on the disk, because originals are settled once a commit succeeds.

    Without `lasting`, committed data is with the operating system, and no commit waits for the disk. `patience`:
    seconds to wait for others that open the file.
    """
    with closing(connection.cursor()) as cursor:
        _write_ahead(cursor, time.monotonic() + patience)
        cursor.execute(f"PRAGMA synchronous={'FULL' if lasting else 'NORMAL'}")


def _sqlite_for_large(connection: Any, _: object) -> None:
    with closing(connection.cursor()) as cursor:
        cursor.execute(f"PRAGMA cache_size=-{_LARGE_CACHE}")
        cursor.execute(f"PRAGMA wal_autocheckpoint={_LARGE_LOG}")


def _write_ahead(cursor: sqlite3.Cursor, until: float) -> None:
    """Switch to the write-ahead log.

    SQLite's own timeout does not apply: of two that switch a new file at once, one is refused immediately.
    """
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
        time.sleep(random.uniform(0.001, 0.01))  # a random time, so as not to be in step with the other program


def _postgresql_relaxed(connection: Any, _: object) -> None:
    """Configure PostgreSQL so that committed data is with the server: no commit waits for its disk."""
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit TO off")
    connection.commit()


def _sqlite_left_alone(connection: Any, _: object) -> None:
    """Turn off the driver's own transactions; they are begun in `_sqlite_begins`."""
    connection.isolation_level = None


def _sqlite_begins(connection: Connection) -> None:
    """Begin as a writer at once: a reader that becomes a writer later could find the database changed, and fail."""
    reading = connection.get_execution_options().get("redeliver_reading", False)
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")
