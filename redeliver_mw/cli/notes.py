# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements `redeliver dead note`: writes a note on a letter or on a group of letters."""

from __future__ import annotations

from typing import Annotated

import typer

from ..errors import ConfigError
from ..redaction import redact
from .letter_states import Log
from .logs import show_audit
from .output import plain
from .selection import group_of
from .store import StoreUrl, opened

Text = Annotated[str, typer.Argument(metavar="TEXT", help="What others should know")]
OnLetter = Annotated[
    str | None, typer.Option("--id", metavar="ID", help="The letter; the beginning of its id is enough")
]
OnGroup = Annotated[
    str | None, typer.Option("--group", metavar="BY=VALUE", help="The group, as in fingerprint=5b0c7d1e9a3f2468")
]


def note(text: Text, id_: OnLetter = None, group: OnGroup = None, store: StoreUrl = None, log: Log = None) -> None:
    """Write a note on a letter of a store or on a group of letters; `list`, `show` and `groups` print it."""
    from ..operations.notes import note_group, note_letter

    show_audit(log)
    if (id_ is None) == (group is None):
        raise ConfigError(
            "a note is on one letter or on one group",
            where="--id",
            cure="Give --id, or --group BY=VALUE",
            code="option-value",
        )
    named = None if group is None else group_of(group)
    with opened(store) as there:
        written = note_letter(there, id_ or "", text) if named is None else note_group(there, *named, text)
    value = plain(redact(written.target_value)) or "none"
    print(f"note on {written.target_kind} {value}, by {plain(redact(written.who))}")
