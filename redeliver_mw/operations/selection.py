# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Says which letters of a store are meant: by state, queue, id, group, time and filter."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, get_args

from sqlalchemy import ColumnElement, and_, bindparam, or_, select

from ..errors import ConfigError
from .calendar import DAY_US, day_us
from .filters.compiler import FilterColumns, compile_filter
from .filters.parser import parse_filter
from .tables import bodies, headers, letters

LetterState = Literal["waiting", "replaying", "replayed", "archived", "discarded"]
LETTER_STATES: Final[tuple[LetterState, ...]] = get_args(LetterState)
GroupKey = Literal["fingerprint", "source", "error", "app", "day"]
GROUP_KEYS: Final[tuple[GroupKey, ...]] = get_args(GroupKey)
_COLUMNS: Final = FilterColumns(letters, headers)


@dataclass(frozen=True, slots=True)
class Selection:
    """Means the letters for which every condition that is given holds.

    - `state`: None means any.
    - `ids`: ids as people see them, whole.
    - `group`: a key and its value, as `groups` returns them; None as a value means letters without one.
    - `where`: a filter, see `filters`; empty means all.
    - `since_us`: died then or later, in microseconds since 1970.
    - `changed_before_us`: changed their state, or came into the store, before that.
    - `with_body`: True means letters whose body was not removed.
    """

    state: LetterState | None = "waiting"
    queue: str | None = None
    ids: Sequence[str] = ()
    group: tuple[GroupKey, str | None] | None = None
    where: str = ""
    since_us: int | None = None
    changed_before_us: int | None = None
    with_body: bool = False

    def narrowed(self, states: Sequence[LetterState]) -> Selection:
        """Return the same selection of letters in these states only. Raises ConfigError if it names another state."""
        if self.state is not None:
            if self.state not in states:
                raise ConfigError(
                    f"this cannot be done with letters that are {self.state}",
                    where="--state",
                    cure=f"Write {' or '.join(states)}, or leave it out",
                    code="option-value",
                )
            return self
        among = f"state in ({', '.join(states)})"
        return replace(self, where=f"({parse_filter(self.where)}) and {among}" if self.where else among)

    def condition(self, now_us: int) -> ColumnElement[bool]:
        """Return the condition on `tables.letters`. Raises ConfigError for a filter that does not parse."""
        columns = letters.c
        found: list[ColumnElement[bool]] = []
        if self.state is not None:
            found.append(columns.state == self.state)
        if self.queue is not None:
            found.append(columns.queue == self.queue)
        if self.ids:
            bases = sorted({one.partition("~")[0] for one in self.ids})  # there is an index on these
            found += [columns.base_id.in_(_listed(bases)), columns.dl_id.in_(_listed(sorted(self.ids)))]
        if self.group is not None:
            key, value = self.group
            column = key_column(key)
            found.append(column.is_(None) if value is None else column == _key_value(key, value))
        if self.since_us is not None:
            found.append(columns.died_us >= self.since_us)
        if self.changed_before_us is not None:
            found.append(columns.changed_us < self.changed_before_us)
        if self.with_body:
            found.append(select(bodies.c.letter_id).where(bodies.c.letter_id == columns.letter_id).exists())
        if self.where:
            found.append(compile_filter(parse_filter(self.where), _COLUMNS, now_us))
        return and_(*found) if found else or_(letters.c.letter_id.is_not(None))

    def __str__(self) -> str:
        """Return the selection as JSON, for the record of an operation: the conditions that are given."""
        given: dict[str, Any] = {
            "state": self.state,
            "queue": self.queue,
            "ids": list(self.ids),
            "group": None if self.group is None else {"by": self.group[0], "value": self.group[1]},
            "where": self.where,
            "since_us": self.since_us,
            "changed_before_us": self.changed_before_us,
            "with_body": self.with_body,
        }
        return json.dumps({name: value for name, value in given.items() if value or name == "state"})


WAITING: Final = Selection()


def key_column(by: GroupKey) -> ColumnElement[Any]:
    """Return the column, or the expression, that letters are grouped by."""
    if by == "day":
        return letters.c.died_us - letters.c.died_us % DAY_US
    return letters.c["error_type" if by == "error" else by]


def _key_value(by: GroupKey, value: str) -> str | int:
    return day_us(value) if by == "day" else value


def _listed(values: Sequence[str]) -> Any:
    return bindparam(None, list(values), expanding=True)
