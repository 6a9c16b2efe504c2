# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads a whole limbo as a table of plain columns, piece by piece, for a reader of a million messages who changes none.

Each piece is one query, and no other program has to wait for it. A message that is parked or published between two
queries is in one piece or in none: no message is in two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import orjson
from sqlalchemy import ColumnElement, Select, Text, case, cast, func, not_, select

from ..errors import LimboError
from ..storage.database import Database
from ..storage.schema import bodies, messages, owners, parked
from .store import RETRY

AT_ONCE: Final = 10_000  # rows that are fetched together
AT_ONCE_WITH_BODIES: Final = 500
_LAST_MS: Final = (2**63 - 1) // 1_000_000 * 1000  # the last time that can be expressed in microseconds
_ALL: Final = messages.outerjoin(parked, parked.c.msg_id == messages.c.msg_id).outerjoin(
    owners, owners.c.limbo_id == messages.c.limbo_id
)


class ScanCondition(NamedTuple):
    """Compares a column with a value: `=`, `<`, `<=`, `>` or `>=`, `in` a list, or `null`; `negated` inverts the test.

    As in SQL, for a column that is null no comparison holds, negated or not, except `null`.
    """

    column: str
    operator: str
    value: Any = None
    negated: bool = False


class Scan:
    """Reads an open limbo. Raises ConfigError for an invalid URL, and LimboError. Not thread-safe."""

    def __init__(self, url: str, *, busy_timeout: float = 5.0) -> None:
        self._db = Database(url, busy_timeout=busy_timeout)

    def __enter__(self) -> Self:
        self._db.open(create=False)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._db.close()

    def bounds(self, pieces: int, piece: int) -> list[int]:
        """Return ids that divide the messages about evenly: each id begins a piece that ends before the next id.

        At most `pieces`, and fewer if a piece would hold less than `piece` messages; empty for an empty limbo.
        """
        ids = select(messages.c.msg_id).order_by(messages.c.msg_id)
        with self._db.reading() as connection:
            count = connection.execute(select(func.count()).select_from(messages)).scalar_one()
            pieces = min(pieces, max(1, count // piece))
            starts = [number * count // pieces for number in range(pieces)] if count else []
            found = (connection.execute(ids.offset(start).limit(1)).scalar() for start in starts)
            return sorted({id_ for id_ in found if id_ is not None})

    def columns(
        self,
        names: Sequence[str],
        first: int | None = None,
        last: int | None = None,
        tests: Sequence[ScanCondition] = (),
    ) -> Iterator[list[list[Any]]]:
        """Yield columns except `body`, of messages with ids from `first` to before `last` that pass all tests, by id.

        Each batch holds as many messages as make a query worthwhile. The database puts each column into one JSON text,
        which costs half as much as rows do. `given_up` is 0 or 1, because not every database has booleans.
        """
        after = None
        with self._db.reading() as connection:
            while True:
                some = _query((*names, "id"), first, last, tests, after).limit(AT_ONCE).subquery()
                row = connection.execute(select(*(self._as_json(column) for column in some.c))).one()
                found = [_from_json(text, self._db.where) for text in row]
                if not (ids := found.pop()):
                    return
                yield found
                after = ids[-1]

    def rows(
        self,
        names: Sequence[str],
        first: int | None = None,
        last: int | None = None,
        tests: Sequence[ScanCondition] = (),
    ) -> Iterator[Sequence[Sequence[Any]]]:
        """Yield the same messages as rows, also with `body`; as many at a time as are fetched together."""
        many = AT_ONCE_WITH_BODIES if "body" in names else AT_ONCE
        query = _query(names, first, last, tests)
        with self._db.reading() as connection:
            result = connection.execution_options(stream_results=True, max_row_buffer=many).execute(query)
            yield from result.partitions(many)

    def _as_json(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        if self._db.is_sqlite:
            return func.json_group_array(column, type_=Text)
        return cast(func.json_agg(column), Text)


def _query(
    names: Sequence[str], first: int | None, last: int | None, tests: Sequence[ScanCondition], after: int | None = None
) -> Select[Any]:
    columns, id_ = _columns(), messages.c.msg_id
    joined = _ALL.outerjoin(bodies, bodies.c.msg_id == id_) if "body" in names else _ALL
    chosen = [columns[name].label(f"c{number}") for number, name in enumerate(names)]
    query = select(*chosen).select_from(joined).where(*(_holds(columns[test.column], test) for test in tests))
    if first is not None:
        query = query.where(id_ >= first)
    if last is not None:
        query = query.where(id_ < last)
    return query.order_by(id_) if after is None else query.where(id_ > after).order_by(id_)


def _from_json(text: str | None, where: str) -> list[Any]:
    """Return the values of a column; the text is None if there are no rows at all."""
    try:
        found: list[Any] = orjson.loads(text or "[]")
    except ValueError:
        raise LimboError(
            "a text in it is not UTF-8", where=where, cure="Somebody has changed it by hand", code="limbo-row-damaged"
        ) from None
    return found


def _columns() -> dict[str, ColumnElement[Any]]:
    m, p, o = messages.c, parked.c, owners.c
    # Somebody may set a date by hand, to any number.
    due_ms = case(
        (m.delivery_date > _LAST_MS, _LAST_MS), (m.delivery_date < -_LAST_MS, -_LAST_MS), else_=m.delivery_date
    )
    return {
        "id": m.msg_id,
        "target": m.port_name,
        "source": func.nullif(p.source, ""),
        "given_up": case((m.delivery_count > func.coalesce(o.retry, RETRY), 1), else_=0),
        "due_us": due_ms * 1000,
        "parked_us": p.parked_us,
        "delivery_count": m.delivery_count,
        "publishes": func.coalesce(p.publishes, 0),
        "failures": func.coalesce(p.failures, 0),
        "generation": func.coalesce(p.generation, 0),
        "reason": func.nullif(p.reason, ""),
        "message_key": func.nullif(p.lineage, ""),
        "copy_id": p.copy_id,
        "last_error": p.last_error,
        "body_bytes": func.coalesce(p.body_bytes, 0),
        "app": func.coalesce(o.app, m.msg_src_name),
        "broker": o.broker,
        "body": bodies.c.msg_body,
    }


def _holds(column: ColumnElement[Any], test: ScanCondition) -> ColumnElement[bool]:
    found = _plainly(column, test)
    return not_(found) if test.negated else found


def _plainly(column: ColumnElement[Any], test: ScanCondition) -> ColumnElement[bool]:
    if test.operator == "null":
        return column.is_(None)
    if test.operator == "in":
        return column.in_(test.value)
    return column.bool_op(test.operator)(test.value)
