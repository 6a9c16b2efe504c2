# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Records operations: the id, kind, time and state of each write that a person makes, and who that person is."""

from __future__ import annotations

import getpass
import json
import os
import secrets
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from sqlalchemy import Connection, insert, select, update

from ..redaction import clean
from .store import Store
from .tables import operations

OperationState = Literal["planned", "running", "paused", "cancelled", "done", "failed"]
DIED = "its process ended before the operation did"


@dataclass(frozen=True, slots=True)
class Operation:
    """Describes one operation as it was when it was read. Times are microseconds since 1970, UTC."""

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
    why: str


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


def begin_operation(
    store: Store, kind: str, *, filter_: str, options: Mapping[str, Any], total: int, who: str = ""
) -> str:
    """Record that an operation begins, and return its id, which sorts by time. Raises StoreError.

    Operations of the same kind that say that they run, on this host in a process that is gone, failed.
    """
    at = now_us()
    moment = datetime.fromtimestamp(at / 1e6, UTC).strftime("%Y%m%d-%H%M%S")
    operation_id = f"{moment}-{secrets.token_hex(3)}"
    process = {"host": clean(socket.gethostname()), "pid": os.getpid()}
    with store.writing() as connection:
        _bury_dead(connection, kind, process["host"], at)
        connection.execute(
            insert(operations).values(
                operation_id=operation_id,
                kind=kind,
                who=clean(who) or person(),
                began_us=at,
                state="running",
                filter=clean(filter_),
                options=json.dumps({**options, **process}),
                total=total,
                done=0,
                failed=0,
                why="",
            )
        )
    return operation_id


def count_done(connection: Connection, operation_id: str, done: int) -> None:
    """Add to the count of an operation, within the transaction that does what is counted."""
    columns = operations.c
    connection.execute(update(operations).where(columns.operation_id == operation_id).values(done=columns.done + done))


def end_operation(store: Store, operation_id: str, state: OperationState, why: str = "", *, failed: int = 0) -> None:
    """Record that an operation has ended. Raises StoreError."""
    with store.writing() as connection:
        connection.execute(
            update(operations)
            .where(operations.c.operation_id == operation_id)
            .values(state=state, why=clean(why), failed=failed, ended_us=now_us())
        )


def last_operations(store: Store, limit: int = 20) -> list[Operation]:
    """Return the last operations, the newest first. Raises StoreError."""
    newest = select(operations).order_by(operations.c.began_us.desc(), operations.c.operation_id.desc()).limit(limit)
    with store.reading() as connection:
        rows = connection.execute(newest).mappings().all()
    return [Operation(**{**row, "options": json.loads(row["options"])}) for row in rows]


def _bury_dead(connection: Connection, kind: str, host: object, at: int) -> None:
    columns = operations.c
    running = select(columns.operation_id, columns.options).where(columns.kind == kind, columns.state == "running")
    for operation_id, options in connection.execute(running).all():
        process = json.loads(options)
        if process["host"] == host and not _lives(process["pid"]):
            connection.execute(
                update(operations)
                .where(columns.operation_id == operation_id)
                .values(state="failed", why=DIED, ended_us=at)
            )


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # another user's
    return True
