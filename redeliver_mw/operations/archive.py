# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Archives letters that need no more attention, and restores letters that were archived or discarded."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, select

from .operation import LetterResult, Operation, PlannedLetter, claim_letters, now_us, plan_operation
from .runs import Progress, move_letters, results_of, run_planned
from .selection import LetterState, Selection
from .store import Store
from .tables import bodies

ARCHIVE: Final = "archive"
RESTORE: Final = "restore"
ARCHIVED_FROM: Final[tuple[LetterState, ...]] = ("waiting", "replayed")
RESTORED_FROM: Final[tuple[LetterState, ...]] = ("archived", "discarded")
NO_BODY: Final = "its body was removed from the store"


def plan_archive(store: Store, selection: Selection, *, who: str = "") -> Operation:
    """Freeze the waiting or replayed letters that a selection means. Raises ConfigError, StoreError."""
    return plan_operation(store, ARCHIVE, selection.narrowed(ARCHIVED_FROM), options={}, who=who)


def run_archive(
    store: Store,
    operation_id: str,
    *,
    stop: threading.Event | None = None,
    progress: Progress | None = None,
    who: str = "",
) -> Operation:
    """Archive the letters of a plan. Raises as `run_planned` does."""

    def work(connection: Connection, planned: Sequence[PlannedLetter]) -> list[LetterResult]:
        return move_letters(connection, planned, ARCHIVED_FROM, "archived")

    return run_planned(store, operation_id, ARCHIVE, work, stop=stop, progress=progress, who=who)


def plan_restore(store: Store, selection: Selection, *, who: str = "") -> Operation:
    """Freeze the archived or discarded letters that a selection means. Raises ConfigError, StoreError."""
    return plan_operation(store, RESTORE, selection.narrowed(RESTORED_FROM), options={}, who=who)


def run_restore(
    store: Store,
    operation_id: str,
    *,
    stop: threading.Event | None = None,
    progress: Progress | None = None,
    who: str = "",
) -> Operation:
    """Let the letters of a plan wait again; one whose body was removed is skipped. Raises as `run_planned` does."""

    def work(connection: Connection, planned: Sequence[PlannedLetter]) -> list[LetterResult]:
        numbers = [one.letter_id for one in planned]
        whole = set(connection.execute(select(bodies.c.letter_id).where(bodies.c.letter_id.in_(numbers))).scalars())
        moved = claim_letters(connection, whole, RESTORED_FROM, "waiting", now_us()) if whole else set()
        complete = [one for one in planned if one.letter_id in whole]
        others = [one for one in planned if one.letter_id not in whole]
        return results_of(connection, complete, moved) + results_of(connection, others, set(), NO_BODY)

    return run_planned(store, operation_id, RESTORE, work, stop=stop, progress=progress, who=who)
