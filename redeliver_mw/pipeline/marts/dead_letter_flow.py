# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Computes `dead_letter_flow`: messages dead-lettered and dead letters sent back on each day, by reason.

A letter waits until its message is tried again in a later generation: no journal says what is in a dead-letter queue.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from .attempts import DIED, HISTORY, day

_KEYS: Final = ("day", "destination", "reason")


def dead_letter_flow(events: DataFrame) -> DataFrame:
    """Return the mart for `events`. `oldest_us` is of letters that were not sent back, as far as the records say."""
    came = events.where(DIED).select(day("ts_us").alias("day"), "destination", "reason", "ts_us")
    parts = (
        came.groupBy(*_KEYS).agg(*_counts(came=sf.count("*"))),
        _sent_back(events).groupBy(*_KEYS).agg(*_counts(left=sf.count("*"))),
        _waiting(events).groupBy(*_KEYS).agg(*_counts(oldest=sf.min("ts_us"))),
    )
    return (
        reduce(DataFrame.unionByName, parts)
        .groupBy(*_KEYS)
        .agg(sf.sum("in").alias("in"), sf.sum("out").alias("out"), sf.min("oldest_us").alias("oldest_us"))
    )


def _counts(came: Column | None = None, left: Column | None = None, oldest: Column | None = None) -> list[Column]:
    zero, unknown = sf.lit(0).cast("bigint"), sf.lit(None).cast("bigint")
    columns = {"in": (came, zero), "out": (left, zero), "oldest_us": (oldest, unknown)}
    return [(unset if given is None else given).alias(name) for name, (given, unset) in columns.items()]


def _waiting(events: DataFrame) -> DataFrame:
    """Return the dead-letterings after which no record of a later generation on the same queue is known."""
    keys = ("message_key", "destination")
    again = events.where("generation >= 1").groupBy(*keys).agg(sf.max("generation").alias("newest"))
    letters = events.where("outcome = 'dead_lettered'").select(*keys, "generation", "reason", "ts_us")
    return (
        letters.join(again, list(keys), "left")
        .where("newest IS NULL OR newest <= generation")
        .select(day("ts_us").alias("day"), "destination", "reason", "ts_us")
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
