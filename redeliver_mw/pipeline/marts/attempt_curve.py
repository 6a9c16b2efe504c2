# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Computes `attempt_curve`: the probability that the first, second, … attempt succeeds, by the previous failure."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from .attempts import ACCEPTED, ATTEMPT, FAILED, FIRST_TRY, HISTORY, day, first_tries

_Z: Final = 1.959963984540054  # 95 % of a normal distribution lie within this many standard deviations
_KEYS: Final = ("day", "destination", "error_type", "attempt")


def attempt_curve(events: DataFrame, *, healthy: DataFrame | None = None) -> DataFrame:
    """Return the mart for `events`, and for the messages that rows of `healthy_counts` count.

    Only messages that have failed before are shuffled.
    """
    attempts = events.where(ATTEMPT).withColumn("messages", sf.lit(1).cast("bigint"))
    first = attempts.where("delivery_count <= 1").withColumn("error_type", sf.lit(None).cast("string"))
    counted = _counted(first).unionByName(_counted(_retries(attempts)))
    if healthy is not None:
        counted = counted.unionByName(
            _counted(first_tries(healthy).withColumn("error_type", sf.lit(None).cast("string")))
        )
    return (
        counted.groupBy(*_KEYS)
        .agg(sf.sum("n").alias("n"), sf.sum("n_accepted").alias("n_accepted"))
        .withColumn("p_success", sf.col("n_accepted") / sf.col("n"))
        .select(*_KEYS, "n", "n_accepted", "p_success", *_wilson())
    )


def _retries(attempts: DataFrame) -> DataFrame:
    """Return attempts from the second on; their `error_type` is that of the failure before, null if it is not known."""
    before = (
        Window.partitionBy("hash", *HISTORY)
        .orderBy("delivery_count", "ts_us", "record_id")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    failed_with = sf.when(sf.expr(FAILED), sf.col("error_type"))
    return (
        attempts.where(f"NOT {FIRST_TRY}")
        .select(
            sf.xxhash64(*HISTORY).alias("hash"),
            *HISTORY,
            "delivery_count",
            "ts_us",
            "record_id",
            "outcome",
            "messages",
            failed_with.alias("error_type"),
        )
        .withColumn("error_type", sf.last("error_type", ignorenulls=True).over(before))
        .where("delivery_count > 1")
    )


def _counted(attempts: DataFrame) -> DataFrame:
    keyed = attempts.select(
        day("ts_us").alias("day"),
        "destination",
        "error_type",
        sf.col("delivery_count").alias("attempt"),
        "messages",
        sf.expr(f"if({ACCEPTED}, messages, 0L)").alias("accepted"),
    )
    return keyed.groupBy(*_KEYS).agg(sf.sum("messages").alias("n"), sf.sum("accepted").alias("n_accepted"))


def _wilson() -> tuple[Column, Column]:
    """Return the Wilson score interval of `p_success`, which unlike the usual one is meaningful after one attempt."""
    n, p = sf.col("n"), sf.col("p_success")
    middle = p + _Z * _Z / (2 * n)
    reach = _Z * sf.sqrt(p * (1 - p) / n + _Z * _Z / (4 * n * n))
    whole = 1 + _Z * _Z / n
    lo, hi = sf.greatest(sf.lit(0.0), (middle - reach) / whole), sf.least(sf.lit(1.0), (middle + reach) / whole)
    return lo.alias("wilson_lo"), hi.alias("wilson_hi")
