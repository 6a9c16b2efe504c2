# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds `TableSet`, the tables that one part of redeliver-mw keeps in a database, and how a database gets them.

Several sets may share a database: the names of their tables differ, and each set has a version of its own. A database
is prepared in one transaction: new tables if there are none, upgrades one version after the other, a refusal if a newer
version was here before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import Connection, Dialect, LargeBinary, MetaData, Table, inspect, select, text

from ..errors import RedeliverError

Upgrade = Callable[[Connection], None]
_NUMBER_OF_LOCK = 0x7265_6C69_6D62_6F00  # PostgreSQL's lock number, taken by whoever makes tables or parts


class BytesColumn(LargeBinary):
    """Is a column of bytes. A text that somebody wrote into SQLite's column by hand is read as its UTF-8."""

    cache_ok = True

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], bytes | None]:
        def read(value: Any) -> bytes | None:
            return (
                None if value is None else str(value).encode() if isinstance(value, str | int | float) else bytes(value)
            )

        return read


class ErrorOfTables(Protocol):
    """Makes an error of one class with one code."""

    def __call__(self, what: str, *, where: str = "", cure: str = "") -> RedeliverError:
        """Return the error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseErrors:
    """Holds the errors of a set of tables: one for each thing that can be wrong with a database."""

    url: ErrorOfTables
    file_missing: ErrorOfTables
    not_reachable: ErrorOfTables
    not_writable: ErrorOfTables
    locked: ErrorOfTables
    disk: ErrorOfTables
    damaged: ErrorOfTables
    refuses: ErrorOfTables
    closed: ErrorOfTables
    tables: ErrorOfTables


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSet:
    """Describes tables that are made, upgraded and refused together.

    `name`: what users call a database with these tables. `upgrades`: from each version to the next; each gets the
    connection, in the transaction that also writes the new version. `fill`: writes the first rows of new tables.
    `strangers`: what is asked about a table of the
    same name from another program. The cures are for a missing file, a database without the tables, and older tables.
    """

    name: str
    metadata: MetaData
    versions: Table
    version: int
    upgrades: Mapping[int, Upgrade]
    fill: Upgrade = lambda connection: None
    errors: DatabaseErrors
    strangers: str = ""
    cure_missing: str
    cure_no_tables: str
    cure_older: str


def prepare(connection: Connection, where: str, tables: TableSet, *, create: bool = True) -> None:
    """Prepare the database, within the caller's transaction. Without `create`, the existing tables must fit unchanged.

    Raises ConfigError if a newer version, or another program with tables of the same names, was here before.
    """
    if create:
        alone(connection)
    there = set(inspect(connection).get_table_names())
    if tables.versions.name not in there:
        if theirs := sorted(there & set(tables.metadata.tables)):
            raise tables.errors.tables(
                f"there is a table {theirs[0]} that is not ours{tables.strangers}?",
                where=where,
                cure=f"Give the {tables.name} a database, or a schema, of its own",
            )
        if not create:
            raise tables.errors.tables(f"there is no {tables.name} in it", where=where, cure=tables.cure_no_tables)
        tables.metadata.create_all(connection)
        tables.fill(connection)
        connection.execute(tables.versions.insert().values(version=tables.version))
        return
    found = connection.execute(select(tables.versions.c.version)).scalar_one()
    if found > tables.version:
        raise tables.errors.tables(
            f"its tables are of version {found}, this redeliver-mw knows up to {tables.version}",
            where=where,
            cure="Upgrade redeliver-mw here, or give it a database of its own",
        )
    if found < tables.version:
        _upgrade(connection, where, tables, found, allowed=create)


def alone(connection: Connection) -> None:
    """Keep other programs from making tables or parts until the commit. A writer to SQLite is alone anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:n)"), {"n": _NUMBER_OF_LOCK})


def _upgrade(connection: Connection, where: str, tables: TableSet, found: int, *, allowed: bool) -> None:
    if not allowed:
        raise tables.errors.tables(
            f"its tables are of version {found}, this redeliver-mw wants {tables.version}",
            where=where,
            cure=tables.cure_older,
        )
    for number in range(found, tables.version):
        tables.upgrades[number](connection)
    connection.execute(tables.versions.update().values(version=tables.version))
