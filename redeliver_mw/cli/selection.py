# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds the options that say which letters of a store are meant, and reads their values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import ConfigError

if TYPE_CHECKING:
    from ..operations import Store
    from ..operations.selection import GroupKey, LetterState, Selection
    from ..operations.sorting import Sort

ANY = "any"

OfQueue = Annotated[str | None, typer.Option("--queue", metavar="QUEUE", help="Of a store: letters of this queue only")]
Where = Annotated[
    str | None, typer.Option("--where", metavar="FILTER", help="Letters that a filter selects, as in 'failures > 3'")
]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Letters that died so long ago or later, as in 2h or 2026-11-25"),
]
State = Annotated[
    str | None,
    typer.Option(
        "--state",
        metavar="STATE",
        help="Of a store: waiting (the default), replaying, replayed, archived, discarded or any",
    ),
]
OfGroup = Annotated[
    str | None,
    typer.Option(
        "--group",
        metavar="BY=VALUE",
        help="Of a store: letters of one group, as in error=KeyError; nothing after = means those without one",
    ),
]
SortBy = Annotated[
    str | None,
    typer.Option(
        "--sort",
        metavar="BY",
        help="Of a store: died, collected, failures, bytes or source; -died (the default) begins with the newest",
    ),
]
Ids = Annotated[
    list[str] | None,
    typer.Option("--id", metavar="ID", help="This letter; the beginning of its id is enough; may repeat"),
]


All = Annotated[bool, typer.Option("--all", help="Every letter in the state; needed if nothing else is said")]


def meant_selection(
    *,
    every: bool,
    queue: str | None = None,
    where: str | None = None,
    since: str | None = None,
    state: str | None = None,
    group: str | None = None,
    ids: list[str] | None = None,
    usual: str | None = None,
) -> Selection:
    """Return the letters that a command is to change. Without --state it is `usual`; None leaves it to the command.

    Raises ConfigError if nothing says which letters, because nobody should change all of them by leaving out a word.
    """
    from dataclasses import replace

    said = any(one is not None for one in (queue, where, since, group)) or bool(ids)
    if said == every:
        raise ConfigError(
            "it says every letter and some letters" if said else "nothing says which letters",
            where="--all",
            cure="Leave one of them out"
            if said
            else "Name letters with --id, --where, --group, --queue or --since; or all",
            code="option-value",
        )
    found = selection_of(queue=queue, where=where, since=since, state=state or usual, group=group, ids=ids)
    return found if state or usual else replace(found, state=None)


def selection_of(
    *,
    queue: str | None = None,
    where: str | None = None,
    since: str | None = None,
    state: str | None = None,
    group: str | None = None,
    ids: list[str] | None = None,
) -> Selection:
    """Return the letters that the options mean; without --state, those that wait. Raises ConfigError."""
    from ..operations import Selection

    return Selection(
        state="waiting" if state is None else state_of(state),
        queue=queue,
        ids=tuple(_id(one) for one in ids or ()),
        group=None if group is None else group_of(group),
        where=checked_filter(where),
        since_us=since_us_of(since),
    )


def checked_filter(where: str | None) -> str:
    """Return the canonical text of a filter; empty for None. Raises ConfigError for one that does not parse."""
    from ..operations.filters.parser import parse_filter

    return "" if where is None else str(parse_filter(where))


def since_us_of(since: str | None) -> int | None:
    """Return the microseconds since 1970 of --since. Raises ConfigError."""
    from ..operations.filters.parser import parse_since
    from ..operations.operation import now_us

    return None if since is None else parse_since(since, now_us())


def age_of(text: str) -> int:
    """Return the seconds of --older-than. Raises ConfigError."""
    from ..operations.filters.parser import parse_age

    return parse_age(text, "--older-than")


def state_of(text: str) -> LetterState | None:
    """Return the state that is named, and None for any. Raises ConfigError."""
    from ..operations.selection import LETTER_STATES

    found = next((one for one in LETTER_STATES if one == text), None)
    if found is None and text != ANY:
        raise ConfigError(
            f"there is no state {text!r}",
            where="--state",
            cure=f"Write one of {', '.join(LETTER_STATES)}, {ANY}",
            code="option-value",
        )
    return found


def key_of(text: str, where: str) -> GroupKey:
    """Return what letters are grouped by. Raises ConfigError."""
    from ..operations.selection import GROUP_KEYS

    found = next((one for one in GROUP_KEYS if one == text), None)
    if found is None:
        raise ConfigError(
            f"there are no groups by {text!r}",
            where=where,
            cure=f"Write one of {', '.join(GROUP_KEYS)}",
            code="option-value",
        )
    return found


def group_of(text: str) -> tuple[GroupKey, str | None]:
    """Return the key and the value of one group; None for the letters without a value. Raises ConfigError."""
    by, equals, value = text.partition("=")
    key = key_of(by, "--group")
    if not equals:
        raise ConfigError(
            f"{text!r} names no group",
            where="--group",
            cure=f"Write {by}=VALUE with a value that `redeliver dead groups --by {by}` prints",
            code="option-value",
        )
    if key == "source" and value and not value.startswith(("queue:", "topic:")):
        value = f"queue:{value}"
    if key == "day" and value:
        from ..operations.calendar import day_us

        day_us(value, "--group")
    return key, value or None


def sort_of(text: str | None) -> Sort:
    """Return the order that --sort names; without it, the newest first. Raises ConfigError."""
    from ..operations.sorting import NEWEST_FIRST, Sort

    return NEWEST_FIRST if text is None else Sort.parse(text)


def with_whole_ids(there: Store, selection: Selection) -> Selection:
    """Return a selection with the whole ids of its letters. Raises ConfigError, StoreError for an unknown one."""
    from dataclasses import replace

    from ..operations.listing import find_letter

    return replace(selection, ids=tuple(find_letter(there, one).dl_id for one in selection.ids))


def _id(text: str) -> str:
    if not text.strip():
        raise ConfigError("an empty id", where="--id", cure="Take one from `redeliver dead list`", code="option-value")
    return text
