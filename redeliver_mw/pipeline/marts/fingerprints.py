# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Computes `fingerprints`: the ways in which handlers failed, and which of them are nearly the same."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from ..similar_stacks import Stack, groups
from .attempts import FAILED

EXAMPLE: Final = 500  # characters of an example that are kept
COMPARED: Final = 50_000  # fingerprints, the most frequent first; each of the others is a group of its own


def fingerprints(events: DataFrame) -> DataFrame:
    """Return the mart for `events`. Runs jobs at once: groups are found on the driver, among distinct fingerprints."""
    # Read twice. Not cached, because a cache would stay as long as the session.
    found = _distinct(events).localCheckpoint()
    most = found.orderBy(sf.desc("n"), "fingerprint").limit(COMPARED).select("fingerprint", "error_type", "frames")
    stacks = (Stack(row["fingerprint"], row["error_type"], row["frames"] or ()) for row in most.collect())
    joined = [pair for pair in groups(stacks).items() if pair[0] != pair[1]]
    renamed = found.sparkSession.createDataFrame(joined, "fingerprint STRING, group STRING")
    return found.join(sf.broadcast(renamed), "fingerprint", "left").select(
        "fingerprint", sf.coalesce("group", "fingerprint").alias("group"), "example", "n", "first_us", "last_us"
    )


def _distinct(events: DataFrame) -> DataFrame:
    """Return a row for each fingerprint: `error_type` and `example` of its first failure, and its `frames`.

    A failure that is reported after a reconnect has no frames, so the frames are the first of the longest lists.
    """
    failures = events.where(f"{FAILED} AND error_fingerprint IS NOT NULL").select(
        sf.col("error_fingerprint").alias("fingerprint"),
        "ts_us",
        "record_id",
        "error_type",
        sf.substring(sf.concat_ws(": ", "error_type", "error_message"), 1, EXAMPLE).alias("example"),
        sf.col("error_frames").alias("frames"),
        sf.coalesce(sf.size("error_frames"), sf.lit(-1)).alias("size"),
    )
    # The big aggregation contains numbers only; texts are looked up afterwards, when there are few rows.
    totals = _totals(failures)
    first = sf.col("ts_us") == sf.col("first_us")
    fullest = (sf.col("size") == sf.col("longest")) & (sf.col("ts_us") == sf.col("longest_us"))
    spot = sf.struct("ts_us", "record_id")
    return (
        failures.join(totals, "fingerprint")
        .where(first | fullest)
        .groupBy("fingerprint", "n", "first_us", "last_us")
        .agg(
            sf.min_by("error_type", sf.when(first, spot)).alias("error_type"),
            sf.min_by("example", sf.when(first, spot)).alias("example"),
            sf.min_by("frames", sf.when(fullest, spot)).alias("frames"),
        )
    )


def _totals(failures: DataFrame) -> DataFrame:
    """Return how often and when a fingerprint occurred, and the length and first time of its longest list of frames."""
    sized = failures.groupBy("fingerprint", "size").agg(
        sf.count("*").alias("n"), sf.min("ts_us").alias("first_us"), sf.max("ts_us").alias("last_us")
    )
    return sized.groupBy("fingerprint").agg(
        sf.sum("n").alias("n"),
        sf.min("first_us").alias("first_us"),
        sf.max("last_us").alias("last_us"),
        sf.max("size").alias("longest"),
        sf.max_by("first_us", "size").alias("longest_us"),
    )
