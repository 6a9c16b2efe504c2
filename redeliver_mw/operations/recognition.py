# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Recognises letters that the store already holds and that come a second time. Works inside a transaction.

A process that has died cannot report whether the broker processed the settlement of a batch: the batch is in *doubt*,
and its letters may come again. The rules are those of `pipeline.draining.dedupe`, so that in doubt a letter is stored
twice and none is missing. A letter is one that the store holds only if

- both carry the id of the same copy of ours, the same source and the same body: only redeliver-mw sets such ids; or
- the letter may have been delivered before, as far as its broker reports; the store's one is in a batch in doubt, of
  the same queue and of another subscription; both have the same message id, source and body; and no other letter of
  that batch has this id; or
- the letters have nothing but their contents to tell them apart, and all letters of the batch in doubt came back.

Until the last of such a batch has come, those that came are stored as new letters that note of which one they are a
second copy (`again_of`). Then the second copies are removed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import JSON, Connection, Row, Text, and_, cast, delete, func, literal, or_, select, update

from .letters import StoreRows
from .operation import SILENT_US, now_us
from .tables import PARTS, batches, letters, operations

T = TypeVar("T")
CHUNK = 5000  # values in one statement


class Recognised(NamedTuple):
    """Holds what is to be stored: letters that are new, and how many are there already."""

    new: Sequence[StoreRows]
    again: int


def recognise(connection: Connection, found: Sequence[StoreRows], origin: str, batch_id: str) -> Recognised:
    """Return the letters of one queue that are to be stored, with their ids and `again_of`.

    Letters that are there already, and are in doubt no longer in their old batch, are in doubt in this one.
    """
    ordinals = _ordinals(connection, {one.letter["base_id"] for one in found})
    known = _Known(connection, found[0].letter, ordinals, origin) if ordinals else None
    copies: set[tuple[str, str]] = set()
    new: list[StoreRows] = []
    taken_over: list[int] = []
    for one in found:
        letter = one.letter
        may_be_back = letter.pop("may_be_back")
        letter["batch_id"] = batch_id if letter["known_by"] != "copy" else None
        if letter["known_by"] == "copy":
            copy = letter["base_id"], letter["same"]
            if copy in copies or (known is not None and copy in known.copies):
                continue
            copies.add(copy)
        elif may_be_back and known is not None:
            if (there := known.take(letter["base_id"], letter["same"])) is not None:
                taken_over.append(there)
                continue
            letter["again_of"] = known.take_alike(letter["base_id"], letter["same"])
        _name(letter, ordinals)
        new.append(one)
    for some in _chunks(taken_over):
        connection.execute(update(letters).where(letters.c.letter_id.in_(some)).values(batch_id=batch_id))
    return Recognised(new, len(found) - len(new))


def remove_whole(connection: Connection, stored: Sequence[StoreRows]) -> int:
    """Remove second copies of letters whose whole batch has come back, and return how many were removed."""
    of = [one.letter["again_of"] for one in stored if one.letter["again_of"] is not None]
    touched = {
        batch
        for some in _chunks(of)
        for (batch,) in connection.execute(select(letters.c.batch_id).where(letters.c.letter_id.in_(some)).distinct())
    }
    return sum(_remove_if_whole(connection, batch) for batch in sorted(touched))


def forget_doubts(connection: Connection, broker: str, queues: Sequence[str], operation: str) -> None:
    """Forget batches in doubt of queues that were seen empty: nothing of these batches can come any more.

    Batches of other operations that run are left alone, because a queue is empty, too, if they hold its letters. A
    collect that was just paused or cancelled may still have its last batch in hand.
    """
    columns = operations.c
    silent = now_us() - columns.seen_us > SILENT_US
    ended = or_(columns.state.in_(("done", "failed")), and_(columns.state != "running", silent))
    over = select(columns.operation_id).where(ended)
    connection.execute(
        delete(batches).where(
            batches.c.broker == broker,
            batches.c.queue.in_(queues),
            or_(batches.c.operation_id == operation, batches.c.operation_id.in_(over)),
        )
    )


def _remove_if_whole(connection: Connection, batch_id: str) -> int:
    second = letters.alias()
    pairs = connection.execute(
        select(letters.c.letter_id, letters.c.base_id, second.c.letter_id, second.c.batch_id)
        .select_from(
            letters.outerjoin(second, and_(second.c.again_of == letters.c.letter_id, second.c.state == "waiting"))
        )
        .where(letters.c.batch_id == batch_id)
    ).all()
    # A batch of equal letters is never recognised: others that are equal to them could have come.
    if len({base for _, base, _, _ in pairs}) < 2 or any(copy is None for _, _, copy, _ in pairs):
        return 0
    for first, _, _, batch in pairs:  # the first is now where the second was: in the batch that is to be settled
        connection.execute(update(letters).where(letters.c.letter_id == first).values(batch_id=batch))
    gone = [copy for _, _, copy, _ in pairs]
    for some in _chunks(gone):
        for table in PARTS:
            connection.execute(delete(table).where(table.c.letter_id.in_(some)))
    connection.execute(delete(batches).where(batches.c.batch_id == batch_id))
    return len(gone)


def _ordinals(connection: Connection, ids: Iterable[str]) -> dict[str, int]:
    """Return the highest ordinal in use for each of these ids that the store holds."""
    highest = func.max(letters.c.ordinal).label("highest")
    asked = select(letters.c.base_id, highest).where(letters.c.base_id.in_(_among(connection, sorted(ids))))
    return {row.base_id: row.highest for row in connection.execute(asked.group_by(letters.c.base_id))}


def _among(connection: Connection, texts: Sequence[str]) -> Any:
    """Return what selects these texts from one value, because SQLAlchemy takes longer for thousands than SQLite."""
    value = json.dumps(texts)
    if connection.dialect.name == "sqlite":
        return select(func.json_each(value).table_valued("value").c.value)
    return select(func.json_array_elements_text(cast(literal(value, Text), JSON)).column_valued())


def _name(letter: dict[str, Any], ordinals: dict[str, int]) -> None:
    base = letter["base_id"]
    ordinal = ordinals[base] = ordinals.get(base, 0) + 1
    letter["ordinal"] = ordinal
    letter["dl_id"] = base if ordinal == 1 else f"{base}~{ordinal}"


class _Known:
    """Holds the letters of the store that letters of a queue may be: copies of ours, and letters in doubt."""

    def __init__(self, connection: Connection, place: dict[str, Any], ids: Iterable[str], origin: str) -> None:
        self.copies: set[tuple[str, str]] = set()
        self._one: dict[tuple[str, str], int] = {}
        self._alike: dict[tuple[str, str], list[int]] = {}
        in_doubt: list[Row[Any]] = []
        for some in _chunks(sorted(ids)):
            for row in connection.execute(_candidates(place, some)):
                if row.known_by == "copy":
                    self.copies.add((row.base_id, row.same))
                elif row.origin != origin:
                    in_doubt.append(row)
        alone = Counter((row.batch_id, row.base_id) for row in in_doubt)
        for row in in_doubt:
            if row.known_by and alone[row.batch_id, row.base_id] == 1:
                self._one.setdefault((row.base_id, row.same), row.letter_id)
            else:
                self._alike.setdefault((row.base_id, row.same), []).append(row.letter_id)

    def take(self, base_id: str, same: str) -> int | None:
        """Return the letter that this one is for certain; each is returned once."""
        return self._one.pop((base_id, same), None)

    def take_alike(self, base_id: str, same: str) -> int | None:
        """Return a letter that this one may be; each is returned once."""
        left = self._alike.get((base_id, same))
        return left.pop() if left else None


def _candidates(place: dict[str, Any], ids: Sequence[str]) -> Any:
    second = letters.alias()
    columns = (letters.c.letter_id, letters.c.base_id, letters.c.same, letters.c.known_by, letters.c.batch_id)
    unmatched = ~select(second.c.letter_id).where(second.c.again_of == letters.c.letter_id).exists()
    return (
        select(*columns, batches.c.origin)
        .select_from(letters.outerjoin(batches, batches.c.batch_id == letters.c.batch_id))
        .where(
            letters.c.base_id.in_(ids),
            letters.c.broker == place["broker"],
            letters.c.queue == place["queue"],
            or_(letters.c.known_by == "copy", and_(batches.c.origin.is_not(None), unmatched)),
        )
    )


def _chunks(values: Sequence[T]) -> Iterable[Sequence[T]]:
    return (values[at : at + CHUNK] for at in range(0, len(values), CHUNK))
