# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Applies a filter in three ways: in memory, on SQLite and on PostgreSQL, over tables like those of the store."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    Engine,
    Integer,
    MetaData,
    Table,
    Text,
    create_engine,
    insert,
    make_url,
    select,
)

from redeliver_mw.operations.filters.compiler import FilterColumns, compile_filter
from redeliver_mw.operations.filters.fields import FIELDS
from redeliver_mw.operations.filters.matching import FilterSubject, matches
from redeliver_mw.operations.filters.model import Filter
from redeliver_mw.operations.letters import rows_by_table
from redeliver_mw.operations.tables import own_headers

NOW_US = 1_795_672_800_000_000  # 2026-11-26T06:00:00Z, as on the page about filters
DAY_US = 86_400_000_000

# A text of a locale: PostgreSQL would order and lower it as people of that language expect.
LOCAL = Text().with_variant(Text(collation="en-x-icu"), "postgresql")
TYPES = {"text": LOCAL, "number": Integer(), "time": BigInteger(), "age": BigInteger()}

metadata = MetaData()
letters = Table(
    "redeliver_store_letter",
    metadata,
    Column("letter_id", BigInteger, primary_key=True, autoincrement=False),
    *(Column(name, TYPES[kind]) for name, kind in {field.column: field.kind for field in FIELDS.values()}.items()),
)
headers = Table(
    "redeliver_store_header",
    metadata,
    Column("letter_id", BigInteger, nullable=False),
    Column("name", LOCAL, nullable=False),
    Column("text", LOCAL),
    Column("number", Double),
)
own = own_headers.to_metadata(metadata)
COLUMNS = FilterColumns(letters, headers, own)
to_json = partial(json.dumps, ensure_ascii=False)  # as a collect writes it


class Ways:
    """Applies filters to dead letters in each way. Not thread-safe."""

    def __init__(self, postgresql_url: str) -> None:
        url = make_url(postgresql_url).set(drivername="postgresql+psycopg")
        self.engines: dict[str, Engine] = {
            "sqlite": create_engine("sqlite://", json_serializer=to_json),
            "postgresql": create_engine(url, json_serializer=to_json),
        }
        self._connections: dict[str, Connection] = {}
        for name, engine in self.engines.items():
            with engine.begin() as connection:
                metadata.create_all(connection)
            self._connections[name] = engine.connect()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        for engine in self.engines.values():
            engine.dispose()

    @contextmanager
    def holding(self, subjects: Sequence[FilterSubject]) -> Iterator[dict[str, Connection]]:
        """Let both databases hold these dead letters, numbered from 0, for as long as the block runs."""
        rows = [
            {"letter_id": n, **{c.name: getattr(s, c.name) for c in list(letters.c)[1:]}}
            for n, s in enumerate(subjects)
        ]
        values: dict[Table, list[dict[str, Any]]] = {own: [], headers: []}
        for n, subject in enumerate(subjects):
            named = [{"name": name, **value._asdict()} for name, value in subject.headers.items()]
            for table, found in zip(values, rows_by_table(named), strict=True):
                values[table] += [{**row, "letter_id": n} for row in found]
        begun = [connection.begin() for connection in self._connections.values()]
        try:
            for connection in self._connections.values():
                connection.execute(insert(letters), rows)
                for table, of_table in values.items():
                    if of_table:
                        connection.execute(insert(table), of_table)
            yield self._connections
        finally:
            for transaction in begun:
                transaction.rollback()

    def agreed_each(
        self, conditions: Sequence[Filter], subjects: Sequence[FilterSubject], now_us: int = NOW_US
    ) -> list[set[int]]:
        """Return the numbers of the dead letters that each filter selects. Fails if one way differs from another."""
        agreed = []
        with self.holding(subjects) as connections:
            for condition in conditions:
                statement = select(letters.c.letter_id).where(compile_filter(condition, COLUMNS, now_us))
                found = {name: set(one.execute(statement).scalars()) for name, one in connections.items()}
                found["memory"] = {n for n, subject in enumerate(subjects) if matches(condition, subject, now_us)}
                assert found["memory"] == found["sqlite"] == found["postgresql"], (str(condition), found)
                agreed.append(found["memory"])
        return agreed

    def agreed(self, condition: Filter, subjects: Sequence[FilterSubject], now_us: int = NOW_US) -> set[int]:
        """Return what one filter selects."""
        return self.agreed_each([condition], subjects, now_us)[0]
