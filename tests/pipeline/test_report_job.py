# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the report of a lake, through Spark: marts cut down there say the same as whole ones; files and exit codes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from redeliver_mw.cli.main import run
from redeliver_mw.errors import ConfigError
from redeliver_mw.pipeline import Lake, LakeError, compact, schemas
from redeliver_mw.pipeline.insights import insights
from redeliver_mw.pipeline.report import aggregate, job
from redeliver_mw.pipeline.report.facts import Facts, facts
from redeliver_mw.pipeline.report.failures import FailureGroup, Failures
from redeliver_mw.pipeline.time_range import whole_days
from redeliver_mw.policy import PolicyMap, load_policies
from tests.pipeline.journals import line, lines, segment
from tests.pipeline.sample_rows import policy, sample, sample_facts
from tests.pipeline.sample_world import MAIL, ORDERS, QUEUES, SECOND, START, START_US

Capture = pytest.CaptureFixture[str]
Row = Mapping[str, Any]

IN_USE = PolicyMap({queue.name: load_policies(policy(queue.rests)).resolve(queue.name) for queue in QUEUES.values()})


def frame(spark: SparkSession, name: str, rows: Sequence[Row]) -> DataFrame:
    """Return a mart of these rows; columns that the rows do not have are null."""
    ddl = schemas.MARTS[name]
    names = spark.createDataFrame([], ddl).columns
    return spark.createDataFrame([tuple(row.get(column) for column in names) for row in rows], ddl)


def messages() -> list[Row]:
    made, _ = sample()
    return [
        {
            "message_key": one.key,
            "generation": 0,
            "destination": one.kind.queue,
            "outcome": outcome,
            "reason": reason,
            "fingerprint": one.kind.fingerprint,
            "error_type": one.kind.type,
            "attempts": len(one.times_us),
            "failures": one.failures,
            "first_us": one.times_us[0],
            "first_failure_us": one.times_us[0],
            "last_failure_us": one.times_us[one.failures - 1],
            "recovered_us": one.times_us[-1] if one.healed else None,
            "last_us": one.times_us[-1],
            "history": [
                (number, us, "redelivered" if number <= one.failures else "accepted", None, None, 0)
                for number, us in enumerate(one.times_us, 1)
            ],
        }
        for one in made.histories
        for outcome, reason in [("accepted", None) if one.healed else ("dead_lettered", "exhausted")]
    ]


@pytest.fixture(scope="module")
def sample_lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Return a lake with the made-up fortnight's marts, published whole."""
    lake = Lake(tmp_path_factory.mktemp("sample") / "lake", create=True)
    _, rows = sample()
    marts: dict[str, Sequence[Row]] = {
        "messages": messages(),
        "attempt_curve": rows.attempt_curve,
        "recovery": rows.recovery,
        "poison": rows.poison,
        "fingerprints": rows.fingerprints,
        "waste": rows.waste,
        "storms": rows.storms,
        "dead_letter_flow": rows.flow_by_day,
        "clocks": (),
    }
    for name, of_mart in marts.items():
        lake.publish(spark, name, frame(spark, name, of_mart))
    return lake


@pytest.fixture(scope="module")
def known(spark: SparkSession, sample_lake: Lake) -> Facts:
    return job.report(spark, sample_lake, policies=IN_USE)


@pytest.fixture(scope="module")
def small(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lake made of a journal: of 300 messages every third fails, and none is tried again."""
    folder = tmp_path_factory.mktemp("small")
    segment(folder / "journal", lines(range(300)))
    compact(spark, folder / "journal", folder / "lake")
    insights(spark, folder / "lake")
    return folder / "lake"


def without_estimates(known: Failures) -> tuple[FailureGroup, ...]:
    return tuple(replace(one, healing=replace(one.healing, likely=())) for one in known.shown)


def test_what_spark_cuts_down_says_what_whole_marts_say(known: Facts) -> None:
    whole = sample_facts()
    assert known.totals == whole.totals
    assert without_estimates(known.failures) == without_estimates(whole.failures)
    assert (known.failures.waste, known.failures.others) == (whole.failures.waste, whole.failures.others)
    assert known.attempts == whole.attempts
    assert known.flow == whole.flow
    assert known.poison == whole.poison
    assert known.storms is not None
    assert whole.storms is not None
    assert replace(known.storms, storms=()) == replace(whole.storms, storms=(), others=known.storms.others)


def test_stormy_windows_without_a_calm_or_a_missing_one_between_them_are_one_storm(spark: SparkSession) -> None:
    # seconds, attempts, first attempts, state; the third window is calm, and one is missing before the last
    seen = [(0, 30, 10, "storm"), (10, 40, 0, "storm"), (20, 5, 5, "calm"), (30, 9, 3, "storm"), (50, 8, 4, "storm")]
    rows = [
        {
            "window_us": START_US + at * SECOND,
            "destination": "orders",
            "attempts": n,
            "first_attempts": first,
            "retries": n - first,
            "amplification": None,
            "state": state,
        }
        for at, n, first, state in seen
    ]
    found = aggregate.episodes(frame(spark, "storms", [*rows, {**rows[1], "destination": "mail"}])).collect()
    told = sorted(
        (
            row["destination"],
            (row["first_us"] - START_US) // SECOND,
            (row["end_us"] - START_US) // SECOND,
            row["attempts"],
            row["retries"],
            row["peak"],
        )
        for row in found
    )
    assert told == [
        ("mail", 10, 20, 40, 40, 40.0),
        ("orders", 0, 20, 70, 60, 40.0),
        ("orders", 30, 40, 9, 6, 3.0),
        ("orders", 50, 60, 8, 4, 2.0),
    ]


def test_each_destination_is_advised_on_the_policy_that_it_has(known: Facts) -> None:
    today = {one.destination: one.today.policy for one in known.advice if one.today is not None}
    assert today == {queue.name: policy(queue.rests) for queue in QUEUES.values()}
    for one in known.advice:
        assert one.best is not None
        assert not one.best.extrapolated
        assert one.messages == sum(history.kind.queue == one.destination for history in sample()[0].histories)


def test_the_most_likely_curve_lies_where_the_messages_may_have_healed(known: Facts) -> None:
    for one in known.failures.shown:
        for likely in one.healing.likely:
            before = [point for point in one.healing.curve if point.after_s <= likely.after_s]
            behind = [point for point in one.healing.curve if point.after_s >= likely.after_s]
            assert likely.healed >= (before[-1].certain if before else 0) - 0.01
            assert likely.healed <= (behind[0].possible if behind else 1) + 0.01


def test_days_outside_of_a_span_are_left_out(spark: SparkSession, sample_lake: Lake) -> None:
    made, _ = sample()
    end = START + timedelta(days=5)
    known = job.report(spark, sample_lake, policies=IN_USE, until=end)
    until_us = START_US + 5 * 86_400 * SECOND
    assert known.totals.failed == sum(one.times_us[-1] < until_us for one in made.histories)
    assert known.failures.messages == known.totals.failed
    assert known.storms is not None
    assert known.storms.end_s <= until_us / SECOND


def test_a_time_within_a_day_is_refused() -> None:
    with pytest.raises(ConfigError, match="within one"):
        whole_days("2026-03-02T06:00:00Z", None)


def test_without_marts_it_says_how_to_make_them(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(LakeError, match="Run `redeliver pipeline insights LAKE`"):
        job.report(spark, lake)


def test_the_policy_in_use_is_read_from_the_records(spark: SparkSession, small: Path) -> None:
    known = job.report(spark, small)
    (advice,) = known.advice
    assert advice.today is not None
    assert advice.today.policy == "3:1000; 6:5000; 8:move(queue:dlq.$)"
    assert (known.totals.messages, known.totals.failed, known.totals.open) == (300, 100, 100)
    assert known.failures.shown[0].healing.verdict == "untried"


def test_a_text_with_another_version_counts_where_the_records_do_what_it_says(
    spark: SparkSession, tmp_path: Path, capsys: Capture
) -> None:
    text = "3:1000; 6:5000; 8:move(queue:dlq.$)"
    waits = {"bills": [0, 1, 5, 5], "parcels": [0, 9, 5, 5]}
    told = [
        line(
            3,
            record_id=f"{place}-{number}-{failures}",
            message_key=f"{place}-{number}",
            destination=place,
            ts_us=START_US + (number * 60 + failures) * SECOND,
            first_attempt_us=START_US + number * 60 * SECOND,
            delivery_count=failures,
            attempts_total=failures,
            outcome="redelivered",
            reason="handler",
            mechanism="hold",
            policy=text,
            policy_version="0123456789ab",
            policy_arm=None,
            propensity=None,
            delay_us=seconds * SECOND,
            delay_base_us=seconds * SECOND,
        )
        for place, delays in waits.items()
        for number in range(30)
        for failures, seconds in zip((1, 3, 6, 7), delays, strict=True)
    ]
    segment(tmp_path / "journal", told)
    compact(spark, tmp_path / "journal", tmp_path / "lake")
    insights(spark, tmp_path / "lake")
    found = job.told_policies(spark, Lake(tmp_path / "lake"))
    assert {place: one.text for place, one in found.policies.items()} == {"bills": text}
    assert "after failure 3 it waits 1 s, and the records show 9 s" in found.untold["parcels"]
    out = tmp_path / "report.html"
    assert run(["pipeline", "report", str(tmp_path / "lake"), "--out", str(out)]) == 0
    err = capsys.readouterr().err
    assert "note: parcels: no advice, the journal's text of it is not all of it" in err
    assert "Name it with --policy" in err
    assert "bills: no advice" not in err
    assert "Name the policy in use at" in out.read_text()


def test_the_command_writes_the_page_and_prints_the_numbers(small: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "report.html"
    assert run(["pipeline", "report", str(small), "--out", str(out), "--json"]) == 0
    printed, err = capsys.readouterr()
    assert json.loads(printed)["totals"]["failed"] == 100
    assert f"{out}: {out.stat().st_size} bytes" in err
    assert re.search("1 in 3 messages failed at least once|33 % of messages failed at least once", out.read_text())
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "--out"),
        (["--out", "no/such/folder/x.html"], "no such folder"),
        (["--out", "."], "this is a folder"),
        (["--json", "--since", "2026-03-02T06:00"], "within one"),
        (["--json", "--objective", "luck"], "no such"),
        (["--json", "--policy", "3:x"], "3:x"),
        (["--json"], "no lake"),
    ],
)
def test_what_cannot_be_meant_is_reported_before_spark_is_started(
    words: list[str], says: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))  # no Spark could start
    assert run(["pipeline", "report", str(tmp_path), *words]) == 2
    out, err = capsys.readouterr()
    assert says in err
    assert out == ""


def test_a_page_that_cannot_be_written_leaves_the_old_one(known: Facts, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    out.write_text("old")
    (tmp_path / f".report.html.{job.os.getpid()}").mkdir()  # in the way of the unfinished file
    with pytest.raises(LakeError, match="report"):
        job.write(known, out)
    assert out.read_text() == "old"


def test_mail_and_orders_are_not_advised_the_same(known: Facts) -> None:
    best = {one.destination: one.best.policy for one in known.advice if one.best is not None}
    assert best[MAIL.name] != best[ORDERS.name]


def test_an_empty_lake_of_marts_makes_a_page_with_words(spark: SparkSession, lake: Lake) -> None:
    for name in schemas.MARTS:
        lake.publish(spark, name, frame(spark, name, []))
    known = job.report(spark, lake)
    assert known.storms is None
    assert facts(replace(sample()[1], storms=()), lake="l", made_s=0).storms is None
    assert (known.totals.messages, known.failures.shown, known.advice) == (0, (), ())
