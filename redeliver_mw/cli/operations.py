# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements `redeliver dead operations · pause · cancel · audit`: what was done with dead letters, and by whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..redaction import redact
from .arguments import Json
from .letter_states import Log
from .logs import show_audit
from .output import cut, plain, print_json, print_table, when
from .store import StoreUrl, check_limit, opened

if TYPE_CHECKING:
    from ..operations import Operation, Store
    from ..operations.audit import AuditEntry
    from ..operations.outcomes import OutcomeOfLetter

LAST, LAST_ENTRIES = 20, 100

OperationOrNone = Annotated[
    str | None, typer.Argument(metavar="ID", help="One operation; the beginning of its id is enough")
]
OperationId = Annotated[str, typer.Argument(metavar="ID", help="The operation; the beginning of its id is enough")]
LastLimit = Annotated[int | None, typer.Option("--limit", help="At most so many, from 1 on")]
After = Annotated[int, typer.Option("--after", metavar="N", min=0, help="Of one operation: letters after the Nth")]


def operations(
    id_: OperationOrNone = None,
    limit: LastLimit = None,
    after: After = 0,
    store: StoreUrl = None,
    as_json: Json = False,
) -> None:
    """List the last operations on a store, whoever began them; or what came of each letter of one operation."""
    from ..operations import find_operation, last_operations

    check_limit(limit)
    with opened(store) as there:
        if id_ is not None:
            return _show(there, find_operation(there, id_), limit, after, as_json)
        found = last_operations(there, limit or LAST)
    if as_json:
        return print_json([_as_json(one) for one in found])
    rows = [
        (
            one.operation_id,
            plain(one.kind),
            one.state,
            f"{one.done} of {one.total}" if one.total else str(one.done),
            str(one.failed),
            str(one.skipped),
            plain(redact(one.who)),
            when(one.began_us / 1e6),
            cut(plain(redact(one.why))),
        )
        for one in found
    ]
    names = ("operation", "kind", "state", "done", "failed", "skipped", "who", "began", "why")
    return print_table(names, rows, right={4, 5})


def pause(id_: OperationId, store: StoreUrl = None, log: Log = None) -> None:
    """Let an operation end after the batch in hand; it can go on later."""
    _change("pause", id_, store, log)


def cancel(id_: OperationId, store: StoreUrl = None, log: Log = None) -> None:
    """End an operation for good, after the batch in hand. Letters that are not done are as they were."""
    _change("cancel", id_, store, log)


def audit(limit: LastLimit = None, store: StoreUrl = None, as_json: Json = False) -> None:
    """List who did what on a store, and what was refused; the newest first."""
    from ..operations.audit import last_entries

    check_limit(limit)
    with opened(store) as there:
        found = last_entries(there, limit or LAST_ENTRIES)
    if as_json:
        return print_json([_entry_as_json(one) for one in found])
    rows = [
        (
            when(one.at_us / 1e6),
            plain(redact(one.who)),
            plain(redact(one.what)),
            one.outcome,
            "" if one.count is None else str(one.count),
            one.operation_id or "",
            cut(plain(redact(one.filter))),
            cut(plain(redact(one.why))),
        )
        for one in found
    ]
    return print_table(("when", "who", "what", "outcome", "letters", "operation", "filter", "why"), rows, right={4})


def _change(what: Literal["pause", "cancel"], id_: str, store: str | None, log: Any) -> None:
    from ..operations.audit import change_operation

    show_audit(log)
    with opened(store) as there:
        done = change_operation(there, id_, what)
    print(f"operation {done.operation_id} is {done.state}: {done.done} of {done.total} done")


def _show(there: Store, one: Operation, limit: int | None, after: int, as_json: bool) -> None:
    from ..operations.outcomes import PAGE, outcomes_of

    found = outcomes_of(there, one.operation_id, limit=limit or PAGE, after=after)
    if as_json:
        return print_json(_as_json(one) | {"letters": [_outcome_as_json(letter) for letter in found]})
    print(f"operation {one.operation_id}, {plain(one.kind)}, {one.state}, by {plain(redact(one.who))}")
    print(f"  began {when(one.began_us / 1e6)}" + (f", ended {when(one.ended_us / 1e6)}" if one.ended_us else ""))
    print(f"  {one.done} of {one.total} done, {one.failed} failed, {one.skipped} skipped")
    for name, text in (("filter", one.filter), ("why", one.why)):
        if text:
            print(f"  {name}: {plain(redact(text))}")
    rows = [
        (
            str(letter.position),
            plain(letter.dl_id or "removed"),
            letter.state or "",
            letter.outcome or "open",
            letter.became or "",
            cut(plain(redact(letter.why or ""))),
        )
        for letter in found
    ]
    if rows:
        print_table(("", "id", "is", "outcome", "became", "why"), rows, right={0})
    if found and found[-1].position < one.total:
        print(f"more: --after {found[-1].position}")
    return None


def _as_json(one: Operation) -> dict[str, Any]:
    return {
        "operation": one.operation_id,
        "kind": one.kind,
        "state": one.state,
        "who": redact(one.who),
        "began_s": one.began_us / 1e6,
        "ended_s": None if one.ended_us is None else one.ended_us / 1e6,
        "filter": redact(one.filter),
        "total": one.total,
        "done": one.done,
        "failed": one.failed,
        "skipped": one.skipped,
        "why": redact(one.why) or None,
    }


def _outcome_as_json(letter: OutcomeOfLetter) -> dict[str, Any]:
    return {
        "position": letter.position,
        "id": letter.dl_id,
        "state": letter.state,
        "outcome": letter.outcome,
        "why": redact(letter.why or "") or None,
        "became": letter.became,
    }


def _entry_as_json(one: AuditEntry) -> dict[str, Any]:
    return {
        "at_s": one.at_us / 1e6,
        "who": redact(one.who),
        "what": redact(one.what),
        "outcome": one.outcome,
        "letters": one.count,
        "operation": one.operation_id,
        "filter": redact(one.filter),
        "why": redact(one.why) or None,
    }
