# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""A policy that the back-test recommends is better in the real middleware, in a month new to the back-test."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from redeliver_mw.pipeline import compact
from redeliver_mw.pipeline.lake.lake import Lake
from redeliver_mw.pipeline.marts.messages import messages
from redeliver_mw.pipeline.marts.recovery import recovery as mart
from tests.pipeline.recommended import CASES, Month, Service, fates, recovery, run, trials

SEEDS, WANTED, MESSAGES = 20, 18, 5000


@pytest.mark.spark  # it needs none, but belongs to the proofs of the pipeline, and takes longer than a unit test
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_recommended_policy_beats_the_old_one_in_a_month_that_nobody_had_seen() -> None:
    outcomes = list(trials(SEEDS, MESSAGES, processes=2))
    worse = [outcome for outcome in outcomes if not outcome.is_better]
    assert len(outcomes) == SEEDS
    assert len(worse) <= SEEDS - WANTED, worse


def test_the_rows_that_are_judged_are_those_of_the_mart(spark: SparkSession, tmp_path: Path) -> None:
    case = CASES[0]
    policy = case.policy.replace(arms={"other": (0.1, case.arm)})
    records = run(Month(Service.drawn(3), 400, "of a test"), policy, tmp_path / "journal")
    ours = recovery(fates(records))
    compact(spark, tmp_path / "journal", tmp_path / "lake")
    found = mart(messages(Lake(tmp_path / "lake").events(spark)))
    theirs = found.groupBy(*(name for name in ours[0] if name != "n")).sum("n").collect()
    assert len(ours) > 20
    assert sorted(str(tuple(row)) for row in theirs) == sorted(str(tuple(row.values())) for row in ours)
