# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Removes letters from the store that were dealt with long ago, or only their bodies."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from sqlalchemy import Connection, delete, select, update

from ..errors import ConfigError
from .notes import LETTER
from .operation import LetterResult, Operation, PlannedLetter, find_operation, now_us, plan_operation
from .runs import Progress, check_kind, results_of, run_planned
from .selection import LetterState, Selection
from .store import Store
from .tables import bodies, headers, letters, notes

EXPIRE: Final = "expire"
OVER: Final[tuple[LetterState, ...]] = ("replayed", "archived", "discarded")
ANY_STATE: Final = Selection(state=None)


def plan_expire(
    store: Store,
    older_than: float,
    selection: Selection = ANY_STATE,
    *,
    only_bodies: bool = False,
    waiting: bool = False,
    who: str = "",
) -> Operation:
    """Freeze letters that came into their state more than `older_than` seconds ago (> 0).

    These are letters that are replayed, archived or discarded. Letters that wait are meant only if the selection names
    their state and `waiting` is True. `only_bodies`: letters are kept without their bodies and exact headers. Raises
    ConfigError, StoreError.
    """
    if older_than <= 0:
        raise ConfigError(
            "an age of nothing", where="--older-than", cure="Write a length of time as in 30d", code="option-value"
        )
    if selection.state == "waiting" and not waiting:
        raise ConfigError(
            "letters that wait are not removed unless that is confirmed",
            where="--state",
            cure="Add --yes, or archive or discard them first",
            code="option-value",
        )
    states: tuple[LetterState, ...] = ("waiting",) if selection.state == "waiting" else OVER
    before = now_us() - round(older_than * 1e6)
    meant = replace(selection.narrowed(states), changed_before_us=before, with_body=only_bodies)
    options = {"states": list(states), "before_us": before, "only_bodies": only_bodies}
    return plan_operation(store, EXPIRE, meant, options=options, who=who)


def run_expire(
    store: Store,
    operation_id: str,
    *,
    stop: threading.Event | None = None,
    progress: Progress | None = None,
    who: str = "",
) -> Operation:
    """Remove the letters of a plan, or their bodies. A letter that has changed its state since is left alone.

    Raises as `run_planned` does.
    """
    found = find_operation(store, operation_id)
    check_kind(found, EXPIRE)
    states, before = found.options["states"], found.options["before_us"]

    def work(connection: Connection, planned: Sequence[PlannedLetter]) -> list[LetterResult]:
        columns = letters.c
        numbers = [one.letter_id for one in planned]
        old = columns.letter_id.in_(numbers), columns.state.in_(states), columns.changed_us < before
        # An update that changes nothing keeps others from changing the state until the commit.
        held = update(letters).where(*old).values(changed_us=columns.changed_us).returning(columns.letter_id)
        gone = set(connection.execute(held).scalars())
        if gone:
            _remove(connection, gone, only_bodies=found.options["only_bodies"])
        if found.options["only_bodies"]:
            return results_of(connection, planned, gone)
        left = [one for one in planned if one.letter_id not in gone]
        done = [LetterResult(one.position, "done") for one in planned if one.letter_id in gone]
        return done + results_of(connection, left, set())

    return run_planned(store, operation_id, EXPIRE, work, stop=stop, progress=progress, who=who)


def _remove(connection: Connection, letter_ids: Collection[int], *, only_bodies: bool) -> None:
    connection.execute(delete(bodies).where(bodies.c.letter_id.in_(letter_ids)))
    if only_bodies:
        return
    names = select(letters.c.dl_id).where(letters.c.letter_id.in_(letter_ids))
    connection.execute(delete(notes).where(notes.c.target_kind == LETTER, notes.c.target_value.in_(names)))
    connection.execute(delete(headers).where(headers.c.letter_id.in_(letter_ids)))
    connection.execute(delete(letters).where(letters.c.letter_id.in_(letter_ids)))
