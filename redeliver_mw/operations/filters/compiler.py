# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Compiles a filter to a condition of SQLAlchemy Core, for SQLite and PostgreSQL. No I/O, and no SQL text.

Each condition is true or false and never NULL, so that `not` has the meaning that it has in memory. All texts of the
filter, the names of headers included, are bound parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    Double,
    FromClause,
    Text,
    and_,
    bindparam,
    func,
    not_,
    or_,
    select,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeEngine

from ..tables import is_own_header, own_headers
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
    """Names the tables that a compiled filter reads: that of dead letters, and those of their headers.

    `letters` has a column `letter_id` and the column of each field; `headers` has `letter_id`, `name`, `text` and
    `number`; `own` has `letter_id`, `texts` and `numbers`. All may be aliases. The statement around the filter selects
    from `letters`.
    """

    letters: FromClause
    headers: FromClause
    own: FromClause = own_headers

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
            found = _header(columns, name).found()
            return found if present else not_(found)
        case Presence(FilterField() as field, present):
            return _present(columns, field) if present else not_(_present(columns, field))
        case Comparison(HeaderField(name), sign, value):
            header = _header(columns, name)
            return header.found(_compared(header.column(value), sign, value))
        case Comparison(FilterField() as field, sign, value):
            return and_(_present(columns, field), _holds(columns, field, sign, value, now_us))
        case Membership(HeaderField(name), values):
            header = _header(columns, name)
            return header.found(_header_among(header, values))
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


class _Header(NamedTuple):
    """Holds where the text and the number of a header are, in which rows of a table, and of which letters."""

    letter: ColumnElement[Any]
    text: ColumnElement[Any]
    number: ColumnElement[Any]
    rows: Condition
    of: ColumnElement[Any]

    def column(self, value: FilterValue) -> ColumnElement[Any]:
        """Return what is compared with this value."""
        return self.text if isinstance(value, str) else self.number

    def found(self, *conditions: Condition) -> Condition:
        """Return the condition that a letter has the header, and that the other conditions hold for it.

        The header's letters are looked up once, by their index, and not for each letter anew: a filter that selects few
        letters would look at the headers of nearly all of them before a page is full.
        """
        return self.of.in_(select(self.letter).where(self.rows, *conditions).correlate(None))


def _header(columns: FilterColumns, name: str) -> _Header:
    of = columns.letters.c.letter_id
    if is_own_header(name):
        own = columns.own.c
        text = own.texts[name].as_string()
        return _Header(own.letter_id, text, own.numbers[name].as_float(), text.is_not(None), of)
    headers = columns.headers.c
    return _Header(headers.letter_id, headers.text, headers.number, headers.name == _bound(name), of)


def _header_among(header: _Header, values: Sequence[FilterValue]) -> Condition:
    texts = [value for value in values if isinstance(value, str)]
    numbers = [value for value in values if not isinstance(value, str)]
    columns = ((header.text, texts), (header.number, numbers))
    return or_(*(column.in_(_bound_list(found)) for column, found in columns if found))
