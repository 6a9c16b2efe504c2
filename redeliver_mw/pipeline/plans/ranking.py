# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The order in which the letters of a plan go, and the buckets they are in: DataFrame to DataFrame, no bodies.

Letters are ordered by the hash of their group, and within a group by their death: any first part of the order is a
fair sample of the plan. A bucket holds whole groups, so it keeps their order by itself. Nothing is sorted in one
place: the hashes' range is cut into slices, which are sorted each for itself, and counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_A_SLICE: Final = 100_000  # letters, about
_MOST_SLICES: Final = 4096
_SMALL_BUCKET: Final = 64  # letters: so few are not worth a file and a task of their own
_BUCKET: Final = 100_000
_USUAL: Final = 16  # buckets: enough for as many publishers
_MOST: Final = 1024


def buckets_for(letters: int) -> int:
    """As many that each publisher gets some, and not so many that most are all but empty; at least one."""
    small, large = -(-letters // _SMALL_BUCKET), -(-letters // _BUCKET)
    return max(1, min(_USUAL, small), min(_MOST, large))


def rank(letters: DataFrame, count: int, buckets: int, *, ordered: bool) -> DataFrame:
    """`letters` with `bucket` and `position`, both INT, and `rank`, BIGINT from 0.

    They have `dl_id`, which is theirs alone, `dead_us`, `message_key` and `group_id`; `ordered` makes letters of one
    group id a group. `count` is how many they are, about.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    bits = max(1, min(_MOST_SLICES, count // _A_SLICE).bit_length())
    # The highest bits, so that the slices are in the hashes' order; it is that of unsigned numbers.
    hashed = letters.withColumn("_hash", sf.xxhash64(_group(ordered))).withColumn(
        "_slice", sf.shiftrightunsigned("_hash", 64 - bits).cast("INT")
    )
    within = Window.partitionBy("_slice").orderBy("_hash", "dead_us", "dl_id")
    in_bucket = Window.partitionBy("bucket").orderBy("rank")
    return (
        hashed.join(sf.broadcast(_offsets(hashed)), "_slice")
        .withColumn("rank", sf.row_number().over(within) - 1 + sf.col("_before"))
        .withColumn("bucket", sf.pmod(sf.col("_hash"), sf.lit(buckets)).cast("INT"))
        .withColumn("position", sf.row_number().over(in_bucket) - 1)
        .drop("_slice", "_hash", "_before")
    )


def _group(ordered: bool) -> Column:
    """What a letter's place comes from; the kinds of it are told apart, so that a key is no other's group."""
    from pyspark.sql import functions as sf

    alone = sf.coalesce(sf.concat(sf.lit("k"), "message_key"), sf.concat(sf.lit("d"), "dl_id"))
    return sf.coalesce(sf.concat(sf.lit("g"), "group_id"), alone) if ordered else alone


def _offsets(hashed: DataFrame) -> DataFrame:
    """For each slice how many letters are before it. There are a few thousand slices at most."""
    from pyspark.sql import functions as sf

    spark = hashed.sparkSession
    before, rows = 0, []
    for row in sorted(hashed.groupBy("_slice").agg(sf.count("*").alias("n")).collect(), key=lambda row: row["_slice"]):
        rows.append((row["_slice"], before))
        before += row["n"]
    return spark.createDataFrame(rows, "_slice INT, _before BIGINT")
