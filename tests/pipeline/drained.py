# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Puts rows of the table `dead_letters` into a lake as a drain leaves them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from redeliver_mw.pipeline import Lake
from redeliver_mw.pipeline.draining.manifests import Gathered, current, publish
from redeliver_mw.pipeline.draining.rows import LETTERS
from redeliver_mw.pipeline.draining.staging import TABLE
from redeliver_mw.pipeline.lake.parquet_writer import DayWriter
from redeliver_mw.pipeline.manifests import run_after

NOON = 1_795_953_600_000_000  # 2026-11-29T12:00:00Z
DAY = 86_400_000_000


def letter(dl_id: str, **given: Any) -> dict[str, Any]:
    """Return a letter that can be sent back to the queue orders; `given` are other values for its columns."""
    body = given.get("body", b'{"order":1}')
    row: dict[str, Any] = (
        dict.fromkeys(LETTERS.names)
        | {
            "dl_id": dl_id,
            "message_key": f"key-{dl_id}",
            "original_destination": "orders",
            "dlq": "DLQ.orders",
            "broker": "rabbitmq://host:5672/",
            "dead_us": NOON,
            "failures": 7,
            "error_type": "TimeoutError",
            "error_fingerprint": "aaaaaaaaaaaaaaaa",
            "reason": "exhausted",
            "headers": {},
            "body": body,
            "body_sha256": None if body is None else hashlib.sha256(body).hexdigest(),
            "body_bytes": 0 if body is None else len(body),
            "source": "dlq",
            "drain_run_id": "run",
            "staged_us": NOON + 1,
            "owner": "lake",
            "dialect": "rabbitmq+pika",
            "generation": 0,
            "redelivered": False,
            "letter": b"head",
        }
        | given
    )
    row["headers"] = list(row["headers"].items())
    return row


def put(lake: Lake, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add one more run of a drain, with these letters."""
    base = current(lake.files)
    run = run_after(base.head.generation)
    writer = DayWriter(lake.root, run, 0, LETTERS, table=TABLE, by="dead_us")
    table = pa.Table.from_pylist(list(rows), schema=LETTERS)
    writer.add(table)
    manifest = Gathered(run=run, created_us=NOON, owner="lake", files=writer.close(), letters=len(table))
    publish(lake.files, base, run, [*base.manifests, manifest])
