# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Compiles a filter to a condition of SQLAlchemy Core, for SQLite and PostgreSQL. No I/O, and no SQL text.

Each condition is true or false and never NULL, so that `not` has the meaning that it has in memory. All texts of the
filter, the names of headers included, are bound parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import BigInteger, ColumnElement, FromClause, Text, and_, bindparam, exists, func, not_, or_
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from .fields import FilterField, HeaderField
from .matching import TESTS, TURNED, ascii_lower
from .model import (
    Comparison,
    Conjunction,
    Disjunction,
    Filter,
    FilterTime,
    FilterValue,
    Instant,
    Membership,
    Negation,
    Operator,
    Presence,
    Span,
)

Condition = ColumnElement[bool]


@dataclass(frozen=True, slots=True)
class FilterColumns:
    """Names the tables that a compiled filter reads: that of dead letters, and that of their headers.

    `letters` has a column `letter_id` and the column of each field; `headers` has `letter_id`, `name`, `text` and
    `number`. Both may be aliases. The statement around the filter selects from `letters`.
    """

    letters: FromClause
    headers: FromClause

    def column(self, field: FilterField) -> ColumnElement[Any]:
        """Return the column of a field."""
        return self.letters.c[field.column]


class _Bytewise(FunctionElement[str]):
    """Is a text that is ordered and lowered by code points, in every locale, as SQLite and Python do it."""

    type = Text()
    inherit_cache = True


@compiles(_Bytewise)
def _as_it_is(element: _Bytewise, compiler: SQLCompiler, **how: Any) -> str:
    return compiler.process(element.clauses.clauses[0], **how)


@compiles(_Bytewise, "postgresql")
def _with_the_collation_c(element: _Bytewise, compiler: SQLCompiler, **how: Any) -> str:
    return compiler.process(element.clauses.clauses[0].collate("C"), **how)


def compile_filter(condition: Filter, columns: FilterColumns, now_us: int) -> Condition:
    """Return the condition that selects the same dead letters. `now_us` is the time that relative times count from."""
    match condition:
        case Conjunction(parts):
            return and_(*(compile_filter(part, columns, now_us) for part in parts))
        case Disjunction(parts):
            return or_(*(compile_filter(part, columns, now_us) for part in parts))
        case Negation(inner):
            return not_(compile_filter(inner, columns, now_us))
        case Presence(HeaderField(name), present):
            found = _header(columns, name)
            return found if present else not_(found)
        case Presence(FilterField() as field, present):
            return _present(columns, field) if present else not_(_present(columns, field))
        case Comparison(HeaderField(name), sign, value):
            return _header(columns, name, _compared(columns.headers.c[_header_column(value)], sign, value))
        case Comparison(FilterField() as field, sign, value):
            return and_(_present(columns, field), _holds(columns, field, sign, value, now_us))
        case Membership(HeaderField(name), values):
            return _header(columns, name, _header_among(columns, values))
        case Membership(FilterField() as field, values):
            return and_(_present(columns, field), _among(columns, field, values, now_us))
    raise TypeError(f"no filter: {condition!r}")


def _present(columns: FilterColumns, field: FilterField) -> Condition:
    column = columns.column(field)
    return and_(column.is_not(None), column != "") if field.kind == "text" else column.is_not(None)


def _holds(columns: FilterColumns, field: FilterField, sign: Operator, value: FilterValue, now_us: int) -> Condition:
    column = columns.column(field)
    if field.kind == "age":
        instant = Instant(now_us - cast(Span, value).seconds * 1_000_000)
        return _at(column, TURNED[sign], instant, now_us)
    if field.kind == "time":
        return _at(column, sign, cast(FilterTime, value), now_us)
    return _compared(column, sign, value)


def _among(columns: FilterColumns, field: FilterField, values: Sequence[FilterValue], now_us: int) -> Condition:
    if field.kind in ("time", "age"):
        return or_(*(_holds(columns, field, "=", value, now_us) for value in values))
    column = columns.column(field)
    return column.in_(bindparam(None, list(values), _type_of(column, values[0]), expanding=True))


def _compared(column: ColumnElement[Any], sign: Operator, value: FilterValue) -> Condition:
    """Return the comparison of a text or a number. A collation in `=` would keep PostgreSQL from using an index."""
    if sign == "~":
        return func.lower(_Bytewise(column)).contains(ascii_lower(cast(str, value)), autoescape=True)
    bound = bindparam(None, value, _type_of(column, value))
    left: ColumnElement[Any] = _Bytewise(column) if isinstance(value, str) and sign not in ("=", "!=") else column
    return cast(Condition, TESTS[sign](left, bound))


def _type_of(column: ColumnElement[Any], value: FilterValue) -> Any:
    return BigInteger() if isinstance(value, int) else column.type  # an Integer would refuse what it cannot hold


def _at(column: ColumnElement[Any], sign: Operator, when: FilterTime, now_us: int) -> Condition:
    """Return the comparison with a time, which may be a whole day: from its start, and before its end."""
    start, end = (bindparam(None, us, BigInteger()) for us in when.interval_us(now_us))
    match sign:
        case "=":
            return and_(column >= start, column < end)
        case "!=":
            return or_(column < start, column >= end)
        case "<":
            return column < start
        case "<=":
            return column < end
        case ">":
            return column >= end
    return column >= start


def _header(columns: FilterColumns, name: str, *conditions: Condition) -> Condition:
    headers = columns.headers
    found = exists().where(headers.c.letter_id == columns.letters.c.letter_id, headers.c.name == name, *conditions)
    return cast(Condition, found.correlate_except(headers))


def _header_column(value: FilterValue) -> str:
    return "text" if isinstance(value, str) else "number"


def _header_among(columns: FilterColumns, values: Sequence[FilterValue]) -> Condition:
    kinds = {"text": [v for v in values if isinstance(v, str)], "number": [v for v in values if not isinstance(v, str)]}
    return or_(
        *(
            columns.headers.c[name].in_(bindparam(None, found, columns.headers.c[name].type, expanding=True))
            for name, found in kinds.items()
            if found
        )
    )
