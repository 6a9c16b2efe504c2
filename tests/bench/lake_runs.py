# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Measures what a lake of many runs costs, before and after `optimize`: a month of a compaction every minute.

    python -m tests.bench.lake_runs [--runs 43200] [--rows 10] [--bucket] [--spark] [--json FILE]

The runs are written without Spark: a small file, a manifest and a segment each, over 1440 runs a day. All files of a
day have the same records, and one snapshot names them all. The following is measured, in seconds and in seconds of the
processor: to read what counts, to look which segments of a journal are new, to look for dead runs, to publish one more
run, to read all records; with `--spark` also to count them through Spark, and to compact one segment. With `--bucket`,
the lake is in a bucket of an S3 server of this machine, instead of a folder of the temporary folder.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq

from redeliver_mw.pipeline import Lake, compact, optimize, session
from redeliver_mw.pipeline.files import Files
from redeliver_mw.pipeline.lake import snapshots
from redeliver_mw.pipeline.lake.compaction import nothing_new
from redeliver_mw.pipeline.manifests import DataFile, Manifest, run_after, to_json
from tests.pipeline.journals import START_US, lines, segment
from tests.pipeline.many_runs import publish_run, rows_of, segment_of
from tests.pipeline.s3_server import BUCKET, environment, s3_server

PER_DAY = 1440
DAY_S = 86_400


def put(files: Files, path: str, content: bytes) -> None:
    """Write a file; in a folder without `fsync`, which 43 200 files would wait for."""
    if not files.is_folder:
        files.publish(path, content)
        return
    place = Path(files.url(path))
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)


def build(lake: Lake, runs: int, rows: int) -> None:
    """Write a lake as so many compactions leave it."""
    paths: list[str] = []
    run, data = "", b""
    for number in range(runs):
        day, minute = divmod(number, PER_DAY)
        first = day * DAY_S
        if minute == 0:
            content = io.BytesIO()
            pq.write_table(rows_of(range(first, first + rows)), content, compression="zstd")
            data = content.getvalue()
        run = run_after(number)
        date = time.strftime("%Y-%m-%d", time.gmtime(START_US / 1e6 + first))
        path = f"events/dt={date}/run={run}/{run}-00000-0001.parquet"
        put(lake.files, path, data)
        low = START_US + first * 1_000_000
        file = DataFile(path, rows, len(data), low, low + (rows - 1) * 1_000_000)
        manifest = Manifest(run, number, "/journal", [segment_of(number)], [file])
        put(lake.files, manifest.path, to_json(manifest))
        paths.append(manifest.path)
    snapshot = f"{snapshots.FOLDER}/{runs:08d}-{run}.json"
    put(lake.files, snapshot, orjson.dumps({"manifests": paths}))
    lake.files.swap(
        snapshots.HEAD, orjson.dumps({"generation": runs, "run": run, "manifest": snapshot, "by": "bench"}), None
    )


@contextmanager
def place_of(bucket: bool, folder: str) -> Iterator[str]:
    if not bucket:
        yield os.path.join(folder, "lake")
        return
    with s3_server() as url:
        os.environ.update(environment(url))
        yield f"s3://{BUCKET}/bench/lake"


def timed(what: Callable[[], Any]) -> tuple[tuple[float, float], Any]:
    """Return the seconds, and the seconds of the processor, that a function took; and its result."""
    began, ran = time.perf_counter(), time.process_time()
    result = what()
    return (round(time.perf_counter() - began, 3), round(time.process_time() - ran, 3)), result


def figures(lake: Lake, journal: Path, runs: int, spark: Any) -> dict[str, Any]:
    """Return what the lake costs now, in seconds, and in files and bytes."""
    files, found = lake.files, dict[str, Any]()
    found["read_what_counts_s"], now = timed(lambda: snapshots.current(files))
    found["manifests"] = len(now.manifests)
    found["data_files"] = sum(len(one.files) for one in now.manifests)
    found["snapshot_bytes"] = len(files.read(now.head.manifest))
    found["look_for_segments_s"], _ = timed(lambda: nothing_new(journal, lake.root))
    found["look_for_dead_s"], _ = timed(lambda: snapshots.remove_dead(files, now))
    number = runs + now.head.generation
    found["publish_a_run_s"], _ = timed(lambda: publish_run(lake, number, range(number * 100, number * 100 + 10)))

    def read() -> int:
        listed = [file for one in snapshots.current(files).manifests for file in one.files]
        return sum(
            pq.read_table(io.BytesIO(files.read(file.path)), columns=["ts_us", "outcome"]).num_rows for file in listed
        )

    found["read_all_s"], found["rows"] = timed(read)
    if spark is not None:
        found["spark_count_s"], _ = timed(lambda: lake.events(spark).groupBy("outcome").count().collect())
        segment(journal, lines(range(number * 100 + 50, number * 100 + 80)))
        found["spark_compact_s"], _ = timed(lambda: compact(spark, journal, lake.root))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=43_200)
    parser.add_argument("--rows", type=int, default=10, help="records of a run")
    parser.add_argument("--bucket", action="store_true")
    parser.add_argument("--spark", action="store_true", help="also through Spark; only in a folder")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    told = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="lake-runs-"))
        lake = Lake(stack.enter_context(place_of(told.bucket, folder)), create=True)
        journal = Path(folder, "journal")
        segment(journal, lines(range(5)), "seg-000000.jsonl")
        result: dict[str, Any] = {"runs": told.runs, "rows": told.rows, "bucket": told.bucket}
        result["build_s"], _ = timed(lambda: build(lake, told.runs, told.rows))
        print(json.dumps(result), file=sys.stderr, flush=True)
        started = session("local[2]") if told.spark else None
        result["before"] = figures(lake, journal, told.runs, started)
        print(json.dumps(result), file=sys.stderr, flush=True)
        result["optimize_s"], done = timed(lambda: optimize(lake))
        result["optimize_runs"] = done.runs
        result["after"] = figures(lake, journal, told.runs, started)
        result["optimize_again_s"], done = timed(lambda: optimize(lake, keep_s=0))
        result["removed"] = done.removed
        result["after_removal"] = figures(lake, journal, told.runs, started)
        if started is not None:
            started.stop()
    print(json.dumps(result, indent=1))
    if told.json:
        told.json.write_text(json.dumps(result, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
