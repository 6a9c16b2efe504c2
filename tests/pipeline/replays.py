# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes plans of dead letters as a real broker hands them out, and counts what a replay has brought back."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from redeliver_mw.adapter.protocol import Subscription
from redeliver_mw.adapter.registry import adapter_for, parse_url
from redeliver_mw.dead_letters import pack
from redeliver_mw.message import Delivery, Destination
from redeliver_mw.pipeline import Lake
from redeliver_mw.pipeline.files import files_at
from redeliver_mw.pipeline.plans.plan_file import Plan, PlanFile, freeze, hash_of, path_of
from redeliver_mw.session import connect
from tests.brokers import Broker
from tests.faults.letters import declare

SCHEMA = pa.schema(
    [
        ("position", pa.int32()),
        ("rank", pa.int64()),
        ("dl_id", pa.string()),
        ("message_key", pa.string()),
        ("group_id", pa.string()),
        ("target", pa.string()),
        ("dlq", pa.string()),
        ("broker", pa.string()),
        ("dialect", pa.string()),
        ("owner", pa.string()),
        ("generation", pa.int32()),
        ("dead_us", pa.int64()),
        ("error_fingerprint", pa.string()),
        ("redelivered", pa.bool_()),
        ("letter", pa.binary()),
        ("body", pa.binary()),
        ("body_sha256", pa.string()),
        ("edited_body", pa.bool_()),
        ("edits", pa.string()),
    ]
)
ZERO = b"000000"  # stands for the number of a letter wherever it is written
QUIET = 1.5  # seconds without a message: is the queue empty?


def body_of(number: int) -> bytes:
    return b"letter %06d" % number


def template(broker: Broker, source: str, dlq: str) -> bytes:
    """Return letter number 0 of `source` as this broker hands it out, packed."""
    declare(broker, source, dlq)
    headers = {
        "redeliver_reason": "exhausted",
        "redeliver_failures": "3",
        "redeliver_failures_for": source,
        "redeliver_original_destination": source,
        "redeliver_original_kind": "queue",
        "redeliver_lineage": f"lineage-{ZERO.decode()}",
        "redeliver_copy_id": f"copy-{ZERO.decode()}",
        "redeliver_hop": "1",
        "redeliver_generation": "0",
        "tenant": "a",
    }
    with connect(broker.url) as session:
        session.publish(dlq, body_of(0), headers)
        delivery = session.receive(dlq, timeout=20)
        assert delivery is not None
        head = pack(delivery).head
        session.settle(delivery)
    return head


def make_plan(
    lake: Lake,
    folder: Path,
    url: str,
    head: bytes,
    source: str,
    dlq: str,
    letters: int,
    *,
    buckets: int = 4,
    group_of: Callable[[int], str | None] = lambda _: None,
    change: dict[str, Any] | None = None,
) -> Plan:
    """Make a plan of so many letters; letter number n is in bucket n modulo `buckets`, with the rank n."""
    folder.mkdir(parents=True)
    (folder / "letters").mkdir()
    plan_id = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    digits = {n: b"%06d" % n for n in range(letters)}
    plan_files = []
    files = files_at(folder)
    for bucket in range(min(buckets, letters)):
        rows = [
            {
                "position": position,
                "rank": n,
                "dl_id": f"copy-{n:06d}",
                "message_key": f"lineage-{n:06d}",
                "group_id": group_of(n),
                "target": f"queue:{source}",
                "dlq": f"queue:{dlq}",
                "broker": "",
                "dialect": parse_url(url).dialect,
                "owner": "lake",
                "generation": 0,
                "dead_us": n,
                "redelivered": False,
                "letter": head.replace(ZERO, digits[n]),
                "body": body_of(n),
                "edited_body": False,
                **(change or {}),
            }
            for position, n in enumerate(range(bucket, letters, buckets))
        ]
        path = path_of(bucket)
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), folder / path)
        size, digest = hash_of(files, path)
        plan_files.append(PlanFile(path, len(rows), size, digest))
    plan = Plan(
        folder=str(folder),
        plan_id=plan_id,
        created_us=1,
        lake=lake.root,
        letters=letters,
        buckets=buckets,
        files=tuple(plan_files),
        ordered=group_of(0) is not None,
        destinations={f"queue:{source}": letters},
        brokers={"": letters},
        dialects={parse_url(url).dialect: letters},
    )
    return freeze(files, replace(plan, plan_id=plan_id))


def taken(url: str, queue: str) -> list[Delivery]:
    """Take all messages off a queue, fast, and return them."""
    adapter = adapter_for(url)
    arrived: SimpleQueue[Sequence[Delivery]] = SimpleQueue()

    class Taking:
        def connected(self, capabilities: object, /) -> None: ...
        def ready(self, source: Destination, generation: int, /) -> None: ...
        def arrived(self, batch: Sequence[Delivery], /) -> None:
            adapter.settle([(delivery, "accepted") for delivery in batch])
            arrived.put(batch)

        def lost(self, generation: int, error: BaseException | None, /) -> None: ...
        def failed(self, error: BaseException, source: Destination | None, /) -> None: ...

    adapter.start(Taking())
    adapter.subscribe(Subscription(source=Destination(queue), prefetch=1000, helpers=False))
    found: list[Delivery] = []
    with connect(url) as session:
        while True:
            with suppress(Empty):
                while True:
                    found += arrived.get(timeout=QUIET)
            if not session.depth(queue):
                break
    adapter.close()
    return found


def numbers_in(url: str, queue: str) -> Counter[int]:
    """Return how often each letter lies in a queue, which is empty afterwards."""
    return Counter(int(delivery.body.split()[1]) for delivery in taken(url, queue))


def ledger_lines(folder: Path) -> list[dict[str, Any]]:
    """Return all whole lines of a plan's ledger, each with the name of its file."""
    found = []
    for path in sorted((folder / "ledger").glob("bucket-*.jsonl")):
        for line in path.read_bytes().rstrip(b"\0").splitlines():
            try:
                found.append(json.loads(line) | {"file": path.name})
            except ValueError:
                continue  # torn
    return found
