# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the store: pages of letters, groups of letters, counts, and one letter with all that it holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, and_, func, select

from ..dead_letters import Packed
from ..errors import ConfigError, StoreError
from .calendar import day_text
from .letters import packed_of
from .operation import now_us
from .selection import WAITING, GroupKey, LetterState, Selection, key_column
from .sorting import NEWEST_FIRST, Sort
from .store import Store
from .tables import bodies, headers, letters

PAGE: Final = 100
GROUPS: Final = 100
_FOUND: Final = 10_000  # letters whose id begins with the same text that are looked at


class StoredLetter(NamedTuple):
    """Describes one letter of the store without its body. Texts are other programs', and not redacted."""

    letter_id: int
    dl_id: str
    broker: str
    queue: str
    dialect: str
    source: str | None
    problem: str
    reason: str
    error_type: str | None
    error_message: str | None
    fingerprint: str | None
    app: str | None
    failures: int
    generation: int
    replay_id: str | None
    message_key: str | None
    message_id: str | None
    content_type: str | None
    died_us: int
    collected_us: int
    changed_us: int
    state: LetterState
    body_bytes: int
    digest: str


_LETTERS: Final = select(*(letters.c[name] for name in StoredLetter._fields))


@dataclass(frozen=True, slots=True)
class Page:
    """Holds letters in their order, and the cursor of the next page; None on the last page."""

    letters: Sequence[StoredLetter]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Group:
    """Sums up letters with one key in common; None: they have none. `error_type` is that of one of them."""

    key: str | None
    letters: int
    first_us: int
    last_us: int
    error_type: str | None


@dataclass(frozen=True, slots=True)
class ShownLetter:
    """Holds a letter, its headers as texts, which may be cut, and the exact letter.

    `whole`: False if the body, and what else is exact, was removed; then `packed` is empty.
    """

    letter: StoredLetter
    headers: Mapping[str, str]
    packed: Packed
    whole: bool = True


def page(
    store: Store,
    selection: Selection = WAITING,
    *,
    sort: Sort = NEWEST_FIRST,
    limit: int = PAGE,
    cursor: str | None = None,
) -> Page:
    """Return letters that a selection means, in an order, after the cursor. Raises ConfigError, StoreError."""
    wanted = selection.condition(now_us())
    if cursor:
        wanted = and_(wanted, sort.after(cursor))
    asked = _LETTERS.where(wanted).order_by(*sort.order).limit(limit + 1)
    with store.reading() as connection:
        found = list(map(StoredLetter._make, connection.execute(asked)))
    more = len(found) > limit
    found = found[:limit]
    return Page(found, sort.cursor_after(found[-1]) if more and found else None)


def groups(store: Store, by: GroupKey, selection: Selection = WAITING, *, limit: int = GROUPS) -> list[Group]:
    """Return groups of the letters that a selection means, the largest first. Raises ConfigError, StoreError."""
    key = key_column(by)
    number, last = func.count(), func.max(letters.c.died_us)
    asked = (
        select(key, number, func.min(letters.c.died_us), last, func.max(letters.c.error_type))
        .where(selection.condition(now_us()))
        .group_by(key)
        .order_by(number.desc(), last.desc())
        .limit(limit)
    )
    with store.reading() as connection:
        rows = connection.execute(asked).all()
    return [Group(_key_text(by, key), *rest) for key, *rest in rows]


def counts(store: Store) -> dict[LetterState, int]:
    """Return the number of letters in each state; states without letters are missing. Raises StoreError."""
    asked = select(letters.c.state, func.count().label("number")).group_by(letters.c.state)
    with store.reading() as connection:
        return {row.state: row.number for row in connection.execute(asked)}


def find_letter(store: Store, dl_id: str) -> StoredLetter:
    """Return the letter whose id equals `dl_id` or, if there is only one, begins with it. Raises as `show` does."""
    with store.reading() as connection:
        return _found(connection, store, dl_id)


def show(store: Store, dl_id: str) -> ShownLetter:
    """Return the letter whose id equals `dl_id` or, if there is only one, begins with it.

    Raises ConfigError if several letters' ids begin so, and StoreError if none does.
    """
    with store.reading() as connection:
        letter = _found(connection, store, dl_id)
        of_it = connection.execute(
            select(headers.c.name, headers.c.text).where(headers.c.letter_id == letter.letter_id)
        ).all()
        body = connection.execute(select(bodies).where(bodies.c.letter_id == letter.letter_id)).one_or_none()
    exact = (0, b"", b"") if body is None else (body.redelivered, body.head, body.body)
    texts = {row.name: row.text for row in of_it}
    return ShownLetter(letter, texts, packed_of(letter.queue, *exact), whole=body is not None)


def _key_text(by: GroupKey, key: Any) -> str | None:
    if key is None:
        return None
    return day_text(int(key)) if by == "day" else str(key)


# -- one letter ---------------------------------------------------------------------------------------


def _found(connection: Connection, store: Store, dl_id: str) -> StoredLetter:
    base = dl_id.partition("~")[0]
    columns = letters.c
    exact = connection.execute(_LETTERS.where(columns.base_id == base, columns.dl_id == dl_id)).first()
    if exact is not None:
        return StoredLetter._make(exact)
    after = and_(columns.base_id >= base, columns.base_id < base + "\x7f")  # ids are ASCII
    asked = _LETTERS.where(after, columns.dl_id.startswith(dl_id, autoescape=True)).limit(_FOUND)
    rows = connection.execute(asked).all()
    if not rows:
        raise StoreError(
            f"no such letter: {dl_id!r}",
            where=store.where,
            cure="Take an id from `redeliver dead list --store URL`",
            code="letter-not-found",
        )
    if len(rows) > 1:
        number = f"{len(rows)}" if len(rows) < _FOUND else f"{_FOUND} or more"
        raise ConfigError(
            f"{dl_id!r} begins the ids of {number} letters",
            where="--id",
            cure="Write more of it",
            code="letter-not-found",
        )
    return StoredLetter._make(rows[0])
