# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Computes `dead_letter_flow`: messages dead-lettered and dead letters sent back on each day, by reason."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from .attempts import DIED, HISTORY, day

_KEYS: Final = ("day", "destination", "reason")


def dead_letter_flow(events: DataFrame) -> DataFrame:
    """Return the mart for `events`. `oldest_us` is null, because no journal contains the age of the oldest letter."""
    came = events.where(DIED).select(day("ts_us").alias("day"), "destination", "reason")
    flow = came.groupBy(*_KEYS).agg(sf.count("*").alias("in")).withColumn("out", sf.lit(0).cast("bigint"))
    left = _sent_back(events).groupBy(*_KEYS).agg(sf.count("*").alias("out")).withColumn("in", sf.lit(0).cast("bigint"))
    return (
        flow.unionByName(left)
        .groupBy(*_KEYS)
        .agg(sf.sum("in").alias("in"), sf.sum("out").alias("out"))
        .select(*_KEYS, "in", "out", sf.lit(None).cast("bigint").alias("oldest_us"))
    )


def _sent_back(events: DataFrame) -> DataFrame:
    """Return later generations, on the day of their first record, with the reason of the last dead-lettering before."""
    began = (
        events.where("generation >= 1")
        .groupBy(*HISTORY)
        .agg(sf.min("ts_us").alias("began_us"))
        .withColumn("generation", sf.col("generation") - 1)
    )
    died = (
        events.where(DIED).groupBy(*HISTORY).agg(sf.max_by("reason", sf.struct("ts_us", "record_id")).alias("reason"))
    )
    return began.join(died, list(HISTORY), "left").select(day("began_us").alias("day"), "destination", "reason")
