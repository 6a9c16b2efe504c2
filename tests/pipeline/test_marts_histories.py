# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests `messages`, `recovery` and `attempt_curve` of histories against numbers that were worked out by hand."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Row as SparkRow

from redeliver_mw.pipeline.marts.attempt_curve import attempt_curve
from redeliver_mw.pipeline.marts.messages import messages
from redeliver_mw.pipeline.marts.recovery import recovery
from tests.pipeline.histories import DAY, NO_ERROR, SECOND, START, Row, events, history, row

US = 1e-6
FAILED, OK = "redelivered", "accepted"


def told(key: str, *attempts: tuple[float, str], **fields: object) -> list[Row]:
    return history(*attempts, message_key=key, **fields)


def verdict(key: str, at: float, reason: str, number: int, **fields: object) -> Row:
    """Return a record of a dead-lettering without a run; the error, if it has one, is the last failure's."""
    return row(at, "dead_lettered", message_key=key, reason=reason, delivery_count=number, handler_us=0, **fields)


ROWS = [
    *told("heals", (0, FAILED), (10, FAILED), (40, OK)),
    *told("never failed", (0, OK)),
    *told("only its success is told", (0, OK), delivery_count=3, broker_redelivered=True),
    *told("open", (0, FAILED), (10, "kept")),
    *told("dies", (0, FAILED), (10, "dead_lettered"), reason="exhausted"),
    *told("expires", (0, FAILED), (10, FAILED)),
    verdict("expires", 99, "expired", 2, **NO_ERROR),
    *told("expires with its old error", (0, FAILED)),
    verdict("expires with its old error", 99, "expired", 1, last_failure_us=START),
    *told("ends at its arrival", (0, FAILED), (10, FAILED)),
    verdict("ends at its arrival", 99, "exhausted", 2, last_failure_us=START + 10 * SECOND),
    row(
        99,
        "dead_lettered",
        message_key="is rejected, and told after a reconnect",
        reason="rejected",
        handler_us=0,
        last_failure_us=START,
    ),
    *told("is given back in between", (0, FAILED), (5, "released"), (10, OK)),
    *told("its process died with the count", (0, FAILED), (10, FAILED)),
    row(20, OK, message_key="its process died with the count", broker_redelivered=True),
    *told("its beginning is cut off", (10, FAILED), (40, OK), first_attempt_us=START - 100 * SECOND)[::-1],
    *told("its clock goes back", (10, FAILED), (0, FAILED), (40, OK)),
    *told("it heals before it fails", (10, FAILED), (5, OK)),
    *told("it fails after it healed", (0, FAILED), (10, OK), (20, FAILED)),
    *told("two generations", (0, FAILED), (10, "discarded")),
    *told("two generations", (20, FAILED), (30, OK), generation=1),
    *told("two queues", (0, FAILED), destination="a"),
    *told("two queues", (0, FAILED), destination="b"),
    *told("it is tried for ever", (0, FAILED), (1, FAILED), (2, FAILED)),
    row(3, FAILED, message_key="it is tried for ever", delivery_count=1_000),
    row(4, FAILED, message_key="it is tried for ever", delivery_count=1_001),
    row(5, OK, message_key="it is tried for ever", delivery_count=1_002),
]
for cut in (one for one in ROWS if one["message_key"] == "its beginning is cut off"):
    cut["delivery_count"] += 2


@pytest.fixture(scope="module")
def known(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    return messages(events(spark, ROWS, tmp_path_factory.mktemp("histories"))).localCheckpoint()


@pytest.fixture(scope="module")
def found(known: DataFrame) -> dict[str, list[SparkRow]]:
    rows: dict[str, list[SparkRow]] = {}
    for one in known.orderBy("generation", "destination").collect():
        rows.setdefault(one["message_key"], []).append(one)
    return rows


def one_of(found: dict[str, list[SparkRow]], key: str) -> dict[str, object]:
    [only] = found[key]
    since = {name: (only[name] - START) / SECOND for name in only.asDict() if name.endswith("_us") and only[name]}
    return only.asDict() | since | {"handler_us": only["handler_us"]}


# messages


def test_a_message_that_heals_has_its_numbers_and_times(found: dict[str, list[SparkRow]]) -> None:
    wanted = {
        "generation": 0,
        "destination": "orders",
        "broker": "b1",
        "outcome": OK,
        "fingerprint": "aa",
        "error_type": "ValueError",
        "attempts": 3,
        "failures": 2,
        "first_us": 0,
        "first_failure_us": 0,
        "last_failure_us": 10,
        "recovered_us": 40,
        "last_us": 40,
        "handler_us": 3_000,
    }
    got = one_of(found, "heals")
    assert {name: got[name] for name in wanted} == wanted


def test_its_history_is_in_order(found: dict[str, list[SparkRow]]) -> None:
    steps = [(one["attempt"], one["ts_us"] - START, one["outcome"]) for one in found["heals"][0]["history"]]
    assert steps == [(1, 0, FAILED), (2, 10 * SECOND, FAILED), (3, 40 * SECOND, OK)]


def test_messages_without_a_failure_are_not_among_them(found: dict[str, list[SparkRow]]) -> None:
    assert {"never failed", "only its success is told"}.isdisjoint(found)


@pytest.mark.parametrize(
    ("key", "outcome", "attempts", "failures"),
    [
        ("open", "kept", 2, 2),
        ("dies", "dead_lettered", 2, 2),
        ("expires", "dead_lettered", 2, 2),
        ("expires with its old error", "dead_lettered", 1, 1),
        ("ends at its arrival", "dead_lettered", 2, 2),
        ("is rejected, and told after a reconnect", "dead_lettered", 1, 1),
        ("is given back in between", OK, 2, 1),
        ("its process died with the count", OK, 3, 2),
    ],
)
def test_only_runs_of_the_handler_are_attempts(
    found: dict[str, list[SparkRow]], key: str, outcome: str, attempts: int, failures: int
) -> None:
    got = one_of(found, key)
    assert (got["outcome"], got["attempts"], got["failures"]) == (outcome, attempts, failures)
    assert len(found[key][0]["history"]) == attempts


def test_the_end_of_a_message_that_expired_is_its_last_time_and_reason(found: dict[str, list[SparkRow]]) -> None:
    got = one_of(found, "expires")
    assert (got["reason"], got["last_us"], got["last_failure_us"]) == ("expired", 99, 10)


def test_where_the_first_failure_is_cut_off_the_first_attempt_stands_for_it(found: dict[str, list[SparkRow]]) -> None:
    assert one_of(found, "its beginning is cut off")["first_failure_us"] == -100


def test_generations_and_queues_are_histories_of_their_own(found: dict[str, list[SparkRow]]) -> None:
    assert [(one["generation"], one["outcome"]) for one in found["two generations"]] == [(0, "discarded"), (1, OK)]
    assert [one["destination"] for one in found["two queues"]] == ["a", "b"]


def test_attempts_beyond_the_thousandth_are_counted_and_not_listed(found: dict[str, list[SparkRow]]) -> None:
    got = one_of(found, "it is tried for ever")
    assert (got["attempts"], got["failures"], got["recovered_us"], got["handler_us"]) == (6, 5, 5, 6_000)
    assert [one["attempt"] for one in found["it is tried for ever"][0]["history"]] == [1, 2, 3, 1_000]


# recovery


def intervals(spark: SparkSession, rows: list[Row], folder: Path) -> list[tuple[int, int | None, int]]:
    made = recovery(messages(events(spark, rows, folder)))
    return sorted((tuple(one) for one in made.select("lo_bin", "hi_bin", "n").collect()), key=str)


def test_each_message_lies_in_the_interval_between_its_last_failure_and_its_success(
    spark: SparkSession, tmp_path: Path
) -> None:
    # Below 256 us a bin is a microsecond.
    rows = [
        *told("a", (0, FAILED), (30 * US, FAILED), (100 * US, OK)),
        *told("b", (7, FAILED), (7 + 30 * US, FAILED), (7 + 100 * US, OK)),
        *told("at once", (0, FAILED), (100 * US, OK)),
        *told("dies", (0, FAILED), (30 * US, "dead_lettered")),
        *told("open", (0, FAILED), (40 * US, FAILED)),
        *told("kept", (0, "kept"), (50 * US, "kept")),
        *told("expires", (0, FAILED), (60 * US, FAILED)),
        verdict("expires", 9, "expired", 2, **NO_ERROR),
    ]
    assert intervals(spark, rows, tmp_path) == [
        (0, 100, 1),
        (30, 100, 2),
        (30, None, 1),
        (40, None, 1),
        (50, None, 1),
        (60, None, 1),
    ]


def test_bins_of_longer_times_are_those_of_their_first_eight_bits(spark: SparkSession, tmp_path: Path) -> None:
    # 10 s: 10_000_000 has 24 bits, 16 of them are left out: 16 * 128 + 152. 40 s: 18 are: 18 * 128 + 152.
    assert intervals(spark, told("a", (0, FAILED), (10, FAILED), (40, OK)), tmp_path) == [(2200, 2456, 1)]


@pytest.mark.parametrize("key", ["its clock goes back", "it heals before it fails", "it fails after it healed"])
def test_of_a_message_whose_times_cannot_be_trusted_nothing_is_known_and_it_is_counted(
    known: DataFrame, key: str
) -> None:
    [only] = recovery(known.where(f"message_key = '{key}'")).collect()
    assert (only["lo_bin"], only["hi_bin"], only["n"]) == (0, None, 1)


def test_every_message_is_counted_once(known: DataFrame) -> None:
    assert sum(one["n"] for one in recovery(known).collect()) == known.count()


def test_recovery_is_booked_on_the_day_and_the_policy_of_the_end(spark: SparkSession, tmp_path: Path) -> None:
    first, second = told("a", (-US, FAILED), (0, OK), policy_version="old")
    [only] = recovery(messages(events(spark, [first, second | {"policy_version": "new"}], tmp_path))).collect()
    assert (only["day"], only["policy_version"]) == (date(2026, 3, 2), "new")


# attempt_curve


def curve(spark: SparkSession, rows: list[Row], folder: Path) -> dict[tuple[str | None, int], tuple[int, int]]:
    found = attempt_curve(events(spark, rows, folder)).collect()
    return {(one["error_type"], one["attempt"]): (one["n"], one["n_accepted"]) for one in found}


def test_an_attempt_is_counted_by_what_the_message_failed_with_before(spark: SparkSession, tmp_path: Path) -> None:
    first, second, third = told("a", (0, FAILED), (1, FAILED), (2, OK))
    rows = [
        first | {"error_type": "Timeout"},
        second | {"error_type": "Value"},
        third,
        *told("b", (0, FAILED), (1, OK), error_type="Timeout"),
        *told("c", (0, OK)),
        *told("d", (0, OK)),
    ]
    assert curve(spark, rows, tmp_path) == {(None, 1): (4, 2), ("Timeout", 2): (2, 1), ("Value", 3): (1, 1)}


def test_a_verdict_without_a_run_is_no_attempt(spark: SparkSession, tmp_path: Path) -> None:
    rows = [row for row in ROWS if row["message_key"].startswith(("expires", "ends at"))]
    assert curve(spark, rows, tmp_path) == {(None, 1): (3, 0), ("ValueError", 2): (2, 0)}


def test_an_attempt_whose_failure_is_not_recorded_has_no_error_type(spark: SparkSession, tmp_path: Path) -> None:
    assert curve(spark, [row(0, OK, delivery_count=3)], tmp_path) == {(None, 3): (1, 1)}


def test_bounds_are_wilsons(spark: SparkSession, tmp_path: Path) -> None:
    # 5 of 10: Wilson (1927) as tables have it; 0 of 10: z^2 / (10 + z^2).
    rows = [one for n in range(10) for one in told(f"half {n}", (0, OK if n < 5 else FAILED))]
    rows += [one for n in range(10) for one in told(f"none {n}", (0, FAILED), destination="b")]
    half, none = attempt_curve(events(spark, rows, tmp_path)).orderBy("destination").collect()[::-1]
    assert (half["p_success"], round(half["wilson_lo"], 4), round(half["wilson_hi"], 4)) == (0.5, 0.2366, 0.7634)
    assert none["p_success"] == 0
    assert none["wilson_lo"] == pytest.approx(0, abs=1e-12)
    assert none["wilson_hi"] == pytest.approx(3.841458820694124 / 13.841458820694124)


def test_a_day_is_one_in_utc_whatever_the_sessions_time_zone(spark: SparkSession, tmp_path: Path) -> None:
    rows = [*told("a", (-US, OK)), *told("b", (0, OK)), *told("c", (DAY / SECOND - US, OK))]
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        found = attempt_curve(events(spark, rows, tmp_path)).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    assert {one["day"]: one["n"] for one in found} == {date(2026, 3, 1): 1, date(2026, 3, 2): 2}
