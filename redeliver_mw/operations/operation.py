# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps operations: each write that a person makes, with its letters, its state and what came of each letter.

An operation outlives its process. Its letters are frozen when it is planned: what dies later is not part of it. One
process at a time runs it; another one may take it over when that process is gone. Whoever pauses or cancels an
operation writes its state, and the process that runs it looks at the state before each batch.
"""

from __future__ import annotations

import getpass
import json
import os
import secrets
import socket
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

from sqlalchemy import Connection, RowMapping, bindparam, func, insert, literal, null, select, update

from ..errors import ConfigError, StoreError
from ..redaction import clean
from .selection import Selection
from .store import Store
from .tables import letters, operation_letters, operations

OperationState = Literal["planned", "running", "paused", "cancelled", "done", "failed"]
LetterOutcome = Literal["done", "failed", "skipped", "in doubt"]
DIED: Final = "its process ended before the operation did"
SILENT_US: Final = 60_000_000  # after so long without a write, a process on another host counts as gone
WHY_CHARS: Final = 1000
MOST_LETTERS: Final = 2**31 - 1  # that the column holds
_COUNTED: Final[Mapping[LetterOutcome, str]] = {
    "done": "done",
    "failed": "failed",
    "skipped": "skipped",
    "in doubt": "failed",
}
# States from which an operation can still be run.
_OPEN: Final[Sequence[OperationState]] = ("planned", "running", "paused", "failed")


@dataclass(frozen=True, slots=True)
class Operation:
    """Describes one operation as it was when it was read. Times are microseconds since 1970, UTC.

    `total` letters were frozen when it was planned; `done`, `failed` and `skipped` are those of them that are over.
    `host`, `pid` and `run` name the process that runs it, or that ran it last.
    """

    operation_id: str
    kind: str
    who: str
    began_us: int
    ended_us: int | None
    state: OperationState
    filter: str
    options: Mapping[str, Any]
    total: int
    done: int
    failed: int
    skipped: int
    why: str
    host: str
    pid: int
    run: str
    seen_us: int


class PlannedLetter(NamedTuple):
    """Names one letter of an operation: its place in it, and its number in the store."""

    position: int
    letter_id: int


class LetterResult(NamedTuple):
    """Says what came of one letter of an operation."""

    position: int
    outcome: LetterOutcome
    why: str = ""


def now_us() -> int:
    """Return the wall time in microseconds since 1970."""
    return time.time_ns() // 1000


def person() -> str:
    """Return who runs this process: `user@host`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):
        user = str(os.getuid())
    return clean(f"{user}@{socket.gethostname()}")


# -- making operations ------------------------------------------------------------------------------


def begin_operation(
    store: Store, kind: str, *, filter_: str, options: Mapping[str, Any], total: int, who: str = ""
) -> str:
    """Record that an operation without frozen letters begins, and return its id, which sorts by time.

    Raises StoreError.
    """
    with store.writing() as connection:
        return _insert(connection, kind, filter_, options, total, who, "running").operation_id


def plan_without_letters(
    store: Store, kind: str, *, filter_: str, options: Mapping[str, Any], who: str = ""
) -> Operation:
    """Record an operation without frozen letters that somebody is to run, and return it, which is `planned`.

    Raises StoreError.
    """
    with store.writing() as connection:
        return _insert(connection, kind, filter_, options, 0, who, "planned")


def plan_operation(
    store: Store, kind: str, selection: Selection, *, options: Mapping[str, Any], who: str = "", most: int | None = None
) -> Operation:
    """Freeze the letters that a selection means now, the oldest first, and return the operation, which is `planned`.

    `most`: not more letters than that (>= 1). Raises ConfigError for a filter that does not parse, and StoreError.
    """
    at = now_us()
    chosen = select(letters.c.letter_id).where(selection.condition(at)).order_by(letters.c.died_us, letters.c.letter_id)
    frozen = (chosen if most is None else chosen.limit(most)).subquery()
    with store.writing() as connection:
        operation = _insert(connection, kind, str(selection), options, 0, who, "planned")
        number = func.row_number().over(order_by=(letters.c.died_us, letters.c.letter_id))
        rows = select(
            *(literal(operation.operation_id), number, letters.c.letter_id),
            *(null(), null(), literal(at), null(), null(), null()),
        ).select_from(letters.join(frozen, frozen.c.letter_id == letters.c.letter_id))
        names = [column.name for column in operation_letters.columns]
        connection.execute(insert(operation_letters).from_select(names, rows))
        columns = operation_letters.c
        counted = select(func.count()).where(columns.operation_id == operation.operation_id)
        total = connection.execute(counted).scalar_one()
        _set(connection, operation.operation_id, total=total)
    return find_operation(store, operation.operation_id)


def take_operation(store: Store, operation_id: str) -> Operation:
    """Make this process the one that runs the operation, and return it, which is `running`.

    Raises StoreError if there is no such operation, if it is over, or if another process runs it.
    """
    with store.writing() as connection:
        found = _found(connection, store, operation_id)
        require_open(found, store)
        if found.state == "running" and not has_died(found):
            raise StoreError(
                f"operation {found.operation_id} runs on {found.host}, in process {found.pid}",
                where=store.where,
                cure="Wait for its end, or pause it with `redeliver dead pause ID`",
                code="operation-running",
            )
        process = _this_process()
        _set(connection, found.operation_id, state="running", why="", ended_us=None, **process)
    return find_operation(store, found.operation_id)


def require_open(operation: Operation, store: Store) -> None:
    """Raise StoreError if an operation is over, so that it cannot be run."""
    _require(_OPEN, operation, store, "Plan a new one")


def _require(states: Sequence[OperationState], operation: Operation, store: Store, cure: str) -> None:
    if operation.state not in states:
        raise StoreError(
            f"operation {operation.operation_id} is {operation.state}",
            where=store.where,
            cure=cure,
            code="operation-over",
        )


# -- running operations -----------------------------------------------------------------------------


def pending_letters(store: Store, operation_id: str, limit: int, after: int = 0) -> list[PlannedLetter]:
    """Return letters of an operation that have no outcome so far, in their order, after a position (0: from the first).

    Raises StoreError.
    """
    columns = operation_letters.c
    asked = (
        select(columns.position, columns.letter_id)
        .where(columns.operation_id == operation_id, columns.position > after, columns.outcome.is_(None))
        .order_by(columns.position)
        .limit(limit)
    )
    with store.reading() as connection:
        return list(map(PlannedLetter._make, connection.execute(asked)))


def claim_letters(
    connection: Connection, letter_ids: Collection[int], states: Collection[str], state: str, at_us: int
) -> set[int]:
    """Move letters from one of these states to another, and return those that were moved; others are left alone.

    Of two operations that claim the same letter one gets it.
    """
    columns = letters.c
    moved = (
        update(letters)
        .where(columns.letter_id.in_(bindparam("ids", list(letter_ids), expanding=True)), columns.state.in_(states))
        .values(state=state, changed_us=at_us)
        .returning(columns.letter_id)
    )
    return set(connection.execute(moved).scalars())


def record_results(connection: Connection, operation: Operation, results: Iterable[LetterResult]) -> None:
    """Write what came of letters, and count it, within the transaction that does it.

    A later result of a letter takes the place of an earlier one. Raises StoreError if the operation runs in another
    process now; then the transaction must not be committed.
    """
    found = {one.position: one for one in results}
    check_run(connection, operation)
    if not found:
        _set(connection, operation.operation_id, seen_us=now_us())
        return
    columns = operation_letters.c
    these = columns.position.in_(bindparam("positions", sorted(found), expanding=True))
    mine = columns.operation_id == operation.operation_id
    before = select(columns.outcome).where(mine, these, columns.outcome.is_not(None))
    counts = Counter(_COUNTED[one.outcome] for one in found.values())
    counts.subtract(_COUNTED[word] for word in connection.execute(before).scalars())
    at = now_us()
    connection.execute(
        update(operation_letters)
        .where(mine, columns.position == bindparam("at"))
        .values(outcome=bindparam("word"), why=bindparam("reason"), changed_us=at),
        [{"at": one.position, "word": one.outcome, "reason": clean(one.why)[:WHY_CHARS]} for one in found.values()],
    )
    more = {name: operations.c[name] + number for name, number in counts.items()}
    _set(connection, operation.operation_id, seen_us=at, **more)


def check_run(connection: Connection, operation: Operation) -> None:
    """Raise StoreError if the operation runs in another process now."""
    run = connection.execute(
        select(operations.c.run).where(operations.c.operation_id == operation.operation_id)
    ).scalar_one_or_none()
    if run != operation.run:
        raise StoreError(
            f"another process has taken over operation {operation.operation_id}",
            cure="Look at it with `redeliver dead operations`",
            code="operation-running",
        )


def go_on(store: Store, operation: Operation) -> bool:
    """Return whether nobody has paused or cancelled an operation that this process runs, or has taken it over.

    Also writes that the process is alive, if its last write was a while ago. Raises StoreError.
    """
    now = find_operation(store, operation.operation_id)
    if now.state != "running" or now.run != operation.run:
        return False
    if now_us() - now.seen_us > SILENT_US // 6:
        with store.writing() as connection:
            check_run(connection, operation)
            _set(connection, operation.operation_id, seen_us=now_us())
    return True


def expect_letters(store: Store, operation: Operation, total: int) -> None:
    """Record how many letters an operation without frozen letters will have. Raises StoreError."""
    with store.writing() as connection:
        check_run(connection, operation)
        _set(connection, operation.operation_id, total=min(total, MOST_LETTERS), seen_us=now_us())


def state_of(store: Store, operation_id: str) -> OperationState:
    """Return the state of an operation, which its process asks for before each batch. Raises StoreError."""
    return find_operation(store, operation_id).state


def count_done(connection: Connection, operation_id: str, done: int) -> None:
    """Add to the count of an operation without frozen letters, within the transaction that does what is counted."""
    columns = operations.c
    _set(connection, operation_id, done=columns.done + done, seen_us=now_us())


def record_end(
    connection: Connection,
    operation_id: str,
    state: OperationState,
    why: str = "",
    *,
    failed: int | None = None,
    run: str | None = None,
) -> Operation:
    """Record that an operation has ended, or that it is paused, and return it as it is then. `audit` writes it, too.

    `failed`: how many letters failed; None leaves the count. With `run`, what others have written meanwhile stays:
    that the operation is paused or cancelled, or that another process runs it.
    """
    columns = operations.c
    mine = [columns.operation_id == operation_id]
    if run is not None:
        mine += [columns.run == run, columns.state == "running"]
    counts = {} if failed is None else {"failed": failed}
    ended = None if state == "paused" else now_us()
    connection.execute(
        update(operations).where(*mine).values(state=state, why=clean(why)[:WHY_CHARS], ended_us=ended, **counts)
    )
    return read_operation(connection, operation_id)


# -- what others do with operations -----------------------------------------------------------------


def pause_operation(store: Store, operation_id: str) -> Operation:
    """Ask the process that runs an operation to end after the batch in hand; the operation can go on later.

    Raises StoreError if there is no such operation or if it does not run.
    """
    with store.writing() as connection:
        return ask_to_pause(connection, store, operation_id)


def cancel_operation(store: Store, operation_id: str) -> Operation:
    """End an operation for good, after the batch in hand. Raises StoreError if there is none, or if it is over."""
    with store.writing() as connection:
        return ask_to_cancel(connection, store, operation_id)


def ask_to_pause(connection: Connection, store: Store, operation_id: str) -> Operation:
    """Pause an operation as `pause_operation` does, within a transaction."""
    return _ask(connection, store, operation_id, ("planned", "running"), "paused")


def ask_to_cancel(connection: Connection, store: Store, operation_id: str) -> Operation:
    """Cancel an operation as `cancel_operation` does, within a transaction."""
    return _ask(connection, store, operation_id, _OPEN, "cancelled")


def find_operation(store: Store, operation_id: str) -> Operation:
    """Return the operation whose id equals this one or, if there is only one, begins with it.

    Raises ConfigError if several ids begin so, and StoreError if none does.
    """
    with store.reading() as connection:
        return _found(connection, store, operation_id)


def read_operation(connection: Connection, operation_id: str) -> Operation:
    """Return the operation with this very id, within a transaction. It has to be there."""
    asked = select(operations).where(operations.c.operation_id == operation_id)
    return _operation(connection.execute(asked).mappings().one())


def last_operations(store: Store, limit: int = 20, kind: str | None = None) -> list[Operation]:
    """Return the last operations, the newest first. Raises StoreError."""
    columns = operations.c
    newest = select(operations).order_by(columns.began_us.desc(), columns.operation_id.desc()).limit(limit)
    if kind is not None:
        newest = newest.where(columns.kind == kind)
    with store.reading() as connection:
        return list(map(_operation, connection.execute(newest).mappings()))


# -- rows -------------------------------------------------------------------------------------------


def _insert(
    connection: Connection,
    kind: str,
    filter_: str,
    options: Mapping[str, Any],
    total: int,
    who: str,
    state: OperationState,
) -> Operation:
    at = now_us()
    moment = datetime.fromtimestamp(at / 1e6, UTC).strftime("%Y%m%d-%H%M%S")
    row = {
        "operation_id": f"{moment}-{secrets.token_hex(3)}",
        "kind": kind,
        "who": clean(who) or person(),
        "began_us": at,
        "ended_us": None,
        "state": state,
        "filter": clean(filter_),
        "options": json.dumps(dict(options)),
        "total": total,
        "done": 0,
        "failed": 0,
        "skipped": 0,
        "why": "",
        **_this_process(),
    }
    connection.execute(insert(operations).values(row))
    return _operation(row)


def _this_process() -> dict[str, Any]:
    host = clean(socket.gethostname())
    return {"host": host, "pid": os.getpid(), "run": secrets.token_hex(8), "seen_us": now_us()}


def _operation(row: Mapping[str, Any] | RowMapping) -> Operation:
    return Operation(**{**row, "options": json.loads(row["options"])})


def _set(connection: Connection, operation_id: str, **values: Any) -> None:
    connection.execute(update(operations).where(operations.c.operation_id == operation_id).values(values))


def _ask(
    connection: Connection, store: Store, operation_id: str, states: Sequence[OperationState], state: OperationState
) -> Operation:
    found = _found(connection, store, operation_id)
    _require(states, found, store, "Look at it with `redeliver dead operations`")
    _set(connection, found.operation_id, state=state, ended_us=None if state == "paused" else now_us())
    return read_operation(connection, found.operation_id)


def _found(connection: Connection, store: Store, operation_id: str) -> Operation:
    columns = operations.c
    exact = connection.execute(select(operations).where(columns.operation_id == operation_id)).mappings().first()
    if exact is not None:
        return _operation(exact)
    begun = select(operations).where(columns.operation_id.startswith(operation_id, autoescape=True)).limit(2)
    rows = connection.execute(begun).mappings().all() if operation_id else []
    if not rows:
        raise StoreError(
            f"no such operation: {operation_id!r}",
            where=store.where,
            cure="Take an id from `redeliver dead operations`",
            code="operation-not-found",
        )
    if len(rows) > 1:
        raise ConfigError(
            f"{operation_id!r} begins the ids of several operations",
            where="ID",
            cure="Write more of it",
            code="operation-not-found",
        )
    return _operation(rows[0])


# -- processes --------------------------------------------------------------------------------------


def runs_of_dead_processes(connection: Connection, kind: str) -> list[Operation]:
    """Return operations of a kind that say that they run, on this host in a process that is gone."""
    columns = operations.c
    running = select(operations).where(columns.kind == kind, columns.state == "running")
    found = map(_operation, connection.execute(running).mappings().all())
    return [one for one in found if one.host == clean(socket.gethostname()) and has_died(one)]


def has_died(operation: Operation) -> bool:
    """Return whether the process of an operation no longer runs, as far as can be told from here."""
    if operation.host != clean(socket.gethostname()):
        return now_us() - operation.seen_us > SILENT_US
    return operation.pid != os.getpid() and is_gone(operation.pid)


def is_gone(pid: int) -> bool:
    """Return whether no process of this host has this number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False  # another user's
    return False
