# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests journal_healthy="counts" in a lake: counts are kept once, and marts have the same numbers as with lines."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from redeliver_mw.journal import read_healthy_counts
from redeliver_mw.journal.records import HealthyCount, to_line
from redeliver_mw.pipeline import Lake, compact, optimize
from redeliver_mw.pipeline.insights import insights
from redeliver_mw.pipeline.lake.validation import COUNTS_ARROW, as_table, check, one_by_one
from redeliver_mw.pipeline.marts.clocks import corrected
from redeliver_mw.pipeline.marts.storms import storms
from redeliver_mw.pipeline.schemas import CLOCKS, EVENTS_WITH_DAY, HEALTHY_COUNTS_WITH_DAY
from redeliver_mw.pipeline.storm_watch import journal_stream, recent_storms, watch_storms
from tests.journal.test_healthy_counts import consume
from tests.pipeline.journals import DAY, SECOND, START_US, line, segment

COUNT = HealthyCount(
    record_id="0123456789ab-c1",
    ts_us=START_US + SECOND,
    since_us=START_US,
    app="shop",
    host="web-1",
    broker="rabbitmq://localhost",
    broker_kind="rabbitmq",
    destination="orders",
    destination_kind="queue",
    policy="3:1000",
    policy_version="v1",
    messages=40,
    handler_us=4_000,
    payload_bytes=3 << 40,  # more than the field of an attempt holds
)


def count(number: int, **changes: Any) -> bytes:
    return to_line(replace(COUNT, record_id=f"0123456789ab-c{number}", **changes))


def sums(spark: SparkSession, lake: Path, mart: str, keys: str, *names: str) -> dict[Any, tuple[int, ...]]:
    found = Lake(lake).mart(spark, mart).groupBy(keys).agg(dict.fromkeys(names, "sum")).collect()
    return {row[keys]: tuple(row[f"sum({name})"] for name in names) for row in found}


def test_marts_have_the_numbers_of_an_app_that_counts_and_of_one_that_does_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    journal, lake = tmp_path / "journal", tmp_path / "lake"
    consume(journal, "counts")  # 20 messages: four fail once, 16 are handled at once
    consume(journal, "all", messages=10)  # two fail once, and eight have a line each
    done = compact(spark, journal, lake)
    assert (done.records, done.others, done.quarantined) == (4 + 4 + 2 + 2 + 8, 0, 0)
    assert done.counts == len(list(read_healthy_counts(journal))) > 0
    assert insights(spark, lake)["messages"] == 4  # the messages of the second App have ids of the first one's
    assert sums(spark, lake, "attempt_curve", "attempt", "n", "n_accepted") == {1: (30, 24), 2: (6, 6)}
    assert sums(spark, lake, "storms", "destination", "attempts", "first_attempts") == {"orders": (36, 30)}


def test_a_lake_of_counts_alone_holds_each_once_through_copies_and_optimize(
    spark: SparkSession, tmp_path: Path
) -> None:
    journal, lake = tmp_path / "journal", tmp_path / "lake"
    segment(journal, [count(1), count(2, ts_us=START_US + DAY, since_us=START_US, messages=2)])
    first = compact(spark, journal, lake, until="2026-11-02")
    assert (first.counts, first.records, first.outside) == (1, 0, 1)
    assert compact(spark, journal, lake).counts == 1  # that of the next day; the other one is there already
    segment(journal, [count(1), count(3, messages=5)])
    assert compact(spark, journal, lake).counts == 1
    place = Lake(lake)
    assert sorted((one["record_id"][-2:], one["messages"]) for one in place.healthy_counts(spark).collect()) == [
        ("c1", 40),
        ("c2", 2),
        ("c3", 5),
    ]
    assert place.events(spark).count() == 0
    done = optimize(lake, keep_s=0)
    assert (done.files_before, done.files, done.rows) == (2, 1, 2)
    found = storms(place.events(spark), healthy=place.healthy_counts(spark, until="2026-11-02")).collect()
    assert [tuple(one) for one in found] == [(START_US, "orders", 45, 45, 0, 1.0, "calm")]
    read = spark.read.format("redeliver").option("table", "healthy_counts").load(str(lake))
    assert read.schema == spark.createDataFrame([], HEALTHY_COUNTS_WITH_DAY).schema
    assert {row["payload_bytes"] for row in read.collect()} == {3 << 40}
    shutil.rmtree(journal)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"messages": 0}, "field 'messages' is 0, which is less than 1"),
        ({"record_id": ""}, "field 'record_id' is empty"),
        ({"since_us": 5}, "field 'since_us' is 5, which is no time"),
        ({"destination": ""}, "field 'destination' is '', which is empty"),
        ({"v": 2}, "this release reads version 1"),
        ({"handler_us": -1}, "field 'handler_us' is -1"),
    ],
)
def test_a_count_that_is_none_is_quarantined_and_those_around_it_are_kept(changes: Any, reason: str) -> None:
    bad = to_line(replace(COUNT, **changes))
    data = count(1) + bad + line(1) + count(2)
    assert as_table(data) is None
    (found,) = check(data, 0)
    assert found.counts is not None
    assert found.counts["record_id"].to_pylist() == [
        "0123456789ab-c1",
        "0123456789ab-c2",
    ]
    assert (len(found.attempts or ()), found.others) == (1, 0)
    assert [one.offset for one in found.bad] == [len(count(1))]
    assert reason in found.bad[0].reason


def test_a_block_and_its_lines_one_by_one_give_the_same_counts() -> None:
    data = count(1) + line(1) + b'{"kind": "policy", "v": 1}\n' + count(2, policy_arm="brave", propensity=0.5) + line(3)
    block, lines = as_table(data), one_by_one(data, 0)
    assert block is not None
    assert block.counts is not None
    assert block.counts.schema == COUNTS_ARROW
    assert block.counts.equals(lines.counts)
    assert isinstance(block.attempts, pa.Table)
    assert block.attempts.equals(lines.attempts)
    assert (block.others, lines.others) == (1, 1)


def test_counts_of_a_host_with_a_wrong_clock_are_corrected(spark: SparkSession, tmp_path: Path) -> None:
    segment(tmp_path / "journal", [count(1)])
    compact(spark, tmp_path / "journal", tmp_path / "lake")
    day = spark.sql("SELECT DATE'2026-11-01' AS day").collect()[0]["day"]
    clocks = spark.createDataFrame([(day, "web-1", START_US, START_US + DAY, 61 * SECOND, 0, 30, "corrected")], CLOCKS)
    healthy = corrected(Lake(tmp_path / "lake").healthy_counts(spark).drop("since_us"), clocks)
    (window,) = storms(spark.createDataFrame([], EVENTS_WITH_DAY), healthy=healthy).collect()
    assert (window["window_us"], window["first_attempts"]) == (START_US - 60 * SECOND, 40)


def test_a_stream_has_the_counts_as_the_batch_job_has_them(spark: SparkSession, tmp_path: Path) -> None:
    retries = [line(number, delivery_count=2, outcome="accepted") for number in range(25)]
    segment(tmp_path / "journal", [count(1, ts_us=START_US), *retries, count(2, messages=3)])
    stream = journal_stream(spark, tmp_path / "journal")
    watch_storms(stream, tmp_path / "out", every=None, now_us=lambda: START_US + DAY).awaitTermination()
    compact(spark, tmp_path / "journal", tmp_path / "lake")
    place = Lake(tmp_path / "lake")
    batch = storms(place.events(spark), healthy=place.healthy_counts(spark))
    wanted = sorted(tuple(one) for one in batch.collect())
    assert sorted(tuple(one) for one in recent_storms(spark, tmp_path / "out").collect()) == wanted
    assert [one[2:5] for one in wanted] == [(53, 43, 10), (10, 0, 10), (5, 0, 5)]
