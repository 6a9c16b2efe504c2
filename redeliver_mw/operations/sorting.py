# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Sorts letters of the store, and writes the cursor after which the next page begins.

A cursor holds the place of the last letter of a page: the value that letters are sorted by, and the letter's number. So
letters that come or go while somebody turns pages move no other letter to another page.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Self, get_args

from sqlalchemy import ColumnElement, func, tuple_

from ..errors import ConfigError
from .filters.compiler import Bytewise
from .tables import letters

SortKey = Literal["died", "collected", "failures", "bytes", "source"]
SORT_KEYS: Final[tuple[SortKey, ...]] = get_args(SortKey)
_COLUMNS: Final[Mapping[SortKey, str]] = {
    "died": "died_us",
    "collected": "collected_us",
    "failures": "failures",
    "bytes": "body_bytes",
    "source": "source",
}
_DIRECTIONS: Final = {"asc": False, "desc": True}


@dataclass(frozen=True, slots=True)
class Sort:
    """Says by what letters are sorted, and whether the greatest come first. Letters without a source are the least."""

    by: SortKey = "died"
    descending: bool = True

    @classmethod
    def parse(cls, text: str, where: str = "--sort") -> Self:
        """Return what `died`, `-died` (the greatest first), `died:asc` or `died:desc` says. Raises ConfigError."""
        name, colon, direction = text.partition(":")
        bare = name.removeprefix("-")
        by = next((one for one in SORT_KEYS if one == bare), None)
        if by is None or (colon and (direction not in _DIRECTIONS or name != bare)):
            raise ConfigError(
                f"letters cannot be sorted by {text!r}",
                where=where,
                cure=f"Write one of {', '.join(SORT_KEYS)}, with a - before it for the greatest first",
                code="option-value",
            )
        return cls(by, _DIRECTIONS[direction] if colon else name != bare)

    def __str__(self) -> str:
        return f"{'-' if self.descending else ''}{self.by}"

    @property
    def column(self) -> ColumnElement[Any]:
        """Return the expression that letters are sorted by, which is never NULL."""
        found = letters.c[_COLUMNS[self.by]]
        return Bytewise(func.coalesce(found, "")) if self.by == "source" else found

    @property
    def order(self) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
        """Return what a statement is to be ordered by."""
        both = self.column, letters.c.letter_id
        return (both[0].desc(), both[1].desc()) if self.descending else (both[0].asc(), both[1].asc())

    def cursor_after(self, letter: Any) -> str:
        """Return the cursor of the page that follows this letter."""
        place = [getattr(letter, _COLUMNS[self.by]) or ("" if self.by == "source" else 0), letter.letter_id]
        named = place if self == NEWEST_FIRST else [*place, str(self)]
        return base64.urlsafe_b64encode(json.dumps(named).encode()).decode().rstrip("=")

    def after(self, cursor: str) -> ColumnElement[bool]:
        """Return the condition on letters that follow the cursor. Raises ConfigError if it is none of this order."""
        value, letter_id, sort = _read(cursor)
        if sort != str(self):
            raise ConfigError(
                f"this cursor is of a list that is sorted by {sort!r}",
                where="cursor",
                cure="Sort all pages alike, or leave the cursor out for the first page",
                code="store-cursor",
            )
        here, there = tuple_(self.column, letters.c.letter_id), tuple_(value, letter_id)
        return here < there if self.descending else here > there


NEWEST_FIRST: Final = Sort()


def _read(cursor: str) -> tuple[int | str, int, str]:
    """Return the value, the letter's number and the order of a cursor. Raises ConfigError."""
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        value, letter_id, *rest = json.loads(text)
        [named] = rest or [str(NEWEST_FIRST)]
        sort = str(Sort.parse(named))
        kind = str if sort.endswith("source") else int
        numbers = [number for number in (value, letter_id) if not isinstance(number, str)]
        if type(value) is not kind or type(letter_id) is not int or any(abs(one) >= 2**63 for one in numbers):
            raise ValueError
        if isinstance(value, str) and "\0" in value.encode().decode():  # a lone surrogate raises ValueError, too
            raise ValueError
    except (ValueError, TypeError, AttributeError, binascii.Error, RecursionError, ConfigError):
        raise ConfigError(
            "this is no cursor of a page of letters",
            where="cursor",
            cure="Take the one that the page before has printed, or leave it out for the first page",
            code="store-cursor",
        ) from None
    return value, letter_id, sort
