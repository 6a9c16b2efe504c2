# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests `poison`, `waste`, `dead_letter_flow` and `fingerprints` against numbers that were worked out by hand."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import Row as SparkRow
from pyspark.sql import SparkSession

from redeliver_mw.pipeline.marts.dead_letter_flow import dead_letter_flow
from redeliver_mw.pipeline.marts.fingerprints import fingerprints
from redeliver_mw.pipeline.marts.messages import messages
from redeliver_mw.pipeline.marts.poison import poison
from redeliver_mw.pipeline.marts.waste import waste
from tests.pipeline.histories import DAY, NO_ERROR, SECOND, START, Row, events, history, row

FAILED, DEAD, OK = "redelivered", "dead_lettered", "accepted"


def told(key: str, *attempts: tuple[float, str], **fields: object) -> list[Row]:
    return history(*attempts, message_key=key, **fields)


# poison

LIVES: dict[str, tuple[str | None, list[Row]]] = {
    "dies once": ("dead", told("", (0, FAILED), (1, DEAD))),
    "is discarded": ("dead", told("", (0, "discarded"))),
    "expires before it was ever run": ("dead", [row(0, "discarded", reason="expired", handler_us=0, **NO_ERROR)]),
    "dies in two queues": ("dead", [*told("", (0, DEAD)), *told("", (0, DEAD), destination="b")]),
    "dies twice": ("poison", [*told("", (0, DEAD)), *told("", (9, FAILED), (10, DEAD), generation=1)]),
    "kills its process": ("poison", told("", (0, FAILED), (1, DEAD), reason="crashed")),
    "heals when it is replayed": ("healed", [*told("", (0, DEAD)), *told("", (9, OK), generation=1)]),
    "heals after two deaths": (
        "healed",
        [*told("", (0, DEAD)), *told("", (1, DEAD), generation=1), *told("", (2, FAILED), (3, OK), generation=2)],
    ),
    "heals by a clock that went back": ("healed", [*told("", (50, DEAD)), *told("", (9, OK), generation=1)]),
    "is replayed and fails again": ("open", [*told("", (0, DEAD)), *told("", (9, FAILED), generation=1)]),
    "was accepted elsewhere before": ("dead", [*told("", (0, OK), destination="b"), *told("", (9, DEAD))]),
    "never dies": (None, told("", (0, FAILED), (1, OK))),
}


@pytest.fixture(scope="module")
def poisoned(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, SparkRow]:
    rows = [one | {"message_key": key} for key, (_, life) in LIVES.items() for one in life]
    found = poison(events(spark, rows, tmp_path_factory.mktemp("poison"))).collect()
    assert len({one["message_key"] for one in found}) == len(found)
    return {one["message_key"]: one for one in found}


@pytest.mark.parametrize("key", LIVES)
def test_a_verdict_says_what_became_of_a_message(poisoned: dict[str, SparkRow], key: str) -> None:
    assert (poisoned[key]["verdict"] if key in poisoned else None) == LIVES[key][0]


def test_attempts_and_times_are_those_of_all_its_lives(poisoned: dict[str, SparkRow]) -> None:
    one = poisoned["heals after two deaths"]
    assert (one["attempts"], one["first_us"], one["last_us"], one["replays"]) == (4, START, START + 3 * SECOND, 2)
    assert poisoned["expires before it was ever run"]["attempts"] == 0
    assert poisoned["expires before it was ever run"]["fingerprint"] is None


# waste


def test_waste_is_what_was_spent_on_messages_that_died_on_the_day_it_was_spent(
    spark: SparkSession, tmp_path: Path
) -> None:
    day = DAY / SECOND
    rows = [
        *told("dies", (0, FAILED), (1, FAILED), (day, DEAD), handler_us=500),
        *told("heals", (0, FAILED), (1, OK), handler_us=10_000),
        *told("is open", (0, FAILED), (1, FAILED), handler_us=10_000),
    ]
    found = waste(messages(events(spark, rows, tmp_path))).orderBy("day").collect()
    # Of four second attempts one succeeded; the one third attempt did not.
    assert [tuple(one) for one in found] == [
        (date(2026, 3, 2), "orders", "aa", 2, 1_000, 0),
        (date(2026, 3, 3), "orders", "aa", 1, 500, 1),
    ]


def test_retries_are_hopeless_from_where_on_fewer_than_one_in_a_hundred_succeed(
    spark: SparkSession, tmp_path: Path
) -> None:
    def crowd(queue: str, size: int) -> list[Row]:
        """Return records of `size` messages; one recovers at its third attempt, one is dead-lettered at its fourth."""
        rows = [one for n in range(size - 2) for one in told(f"{n}", (0, FAILED), (1, FAILED), (2, FAILED))]
        rows += told("heals", (0, FAILED), (1, FAILED), (2, OK))
        rows += told("dies", (0, FAILED), (1, FAILED), (2, FAILED), (3, DEAD))
        return [one | {"destination": queue} for one in rows]

    found = waste(messages(events(spark, crowd("a", 100) + crowd("b", 101), tmp_path))).orderBy("destination").collect()
    # One of 100 third attempts is enough to hope until then; one of 101 is not, and no first attempt is hopeless.
    assert [(one["destination"], one["attempts"], one["hopeless_attempts"]) for one in found] == [
        ("a", 4, 1),
        ("b", 4, 3),
    ]


def test_attempts_beyond_the_thousandth_are_wasted_too_at_the_end(spark: SparkSession, tmp_path: Path) -> None:
    day = DAY / SECOND
    rows = told("a", (0, FAILED), (1, FAILED))
    rows += [
        row(2, FAILED, message_key="a", delivery_count=1_001),
        row(day, DEAD, message_key="a", delivery_count=1_002),
    ]
    found = waste(messages(events(spark, rows, tmp_path))).orderBy("day").collect()
    assert [tuple(one)[3:] for one in found] == [(2, 2_000, 1), (2, 2_000, 2)]


# dead_letter_flow


def test_deaths_come_in_and_replays_go_out_under_the_reason_of_the_death_before(
    spark: SparkSession, tmp_path: Path
) -> None:
    day = DAY / SECOND
    rows = [
        *told("a", (0, FAILED), (1, DEAD), reason="exhausted"),
        *told("a", (day, FAILED), (day + 1, "discarded"), reason="fatal", generation=1),
        *told("a", (2 * day, OK), generation=2),
        *told("nobody saw it die", (2 * day, OK), generation=1),
        row(0, DEAD, message_key="b", reason="expired", handler_us=0, **NO_ERROR),
        row(9, DEAD, message_key="c", reason="expired", handler_us=0, **NO_ERROR),
    ]
    found = dead_letter_flow(events(spark, rows, tmp_path)).orderBy("day", "reason").collect()
    assert [(one["day"].day, one["reason"], one["in"], one["out"], one["oldest_us"]) for one in found] == [
        (2, "exhausted", 1, 0, None),
        (2, "expired", 2, 0, START),  # two letters still wait; `a` was sent back, and then discarded
        (3, "exhausted", 0, 1, None),
        (3, "fatal", 1, 0, None),
        (4, None, 0, 1, None),
        (4, "fatal", 0, 1, None),
    ]


# fingerprints


def test_a_fingerprint_is_shown_by_its_first_failure(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        row(5, FAILED, error_fingerprint="f1", error_message="later"),
        row(1, FAILED, error_fingerprint="f1", error_message="first " + "x" * 600),
        row(9, "accepted", error_fingerprint="f1", error_type="ValueError", error_message="ignored"),
        row(2, FAILED, error_fingerprint="f2", error_type="KeyError", error_message=None),
        row(2, FAILED, error_fingerprint=None),
    ]
    first, second = fingerprints(events(spark, rows, tmp_path)).orderBy("fingerprint").collect()
    assert first["example"] == "ValueError: first " + "x" * 482
    assert (first["n"], first["first_us"], first["last_us"]) == (2, START + SECOND, START + 5 * SECOND)
    assert (second["fingerprint"], second["group"], second["example"]) == ("f2", "f2", "KeyError")


def test_fingerprints_that_are_nearly_the_same_have_one_group(spark: SparkSession, tmp_path: Path) -> None:
    frames = [f"shop.step{n}:run" for n in range(12)]
    rows = [
        row(1, FAILED, error_fingerprint="f2", error_frames=frames),
        # One that was told after a reconnect has no frames; those of another record do.
        row(0, FAILED, error_fingerprint="f1", error_frames=[]),
        row(3, FAILED, error_fingerprint="f1", error_frames=[*frames[:-1], "shop.other:run"]),
        row(4, FAILED, error_fingerprint="f3", error_frames=frames, error_type="KeyError"),
    ]
    found = fingerprints(events(spark, rows, tmp_path)).collect()
    assert {one["fingerprint"]: one["group"] for one in found} == {"f1": "f1", "f2": "f1", "f3": "f3"}
