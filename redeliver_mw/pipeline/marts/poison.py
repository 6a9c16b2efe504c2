# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Computes `poison`: a row for each message dead-lettered at least once, over all generations, with its outcome."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from .attempts import ACCEPTED, ATTEMPT, DIED, FAILED, TOLD

# The first that holds. A record after a dead-lettering has a higher generation, so no clock is needed.
_VERDICT: Final = """
CASE
    WHEN accepted_in > died_in THEN 'healed'
    WHEN replays > died_in THEN 'open'
    WHEN died_first < died_in OR crashed THEN 'poison'
    ELSE 'dead'
END
"""


def poison(events: DataFrame) -> DataFrame:
    """Return the mart for `events`. Only records of dead-lettered messages are shuffled, after a filter by hash."""
    hashed = events.where(TOLD).withColumn("hash", sf.xxhash64("message_key"))
    dead = hashed.where(DIED).select("hash").distinct()
    rows = hashed.join(dead, "hash", "left_semi").select(
        "hash",
        "message_key",
        "generation",
        "ts_us",
        "reason",
        sf.struct("generation", "delivery_count", "ts_us", "record_id").alias("place"),
        "destination",
        "error_fingerprint",
        sf.expr(ATTEMPT).alias("ran"),
        sf.expr(FAILED).alias("failed"),
        sf.expr(DIED).alias("died"),
        sf.expr(ACCEPTED).alias("accepted"),
    )
    return (
        rows.groupBy("hash", "message_key")
        .agg(*_aggregates())
        .where("died_in IS NOT NULL")  # another message may have the same hash
        .select(
            "message_key",
            "destination",
            "fingerprint",
            "attempts",
            "first_us",
            "last_us",
            "replays",
            sf.expr(_VERDICT).alias("verdict"),
        )
    )


def _aggregates() -> tuple[Column, ...]:
    died, spot, generation = sf.col("died"), sf.col("place"), sf.col("generation")
    return (
        sf.max_by("destination", sf.when(died, spot)).alias("destination"),
        sf.max_by("error_fingerprint", sf.when(sf.col("failed"), spot)).alias("fingerprint"),
        sf.count_if("ran").alias("attempts"),
        sf.min("ts_us").alias("first_us"),
        sf.max("ts_us").alias("last_us"),
        sf.max(generation).alias("replays"),
        sf.max(sf.when(died, generation)).alias("died_in"),
        sf.max(sf.when(sf.col("accepted"), generation)).alias("accepted_in"),
        sf.min(sf.when(died, generation)).alias("died_first"),
        sf.bool_or(sf.col("reason").eqNullSafe("crashed")).alias("crashed"),
    )
