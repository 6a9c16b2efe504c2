# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Gives the tables of `schemas` as Arrow schemas, without Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

_TYPES: Final = {
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "BOOLEAN": pa.bool_(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "DATE": pa.date32(),
}
_NESTED: Final = re.compile(r"(?P<kind>ARRAY|MAP|STRUCT)<(?P<inside>.*)>")


def arrow_schema(ddl: str) -> pa.Schema:
    """Return the columns of a table's DDL. Raises KeyError for a type that no table of a lake has."""
    return pa.schema([(name, _type(kind)) for name, kind in _columns(ddl, " ")])


def _type(text: str) -> pa.DataType:
    nested = _NESTED.fullmatch(text)
    if nested is None:
        return _TYPES[text]
    inside = nested["inside"]
    if nested["kind"] == "ARRAY":
        return pa.list_(_type(inside))
    if nested["kind"] == "STRUCT":
        return pa.struct([(name, _type(kind)) for name, kind in _columns(inside, ":")])
    key, value = _parts(inside)
    return pa.map_(_type(key), _type(value))


def _columns(text: str, between: str) -> Iterator[tuple[str, str]]:
    for column in _parts(text):
        name, _, kind = column.partition(between)
        yield name, kind.strip()


def _parts(text: str) -> list[str]:
    """Return what the outermost commas divide."""
    found, depth, start = [], 0, 0
    for at, sign in enumerate(text):
        depth += (sign == "<") - (sign == ">")
        if sign == "," and depth == 0:
            found.append(text[start:at].strip())
            start = at + 1
    return [*found, text[start:].strip()]
