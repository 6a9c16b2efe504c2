# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Encodes a row as one line of JSON that UTF-8 can carry, whatever text is in it, and gives records their ids."""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Callable, Mapping
from functools import cache


@cache
def _dumps() -> Callable[[object], bytes]:
    """Load orjson when the first line is written: most programs write none."""
    from orjson import dumps

    return dumps


def line_of(row: Mapping[str, object]) -> bytes:
    """Return these fields as a line that ends with a newline.

    Raises ValueError, whose text names the field, for a value that JSON cannot hold.
    """
    try:
        return _dumps()(row) + b"\n"
    except TypeError:
        return b"{" + b",".join(_pair(name, value) for name, value in row.items()) + b"}\n"


def part_of_line(**fields: object) -> bytes:
    """Return these fields as part of a line, without braces; every value is written, whatever it is."""
    return line_of(fields)[1:-2]


def text_in_line(value: str | None) -> bytes:
    """Return a text as it is written in a line."""
    try:
        return _dumps()(value)
    except TypeError:
        return _dumps()(_whole(value))


def _pair(name: str, value: object) -> bytes:
    """Return one field of a record that orjson refused as a whole.

    Text is repaired. Raises ValueError, whose text names the field, for any other value.
    """
    if isinstance(value, list | tuple):
        value = [_whole(item) for item in value]
    try:
        return b'"' + name.encode() + b'":' + _dumps()(_whole(value))
    except TypeError as error:
        raise ValueError(f"field {name!r} cannot be written: {error}") from None


def _whole(value: object) -> object:
    """Return text without lone surrogates, which UTF-8 cannot carry."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


class RecordIds:
    """Generates ids that no other process or run generates: `<12 hex digits of this run>-<counter>`.

    `next()` is thread-safe: it takes no lock, because the counter's step is atomic in CPython. A forked child counts
    under a run id of its own.
    """

    __slots__ = ("__weakref__", "_count", "_prefix")

    def __init__(self, run: str | None = None) -> None:
        self._start(run or os.urandom(6).hex())
        _alive.add(self)

    def _start(self, run: str) -> None:
        self._prefix = run + "-"
        self._count = itertools.count(1)

    def next(self) -> str:
        return self._prefix + str(next(self._count))


_alive: weakref.WeakSet[RecordIds] = weakref.WeakSet()


def _renew_after_fork() -> None:
    for ids in list(_alive):
        ids._start(os.urandom(6).hex())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_after_fork)
