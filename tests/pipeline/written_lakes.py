# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Puts events and marts into a lake as their jobs leave them, without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from redeliver_mw.journal.records import FIELDS
from redeliver_mw.pipeline import Lake
from redeliver_mw.pipeline.arrow_schemas import arrow_schema
from redeliver_mw.pipeline.lake import snapshots
from redeliver_mw.pipeline.lake.parquet_writer import DayWriter, ParquetFile
from redeliver_mw.pipeline.lake.validation import ARROW
from redeliver_mw.pipeline.manifests import Manifest, run_after
from redeliver_mw.pipeline.schemas import MARTS, QUARANTINE
from tests.pipeline.journals import START_US, record


def put_events(lake: Lake, numbers: Sequence[int], bad: Sequence[str] = ()) -> str:
    """Add a run of the compaction, with the records of these numbers and these bad lines, and return its name."""
    base = snapshots.current(lake.files)
    run = run_after(base.head.generation)
    rows = [{name: getattr(record(number), name) for name in FIELDS} for number in numbers]
    writer = DayWriter(lake.root, run, 0, ARROW)
    writer.add(pa.Table.from_pylist(rows, schema=ARROW))
    quarantine = []
    if bad:
        file = ParquetFile(lake.root, f"quarantine/run={run}/{run}-00000-0001.parquet", arrow_schema(QUARANTINE))
        lines = [
            {"segment": "seg", "offset": 0, "length": len(line), "reason": "no record", "head": line} for line in bad
        ]
        file.write(pa.Table.from_pylist(lines, schema=arrow_schema(QUARANTINE)))
        quarantine = [file.close()]
    manifest = Manifest(run=run, created_us=1, journal="/journal", files=writer.close(), quarantine=quarantine)
    snapshots.write(lake.files, base, manifest)
    snapshots.publish(lake.files, base, manifest)
    return run


def put_marts(lake: Lake, generation: int, marts: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Add a set of marts with these rows, which follows `generation` others, and return its name.

    The set before the last one is removed.
    """
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


def any_rows(name: str, count: int = 2) -> list[dict[str, Any]]:
    """Return rows of a mart with a value in each column, on days that follow each other."""
    return [{field.name: _value(field.type, number) for field in arrow_schema(MARTS[name])} for number in range(count)]


def _value(kind: pa.DataType, number: int) -> Any:
    if pa.types.is_struct(kind):
        return {field.name: _value(field.type, number) for field in kind}
    if pa.types.is_list(kind):
        return [_value(kind.value_type, one) for one in range(number)]
    if pa.types.is_string(kind):
        return f"text {number}"
    if pa.types.is_date(kind):
        return date(2026, 11, 1) + timedelta(days=number)
    return number / 4 if pa.types.is_floating(kind) else START_US + number if kind == pa.int64() else number
