# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Detects storms while they happen: a stream over a journal that keeps the last hour of `storms` up to date.

Each micro-batch is added to the result of the one before, as `storms.counts` adds up, and evaluated with
`storms.states`. So the result equals the batch job's for the same records. All its state is the files of the last two
micro-batches::

    OUT/batch=7/*.parquet       the windows as they are known after micro-batch 7
    OUT/_checkpoint             Spark's own

A micro-batch that is repeated after a crash reads its predecessor's files, and writes the same again. No window is
closed before the horizon has passed it: until then a record may be late.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from . import schemas
from .files import Files, files_at
from .marts.storms import USUAL, Thresholds, counted, singly, states

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

HOUR_US: Final = 3_600_000_000
AHEAD_US: Final = 60_000_000  # a clock further ahead than this is not followed: it would close all windows of today
_KEPT: Final = f"{schemas.STORMS}, settled BOOLEAN"
# The columns that `singly` reads. Spark reads all columns of the data for a micro-batch.
_READ: Final = (
    "ts_us",
    "destination",
    "delivery_count",
    "outcome",
    "reason",
    "error_type",
    "handler_us",
    "last_failure_us",
)
_OF_COUNTS: Final = ("kind", "messages")  # in a stream that has counts of healthy messages, too

OnTurn = Callable[[str, str, int], object]
"""Called with a destination, its new state, and its newest window."""


def journal_stream(spark: SparkSession, journal: str | os.PathLike[str], *, files: int = 64) -> DataFrame:
    """Return the attempts in a journal's finished segments, and its counts of healthy messages, without bad lines.

    A count has the kind `healthy`, an attempt none. A micro-batch reads at most `files` segments.

    A segment is finished after a minute at the latest, so the stream has that delay.
    """
    lines = (
        spark.readStream.schema(f"{schemas.EVENTS}, kind STRING, messages BIGINT")
        .option("pathGlobFilter", "seg-*.jsonl")
        .option("maxFilesPerTrigger", files)
        .json(files_at(journal, "journal").url())
    )
    return lines.where(
        "v = 1 AND (kind IS NULL OR (kind = 'healthy' AND messages > 0)) "
        "AND destination IS NOT NULL AND ts_us IS NOT NULL"
    )


def watch_storms(
    attempts: DataFrame,
    out: str | os.PathLike[str],
    *,
    thresholds: Thresholds = USUAL,
    horizon_us: int = HOUR_US,
    every: float | None = 10.0,
    on_turn: OnTurn | None = None,
    now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
) -> StreamingQuery:
    """Start the query over a stream of records; it continues where the last one with this `out` ended.

    The query looks for new records every `every` seconds; None: it takes the records that are there, and ends. For each
    destination the windows of the last `horizon_us` are kept. `on_turn` is called, at least once, when a micro-batch
    ends in another state than the one before. A destination without new attempts turns calm with its next attempt.
    """
    watch = _Watch(files_at(out, "table"), thresholds, horizon_us, on_turn, now_us)
    columns = [name for name in (*_READ, *_OF_COUNTS) if name in (*_READ, *attempts.columns)]
    writer = attempts.select(*columns).writeStream.foreachBatch(watch.take)
    writer = writer.option("checkpointLocation", watch.files.url("_checkpoint"))
    if every is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{round(every * 1000)} milliseconds").start()


def recent_storms(spark: SparkSession, out: str | os.PathLike[str]) -> DataFrame:
    """Return the windows that a watch keeps, with the columns of `storms`; none before its first micro-batch."""
    files = files_at(out, "table")
    kept = _read(spark, files, max(_complete(files), default=None))
    return kept.where("NOT settled").drop("settled")


class _Watch:
    """Processes each micro-batch."""

    def __init__(
        self, files: Files, thresholds: Thresholds, horizon_us: int, on_turn: OnTurn | None, now_us: Callable[[], int]
    ) -> None:
        self.files, self._thresholds, self._horizon_us = files, thresholds, horizon_us
        self._on_turn, self._now_us = on_turn, now_us

    def take(self, records: DataFrame, batch: int) -> None:
        """Process a micro-batch. Called by Spark; once more with the same records if Spark did not see it end."""
        spark = records.sparkSession
        last = max((number for number in _complete(self.files) if number < batch), default=None)
        before = _read(spark, self.files, last)
        kept = self._kept(before, records.where(f"ts_us <= {self._now_us() + AHEAD_US}"))
        kept.repartition(1).write.mode("overwrite").parquet(self.files.url(f"batch={batch}"))
        if self._on_turn is not None:
            self._tell(self._on_turn, _newest(before), _newest(_read(spark, self.files, batch)))
        for number in _complete(self.files):
            if last is not None and number < last:
                self.files.remove(f"batch={number}")

    def _kept(self, before: DataFrame, records: DataFrame) -> DataFrame:
        """Return the windows within the horizon, and the one before them, whose state is final."""
        from pyspark.sql import Window
        from pyspark.sql import functions as sf

        carried = before.select(
            "window_us", "destination", "attempts", "first_attempts", sf.expr("if(settled, state, NULL)").alias("known")
        )
        fresh = singly(records)
        if set(_OF_COUNTS) <= set(records.columns):
            fresh = singly(records.where("kind IS NULL")).unionByName(counted(records.where("kind = 'healthy'")))
        fresh = fresh.withColumn("known", sf.lit(None).cast("string"))
        summed = (
            carried.unionByName(fresh)
            .groupBy("window_us", "destination")
            .agg(
                sf.sum("attempts").alias("attempts"),
                sf.sum("first_attempts").alias("first_attempts"),
                sf.max("known").alias("known"),
            )
        )
        here = Window.partitionBy("destination")
        passed = sf.col("window_us") <= sf.max("window_us").over(here) - self._horizon_us
        judged = states(summed, self._thresholds, known="known").withColumn("settled", passed)
        # By another window whose state is final.
        followed = sf.lead("settled", 1, False).over(here.orderBy("window_us"))
        return judged.withColumn("followed", followed).where("NOT (settled AND followed)").drop("followed")

    def _tell(self, on_turn: OnTurn, before: dict[str, tuple[int, str]], now: dict[str, tuple[int, str]]) -> None:
        for destination, (window_us, state) in sorted(now.items()):
            if state != before.get(destination, (0, "calm"))[1]:
                on_turn(destination, state, window_us)


def _newest(kept: DataFrame) -> dict[str, tuple[int, str]]:
    """Return the newest window of each destination, and its state."""
    from pyspark.sql import functions as sf

    newest = kept.groupBy("destination").agg(sf.max(sf.struct("window_us", "state")).alias("newest"))
    return {row["destination"]: (row["newest"]["window_us"], row["newest"]["state"]) for row in newest.collect()}


def _complete(files: Files) -> list[int]:
    """Return the micro-batches that were written completely."""
    named = [entry.name.removeprefix("batch=") for entry in files.entries() if entry.name.startswith("batch=")]
    return [int(name) for name in named if any(one.name == "_SUCCESS" for one in files.entries(f"batch={name}"))]


def _read(spark: SparkSession, files: Files, batch: int | None) -> DataFrame:
    if batch is None:
        return spark.createDataFrame([], _KEPT)
    return spark.read.schema(_KEPT).parquet(files.url(f"batch={batch}"))
