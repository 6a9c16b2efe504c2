# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the letters that a replay is to send, and makes their copies, changed by the user's function or edit."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, bindparam, or_, select

from ..adapter.protocol import Adapter
from ..dead_letters import Packed, copy_of, stored_text, unpack
from ..dead_letters.edits.letter import Letter, Transform, changes_of
from ..dead_letters.packed import Edits
from ..dead_letters.sending.batch_publisher import OutgoingLetter
from ..errors import ConfigError, RedeliverError
from ..message import Delivery, Destination
from ..redaction import redact
from .became import LINEAGE_CHARS
from .letters import packed_of
from .operation import LetterResult
from .replay_plan import LetterEdit, Routes
from .tables import bodies, letters, operation_letters

BATCH_BYTES: Final = 8 << 20  # of bodies in one batch; a larger body is a batch by itself
LEFT_OUT: Final = "the transform left it out"
_LONG: Final = 300  # characters that are kept of an exception's text


class PendingLetter(NamedTuple):
    """Holds one letter of a replay that has no outcome so far. `lineage` is that of a copy that may have been sent."""

    position: int
    lineage: str | None
    letter_id: int
    dl_id: str
    broker: str
    queue: str
    dialect: str
    source: str | None
    problem: str
    reason: str
    error_type: str | None
    fingerprint: str | None
    failures: int
    generation: int
    message_key: str | None
    message_id: str | None
    content_type: str | None
    died_us: int
    state: str
    body_bytes: int
    digest: str

    @property
    def is_doubtful(self) -> bool:
        """Return whether the letter was about to be sent by this replay before, and has no answer."""
        return self.lineage is not None


@dataclass(slots=True)
class PreparedBatch:
    """Holds the copies of a batch, and the results of letters that have none. `lineages` are those of the copies."""

    outs: list[OutgoingLetter] = field(default_factory=list)
    results: list[LetterResult] = field(default_factory=list)
    lineages: dict[int, str] = field(default_factory=dict)


def pending_rows(connection: Connection, operation_id: str, after: int, limit: int) -> list[PendingLetter]:
    """Return the next letters of a replay that are to be sent, or sent again, not more than `BATCH_BYTES` of them."""
    mine, their = operation_letters.c, letters.c
    names = PendingLetter._fields[2:]
    asked = (
        select(mine.position, mine.lineage, *(their[name] for name in names))
        .join_from(operation_letters, letters, their.letter_id == mine.letter_id)
        .where(mine.operation_id == operation_id, mine.position > after)
        .where(or_(mine.outcome.is_(None), mine.outcome == "in doubt"))
        .order_by(mine.position)
        .limit(limit)
    )
    found: list[PendingLetter] = []
    size = 0
    for one in map(PendingLetter._make, connection.execute(asked)):
        size += one.body_bytes
        if found and size > BATCH_BYTES:
            break
        found.append(one)
    return found


def bodies_of(connection: Connection, rows: Sequence[PendingLetter]) -> dict[int, Packed]:
    """Return the exact letters, by their number in the store; a letter without a body is missing."""
    ids: Any = bindparam("ids", [row.letter_id for row in rows], expanding=True)
    queues = {row.letter_id: row.queue for row in rows}
    asked = select(bodies.c.letter_id, bodies.c.redelivered, bodies.c.head, bodies.c.body)
    found = connection.execute(asked.where(bodies.c.letter_id.in_(ids))).all()
    return {one.letter_id: packed_of(queues[one.letter_id], one.redelivered, one.head, one.body) for one in found}


class CopyMaker:
    """Makes the copies of one replay. The same letter has the same copy each time, as far as the transform allows."""

    def __init__(
        self,
        replay_id: str,
        routes: Routes,
        adapter: Adapter,
        transform: Transform | None,
        edit: LetterEdit | None,
    ) -> None:
        self._replay_id, self._routes, self._adapter = replay_id, routes, adapter
        self._transform, self._edit = transform, edit

    def prepare(self, rows: Sequence[PendingLetter], exact: Mapping[int, Packed]) -> PreparedBatch:
        """Return the copies of letters, and a result for each letter that has none."""
        made = PreparedBatch()
        for row in rows:
            try:
                found = self._copy(row, exact.get(row.letter_id))
            except RedeliverError as error:
                found = LetterResult(row.position, "failed", error.what)
            except ValueError as error:
                found = LetterResult(row.position, "failed", str(error) or "no exact copy can be made")
            if isinstance(found, LetterResult):
                made.results.append(found)
            else:
                made.outs.append(found)
                made.lineages[row.position] = str(found.out.headers["redeliver_lineage"])[:LINEAGE_CHARS]
        return made

    def _copy(self, row: PendingLetter, packed: Packed | None) -> OutgoingLetter | LetterResult:
        target, why = self._routes.target(row.source, row.queue, row.problem)
        if target is None:
            return LetterResult(row.position, "skipped", why)
        if packed is None:
            return LetterResult(row.position, "failed", "its body is not in the store any more")
        edits = self._edit.edits if self._edit is not None else None
        if self._transform is not None:
            changed = self._changed(row, packed, target, edits)
            if isinstance(changed, LetterResult):
                return changed
            target, edits = changed
        out = copy_of(
            packed,
            target,
            self._adapter.reader,
            self._adapter.capabilities,
            replay_id=self._replay_id,
            lineage=own_lineage(row.dl_id),
            known_as=row.message_key,
            salt=f"{self._replay_id}.{row.dl_id}",
            edits=edits,
        )
        return OutgoingLetter(row.position, out, row.message_key or "")

    def _changed(
        self, row: PendingLetter, packed: Packed, target: Destination, edits: Edits | None
    ) -> tuple[Destination, Edits] | LetterResult:
        """Return where a letter goes and with which changes, after the user's function had it."""
        assert self._transform is not None
        before = editable(row, unpack(packed, self._adapter.reader), target)
        if edits is not None:
            before = replace(before, body=packed.body if edits.body is None else edits.body)
            before = before.changed(headers=edits.headers)
        try:
            after = self._transform(before)
            if after is None:
                return LetterResult(row.position, "skipped", LEFT_OUT)
            changes = changes_of(before, after)
            goes = Destination.parse(changes.target)
        except (Exception, SystemExit) as error:  # the user's code: one letter with an error is no reason to stop
            what = " ".join(f"{type(error).__name__}: {error}".split())
            return LetterResult(row.position, "failed", f"the transform: {redact(what)[:_LONG]}")
        body = changes.body if edits is None or changes.body is not None else edits.body
        return goes, Edits(body, {**(edits.headers if edits else {}), **changes.headers})


def own_lineage(dl_id: str) -> str:
    """Return the lineage of a message that nothing identifies: made of its letter's id, at most 64 characters long."""
    return dl_id if len(dl_id) <= LINEAGE_CHARS else hashlib.sha256(dl_id.encode()).hexdigest()[:32]


def editable(row: Any, delivery: Delivery, target: Destination | None) -> Letter:
    """Return a letter of the store, whose row this is, as a user's function receives it."""
    return Letter(
        dl_id=row.dl_id,
        destination=_short(row.source),
        target="" if target is None else target.short,
        body=delivery.body,
        headers={stored_text(name): stored_text(value) for name, value in delivery.headers.items()},
        dlq=row.queue,
        broker=row.broker,
        content_type=row.content_type,
        message_key=row.message_key,
        message_id=row.message_id,
        group_id=None if (group := delivery.identity.group_id) is None else stored_text(group),
        dead_us=row.died_us,
        failures=row.failures,
        generation=row.generation,
        reason=row.reason or None,
        error_type=row.error_type,
        error_fingerprint=row.fingerprint,
    )


def _short(source: str | None) -> str:
    try:
        return "" if source is None else Destination.parse(source).short
    except ConfigError:
        return source or ""
