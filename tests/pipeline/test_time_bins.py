# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Python, DuckDB and Spark put a time into the same bin, and that bin holds it."""

from __future__ import annotations

import duckdb
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from redeliver_mw.pipeline.time_bins import as_sql, bin_of, lower_edge

# Around each power of two, where a logarithm in floating point goes wrong, and around each bin's edges in one doubling.
EDGES = sorted(
    {power + off for bits in range(63) for power in [1 << bits] for off in (-1, 0, 1)}
    | {edge + off for number in range(600, 740) for edge in [lower_edge(number)] for off in (-1, 0, 1)}
    | {-(1 << 63), -1, 0, (1 << 63) - 1}
)


@given(st.integers(0, (1 << 63) - 1))
def test_a_time_lies_in_its_bin_which_is_narrow(us: int) -> None:
    low, beyond = lower_edge(bin_of(us)), lower_edge(bin_of(us) + 1)
    assert low <= us < beyond
    assert beyond - low == 1 or (beyond - low) * 128 <= low


def test_bins_are_numbered_without_gaps() -> None:
    assert [bin_of(lower_edge(number)) for number in range(5_000)] == list(range(5_000))


def test_times_below_zero_are_in_the_first_bin() -> None:
    assert bin_of(-1) == bin_of(-(1 << 63)) == bin_of(0) == 0


def test_duckdb_and_spark_find_the_same_bins_as_python(spark: SparkSession) -> None:
    wanted = [(None, None), *((us, bin_of(us)) for us in EDGES)]
    frame = spark.createDataFrame([(us,) for us, _ in wanted], "us BIGINT").selectExpr("us", f"{as_sql('us')} AS bin")
    assert frame.dtypes == [("us", "bigint"), ("bin", "int")]
    assert [tuple(row) for row in frame.collect()] == wanted
    values = ", ".join(f"({'NULL' if us is None else us})" for us, _ in wanted)
    found = duckdb.sql(f"SELECT us, {as_sql('us')} FROM (VALUES {values}) AS times(us)").fetchall()
    assert found == wanted
