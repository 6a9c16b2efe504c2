# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""A lake that an earlier layout of this project wrote is read, extended, planned from and reported on.

`lake-written-before.tar.gz` was written by the commit d48cbe6, on RabbitMQ 4.3.6: 30 messages were consumed under the
policy `1:10; 2:move(queue:dlq.$)`. Every third one was handled at its first attempt; each of the other 20 failed twice
and was drained as a dead letter. The lake's messages have headers of many AMQP types.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from redeliver_mw.pipeline import Lake, compact, plan
from redeliver_mw.pipeline.insights import insights
from tests.pipeline.journals import lines, segment

ATTEMPTS, LETTERS, FAILING = 10 + 20 * 2, 20, 20
ADDED = 7


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("before")
    with tarfile.open(Path(__file__).with_name("lake-written-before.tar.gz")) as packed:
        packed.extractall(folder, filter="data")
    return folder / "lake"


def test_its_events_dead_letters_and_marts_are_all_there(spark: SparkSession, before: Path) -> None:
    lake = Lake(before)
    assert lake.events(spark).count() == ATTEMPTS
    assert lake.dead_letters(spark).count() == LETTERS
    assert lake.mart(spark, "messages").where("outcome = 'dead_lettered'").count() == FAILING


def test_its_dead_letters_are_planned_by_their_headers(spark: SparkSession, before: Path, tmp_path: Path) -> None:
    made = plan(spark, before, tmp_path / "plan", headers={"n": "29"})
    assert made.letters == 1


def test_new_segments_and_new_marts_stand_beside_what_it_has(spark: SparkSession, before: Path, tmp_path: Path) -> None:
    segment(tmp_path / "journal", lines(range(ADDED)))
    compact(spark, tmp_path / "journal", before)
    insights(spark, before)
    lake = Lake(before)
    assert lake.events(spark).count() == ATTEMPTS + ADDED
    assert lake.mart(spark, "messages").where("outcome = 'dead_lettered' AND destination = 'orders'").count() >= FAILING
