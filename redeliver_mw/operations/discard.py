# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Discards letters: they are written to a file first, and stay in the store until they expire.

The lines of a batch are on the disk before the transaction that discards the batch is committed. After the death of the
process at any moment, each letter that is discarded is in the file; one that is in the file and still waits is
recognised when the file is imported.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from sqlalchemy import Connection

from .archive import NO_BODY
from .letter_files import AppendedFile, checked_file
from .letter_lines import header_line, lines_of
from .operation import LetterResult, Operation, PlannedLetter, claim_letters, find_operation, now_us, plan_operation
from .runs import Progress, check_kind, results_of, run_planned
from .selection import LetterState, Selection
from .store import Store

DISCARD: Final = "discard"
BATCH_BYTES: Final = 2**26  # of bodies that are written to the file within one transaction
DISCARDED_FROM: Final[tuple[LetterState, ...]] = ("waiting", "replayed", "archived")


def plan_discard(store: Store, selection: Selection, *, file: str | Path | None = None, who: str = "") -> Operation:
    """Freeze the letters that a selection means, and that are to be written to a file, which must not exist yet.

    `file`: None for no file; the letters are in the store only. Raises ConfigError, StoreError.
    """
    path = None if file is None else str(checked_file(file))
    return plan_operation(store, DISCARD, selection.narrowed(DISCARDED_FROM), options={"file": path}, who=who)


def run_discard(
    store: Store,
    operation_id: str,
    *,
    stop: threading.Event | None = None,
    progress: Progress | None = None,
    who: str = "",
) -> Operation:
    """Discard the letters of a plan. Raises as `run_planned` does, and StoreError if the file cannot be written.

    A letter whose body was removed is discarded, and is not in the file.
    """
    found = find_operation(store, operation_id)
    check_kind(found, DISCARD)
    path = found.options.get("file")
    files: list[AppendedFile] = []
    with ExitStack() as stack:

        def work(connection: Connection, planned: Sequence[PlannedLetter]) -> list[LetterResult]:
            if path is not None and not files:  # nobody else runs the operation, so nobody else writes to the file
                again = found.state != "planned"
                files.append(
                    stack.enter_context(AppendedFile(Path(path), header_line(found.operation_id), again=again))
                )
            numbers = [one.letter_id for one in planned]
            claimed = claim_letters(connection, numbers, DISCARDED_FROM, "discarded", now_us())
            whole = _write(connection, sorted(claimed), files[0]) if files else claimed
            return [
                result._replace(why=NO_BODY) if result.outcome == "done" and one.letter_id not in whole else result
                for one, result in zip(planned, results_of(connection, planned, claimed), strict=True)
            ]

        return run_planned(
            store, operation_id, DISCARD, work, stop=stop, progress=progress, batch_bytes=BATCH_BYTES, who=who
        )


def _write(connection: Connection, letter_ids: Sequence[int], file: AppendedFile) -> set[int]:
    """Write letters to the file, wait until they are on the disk, and return those that were whole."""
    whole = set()
    for letter_id, line in lines_of(connection, letter_ids):
        if line is not None:
            file.write(line)
            whole.add(letter_id)
    file.sync()
    return whole
