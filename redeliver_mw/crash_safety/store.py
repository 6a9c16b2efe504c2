# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Stores the ledger's lines in a database: which program had which message in hand, and the message's past.

A line is *marked* while its message is with a handler, or about to be: `TOGETHER` with others, or `ALONE`, when no
other message was there. The lines that a dead program has left marked show which messages may have caused its death.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Table, and_, delete, func, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from ..errors import EVENT_CODE, RedeliverError
from ..redaction import clean
from ..redelivery.identity import TWIN
from ..storage.database import Database
from ..storage.schema import batches, ledger, runs
from .isolation import ALONE, NONE, TOGETHER

log = logging.getLogger("redeliver_mw.limbo")

MARKS = {NONE: "none", TOGETHER: "together", ALONE: "alone"}
LEASE = 10.0  # seconds without a heartbeat, after which a program of another host counts as dead
DAY_US = 86_400_000_000
CHUNK = 400  # keys in one query
_here: set[str] = set()  # runs of this process
_here_lock = threading.Lock()


@dataclass(slots=True)
class Changes:
    """Lists what one transaction is to write."""

    lines: list[dict[str, Any]] = field(default_factory=list)  # whole lines
    unmarked: list[tuple[str, str]] = field(default_factory=list)  # source and key of lines where only the mark changes
    over: list[tuple[str, str]] = field(default_factory=list)
    begun: list[tuple[int, str, list[str]]] = field(default_factory=list)  # batches: number, source, keys
    ended: list[int] = field(default_factory=list)  # numbers of batches
    at_us: int = 0


class LedgerStore:
    """Stores the ledger of one run of one program, for one broker.

    Used by one thread; every method may raise LimboError.
    """

    def __init__(self, url: str, *, broker: str, busy_timeout: float = 5.0) -> None:
        self._db = Database(url, busy_timeout=busy_timeout, lasting=False)
        self.broker, self.run = clean(broker), uuid.uuid4().hex[:16]
        self._host, self._pid = clean(socket.gethostname()), os.getpid()
        self._ours = {self.run}  # and the runs of dead programs, whose lines any program may use
        self._seen: dict[str, tuple[int, float]] = {}  # run of another host -> its heartbeat, and since when

    @property
    def where(self) -> str:
        """Return the database's URL, without secrets."""
        return self._db.where

    def open(self, now_us: int) -> None:
        """Open the database. Raises ConfigError or LimboError if it is not available."""
        self._db.open()
        try:
            with self._db.writing() as connection:
                self._remove_dead_runs(connection)
                self._list(connection, now_us)
        except BaseException:
            self._db.close()
            raise
        with _here_lock:
            _here.add(self.run)

    def _list(self, connection: Connection, now_us: int) -> None:
        born = _born(self._pid)
        us = {"run": self.run, "host": self._host, "pid": self._pid, "born": born, "beat": 0, "beat_us": now_us}
        connection.execute(runs.insert().values(us))

    def _remove_dead_runs(self, connection: Connection) -> None:
        """Remove the dead runs of this host from the list: every program takes a run that is not listed as over."""
        here = connection.execute(select(runs).where(runs.c.host == self._host)).all()
        if dead := [row.run for row in here if self._dead(row, 0.0)]:
            connection.execute(delete(runs).where(runs.c.run.in_(dead)))

    def close(self) -> None:
        """Close the store: no message of this run is with a handler any more."""
        with _here_lock:
            _here.discard(self.run)
        try:
            with self._db.writing() as connection:
                ours = and_(ledger.c.broker == self.broker, ledger.c.run == self.run)
                connection.execute(delete(ledger).where(ours, ledger.c.rest.is_(None)))
                connection.execute(delete(batches).where(batches.c.run == self.run))
                connection.execute(update(ledger).where(ours, ledger.c.mark != NONE).values(mark=NONE))
                connection.execute(delete(runs).where(runs.c.run == self.run))
        except RedeliverError as error:
            log.warning("%s", error, extra={EVENT_CODE: "ledger-not-given-back"})
        self._db.close()

    def abandon(self) -> None:
        """Disconnect and clean up nothing, like a process that is killed."""
        with _here_lock:
            _here.discard(self.run)
        self._db.close()

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open one transaction."""
        with self._db.writing() as connection:
            yield connection

    def beat(self, connection: Connection, now_us: int) -> None:
        """Write a heartbeat."""
        alive = update(runs).where(runs.c.run == self.run).values(beat=runs.c.beat + 1, beat_us=now_us)
        if not connection.execute(alive).rowcount:  # somebody has restored an older copy of the database
            self._list(connection, now_us)

    # -- reading ----------------------------------------------------------------------------------

    def find(self, connection: Connection, source: str, keys: Sequence[str]) -> dict[str, Any]:
        """Return the lines of these keys, by key."""
        found: dict[str, Any] = {}
        for start in range(0, len(keys), CHUNK):
            some = keys[start : start + CHUNK]
            there = and_(ledger.c.broker == self.broker, ledger.c.source == source, ledger.c.message.in_(some))
            found |= {row.message: row for row in connection.execute(select(ledger).where(there))}
        return found

    def without_ids(self, connection: Connection, source: str) -> list[Any]:
        """Return the lines of messages without an id that other runs have written."""
        theirs = and_(ledger.c.broker == self.broker, ledger.c.source == source, ledger.c.run != self.run)
        nameless = and_(ledger.c.message >= TWIN, ledger.c.message < chr(ord(TWIN) + 1))
        return list(connection.execute(select(ledger).where(theirs, nameless)))

    def take_over(self, connection: Connection, line: Any) -> bool:
        """Make a dead run's line this run's; False if another run was faster."""
        there = and_(
            ledger.c.broker == self.broker,
            ledger.c.source == line.source,
            ledger.c.message == line.message,
            ledger.c.run == line.run,
        )
        return bool(connection.execute(update(ledger).where(there).values(run=self.run)).rowcount)

    def in_batches(self, connection: Connection, source: str) -> dict[str, str]:
        """Return, by key, the other run that had a message in a batch."""
        theirs = and_(batches.c.broker == self.broker, batches.c.source == source, batches.c.run != self.run)
        found = connection.execute(select(batches.c.run, batches.c.messages).where(theirs))
        return {key: row.run for row in found for key in row.messages.split(" ")}

    def dead(self, connection: Connection, of: Iterable[str], now_mono: float) -> dict[str, bool | None]:
        """Return which of these runs are over; None if that is not known yet, for a program on another host."""
        asked = sorted({run for run in of if run != self.run})
        there = {}
        if asked:
            there = {row.run: row for row in connection.execute(select(runs).where(runs.c.run.in_(asked)))}
        answers: dict[str, bool | None] = {self.run: False}
        for run in asked:
            answers[run] = dead = self._dead(there[run], now_mono) if run in there else True
            if dead:
                self._ours.add(run)
        return answers

    def _dead(self, row: Any, now_mono: float) -> bool | None:
        if row.run in _here:
            return False
        if row.host == self._host:
            return row.pid == self._pid or _born(row.pid) != row.born or not _exists(row.pid)
        beat, since = self._seen.setdefault(row.run, (row.beat, now_mono))
        if beat != row.beat:
            self._seen[row.run] = row.beat, now_mono
            return False
        return True if now_mono - since >= LEASE else None

    # -- writing ----------------------------------------------------------------------------------

    def write(self, connection: Connection, changes: Changes) -> None:
        """Write the changes in sorted order, so that two programs never deadlock on each other's lines."""
        if changes.lines:
            lines = [line | {"broker": self.broker, "run": self.run} for line in changes.lines]
            lines.sort(key=lambda line: (line["source"], line["message"]))
            connection.execute(_upsert(connection, ledger), lines)
        if changes.begun:
            batch = {"run": self.run, "broker": self.broker, "began_us": changes.at_us}
            begun = [
                batch | {"number": number, "source": source, "messages": " ".join(keys)}
                for number, source, keys in changes.begun
            ]
            connection.execute(batches.insert(), begun)
        if changes.ended:
            ended = and_(batches.c.run == self.run, batches.c.number.in_(changes.ended))
            connection.execute(delete(batches).where(ended))
        if changes.unmarked:
            self._each(connection, update(ledger).values(mark=NONE), changes.unmarked)
        if changes.over:
            self._each(connection, delete(ledger), changes.over)

    def _each(self, connection: Connection, statement: Any, keys: list[tuple[str, str]]) -> None:
        """Execute a statement for the lines of these keys, except those that another program has taken."""
        by_source: dict[str, list[str]] = {}
        for source, key in sorted(keys):
            by_source.setdefault(source, []).append(key)
        for source, some in by_source.items():
            for start in range(0, len(some), CHUNK):
                ours = and_(
                    ledger.c.broker == self.broker,
                    ledger.c.source == source,
                    ledger.c.run.in_(self._ours),
                    ledger.c.message.in_(some[start : start + CHUNK]),
                )
                connection.execute(statement.where(ours))

    def prune(self, sources: Iterable[str], size: int, now_us: int) -> None:
        """Keep the `size` last changed lines of each source.

        Of other sources, remove bare marks and ends that are a day old.
        """
        with self._db.writing() as connection:
            old = and_(batches.c.run != self.run, batches.c.began_us < now_us - DAY_US)
            connection.execute(delete(batches).where(batches.c.broker == self.broker, old))
            for source in sources:
                mine = and_(ledger.c.broker == self.broker, ledger.c.source == source)
                bare = and_(
                    or_(ledger.c.rest.is_(None), ledger.c.done == 1),
                    ledger.c.run != self.run,
                    ledger.c.changed_us < now_us - DAY_US,
                )
                connection.execute(delete(ledger).where(mine, bare))
                last = select(ledger.c.changed_us).where(mine).order_by(ledger.c.changed_us.desc())
                limit = connection.execute(last.offset(size - 1).limit(1)).scalar()
                if limit is not None and _count(connection, mine) > size:
                    connection.execute(delete(ledger).where(mine, ledger.c.changed_us < limit))

    def count(self, source: str) -> int:
        """Return the number of lines of a source."""
        with self._db.reading() as connection:
            return _count(connection, and_(ledger.c.broker == self.broker, ledger.c.source == source))


def _count(connection: Connection, mine: Any) -> int:
    return int(connection.execute(select(func.count()).select_from(ledger).where(mine)).scalar_one())


def _upsert(connection: Connection, table: Table) -> Any:
    insert = (postgresql if connection.dialect.name == "postgresql" else sqlite).insert(table)
    keys = [column.name for column in table.primary_key]
    others = {column.name: insert.excluded[column.name] for column in table.columns if column.name not in keys}
    return insert.on_conflict_do_update(index_elements=keys, set_=others)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _born(pid: int) -> str:
    """Return when a process began, in the operating system's own count; empty where the system does not report it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
