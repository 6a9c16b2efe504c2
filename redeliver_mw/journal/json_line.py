# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""A row as one line of JSON that UTF-8 can carry, whatever text is in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache


@cache
def _dumps() -> Callable[[object], bytes]:
    """Loaded with the first line: most programs write none."""
    from orjson import dumps

    return dumps


def line_of(row: Mapping[str, object]) -> bytes:
    """These fields as a line, newline-terminated. ValueError, naming the field, for a value that JSON cannot hold."""
    try:
        return _dumps()(row) + b"\n"
    except TypeError:
        return b"{" + b",".join(_pair(name, value) for name, value in row.items()) + b"}\n"


def part_of_line(**fields: object) -> bytes:
    """These fields as they stand in a line, without braces; every value is written, whatever it is."""
    return line_of(fields)[1:-2]


def text_in_line(value: str | None) -> bytes:
    """A text as it stands in a line."""
    try:
        return _dumps()(value)
    except TypeError:
        return _dumps()(_whole(value))


def _pair(name: str, value: object) -> bytes:
    """One field of a record that orjson refused as a whole: mended if it is text, named if it is not."""
    if isinstance(value, list | tuple):
        value = [_whole(item) for item in value]
    try:
        return b'"' + name.encode() + b'":' + _dumps()(_whole(value))
    except TypeError as error:
        raise ValueError(f"field {name!r} cannot be written: {error}") from None


def _whole(value: object) -> object:
    """Text without half surrogates, which UTF-8 cannot carry."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
