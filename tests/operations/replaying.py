# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes a replay of a store as far as an App sees it: an operation whose letters were sent, and a message's headers."""

from __future__ import annotations

from sqlalchemy import select, update

from redeliver_mw.operations import Selection, Store
from redeliver_mw.operations.operation import LetterResult, plan_operation, record_results, take_operation
from redeliver_mw.operations.tables import operation_letters
from tests.operations.taking import put
from tests.pipeline.letters import letter


def sent(store: Store, *lineages: str) -> str:
    """Return the id of a replay that has sent messages of these lineages."""
    letters = [letter(b"x", {"redeliver_lineage": lineage}, copy_id=f"copy-{lineage}") for lineage in lineages]
    put(store, *letters)
    operation = take_operation(store, plan_operation(store, "replay", Selection(), options={}).operation_id)
    columns = operation_letters.c
    mine = columns.operation_id == operation.operation_id
    with store.writing() as connection:
        record_results(connection, operation, [LetterResult(n + 1, "done") for n in range(len(lineages))])
        for n, lineage in enumerate(lineages):
            connection.execute(update(operation_letters).where(mine, columns.position == n + 1).values(lineage=lineage))
    return operation.operation_id


def became(store: Store, replay_id: str) -> dict[str, str | None]:
    """Return what is written of each message of a replay, by its lineage."""
    columns = operation_letters.c
    asked = select(columns.lineage, columns.became).where(columns.operation_id == replay_id)
    with store.reading() as connection:
        return {row.lineage: row.became for row in connection.execute(asked)}


def headers(replay_id: str, lineage: str, source: str = "orders") -> dict[str, str]:
    """Return the headers that a replay gives to a message."""
    return {
        "redeliver_replay_id": replay_id,
        "redeliver_lineage": lineage,
        "redeliver_copy_id": f"copy-of-{lineage}",
        "redeliver_hop": "2",
        "redeliver_generation": "1",
        "redeliver_original_destination": source,
        "redeliver_original_kind": "queue",
    }
