# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements `redeliver dead discard · archive · restore · expire`: each plans first, and shows the exact count."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ConfigError, StoreError, counted
from ..redaction import redact
from .arguments import Json
from .logs import LogFormat, quiet_drivers, show_audit
from .output import plain, print_json, print_table
from .progress import told
from .selection import (
    All,
    Ids,
    OfGroup,
    OfQueue,
    Since,
    State,
    Where,
    age_of,
    meant_selection,
    selection_of,
    with_whole_ids,
)
from .signals import ended_by_signals
from .store import INTERRUPTED, PART, StoreUrl, opened

if TYPE_CHECKING:
    from ..operations import Operation, Store

WORDS = {"discard": "discarded", "archive": "archived", "restore": "restored", "expire": "removed"}

Yes = Annotated[bool, typer.Option("--yes", help="Do it without asking for the count")]
PlanOnly = Annotated[bool, typer.Option("--plan", help="Freeze and count the letters only; --resume does the rest")]
Resume = Annotated[str | None, typer.Option("--resume", metavar="ID", help="Go on with this operation")]
Log = Annotated[
    LogFormat | None, typer.Option("--log-format", help="Show the log on stderr, with the lines of the audit")
]
IntoFile = Annotated[
    str | None,
    typer.Option("--file", metavar="FILE", help="Where the letters are written to; else discarded-TIME.jsonl here"),
]
OlderThan = Annotated[
    str | None, typer.Option("--older-than", metavar="TIME", help="In their state for longer than that, as in 30d")
]
Bodies = Annotated[bool, typer.Option("--bodies", help="Remove the bodies only, and keep the rest of each letter")]

Plan = Callable[["Store"], "Operation"]
Run = Callable[..., "Operation"]


def discard(
    ids: Ids = None,
    where: Where = None,
    since: Since = None,
    group: OfGroup = None,
    queue: OfQueue = None,
    state: State = None,
    every: All = False,
    file: IntoFile = None,
    yes: Yes = False,
    plan: PlanOnly = False,
    resume: Resume = None,
    store: StoreUrl = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Discard letters of a store, which are written to a file first. They can be restored until they expire.

    The file holds one letter on each line, and `redeliver dead import` reads it.
    """
    from ..operations.discard import plan_discard, run_discard
    from ..operations.letter_files import checked_file

    def planned(there: Store) -> Operation:
        chosen = meant_selection(
            every=every, queue=queue, where=where, since=since, state=state, group=group, ids=ids, usual="waiting"
        )
        return plan_discard(there, with_whole_ids(there, chosen), file=checked_file(file or _file_name()))

    _act("discard", store, planned, run_discard, asks=not yes, plan=plan, resume=resume, log=log, as_json=as_json)


def archive(
    ids: Ids = None,
    where: Where = None,
    since: Since = None,
    group: OfGroup = None,
    queue: OfQueue = None,
    state: State = None,
    every: All = False,
    plan: PlanOnly = False,
    resume: Resume = None,
    store: StoreUrl = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Archive letters of a store that need no more attention; `restore` is the way back."""
    from ..operations.archive import plan_archive, run_archive

    def planned(there: Store) -> Operation:
        chosen = meant_selection(
            every=every, queue=queue, where=where, since=since, state=state, group=group, ids=ids, usual="waiting"
        )
        return plan_archive(there, with_whole_ids(there, chosen))

    _act("archive", store, planned, run_archive, asks=False, plan=plan, resume=resume, log=log, as_json=as_json)


def restore(
    ids: Ids = None,
    where: Where = None,
    since: Since = None,
    group: OfGroup = None,
    queue: OfQueue = None,
    state: State = None,
    every: All = False,
    plan: PlanOnly = False,
    resume: Resume = None,
    store: StoreUrl = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Let archived and discarded letters of a store wait again."""
    from ..operations.archive import plan_restore, run_restore

    def planned(there: Store) -> Operation:
        chosen = meant_selection(every=every, queue=queue, where=where, since=since, state=state, group=group, ids=ids)
        return plan_restore(there, with_whole_ids(there, chosen))

    _act("restore", store, planned, run_restore, asks=False, plan=plan, resume=resume, log=log, as_json=as_json)


def expire(
    older_than: OlderThan = None,
    bodies: Bodies = False,
    where: Where = None,
    group: OfGroup = None,
    queue: OfQueue = None,
    state: State = None,
    yes: Yes = False,
    plan: PlanOnly = False,
    resume: Resume = None,
    store: StoreUrl = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Remove letters from a store for good that were replayed, archived or discarded long ago, or only their bodies.

    Letters that wait are removed only with `--state waiting` and `--yes`.
    """
    from dataclasses import replace

    from ..operations.expire import plan_expire, run_expire

    def planned(there: Store) -> Operation:
        if older_than is None:
            raise ConfigError(
                "nothing says how old", where="--older-than", cure="Write --older-than 30d", code="option-value"
            )
        chosen = selection_of(queue=queue, where=where, state=state, group=group)
        if state is None:
            chosen = replace(chosen, state=None)
        return plan_expire(there, age_of(older_than), chosen, only_bodies=bodies, waiting=yes)

    _act("expire", store, planned, run_expire, asks=not yes, plan=plan, resume=resume, log=log, as_json=as_json)


# -- one operation ------------------------------------------------------------------------------------


def _act(
    kind: str,
    store: str | None,
    planned: Plan,
    run: Run,
    *,
    asks: bool,
    plan: bool,
    resume: str | None,
    log: LogFormat | None,
    as_json: bool,
) -> None:
    """Plan an operation or find one, ask for its count, run it, and say what came of it."""
    from ..operations import find_operation
    from ..operations.audit import audit_refusals
    from ..operations.runs import check_kind

    quiet_drivers()
    show_audit(log)
    stop = threading.Event()
    with opened(store) as there:
        with audit_refusals(there, who="", what=kind, operation_id=resume):
            operation = planned(there) if resume is None else find_operation(there, resume)
            check_kind(operation, kind)
        if plan or (not operation.total and operation.state == "planned"):
            _say_plan(there, operation, as_json, ended=not operation.total)
            return
        if asks and operation.state in ("planned", "paused", "failed", "running"):
            _ask(there, operation)
        with ended_by_signals(stop.set), _going_on(operation, kind):
            with told(f"{WORDS[kind]}:") as tell:
                done = run(there, operation.operation_id, stop=stop, progress=tell)
            _report(there, done, kind, as_json)
    if done.state == "paused" and stop.is_set():
        raise typer.Exit(INTERRUPTED)
    if done.state != "done" or done.skipped or done.failed:
        raise typer.Exit(PART)


def _say_plan(there: Store, operation: Operation, as_json: bool, *, ended: bool) -> None:
    from ..operations.audit import end_operation

    if ended:
        end_operation(there, operation.operation_id, "done", "no letter was meant")
    if as_json:
        print_json(_as_json(operation) | {"state": "done" if ended else operation.state})
    elif ended:
        print("no letter is meant by that")
    else:
        print(
            f"{counted(operation.total, 'letter')} would be {WORDS[operation.kind]}, operation {operation.operation_id}"
        )
        print(f"to do it: redeliver dead {operation.kind} --resume {operation.operation_id}", file=sys.stderr)


def _ask(there: Store, operation: Operation) -> None:
    """Return if somebody types how many letters are meant. Raises ConfigError; then the operation is cancelled."""
    from ..operations import cancel_operation
    from ..operations.audit import AuditEntry, write_audit
    from ..operations.operation import person

    left = operation.total - operation.done - operation.failed - operation.skipped
    question = f"{counted(left, 'letter')} will be {WORDS[operation.kind]}. Type {left} to go on: "
    print(question, end="", file=sys.stderr, flush=True)
    answer: str | None = None
    try:
        answer = sys.stdin.readline().strip()
    finally:  # Ctrl-C is a no, too
        if answer != str(left):
            if operation.state == "planned":
                cancel_operation(there, operation.operation_id)
            entry = AuditEntry(
                who=person(),
                what=operation.kind,
                outcome="denied",
                operation_id=operation.operation_id,
                filter=operation.filter,
                count=left,
                why="the count was not confirmed",
            )
            write_audit(there, entry)
    if answer == str(left):
        return
    raise ConfigError(
        f"the count of {left} was not confirmed, and nothing was done",
        where="--yes",
        cure="Type the count, or add --yes",
        code="not-confirmed",
    )


@contextmanager
def _going_on(operation: Operation, kind: str) -> Iterator[None]:
    """Say how to go on if the store or a file fails in the middle."""
    try:
        yield
    except StoreError as error:
        if error.code not in ("operation-over", "operation-running"):
            print(
                f"note: letters of finished batches are {WORDS[kind]}, all others are as they were. "
                f"To go on: redeliver dead {kind} --resume {operation.operation_id}",
                file=sys.stderr,
            )
        raise


def _report(there: Store, done: Operation, kind: str, as_json: bool) -> None:
    from ..operations.outcomes import outcome_counts

    skipped = outcome_counts(there, done.operation_id) if done.skipped or done.failed else {}
    others = [(n, outcome, why) for (outcome, why, _), n in skipped.items() if outcome not in ("done", "open")]
    file = done.options.get("file")
    if as_json:
        reasons = [{"letters": n, "outcome": outcome, "why": redact(why)} for n, outcome, why in others]
        print_json(_as_json(done) | {"reasons": reasons})
    else:
        if others:
            rows = [(str(n), outcome, plain(redact(why))) for n, outcome, why in others]
            print_table(("letters", "outcome", "why"), rows, right={0})
        what = "bodies" if done.options.get("only_bodies") else "letters"
        into = f" and written to {plain(file)}" if file and done.done else ""
        print(f"{done.done} of {done.total} {what} {WORDS[kind]}{into}, operation {done.operation_id}")
    if done.state != "done":
        by = "interrupted" if done.why else f"{done.state} by somebody"
        left = done.total - done.done - done.failed - done.skipped
        goes_on = "" if done.state == "cancelled" else f" To go on: redeliver dead {kind} --resume {done.operation_id}"
        print(f"{by}: {counted(left, 'letter')} left as they were.{goes_on}", file=sys.stderr)


def _as_json(operation: Operation) -> dict[str, Any]:
    return {
        "operation": operation.operation_id,
        "kind": operation.kind,
        "state": operation.state,
        "total": operation.total,
        "done": operation.done,
        "failed": operation.failed,
        "skipped": operation.skipped,
        "file": operation.options.get("file"),
    }


def _file_name() -> Path:
    from datetime import UTC, datetime

    return Path(f"discarded-{datetime.now(UTC):%Y%m%d-%H%M%S}.jsonl")
