# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Writes who did what with dead letters: a row in the store and a line in the log, for each write and each denial.

The line comes from the logger `redeliver_mw.audit`. Its fields have the names of the Elastic Common Schema, and those
that the schema does not have begin with `redeliver.`. A denial is a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

from sqlalchemy import Connection, insert, select

from ..errors import ConfigError, RedeliverError, StoreError
from ..redaction import clean, redact, visible
from .operation import (
    DIED,
    Operation,
    OperationState,
    ask_to_cancel,
    ask_to_pause,
    now_us,
    person,
    record_end,
    runs_of_dead_processes,
)
from .store import Store
from .tables import audits

AuditOutcome = Literal["success", "failure", "denied"]
log = logging.getLogger("redeliver_mw.audit")
CONTROL: Final = "control-"  # begins what is done with Apps; everything else is done with dead letters
FIELDS: Final = (
    "event.action",
    "event.kind",
    "event.outcome",
    "user.name",
    "redeliver.operation_id",
    "redeliver.filter",
    "redeliver.letters",
    "redeliver.reason",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """Says who did what, to how many letters (None: not known), and with which outcome. `at_us` is since 1970."""

    who: str
    what: str
    outcome: AuditOutcome
    operation_id: str | None = None
    filter: str = ""
    count: int | None = None
    why: str = ""
    at_us: int = 0


def write_audit(store: Store, entry: AuditEntry) -> None:
    """Write an entry to the store and to the log. Raises StoreError; then the line is in the log all the same."""
    log_audit(entry)
    with store.writing() as connection:
        add_audit(connection, entry)


def add_audit(connection: Connection, entry: AuditEntry) -> None:
    """Write an entry within the transaction that does what it says; `log_audit` is to follow the commit."""
    row = {
        "at_us": entry.at_us or now_us(),
        "who": clean(entry.who),
        "what": clean(entry.what),
        "operation_id": entry.operation_id,
        "filter": clean(entry.filter),
        "count": entry.count,
        "outcome": entry.outcome,
        "why": clean(entry.why),
    }
    connection.execute(insert(audits).values(row))


def log_audit(entry: AuditEntry) -> None:
    """Write the line of an entry, without secrets."""
    fields: dict[str, Any] = {
        "event.action": entry.what if entry.what.startswith(CONTROL) else f"dead-letter-{entry.what}",
        "event.kind": "event",
        "event.outcome": "success" if entry.outcome == "success" else "failure",
        "user.name": visible(redact(clean(entry.who))),
        "redeliver.operation_id": entry.operation_id,
        "redeliver.filter": visible(redact(clean(entry.filter))),
        "redeliver.letters": entry.count,
        "redeliver.reason": visible(redact(clean(entry.why))),
    }
    log.log(
        logging.WARNING if entry.outcome == "denied" else logging.INFO,
        "%s %s: %s%s",
        fields["user.name"],
        entry.what,
        entry.outcome,
        f" ({fields['redeliver.reason']})" if entry.why else "",
        extra={name: value for name, value in fields.items() if value not in (None, "")},
    )


@contextmanager
def audit_refusals(
    store: Store,
    *,
    who: str,
    what: str,
    filter_: str = "",
    operation_id: str | None = None,
    count: int | None = None,
) -> Iterator[None]:
    """Write an entry about whatever error ends what is done inside, and let the error go on.

    An error of the input, or of an operation's state, is a denial; another one is a failure.
    """
    try:
        yield
    except RedeliverError as error:
        denied = isinstance(error, ConfigError) or error.code in ("operation-over", "operation-running")
        outcome: AuditOutcome = "denied" if denied else "failure"
        entry = AuditEntry(
            who=who or person(),
            what=what,
            outcome=outcome,
            operation_id=operation_id,
            filter=filter_,
            count=count,
            why=error.message,
        )
        with suppress(StoreError):
            write_audit(store, entry)
        raise


def entry_of(operation: Operation, *, who: str = "") -> AuditEntry:
    """Return the entry for an operation that has ended."""
    return AuditEntry(
        who=who or operation.who,
        what=operation.kind,
        outcome="success" if operation.state == "done" and not operation.failed else "failure",
        operation_id=operation.operation_id,
        filter=operation.filter,
        count=operation.done,
        why=operation.why,
    )


def end_operation(
    store: Store,
    operation_id: str,
    state: OperationState,
    why: str = "",
    *,
    who: str = "",
    failed: int | None = None,
) -> Operation:
    """Record that an operation has ended, whoever runs it, and return it as it is then.

    The audit row is part of the transaction that ends the operation, so that a crash leaves both or neither; the line
    follows the commit. `failed`: how many letters failed; None leaves the count. Raises StoreError; then the operation
    has not ended.
    """
    with store.writing() as connection:
        ended = record_end(connection, operation_id, state, why, failed=failed)
        entry = entry_of(ended, who=who)
        add_audit(connection, entry)
    log_audit(entry)
    return ended


def end_run(
    store: Store,
    operation: Operation,
    state: OperationState,
    why: str = "",
    *,
    who: str = "",
    failed: int | None = None,
) -> Operation:
    """Record as `end_operation` does that this process's run of an operation has ended, or is paused.

    What others have written meanwhile stays: that the operation is paused or cancelled, or that another process runs
    it, which then writes the row.
    """
    with store.writing() as connection:
        ended = record_end(connection, operation.operation_id, state, why, failed=failed, run=operation.run)
        entry = entry_of(ended, who=who)
        is_mine = ended.run == operation.run
        if is_mine:
            add_audit(connection, entry)
    if is_mine:
        log_audit(entry)
    return ended


def fail_dead_runs(store: Store, kind: str) -> None:
    """Record as failed, with an audit row each, what runs in no process any more.

    These are operations of a kind that say that they run, on this host in a process that is gone. Raises StoreError.
    """
    with store.writing() as connection:
        dead = runs_of_dead_processes(connection, kind)
        entries = [entry_of(record_end(connection, one.operation_id, "failed", DIED)) for one in dead]
        for entry in entries:
            add_audit(connection, entry)
    for entry in entries:
        log_audit(entry)


def change_operation(store: Store, operation_id: str, what: Literal["pause", "cancel"], *, who: str = "") -> Operation:
    """Pause or cancel an operation, with its audit row in the same transaction, and return it.

    A refusal has a row, too. Raises as `pause_operation` and `cancel_operation` do.
    """
    who = who or person()
    change = ask_to_pause if what == "pause" else ask_to_cancel
    with audit_refusals(store, who=who, what=what, operation_id=operation_id), store.writing() as connection:
        done = change(connection, store, operation_id)
        entry = AuditEntry(
            who=who,
            what=what,
            outcome="success",
            operation_id=done.operation_id,
            filter=done.filter,
            count=done.total - done.done - done.failed - done.skipped,
        )
        add_audit(connection, entry)
    log_audit(entry)
    return done


def last_entries(store: Store, limit: int = 100) -> list[AuditEntry]:
    """Return the last entries, the newest first. Raises StoreError."""
    newest = select(audits).order_by(audits.c.audit_id.desc()).limit(limit)
    with store.reading() as connection:
        rows = connection.execute(newest).mappings().all()
    return [AuditEntry(**{name: value for name, value in row.items() if name != "audit_id"}) for row in rows]
