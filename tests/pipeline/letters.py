# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes dead letters as pika hands them out, without a broker, and what a drain stages of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
from pika.spec import Basic

from redeliver_mw.dead_letters import LetterStore
from redeliver_mw.message import Delivery, Destination
from redeliver_mw.pipeline import Lake
from redeliver_mw.pipeline.draining.commit import gather
from redeliver_mw.pipeline.draining.manifests import read_all
from redeliver_mw.pipeline.draining.rows import DrainRun
from redeliver_mw.pipeline.draining.staging import LOOKED, STAGING, StagedBatch, StagingArea
from redeliver_pika.amqp.properties import RawProperties
from redeliver_pika.capabilities import capabilities
from redeliver_pika.messages import delivery_of

DLQ = Destination("DLQ.orders")
RABBITMQ = capabilities("4.3.0", 131072, exact_headers=True)
DIED = "2026-11-29T12:00:00.000001Z"
DIED_US = 1_795_953_600_000_001
OURS = {
    "redeliver_reason": "exhausted",
    "redeliver_failures": "3",
    "redeliver_failures_for": "orders",
    "redeliver_original_destination": "orders",
    "redeliver_original_kind": "queue",
    "redeliver_lineage": "L",
    "redeliver_hop": "2",
    "redeliver_generation": "1",
    "redeliver_error_type": "ValueError",
    "redeliver_error_fingerprint": "0123456789abcdef",
    "redeliver_last_failed_at": DIED,
}


def letter(
    body: bytes,
    headers: Mapping[str, Any] | None = None,
    *,
    copy_id: str = "",
    redelivered: bool = False,
    message_id: str | None = None,
    **properties: Any,
) -> Delivery:
    """Return a delivery as a channel brings it; with a `copy_id` the delivery is a dead letter of ours."""
    own = OURS | {"redeliver_copy_id": copy_id} if copy_id else {}
    made = RawProperties.of(headers={**own, **(headers or {})}, message_id=message_id, **properties)
    method = Basic.Deliver(delivery_tag=1, redelivered=redelivered, exchange="", routing_key=DLQ.name)
    return delivery_of(DLQ, 1, (method, RawProperties.from_raw(b"".join(made.encode())), body))


def run(name: str = "run", *, owner: str = "lake", broker: str = "host:5672/") -> DrainRun:
    return DrainRun(name, broker, DLQ, RABBITMQ, owner)


def written(store: LetterStore, generation: int, letters: Sequence[Delivery]) -> Sequence[Delivery]:
    """Store letters, as a drain does on its two threads, and return those that were stored."""
    kept, write = store.read(generation, letters)
    if kept:
        write()
    return kept


class Task:
    """Stages batches as a task of a drain does, and says of which batches the task is sure."""

    def __init__(self, lake: Lake, name: str = "run", *, owner: str = "lake", number: int = 0) -> None:
        folder = STAGING if owner == "lake" else LOOKED
        self.stage = StagingArea(lake.root, lambda: run(name, owner=owner), number, folder)

    def keep(self, *letters: Delivery, generation: int = 1, sure: bool = False) -> StagedBatch:
        assert len(written(self.stage, generation, letters)) == len(letters)
        if sure:
            self.stage.sure(1)
        return self.stage.written[-1]


def table(lake: Lake, columns: str = "dl_id") -> list[tuple[Any, ...]]:
    """Return the rows that the manifests say are in the table, in order."""
    files = [lake.files.url(file.path) for one in read_all(lake.files) for file in one.files]
    if not files:
        return []
    return sorted(duckdb.execute(f"SELECT {columns} FROM read_parquet(?)", [files]).fetchall())


def gathered(lake: Lake, seen_empty: str = "") -> tuple[int, int]:
    """Gather what is staged, and return how many letters are new, and how many were in the table before."""
    with lake.locked("dead_letters"):
        done = gather(lake, seen_empty=seen_empty)
    return (done.letters, done.again) if done else (0, 0)


def ids(lake: Lake) -> Sequence[str]:
    return [dl_id for (dl_id,) in table(lake)]
