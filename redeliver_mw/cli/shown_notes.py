# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Shows notes on letters and groups, without secrets and without terminal control characters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..redaction import redact
from .output import cut, plain, when

if TYPE_CHECKING:
    from ..operations.notes import Note


def note_as_json(one: Note) -> dict[str, Any]:
    """Return a note for programs, without secrets."""
    return {
        "on": one.target_kind,
        "value": redact(one.target_value),
        "text": redact(one.text),
        "who": redact(one.who),
        "at_s": one.at_us / 1e6,
    }


def print_notes(notes: Sequence[Note]) -> None:
    """Print notes, the oldest first, each on one line."""
    for one in notes:
        on = "" if one.target_kind == "letter" else f" on its {one.target_kind}"
        print(f"  note{on}, {when(one.at_us / 1e6)}, {plain(redact(one.who))}: {plain(redact(one.text))}")


def last_note(notes: Sequence[Note]) -> str:
    """Return the newest note for a table; empty without one."""
    return cut(plain(redact(notes[-1].text))) if notes else ""
