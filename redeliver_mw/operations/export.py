# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Exports letters as lines of JSON, from which `import_` makes the same letters again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sqlalchemy import func, select

from .audit import AuditEntry, write_audit
from .letter_lines import lines_of
from .operation import now_us, person
from .runs import Progress
from .selection import WAITING, Selection
from .store import Store
from .tables import letters

EXPORT: Final = "export"
_BATCH: Final = 200


@dataclass(frozen=True, slots=True)
class Exported:
    """Sums up an export. `without_body` letters are left out: their bodies were removed. `stopped`: before its end."""

    letters: int
    without_body: int
    stopped: bool


def export(
    store: Store,
    write: Callable[[bytes], object],
    selection: Selection = WAITING,
    *,
    stop: threading.Event | None = None,
    progress: Progress | None = None,
    who: str = "",
) -> Exported:
    """Write a line for each letter that a selection means, in the order in which they came into the store.

    `write` is given one line at a time. Nothing in the store is changed, but for the audit. Raises ConfigError,
    StoreError, and what `write` raises.
    """
    at = now_us()
    wanted = selection.condition(at)
    with store.reading() as connection:
        total = connection.execute(select(func.count()).select_from(letters).where(wanted)).scalar_one()
    done = without = last = 0
    stopped = False
    while not (stopped := stop is not None and stop.is_set()):
        some = select(letters.c.letter_id).where(wanted, letters.c.letter_id > last).order_by(letters.c.letter_id)
        with store.reading() as connection:
            numbers = list(connection.execute(some.limit(_BATCH)).scalars())
            for _, line in lines_of(connection, numbers):
                if line is None:
                    without += 1
                else:
                    write(line)
                    done += 1
        if not numbers:
            break
        last = numbers[-1]
        if progress is not None:
            progress(done + without, total)
    write_audit(
        store,
        AuditEntry(
            who=who or person(),
            what=EXPORT,
            outcome="failure" if stopped else "success",
            filter=str(selection),
            count=done,
            why="it was interrupted" if stopped else "",
        ),
    )
    return Exported(done, without, stopped)
