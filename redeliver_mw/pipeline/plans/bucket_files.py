# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Writes a plan's files in Spark's tasks.

Rows arrive sorted, and each file is synced and hashed where it is written.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from ..files import files_at
from ..lake.parquet_writer import ParquetFile
from ..lake.task_messages import failed
from .plan_file import LEFT_OUT, PlanFile, hash_of, path_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_REPORT: Final = "report STRING"
_BATCH: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_BATCH_BYTES: Final = 32 << 20  # of letters that a task holds at a time, whatever their size
LETTERS: Final = pa.schema(
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
_LEFT_OUT: Final = pa.schema([("dl_id", pa.string()), ("why", pa.string()), ("detail", pa.string())])


@contextlib.contextmanager
def small_batches(spark: SparkSession) -> Iterator[None]:
    """Limit Spark's batches for Python by bytes as well while the block runs.

    Otherwise Spark hands over ten thousand letters at a time, however large they are.
    """
    before = spark.conf.get(_BATCH, None)
    spark.conf.set(_BATCH, str(_BATCH_BYTES))
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_BATCH)
        else:
            spark.conf.set(_BATCH, before)


def write_letters(root: str, letters: DataFrame, buckets: int, schema: pa.Schema = LETTERS) -> list[PlanFile]:
    """Write a file for each bucket that has rows, by `position`; rows have `schema` and a `bucket`. Raises OSError."""
    parted = letters.repartition(buckets, "bucket").sortWithinPartitions("bucket", "position")
    return _run(parted, partial(_write_letters, root, schema))


def write_left_out(root: str, left_out: DataFrame) -> PlanFile:
    """Write `dl_id`, `why` and `detail` into one file. Raises OSError."""
    ordered = left_out.repartition(1).sortWithinPartitions("why", "dl_id")
    files = _run(ordered, partial(_write_left_out, root))
    # Without any row some versions of Spark start no task.
    return files[0] if files else _file(root, LEFT_OUT, iter(()), _LEFT_OUT)


def _run(frame: DataFrame, task: Any) -> list[PlanFile]:
    found = []
    for row in frame.mapInArrow(task, _REPORT).collect():
        report = json.loads(row["report"])
        if "error" in report:
            raise OSError(*report["error"])
        found.append(PlanFile(**report))
    return sorted(found, key=lambda file: file.path)


def _write_letters(root: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from _reported(root, (_file(root, path_of(n), tables, schema) for n, tables in _by_bucket(batches)))


def _write_left_out(root: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    tables = (pa.Table.from_batches([batch]) for batch in batches)
    yield from _reported(root, iter([_file(root, LEFT_OUT, tables, _LEFT_OUT)]))


def _reported(root: str, files: Iterator[PlanFile]) -> Iterator[pa.RecordBatch]:
    try:
        for file in files:
            yield pa.record_batch([pa.array([json.dumps(asdict(file))])], names=["report"])
    except OSError as error:
        text = json.dumps({"error": failed(error, root).error})
        yield pa.record_batch([pa.array([text])], names=["report"])


def _by_bucket(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, Iterator[pa.Table]]]:
    """Yield each bucket and its rows, which have to be read before the next bucket is requested."""
    parts = (part for batch in batches for part in _parts(pa.Table.from_batches([batch])))
    waiting = next(parts, None)

    def of(bucket: int) -> Iterator[pa.Table]:
        nonlocal waiting
        while waiting is not None and waiting[0] == bucket:
            yield waiting[1]
            waiting = next(parts, None)

    while waiting is not None:
        yield waiting[0], of(waiting[0])


def _parts(table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    if not len(table):
        return
    numbers = table["bucket"].to_numpy()
    starts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    for start, end in pairwise(starts):
        yield int(numbers[start]), table.slice(start, end - start)


def _file(root: str, path: str, tables: Iterator[pa.Table], schema: pa.Schema) -> PlanFile:
    file = ParquetFile(root, path, schema)
    try:
        for table in tables:
            file.write(table.select(schema.names).cast(schema))
        written = file.close()
    except BaseException:
        file.drop()
        raise
    files = files_at(root)
    # A plan is in a folder. What lies in a bucket are bodies that are copied for one run, which nobody compares.
    digest = hash_of(files, path)[1] if files.is_folder else ""
    return PlanFile(path, written.rows, written.bytes, digest)
