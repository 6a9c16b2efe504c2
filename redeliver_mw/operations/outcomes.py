# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads what came of each letter of an operation."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from sqlalchemy import func, select

from .operation import find_operation
from .store import Store
from .tables import letters, operation_letters

PAGE = 1000


class OutcomeOfLetter(NamedTuple):
    """Says what came of one letter. `dl_id` None: it is no longer in the store; `outcome` None: nothing so far."""

    position: int
    letter_id: int
    dl_id: str | None
    state: str | None
    outcome: str | None
    why: str | None
    became: str | None
    changed_us: int


def outcomes_of(store: Store, operation_id: str, *, limit: int = PAGE, after: int = 0) -> list[OutcomeOfLetter]:
    """Return letters of an operation with their outcomes, in their order, after a position. Raises StoreError."""
    found = find_operation(store, operation_id).operation_id
    columns = operation_letters.c
    asked = (
        select(
            *(columns.position, columns.letter_id, letters.c.dl_id, letters.c.state),
            *(columns.outcome, columns.why, columns.became, columns.changed_us),
        )
        .select_from(operation_letters.outerjoin(letters, letters.c.letter_id == columns.letter_id))
        .where(columns.operation_id == found, columns.position > after)
        .order_by(columns.position)
        .limit(limit)
    )
    with store.reading() as connection:
        return list(map(OutcomeOfLetter._make, connection.execute(asked)))


def outcome_counts(store: Store, operation_id: str) -> Counter[tuple[str, str, str]]:
    """Return how many letters of an operation have the same outcome, reason and fate. Raises StoreError."""
    found = find_operation(store, operation_id).operation_id
    columns = operation_letters.c
    alike = (columns.outcome, columns.why, columns.became)
    asked = select(*alike, func.count()).where(columns.operation_id == found).group_by(*alike)
    with store.reading() as connection:
        rows = connection.execute(asked).all()
    return Counter({(outcome or "open", why or "", became or ""): number for outcome, why, became, number in rows})
