# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps notes that people write on a letter, or on a group of letters."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Literal, NamedTuple

from sqlalchemy import insert, or_, select, tuple_

from ..errors import ConfigError
from ..redaction import clean
from .audit import AuditEntry, add_audit, audit_refusals, log_audit
from .calendar import day_text
from .listing import StoredLetter, show
from .operation import now_us, person
from .selection import GroupKey
from .store import Store
from .tables import notes

LETTER: Final = "letter"
NOTE: Final = "note"
MOST_CHARS: Final = 10_000
NoteTarget = Literal["letter"] | GroupKey


class Note(NamedTuple):
    """Holds one note. `target_value` is a letter's id, or the key of a group; empty for the group without a key."""

    note_id: int
    target_kind: NoteTarget
    target_value: str
    text: str
    who: str
    at_us: int


_NOTES: Final = select(*(notes.c[name] for name in Note._fields)).order_by(notes.c.note_id)


def note_letter(store: Store, dl_id: str, text: str, *, who: str = "") -> Note:
    """Write a note on the letter whose id equals `dl_id` or, if there is only one, begins with it.

    Raises ConfigError for a text that is empty or too long, and as `show` does.
    """
    with audit_refusals(store, who=who, what=NOTE, filter_=dl_id):
        checked = _checked(text)
        found = show(store, dl_id).letter.dl_id
    return _write(store, LETTER, found, checked, who)


def note_group(store: Store, by: GroupKey, value: str | None, text: str, *, who: str = "") -> Note:
    """Write a note on a group; `value` None is the group of letters without a key. Raises ConfigError, StoreError."""
    with audit_refusals(store, who=who, what=NOTE, filter_=f"{by}={value or ''}"):
        checked = _checked(text)
    return _write(store, by, value or "", checked, who)


def notes_on(store: Store, kind: NoteTarget, values: Collection[str]) -> dict[str, list[Note]]:
    """Return the notes on several letters, or several groups of one key, the oldest first. Raises StoreError."""
    found: dict[str, list[Note]] = {}
    asked = _NOTES.where(notes.c.target_kind == kind, notes.c.target_value.in_(values))
    with store.reading() as connection:
        for note in map(Note._make, connection.execute(asked)):
            found.setdefault(note.target_value, []).append(note)
    return found


def notes_about(store: Store, letter: StoredLetter) -> list[Note]:
    """Return the notes on a letter and on the groups that it belongs to, the oldest first. Raises StoreError."""
    targets = [
        (LETTER, letter.dl_id),
        ("fingerprint", letter.fingerprint),
        ("source", letter.source),
        ("error", letter.error_type),
        ("app", letter.app),
        ("day", day_text(letter.died_us)),
    ]
    given = [(kind, value) for kind, value in targets if value]
    wanted = or_(*(tuple_(notes.c.target_kind, notes.c.target_value) == tuple_(*one) for one in given))
    with store.reading() as connection:
        return list(map(Note._make, connection.execute(_NOTES.where(wanted))))


def _checked(text: str) -> str:
    kept = clean(text).strip()
    if not kept or len(kept) > MOST_CHARS:
        raise ConfigError(
            "an empty note" if not kept else f"the note has {len(kept)} characters, and at most {MOST_CHARS} are kept",
            where="TEXT",
            cure="Write what others should know",
            code="option-value",
        )
    return kept


def _write(store: Store, kind: NoteTarget, value: str, text: str, who: str) -> Note:
    note = Note(0, kind, value, text, clean(who) or person(), now_us())
    entry = AuditEntry(who=note.who, what=NOTE, outcome="success", filter=f"{kind}={value}", why=text)
    row = {name: given for name, given in note._asdict().items() if name != "note_id"}
    with store.writing() as connection:
        note_id = connection.execute(insert(notes).values(row).returning(notes.c.note_id)).scalar_one()
        add_audit(connection, entry)
    log_audit(entry)
    return note._replace(note_id=note_id)
