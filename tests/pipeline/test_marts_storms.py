# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests `storms` in batch and as a stream: both have the same windows, through restarts and repeated micro-batches."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row as SparkRow
from pyspark.sql import SparkSession

from redeliver_mw.errors import ConfigError
from redeliver_mw.journal.records import FIELDS, row_to_line
from redeliver_mw.pipeline.marts.storms import Thresholds, storms
from redeliver_mw.pipeline.storm_watch import journal_stream, recent_storms, watch_storms
from tests.pipeline.histories import DAY, SECOND, START, Journal, Row, events, row
from tests.pipeline.journals import segment

WINDOW = 10
EASY = Thresholds(enter_retries=3, enter_amplification=1.5, leave_retries=2, leave_amplification=1.2)


def window(number: int, firsts: int, retries: int, **fields: object) -> list[Row]:
    """Return the records of so many first attempts and retries in the window with this number."""
    rows = [row(number * WINDOW, **fields) for _ in range(firsts)]
    return rows + [row(number * WINDOW + 9, "redelivered", delivery_count=2 + n, **fields) for n in range(retries)]


def states(found: Iterable[SparkRow]) -> dict[int, str]:
    return {(one["window_us"] - START) // (WINDOW * SECOND): one["state"] for one in found}


# The batch job


def test_a_window_is_counted_and_a_first_attempt_is_no_retry(spark: SparkSession, tmp_path: Path) -> None:
    rows = [*window(0, 2, 6), *window(1, 0, 1), row(5, "released"), row(10 - 1e-6), row(20)]
    found = storms(events(spark, rows, tmp_path)).orderBy("window_us").collect()
    assert [tuple(one) for one in found] == [
        (START, "orders", 9, 3, 6, 3.0, "calm"),
        (START + 10 * SECOND, "orders", 1, 0, 1, None, "calm"),
        (START + 20 * SECOND, "orders", 1, 1, 0, 1.0, "calm"),
    ]


def test_a_storm_begins_and_ends_at_its_thresholds(spark: SparkSession, tmp_path: Path) -> None:
    course = [
        (10, 19, "calm"),  # 2.9 times, and one retry too few
        (20, 20, "storm"),  # twice
        (20, 10, "storm"),  # one and a half times is not less than that
        (21, 10, "calm"),
        (20, 10, "calm"),  # enough to stay in a storm, not to begin one
        (0, 20, "storm"),  # no first attempts at all
        (0, 5, "storm"),
        (0, 4, "calm"),
        (21, 20, "calm"),  # a little less than twice
        (1, 30, "storm"),
    ]
    rows = [one for number, (firsts, retries, _) in enumerate(course) for one in window(number, firsts, retries)]
    found = storms(events(spark, rows, tmp_path)).collect()
    assert states(found) == {number: state for number, (_, _, state) in enumerate(course)}


def test_a_window_without_an_attempt_ends_a_storm(spark: SparkSession, tmp_path: Path) -> None:
    rows = [*window(0, 0, 20), *window(1, 0, 10), *window(3, 0, 10)]
    assert states(storms(events(spark, rows, tmp_path)).collect()) == {0: "storm", 1: "storm", 3: "calm"}


def test_a_storm_of_one_queue_is_none_of_another(spark: SparkSession, tmp_path: Path) -> None:
    rows = [*window(0, 0, 20), *window(1, 0, 10, destination="mail")]
    found = storms(events(spark, rows, tmp_path)).collect()
    assert {one["destination"]: one["state"] for one in found} == {"orders": "storm", "mail": "calm"}


def test_thresholds_under_which_a_storm_could_end_where_it_begins_are_refused() -> None:
    with pytest.raises(ConfigError, match="could end where it begins"):
        Thresholds(enter_retries=4, leave_retries=5)
    with pytest.raises(ConfigError, match="could end where it begins"):
        Thresholds(enter_amplification=1.4)


# The stream


def told(folder: Path, rows: Iterable[Row]) -> None:
    """Write one more segment, a second younger than the one before: Spark takes the oldest first."""
    written = segment(folder, [row_to_line([one[name] for name in FIELDS]) for one in rows])
    age = time.time() - 1_000 + len(list(folder.iterdir()))
    os.utime(written, (age, age))


class Watched:
    """Holds a journal and what a watch keeps of it; `run` takes what is there, one segment in each micro-batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.journal, self.out = spark, folder / "journal", folder / "out"
        self.journal.mkdir()

    def run(self, **options: Any) -> None:
        usual: dict[str, Any] = {"thresholds": EASY, "horizon_us": 30 * DAY, "now_us": lambda: START + 30 * DAY}
        attempts = journal_stream(self.spark, self.journal, files=1)
        watch_storms(attempts, self.out, every=None, **usual | options).awaitTermination()

    def rows(self) -> list[tuple[object, ...]]:
        return sorted(tuple(one) for one in recent_storms(self.spark, self.out).collect())


@pytest.fixture
def watched(spark: SparkSession, tmp_path: Path) -> Watched:
    return Watched(spark, tmp_path)


def test_before_its_first_micro_batch_a_watch_keeps_nothing(watched: Watched) -> None:
    assert watched.rows() == []


def test_the_stream_agrees_with_the_batch_job_over_segments_that_come_in_any_order(
    watched: Watched, tmp_path: Path
) -> None:
    rows = Journal(seed=5, messages=150).rows
    for part in range(3):
        told(watched.journal, rows[part::5])
    segment(watched.journal, b'{"half": \n\n{"v": 1, "kind": "policy", "ts_us": 1, "destination": "x"}\n')
    watched.run()
    for part in (3, 4):
        told(watched.journal, rows[part::5])
    watched.run()
    batch = sorted(tuple(one) for one in storms(events(watched.spark, rows, tmp_path), EASY).collect())
    assert watched.rows() == batch
    assert {one[-1] for one in batch} == {"calm", "storm"}


def test_a_micro_batch_that_is_done_again_counts_nothing_twice(watched: Watched) -> None:
    told(watched.journal, window(0, 0, 3))
    told(watched.journal, window(0, 0, 4))
    watched.run()
    before = watched.rows()
    (watched.out / "_checkpoint" / "commits" / "1").unlink()  # it was written, and the query died before it said so
    (watched.out / "_checkpoint" / "commits" / ".1.crc").unlink(missing_ok=True)
    watched.run()
    assert watched.rows() == before == [(START, "orders", 7, 0, 7, None, "storm")]


def test_windows_behind_the_horizon_are_let_go_and_the_state_lives_on(watched: Watched) -> None:
    # The second window stays in the storm that the first has begun, after that has been let go.
    told(watched.journal, [*window(0, 0, 3), *window(1, 0, 2), *window(2, 0, 2)])
    watched.run(horizon_us=15 * SECOND)
    assert states(recent_storms(watched.spark, watched.out).collect()) == {1: "storm", 2: "storm"}
    told(watched.journal, [*window(0, 5, 0), *window(3, 0, 2)])
    watched.run(horizon_us=15 * SECOND)
    assert states(recent_storms(watched.spark, watched.out).collect()) == {2: "storm", 3: "storm"}


def test_a_record_from_far_ahead_closes_no_window(watched: Watched) -> None:
    told(watched.journal, [*window(0, 0, 3), row(7200)])
    watched.run(horizon_us=60 * SECOND, now_us=lambda: START + 10 * SECOND)
    assert states(recent_storms(watched.spark, watched.out).collect()) == {0: "storm"}


def test_the_caller_is_notified_when_a_storm_begins_and_when_it_is_over(watched: Watched, tmp_path: Path) -> None:
    told(watched.journal, [*window(0, 1, 0), *window(0, 1, 0, destination="mail")])
    told(watched.journal, window(1, 0, 3))
    told(watched.journal, window(2, 0, 3))
    told(watched.journal, window(3, 9, 0))
    notes = tmp_path / "notes"

    def note(destination: str, state: str, window_us: int) -> None:
        with notes.open("a") as file:
            file.write(f"{destination} {state} {(window_us - START) // SECOND}\n")

    watched.run(on_turn=note)
    assert notes.read_text().splitlines() == ["orders storm 10", "orders calm 30"]
