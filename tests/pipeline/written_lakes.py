# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Events and marts put into a lake as their jobs leave them, without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from redeliver_mw.journal.records import FIELDS
from redeliver_mw.pipeline import Lake
from redeliver_mw.pipeline.arrow_schemas import arrow_schema
from redeliver_mw.pipeline.lake import snapshots
from redeliver_mw.pipeline.lake.parquet_writer import DayWriter
from redeliver_mw.pipeline.lake.validation import ARROW
from redeliver_mw.pipeline.manifests import Manifest, run_after
from redeliver_mw.pipeline.schemas import MARTS
from tests.pipeline.journals import record


def put_events(lake: Lake, numbers: Sequence[int]) -> str:
    """One more run of the compaction, with the records of these numbers; its name."""
    base = snapshots.current(lake.files)
    run = run_after(base.head.generation)
    rows = [{name: getattr(record(number), name) for name in FIELDS} for number in numbers]
    writer = DayWriter(lake.root, run, 0, ARROW)
    writer.add(pa.Table.from_pylist(rows, schema=ARROW))
    manifest = Manifest(run=run, created_us=1, journal="/journal", files=writer.close())
    snapshots.write(lake.files, base, manifest)
    snapshots.publish(lake.files, base, manifest)
    return run


def put_marts(lake: Lake, generation: int, marts: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """A set of marts with these rows, which follows `generation` others; its name. The one before the last is gone."""
    run = run_after(generation)
    listed = {}
    for name, rows in marts.items():
        path = f"marts/_runs/{run}/{name}/part-00000.zstd.parquet"
        draft = lake.files.draft(path)
        pq.write_table(pa.Table.from_pylist(list(rows), schema=arrow_schema(MARTS[name])), draft, compression="zstd")
        lake.files.finish(draft, path)
        listed[name] = {"files": [path], "rows": len(rows)}
    manifest = {"run": run, "created_us": 1, "marts": listed}
    lake.files.publish(f"marts/_manifests/{run}.json", json.dumps(manifest).encode())
    head = {"generation": generation + 1, "run": run, "manifest": f"marts/_manifests/{run}.json"}
    before = lake.files.versioned("marts/_head.json")
    if before is not None:
        lake.files.remove(f"marts/_runs/{json.loads(before.content)['run']}")
    lake.files.publish("marts/_head.json", json.dumps(head).encode())
    return run
