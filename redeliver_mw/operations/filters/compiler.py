# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Compiles a filter to a condition of SQLAlchemy Core, for SQLite and PostgreSQL. No I/O, and no SQL text.

Each condition is true or false and never NULL, so that `not` has the meaning that it has in memory. All texts of the
filter, the names of headers included, are bound parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    Double,
    FromClause,
    Text,
    and_,
    bindparam,
    exists,
    func,
    not_,
    or_,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeEngine

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

# The types of parameters. That of the column is not taken: its collation would meet another one in PostgreSQL, and its
# size would refuse a number that no value of the column can equal.
_TYPES: Mapping[type, TypeEngine[Any]] = {str: Text(), int: BigInteger(), float: Double()}


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


class Bytewise(FunctionElement[str]):
    """Is a text that is ordered and lowered by code points, in every locale, as SQLite and Python do it."""

    type = Text()
    inherit_cache = True


@compiles(Bytewise)
def _as_it_is(element: Bytewise, compiler: SQLCompiler, **how: Any) -> str:
    return compiler.process(element.clauses.clauses[0], **how)


@compiles(Bytewise, "postgresql")
def _with_the_collation_c(element: Bytewise, compiler: SQLCompiler, **how: Any) -> str:
    return compiler.process(element.clauses.clauses[0].collate("C"), **how)


def compile_filter(condition: Filter, columns: FilterColumns, now_us: int) -> Condition:
    """Return the condition that selects the same dead letters. `now_us` is the time that relative times count from."""
    compiled, _ = _compiled(condition, columns, now_us, negated=False)
    return compiled


def _compiled(condition: Filter, columns: FilterColumns, now_us: int, *, negated: bool) -> tuple[Condition, int]:
    """Return the condition, or its negation, and how deep SQLite's parser has to go into its brackets.

    SQLite's parser has a stack of 100 places (observed on SQLite 3.40). Each bracket takes one, and two more if
    something stands before the bracket. `not` is therefore moved to the conditions inside, and of several parts the
    deepest one comes first.
    """
    match condition:
        case Negation(inner):
            return _compiled(inner, columns, now_us, negated=not negated)
        case Conjunction(parts) | Disjunction(parts):
            join = and_ if isinstance(condition, Conjunction) != negated else or_
            found = [_compiled(part, columns, now_us, negated=negated) for part in parts]
            found.sort(key=lambda one: -one[1])
            depth = max(1 + found[0][1], 3 + found[1][1])
            return join(*(part for part, _ in found)), depth
    one = _one(condition, columns, now_us)
    return not_(one) if negated else one, 0


def _one(condition: Filter, columns: FilterColumns, now_us: int) -> Condition:
    match condition:
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
    return and_(column.is_not(None), column != _bound("")) if field.kind == "text" else column.is_not(None)


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
    return column.in_(_bound_list(values))


def _compared(column: ColumnElement[Any], sign: Operator, value: FilterValue) -> Condition:
    """Return the comparison of a text or a number. A collation in `=` would keep PostgreSQL from using an index."""
    if sign == "~":
        return func.lower(Bytewise(column)).contains(ascii_lower(cast(str, value)), autoescape=True)
    left: ColumnElement[Any] = Bytewise(column) if isinstance(value, str) and sign not in ("=", "!=") else column
    return cast(Condition, TESTS[sign](left, _bound(value)))


def _bound(value: FilterValue) -> BindParameter[Any]:
    return bindparam(None, value, _TYPES[type(value)])


def _bound_list(values: Sequence[FilterValue]) -> BindParameter[Any]:
    return bindparam(None, list(values), _TYPES[type(values[0])], expanding=True)


def _at(column: ColumnElement[Any], sign: Operator, when: FilterTime, now_us: int) -> Condition:
    """Return the comparison with a time, which may be a whole day: from its start, and before its end."""
    start, end = map(_bound, when.interval_us(now_us))
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
    found = exists().where(
        headers.c.letter_id == columns.letters.c.letter_id, headers.c.name == _bound(name), *conditions
    )
    return cast(Condition, found.correlate_except(headers))


def _header_column(value: FilterValue) -> str:
    return "text" if isinstance(value, str) else "number"


def _header_among(columns: FilterColumns, values: Sequence[FilterValue]) -> Condition:
    kinds: dict[str, list[FilterValue]] = {}
    for value in values:
        kinds.setdefault(_header_column(value), []).append(value)
    return or_(*(columns.headers.c[name].in_(_bound_list(found)) for name, found in kinds.items()))
