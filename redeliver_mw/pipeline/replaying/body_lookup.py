# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Copies bodies that a plan has left in the lake for its publishers, for the duration of a run.

The bodies are in `LAKE/replays/PLAN_ID.bodies/`, in files like those of the plan, by position.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from ..files import Files, files_at
from ..lake.lake import Lake
from ..plans.bucket_files import small_batches, write_letters
from ..plans.plan_file import Plan, path_of
from ..schemas import Row
from .registry import BODIES, FOLDER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LENT: Final = pa.schema([("position", pa.int32()), ("body", pa.binary()), ("letter", pa.binary())])
_AT_ONCE: Final = 256  # rows that are read at a time, because bodies may be large


@contextmanager
def lent(spark: SparkSession, plan: Plan) -> Iterator[str]:
    """Yield the folder with the bodies; empty for a plan that contains its bodies. Raises LakeError, OSError."""
    if plan.bodies == "plan":
        yield ""
        return
    lake, place = Lake(plan.lake), f"{FOLDER}/{plan.plan_id}{BODIES}"
    lake.files.remove(place)  # left by a run that was killed
    try:
        with small_batches(spark):
            write_letters(lake.files.url(place), _bodies(spark, plan, lake), plan.buckets, _LENT)
        yield lake.files.url(place)
    finally:
        lake.files.remove(place)


def _bodies(spark: SparkSession, plan: Plan, lake: Lake) -> DataFrame:
    """Return a row for each letter of the plan, without a body if the lake no longer has it."""
    from pyspark.sql import functions as sf

    paths = [os.path.join(plan.folder, file.path) for file in plan.files]
    number = sf.regexp_extract(sf.col("_metadata.file_name"), "bucket-([0-9]+)", 1).cast("INT")
    places = spark.read.parquet(*paths).select("position", "dl_id", number.alias("bucket"))
    kept = lake.dead_letters(spark).select("dl_id", "body", "letter")
    return places.join(kept, "dl_id", "left").select("bucket", *_LENT.names)


def borrowed(folder: str, bucket: int) -> Callable[[Row], Row]:
    """Return a function that adds bodies to rows of a bucket, called in order of their positions. Raises OSError."""
    if not folder:
        return lambda row: row
    rows = _read(files_at(folder), path_of(bucket))

    def of(row: Row) -> Row:
        found = next(one for one in rows if one["position"] == row["position"])
        return {**row, **{name: found[name] if _same(found, row) else None for name in ("body", "letter")}}

    return of


def _read(files: Files, path: str) -> Iterator[Row]:
    with files.open(path) as opened, pq.ParquetFile(opened) as file:
        for part in file.iter_batches(batch_size=_AT_ONCE):
            yield from part.to_pylist()


def _same(found: Row, row: Row) -> bool:
    """Return whether the body is the planned one."""
    body = found["body"]
    return body is not None and hashlib.sha256(body).hexdigest() == row["body_sha256"]
