# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Writes lakes of many runs, with real records in small files, without a Spark job for each run.

As a program this module optimizes a lake, and kills itself before its step of a given number:
`python -m tests.pipeline.many_runs LAKE STEP`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from redeliver_mw.pipeline import Lake, optimize
from redeliver_mw.pipeline.files import Files
from redeliver_mw.pipeline.lake import segment_lists, snapshots
from redeliver_mw.pipeline.lake.parquet_writer import DayWriter
from redeliver_mw.pipeline.lake.validation import ARROW
from redeliver_mw.pipeline.manifests import Manifest, SegmentEntry, run_after
from tests.pipeline.head_writer import die_before
from tests.pipeline.journals import record

JOURNAL = "/journal"
MINUTE = 60
SMALL = 64 << 10  # a size of large files for tests: a day of a few hundred records has less


def rows_of(numbers: Iterable[int]) -> pa.Table:
    """Return records as the compaction writes them; `journals.record` says what is in each."""
    records = [record(number) for number in numbers]
    return pa.table([[getattr(one, name) for one in records] for name in ARROW.names], schema=ARROW)


def segment_of(run: int) -> SegmentEntry:
    return SegmentEntry(f"seg-{run:06d}.jsonl", 1000 + run, f"{run:032x}", records=1)


def add_run(lake: Lake, base: snapshots.Snapshot, number: int, rows: pa.Table) -> Manifest:
    """Write the files of one run of a compaction, and return its manifest; nothing in the lake leads to them yet."""
    run = run_after(base.head.generation)
    writer = DayWriter(lake.root, run, 0, ARROW)
    writer.add(rows)
    manifest = Manifest(
        run=run, created_us=number, journal=JOURNAL, segments=[segment_of(number)], files=writer.close()
    )
    lake.files.sync([file.path for file in manifest.files])
    return manifest


def publish_run(lake: Lake, number: int, numbers: Iterable[int], *, removal: bool = True) -> str:
    """Publish one run as a compaction does, with these records, and return its name.

    Without `removal` files of dead runs stay.
    """
    base = snapshots.current(lake.files)
    if removal:
        snapshots.remove_dead(lake.files, base)
    manifest = add_run(lake, base, number, rows_of(numbers))
    snapshots.write(lake.files, base, manifest)
    published = snapshots.publish(lake.files, base, manifest)
    if removal:
        snapshots.remove_dead(lake.files, published)
    return manifest.run


def ids(lake: Lake) -> list[str]:
    """Return the ids of all records that count, in order."""
    found: list[str] = []
    for manifest in lake.manifests():
        for file in manifest.files:
            with lake.files.open(file.path) as source:
                table = pq.read_table(source, columns=["record_id"])
            assert len(table) == file.rows
            found += table["record_id"].to_pylist()
    return sorted(found)


def segments(lake: Lake) -> list[tuple[str, SegmentEntry]]:
    """Return the segments that the lake has read, in the order of their names."""
    return sorted(segment_lists.entries(lake.files, lake.manifests()), key=lambda one: one[1].name)


def everything(files: Files, folder: str = "") -> Iterator[str]:
    """Yield the paths of all files of a lake."""
    for entry in files.entries(folder):
        path = f"{folder}/{entry.name}" if folder else entry.name
        if entry.is_folder:
            yield from everything(files, path)
        else:
            yield path


def main(argv: Sequence[str]) -> None:
    lake, step = argv
    place = Lake(lake)
    die_before(int(step))
    print(optimize(place, target_bytes=SMALL, keep_s=0, workers=1).run, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
