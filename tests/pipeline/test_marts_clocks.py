# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Takes a journal of two hosts, one of them 30 s behind, through Spark: from records to marts and to the page."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import DataFrame, SparkSession

from redeliver_mw.cli.main import run
from redeliver_mw.pipeline import schemas
from redeliver_mw.pipeline.marts import clocks as module
from redeliver_mw.pipeline.marts.clocks import clocks, corrected
from redeliver_mw.pipeline.marts.messages import messages
from redeliver_mw.pipeline.marts.recovery import order, recovery
from redeliver_mw.pipeline.report.job import report
from redeliver_mw.pipeline.report.page import page
from redeliver_mw.pipeline.time_range import DAY_US
from tests.pipeline.histories import SECOND, START, Row, events, history, row
from tests.pipeline.test_insights import lake_of
from tests.pipeline.test_report_page import words

MESSAGES, DEAD = 1_000, 30  # 97 % recover
SKEW_S = -30


def two_hosts(skew_s: float, *, seed: int = 1) -> list[Row]:
    """Return records of messages that fail up to four times, a bit over 1 s, 2 s and 4 s apart, each on either host."""
    rng, rows = Random(seed), list[Row]()
    for n in range(MESSAGES):
        failures = 4 if n < DEAD else rng.randint(1, 3)
        at_s, told = rng.uniform(100, 80_000), list[Row]()
        for number in range(1, failures + 1):
            told += attempt(rng, at_s, n, number, "redelivered" if number < 4 else "dead_lettered", skew_s)
            at_s += 2 ** (number - 1) + rng.uniform(0.02, 0.3)
        rows += told if n < DEAD else [*told, *attempt(rng, at_s, n, failures + 1, "accepted", skew_s)]
    return rows


def attempt(rng: Random, at_s: float, n: int, number: int, outcome: str, skew_s: float) -> list[Row]:
    host = rng.choice(["web-1", "web-1", "web-2"])
    shown_s = at_s + (skew_s if host == "web-2" else 0)
    return [row(shown_s, outcome, message_key=f"m{n}", delivery_count=number, host=host, handler_us=10_000)]


def share(recovered: DataFrame) -> float:
    """Return the share of all histories that are known to have recovered."""
    [found] = recovered.selectExpr("sum(if(hi_bin IS NULL, 0, n)) AS healed", "sum(n) AS n").collect()
    return float(found["healed"] / found["n"])


def test_a_host_that_is_30_s_behind_is_found_and_its_times_are_corrected(spark: SparkSession, tmp_path: Path) -> None:
    seen = events(spark, two_hosts(SKEW_S), tmp_path)
    assert share(recovery(messages(seen))) < 0.75  # what was said before
    found = clocks(seen)
    assert found.dtypes == spark.createDataFrame([], schemas.CLOCKS).dtypes
    first, second = found.orderBy("host").collect()
    day_us = START // DAY_US * DAY_US
    assert (first["day"], first["host"], first["state"], first["offset_us"]) == (
        date(2026, 3, 2),
        "web-1",
        "in step",
        0,
    )
    assert (second["since_us"], second["until_us"], second["state"]) == (day_us, day_us + DAY_US, "corrected")
    assert abs(second["offset_us"] - SKEW_S * SECOND) <= second["error_us"] <= 1.5 * SECOND
    made = messages(corrected(seen, found)).localCheckpoint()
    assert share(recovery(made)) == pytest.approx(1 - DEAD / MESSAGES, abs=0.005)
    assert order(made).collect()[0].asDict() == {"histories": MESSAGES, "disorder": pytest.approx(0, abs=5)}


def test_clocks_in_step_leave_the_events_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    seen = events(spark, two_hosts(0), tmp_path)
    found = clocks(seen)
    assert [one["state"] for one in found.collect()] == ["in step", "in step"]
    assert corrected(seen, found) is seen


def test_one_host_is_compared_with_nobody(spark: SparkSession, tmp_path: Path) -> None:
    seen = events(spark, [*history((0, "redelivered"), (1, "accepted")), row(2, host="never failed")], tmp_path)
    (only,) = clocks(seen).collect()
    assert only[1:] == ("h1", START, START + DAY_US, 0, 0, 0, "in step")
    assert corrected(seen, clocks(seen)) is seen


def test_times_that_came_with_the_message_keep_to_their_own_clocks(spark: SparkSession, tmp_path: Path) -> None:
    """The first failure is on the host that is behind, the second on the other, the verdict on the first host again."""
    told = [
        row(-30, "redelivered", host="late", first_attempt_us=START - 31 * SECOND, handler_us=SECOND),
        row(5, "redelivered", host="right", delivery_count=2, first_attempt_us=START - 31 * SECOND),
        row(-20, "dead_lettered", host="late", delivery_count=2, reason="exhausted", handler_us=0)
        | {"last_failure_us": START + 5 * SECOND, "first_attempt_us": START - 31 * SECOND},
    ]
    known = [(date(2026, 3, 1), "late", START - DAY_US, START, -30 * SECOND, 1, 99, "corrected")]
    seen = events(spark, told, tmp_path)
    found = corrected(seen, spark.createDataFrame(known, schemas.CLOCKS))
    assert found.dtypes == seen.dtypes
    times = [
        tuple((one[name] - START) / SECOND for name in ("ts_us", "last_failure_us", "first_attempt_us"))
        for one in found.orderBy("ts_us").collect()
    ]
    assert times == [(0, 0, -1), (5, 5, -31), (10, 5, -31)]


def test_histories_in_which_a_count_comes_twice_tell_nothing_of_clocks(spark: SparkSession, tmp_path: Path) -> None:
    told = [
        one
        for n in range(50)
        for one in (
            row(n * 100, "redelivered", message_key=f"m{n}", host="a"),
            row(n * 100 + 40, "redelivered", message_key=f"m{n}", host="a", delivery_count=2),
            row(n * 100 + 80, "redelivered", message_key=f"m{n}", host="b"),  # the count was lost
        )
    ]
    found = clocks(events(spark, told, tmp_path)).orderBy("host").collect()
    assert [(one["host"], one["pairs"], one["state"]) for one in found] == [("a", 0, "in step"), ("b", 0, "unknown")]


def test_of_many_records_a_part_tells_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = events(spark, two_hosts(SKEW_S), tmp_path)
    whole = clocks(seen).orderBy("host").collect()[1]
    monkeypatch.setattr(module, "READ", 1_000)
    part = clocks(seen).orderBy("host").collect()[1]
    assert 0.2 * whole["pairs"] < part["pairs"] < 0.5 * whole["pairs"]  # 1,000 of about 3,000 records
    assert abs(part["offset_us"] - SKEW_S * SECOND) <= part["error_us"]


def test_marts_and_page_tell_the_truth_and_name_the_clock(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = lake_of(spark, two_hosts(SKEW_S), tmp_path)
    assert run(["pipeline", "insights", lake.root]) == 0
    said = capsys.readouterr().err
    assert re.search(r"The clock of web-2 was (29|30|31) s behind, to within .* s\. Its times are corrected", said)
    assert "Keep the clock of web-2 in step, with NTP" in said
    assert share(lake.mart(spark, "recovery")) == pytest.approx(1 - DEAD / MESSAGES, abs=0.005)
    assert {one["state"] for one in lake.mart(spark, "clocks").collect()} == {"in step", "corrected"}
    known = report(spark, lake)
    assert known.failures.healed / known.failures.messages == pytest.approx(1 - DEAD / MESSAGES, abs=0.005)
    text = words(page(known))
    assert re.search(r"97 % of 1,000 messages recovered", text)
    assert re.search(r"The clock of web-2 was (29|30|31) s behind", text)


def test_where_too_few_handovers_tell_the_page_says_whose_times_are_not_known(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten messages fail on the first host and succeed on the second, whose clock is 30 s behind."""
    told = [
        one
        for n in range(10)
        for one in (
            row(n * 60, "redelivered", message_key=f"m{n}", host="web-1"),
            row(n * 60 + 5 - 30, "accepted", message_key=f"m{n}", host="web-2", delivery_count=2),
        )
    ]
    lake = lake_of(spark, told, tmp_path)
    assert run(["pipeline", "insights", lake.root]) == 0
    said = capsys.readouterr().err
    assert "The times of 10 of 10 messages that were tried more than once (100 %) contradict each other" in said
    assert "How far the clock of web-2 may be off is not known" in said
    known = report(spark, lake)
    assert (known.clocks.histories, known.clocks.disorder, known.clocks.unknown) == (10, 10, ("web-2",))
    assert "Keep the clocks of all hosts in step, with NTP" in words(page(known))
