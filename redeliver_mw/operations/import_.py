# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Imports letters that were exported or discarded into a file: each keeps its id, and waits.

A letter is in the store already if a letter there has its id and its digest. It is looked for in the transaction that
stores it, so an import that was interrupted can be repeated, and several may run at the same time.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any, Final

from sqlalchemy import Connection, insert, select, update

from ..errors import ConfigError, StoreError
from .audit import end_operation
from .letter_lines import LetterLine, is_header, read_line
from .letters import Row, rows_by_table
from .operation import begin_operation, count_done, now_us
from .runs import INTERRUPTED, Progress
from .store import Store
from .tables import bodies, counters, headers, letters, own_headers

IMPORT: Final = "import"
LONGEST_LINE: Final = 3 * 2**29  # bytes: a body of a gigabyte in base64, and its head
MOST_TOLD: Final = 100  # wrong lines that are described; the others are counted
_BATCH: Final = 200
_BATCH_BYTES: Final = 2**24


@dataclass(slots=True)
class Imported:
    """Sums up an import.

    `added` letters are new in the store. `again` counts those that were there, by the state that they are in;
    `completed` of them had lost their body, and have it again. `renamed` of those that were added have another id than
    in the file, because another letter has it. `wrong` lines were left out; `errors` says why, of the first hundred.
    `stopped`: before the end of the file.
    """

    operation: str
    added: int = 0
    again: Counter[str] = field(default_factory=Counter)
    completed: int = 0
    renamed: int = 0
    wrong: int = 0
    errors: list[ConfigError] = field(default_factory=list)
    stopped: bool = False

    @property
    def whole(self) -> bool:
        """Return whether each line of the file is in the store."""
        return not (self.stopped or self.wrong)


def import_letters(
    store: Store,
    file: IO[bytes],
    *,
    name: str = "",
    size: int = 0,
    stop: threading.Event | None = None,
    progress: Progress | None = None,
    who: str = "",
) -> Imported:
    """Store the letters of a file of lines. Lines that are wrong are left out, and reported.

    `progress` is given the bytes that were read, and `size`. Raises StoreError, and OSError if the file cannot be read;
    then the batches before are stored, and the import can be repeated.
    """
    operation = begin_operation(store, IMPORT, filter_=name, options={"file": name}, total=0, who=who)
    done = Imported(operation)
    try:
        for batch, read in _batches(file, name, done):
            if batch:
                _store(store, batch, done)
            if progress is not None:
                progress(read, size)
            if stop is not None and stop.is_set():
                done.stopped = True
                break
    except BaseException as error:
        with suppress(StoreError):
            why = str(error) or type(error).__name__
            end_operation(store, operation, "failed", why, who=who, failed=done.wrong)
        raise
    why = INTERRUPTED if done.stopped else f"{done.wrong} lines are wrong" if done.wrong else ""
    end_operation(store, operation, "cancelled" if done.stopped else "done", why, who=who, failed=done.wrong)
    return done


def _batches(file: IO[bytes], name: str, done: Imported) -> Iterator[tuple[list[LetterLine], int]]:
    """Yield letters that are to be stored together, and how many bytes were read. Notes the lines that are wrong."""
    batch: list[LetterLine] = []
    number = read = held = 0
    place = f"{name or 'stdin'}: line"
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        read += len(line)
        try:
            if len(line) > LONGEST_LINE:
                read += _skip_line(file)
                raise ConfigError(
                    f"it is longer than {LONGEST_LINE} bytes",
                    where=f"{place} {number}",
                    cure="No letter has so long a line; export it again",
                    code="letter-line",
                )
            if line.strip() and not is_header(line):
                batch.append(read_line(line, f"{place} {number}"))
        except ConfigError as error:
            done.wrong += 1
            if len(done.errors) < MOST_TOLD:
                done.errors.append(error)
        held += len(line)
        if len(batch) >= _BATCH or held >= _BATCH_BYTES:
            yield batch, read
            batch, held = [], 0
    yield batch, read


def _skip_line(file: IO[bytes]) -> int:
    skipped = 0
    while part := file.readline(2**20):
        skipped += len(part)
        if part.endswith(b"\n"):
            break
    return skipped


# -- storing ------------------------------------------------------------------------------------------


def _store(store: Store, batch: Sequence[LetterLine], done: Imported) -> None:
    """Store what is new of a batch, in one transaction. Raises StoreError; then nothing of it was stored."""
    renamed = completed = 0
    again: Counter[str] = Counter()
    with store.writing() as connection:
        first = _numbers(connection, len(batch))  # from here on nobody else stores letters
        known = _StoredIds(connection, batch)
        new: list[LetterLine] = []
        for one in batch:
            there = known.find(one.letter)
            if there is None:
                renamed += known.name(one.letter)
                new.append(one)
                continue
            again[there["state"]] += 1
            if not there["whole"]:
                connection.execute(insert(bodies).values(letter_id=there["letter_id"], **one.body))
                there["whole"] = True
                completed += 1
        if new:
            _insert(connection, first, new)
        added = len(new)
        count_done(connection, done.operation, added)
    done.added += added
    done.again += again
    done.renamed += renamed
    done.completed += completed


def _numbers(connection: Connection, many: int) -> int:
    connection.execute(update(counters).values(next_letter_id=counters.c.next_letter_id + many))
    taken: int = connection.execute(select(counters.c.next_letter_id)).scalar_one()
    return taken - many


def _insert(connection: Connection, first: int, new: Sequence[LetterLine]) -> None:
    at = now_us()
    numbered = list(enumerate(new, start=first))
    given = {"state": "waiting", "changed_us": at}
    connection.execute(insert(letters), [{**one.letter, **given, "letter_id": number} for number, one in numbered])
    connection.execute(insert(bodies), [{**one.body, "letter_id": number} for number, one in numbered])
    of_tables = [(number, *rows_by_table(one.headers)) for number, one in numbered]
    own = [{**row, "letter_id": number} for number, rows, _ in of_tables for row in rows]
    foreign = [{**row, "letter_id": number} for number, _, rows in of_tables for row in rows]
    for table, rows in ((own_headers, own), (headers, foreign)):
        if rows:
            connection.execute(insert(table), rows)


def _origin(dl_id: str) -> str:
    """Return the batch id of a letter that has another id here than in its file, by which it is known."""
    return f"import:{dl_id}"


class _StoredIds:
    """Holds what the store has of the ids of a batch, and what the batch adds to it."""

    def __init__(self, connection: Connection, batch: Sequence[LetterLine]) -> None:
        columns = letters.c
        asked = (
            select(
                *(columns.letter_id, columns.dl_id, columns.base_id, columns.ordinal),
                *(columns.digest, columns.state, columns.batch_id),
                bodies.c.letter_id.is_not(None).label("whole"),
            )
            .select_from(letters.outerjoin(bodies, bodies.c.letter_id == columns.letter_id))
            .where(columns.base_id.in_({one.letter["base_id"] for one in batch}))
        )
        self._letters: dict[tuple[str, str], Row] = {}
        self._names: dict[str, int] = {}  # the highest ordinal of each base id
        self._taken: set[str] = set()
        for row in connection.execute(asked).mappings():
            self._add(dict(row), row["batch_id"])

    def find(self, letter: Row) -> Row | None:
        """Return the letter of the store that this one is."""
        return self._letters.get((letter["dl_id"], letter["digest"]))

    def name(self, letter: Row) -> bool:
        """Give a letter an id that is free: its own, or one with another number. Return whether it is another one."""
        given = letter["dl_id"]
        other = given in self._taken
        if other:
            letter["ordinal"] = self._names[letter["base_id"]] + 1
            letter["dl_id"] = f"{letter['base_id']}~{letter['ordinal']}"
            letter["batch_id"] = _origin(given)
        self._add({**letter, "letter_id": None, "state": "waiting", "whole": True}, letter["batch_id"])
        return other

    def _add(self, row: Row, batch_id: Any) -> None:
        self._letters[row["dl_id"], row["digest"]] = row
        if isinstance(batch_id, str) and batch_id.startswith("import:"):
            self._letters[batch_id.removeprefix("import:"), row["digest"]] = row
        self._taken.add(row["dl_id"])
        self._names[row["base_id"]] = max(self._names.get(row["base_id"], 0), row["ordinal"])
