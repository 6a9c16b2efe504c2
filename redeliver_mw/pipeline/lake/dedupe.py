# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Finds records that a lake would hold twice, by their ids alone, and removes them from the new files.

A record is known by its id and its UTC day. Of several new ones the first stays; one that is in the lake is removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..files import files_at
from ..manifests import DataFile
from .lake import Lake
from .parquet_writer import ParquetFile
from .task_messages import CompactionReport, failed, read_report, to_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_IDS: Final = "record_id STRING, dt DATE"
_SENT: Final = "name STRING, report STRING"
_SMALL: Final = 4_000_000  # ids that every executor receives in full


def without_duplicates(
    spark: SparkSession, lake: Lake, new: Sequence[DataFile], old: Sequence[DataFile], *, table: str
) -> list[DataFile]:
    """Return the new files; a file with a duplicate in it is replaced by one without, or by none.

    `old` are the files of `table` of the days that `new` has rows of. Raises OSError if the disk refuses a file.
    """
    ours = _ids(spark, lake, new, table)
    theirs = _ids(spark, lake, old, table) if old else None
    if not _suspected(ours, theirs, sum(file.rows for file in new)):
        return list(new)
    kept = {os.path.basename(file.path): file for file in new}
    take_out = partial(_take_out, lake.root, {name: file.path for name, file in kept.items()})
    for name, text in _doubles(ours, theirs).mapInArrow(take_out, _SENT).collect():
        report = read_report(text)
        if report.error is not None:
            raise OSError(*report.error)
        del kept[name]
        kept |= {os.path.basename(file.path): file for file in report.files}
    return list(kept.values())


def _ids(spark: SparkSession, lake: Lake, files: Sequence[DataFile], table: str) -> DataFrame:
    return lake.scan(spark, _IDS, [file.path for file in files], base=table)


def _suspected(ours: DataFrame, theirs: DataFrame | None, rows: int) -> bool:
    """Return whether there may be a duplicate. Two ids may share a hash; then the ids themselves are compared."""
    from pyspark.sql import functions as sf

    new = ours.select(_hash(ours))
    if not new.groupBy("hash").count().where("count > 1").isEmpty():
        return True
    if theirs is None:
        return False
    wanted = sf.broadcast(new) if rows <= _SMALL else new
    return not theirs.select(_hash(theirs)).join(wanted, "hash", "left_semi").isEmpty()


def _hash(ids: DataFrame) -> Column:
    from pyspark.sql import functions as sf

    return sf.xxhash64(ids["dt"], ids["record_id"]).alias("hash")


def _doubles(ours: DataFrame, theirs: DataFrame | None) -> DataFrame:
    """Return the rows to remove, by file name: those that are in the lake, and all but the first of the new ones."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    same = Window.partitionBy("dt", "record_id").orderBy("name", "row")
    rows = ours.select("dt", "record_id", sf.col("_metadata.file_name").alias("name"), "_metadata.row_index")
    rows = rows.withColumnRenamed("row_index", "row").withColumn("nth", sf.row_number().over(same))
    if theirs is None:
        doubles = rows.where("nth > 1")
    else:
        known = theirs.select("dt", "record_id").distinct().withColumn("known", sf.lit(True))
        doubles = rows.join(known, ["dt", "record_id"], "left").where("nth > 1 OR known")
    return doubles.groupBy("name").agg(sf.collect_list("row").alias("rows"))


def _take_out(root: str, paths: dict[str, str], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write each named file again, without the given rows. Called by Spark's `mapInArrow`."""
    for batch in batches:
        for name, rows in zip(batch["name"].to_pylist(), batch["rows"], strict=True):
            try:
                report = CompactionReport(files=_rewrite(root, paths[name], rows.values.to_numpy()))
            except OSError as error:
                report = failed(error, root)
            yield pa.record_batch([pa.array([name]), pa.array([to_text(report)])], names=["name", "report"])


def _rewrite(root: str, path: str, rows: np.ndarray) -> list[DataFile]:
    with files_at(root).open(path) as file, pq.ParquetFile(file) as source:
        if len(rows) == source.metadata.num_rows:
            return []
        new = ParquetFile(root, f"{path.removesuffix('.parquet')}-u.parquet", source.schema_arrow)
        try:
            at = 0
            for group in range(source.num_row_groups):
                table = source.read_row_group(group)
                keep = np.ones(len(table), dtype=bool)
                keep[rows[(rows >= at) & (rows < at + len(table))] - at] = False
                new.write(table.filter(pa.array(keep)))
                at += len(table)
            return [new.close()]
        except BaseException:
            new.drop()
            raise
