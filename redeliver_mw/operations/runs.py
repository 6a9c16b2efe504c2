# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a planned operation: batch after batch, each in one transaction with what came of its letters.

Before each batch the state of the operation is looked at. If somebody has paused or cancelled it, or if this process is
asked to stop, the operation ends in good order: letters of earlier batches are done, all others are as they were.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from sqlalchemy import Connection, select

from ..errors import ConfigError, RedeliverError, StoreError
from .audit import audit_refusals, end_run
from .operation import (
    LetterResult,
    Operation,
    OperationState,
    PlannedLetter,
    claim_letters,
    find_operation,
    now_us,
    pending_letters,
    record_results,
    take_operation,
)
from .selection import LetterState
from .store import Store
from .tables import letters

BATCH: Final = 200
INTERRUPTED: Final = "it was interrupted"
Progress = Callable[[int, int], None]
"""Is given the letters that are over, and the letters of the operation."""
Work = Callable[[Connection, Sequence[PlannedLetter]], Sequence[LetterResult]]
"""Does what the operation is for with some letters, within a transaction, and returns what came of each of them."""


def run_planned(
    store: Store,
    operation_id: str,
    kind: str,
    work: Work,
    *,
    stop: threading.Event | None = None,
    progress: Progress | None = None,
    batch: int = BATCH,
    batch_bytes: int | None = None,
    who: str = "",
) -> Operation:
    """Run a planned operation, or go on with one, and return it as it is at the end: done, paused, cancelled or failed.

    A batch has at most `batch` letters and, but for its first letter, at most `batch_bytes` of bodies. Raises
    StoreError if the operation is over or runs elsewhere, ConfigError if it is of another kind, and what `work` raises:
    then the batch in hand is undone, and the operation is `failed` and can be run again.
    """
    found = find_operation(store, operation_id)
    with audit_refusals(store, who=who, what=kind, filter_=found.filter, operation_id=found.operation_id):
        check_kind(found, kind)
        operation = take_operation(store, operation_id)
    try:
        state, reason = _run(store, operation, work, stop or threading.Event(), progress, batch, batch_bytes)
    except BaseException as error:
        why = error.message if isinstance(error, RedeliverError) else str(error) or type(error).__name__
        with suppress(StoreError):
            end_run(store, operation, "failed", why, who=who)
        raise
    return end_run(store, operation, state, reason, who=who)


def check_kind(operation: Operation, kind: str) -> None:
    """Raise ConfigError if an operation is of another kind."""
    if operation.kind != kind:
        raise ConfigError(
            f"operation {operation.operation_id} is of the kind {operation.kind!r}, and not {kind!r}",
            where="ID",
            cure="Take an id of this kind from `redeliver dead operations`",
            code="operation-kind",
        )


def move_letters(
    connection: Connection,
    planned: Sequence[PlannedLetter],
    states: Sequence[LetterState],
    state: LetterState,
) -> list[LetterResult]:
    """Move letters from one of these states to another, and return what came of each; others are skipped."""
    claimed = claim_letters(connection, [one.letter_id for one in planned], states, state, now_us())
    return results_of(connection, planned, claimed)


def results_of(
    connection: Connection, planned: Sequence[PlannedLetter], done: set[int], why: str = ""
) -> list[LetterResult]:
    """Return that these letters are done, and that the others are skipped: why, or because of the state they are in."""
    left = [one.letter_id for one in planned if one.letter_id not in done]
    columns = letters.c
    asked = select(columns.letter_id, columns.state).where(columns.letter_id.in_(left))
    states = {row.letter_id: row.state for row in connection.execute(asked)} if left else {}
    return [
        LetterResult(one.position, "done")
        if one.letter_id in done
        else LetterResult(one.position, "skipped", _why(states.get(one.letter_id), why))
        for one in planned
    ]


def _why(state: str | None, why: str) -> str:
    return "it is no longer in the store" if state is None else why or f"it is {state} now"


def _run(
    store: Store,
    operation: Operation,
    work: Work,
    stop: threading.Event,
    progress: Progress | None,
    batch: int,
    batch_bytes: int | None,
) -> tuple[OperationState, str]:
    """Do the batches, and return how the run is to end and why, unless somebody else has already ended it."""
    after = 0
    while True:
        now = find_operation(store, operation.operation_id)
        if progress is not None:
            progress(now.done + now.failed + now.skipped, now.total)
        if now.state != "running" or now.run != operation.run:
            return now.state, now.why
        planned: Sequence[PlannedLetter] = pending_letters(store, operation.operation_id, batch, after)
        if not planned:
            return "done", ""
        if stop.is_set():
            return "paused", INTERRUPTED
        if batch_bytes is not None:
            planned = _bounded(store, planned, batch_bytes)
        with store.writing() as connection:
            record_results(connection, operation, work(connection, planned))
        after = planned[-1].position


def _bounded(store: Store, planned: Sequence[PlannedLetter], most: int) -> Sequence[PlannedLetter]:
    """Return the first of these letters whose bodies together have at most so many bytes, and at least one letter."""
    columns = letters.c
    asked = select(columns.letter_id, columns.body_bytes).where(
        columns.letter_id.in_([one.letter_id for one in planned])
    )
    with store.reading() as connection:
        sizes = {row.letter_id: row.body_bytes for row in connection.execute(asked)}
    total = 0
    for number, one in enumerate(planned):
        total += sizes.get(one.letter_id, 0)
        if total > most and number:
            return planned[:number]
    return planned
