# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests plans that leave the bodies in the lake: what they show, and what a replay gets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from redeliver_mw.cli.main import run
from redeliver_mw.errors import ConfigError
from redeliver_mw.pipeline import Lake, Letter, Plan, plan, read_plan
from redeliver_mw.pipeline.lake.retention import forget
from redeliver_mw.pipeline.replaying.body_lookup import borrowed, lent
from tests.pipeline.drained import letter, put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SECRET = "4111 1111 1111 1111"
LETTERS = [letter(f"d{n:03}", body=f'{{"order":{n},"card":"{SECRET}"}}'.encode(), letter=b"head") for n in range(200)]
BODIES = {row["dl_id"]: row["body"] for row in LETTERS}


def without_card(one: Letter) -> str | None:
    order = one.json()["order"]
    if order == 7:
        raise ValueError("an order that nobody can redact")
    return None if order == 8 else one.text.replace(SECRET, "***")


@pytest.fixture
def stock(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path / "lake", create=True)
    put(lake, LETTERS)
    return lake


def rows_of(made: Plan) -> dict[str, dict[str, Any]]:
    found = [row for file in made.files for row in pq.read_table(os.path.join(made.folder, file.path)).to_pylist()]
    return {row["dl_id"]: row | {"bucket": file.bucket} for row, file in zip(found, _files(made), strict=True)}


def _files(made: Plan) -> list[Any]:
    return [file for file in made.files for _ in range(file.rows)]


def test_a_plan_without_bodies_has_their_hashes_and_nothing_else_of_them(
    spark: SparkSession, stock: Lake, tmp_path: Path
) -> None:
    made = plan(spark, stock, tmp_path / "plan", bodies=False, edits=["header.repaired=1"])
    assert (made.bodies, made.redact, made.letters) == ("lake", None, 200)
    assert read_plan(made.folder) == made
    for row, given in zip(sorted(rows_of(made).values(), key=lambda row: row["dl_id"]), LETTERS, strict=True):
        assert (row["body"], row["letter"], row["body_sha256"]) == (None, None, given["body_sha256"])
        assert row["edits"] == '{"headers": {"repaired": "1"}}'


def test_a_redacted_plan_shows_what_the_function_gives_and_nothing_where_it_fails(
    spark: SparkSession, stock: Lake, tmp_path: Path
) -> None:
    made = plan(spark, stock, tmp_path / "plan", redact=without_card)
    assert (made.bodies, made.letters, made.left_out) == ("lake", 200, {})
    shown = {dl_id: row["body"] for dl_id, row in rows_of(made).items()}
    assert shown == {f"d{n:03}": None if n in (7, 8) else b'{"order":%d,"card":"***"}' % n for n in range(200)}


def test_a_replay_borrows_bodies_as_they_are_in_the_lake_and_gives_them_back(
    spark: SparkSession, stock: Lake, tmp_path: Path
) -> None:
    made = plan(spark, stock, tmp_path / "plan", redact=without_card, buckets=3)
    rows = rows_of(made)
    with lent(spark, made) as folder:
        assert folder.startswith(stock.root)
        for file in made.files:
            whole = borrowed(folder, file.bucket)
            # Some were confirmed by a run before, and are not asked for.
            asked = [row for row in rows.values() if row["bucket"] == file.bucket and row["position"] % 3]
            for row in sorted(asked, key=lambda row: row["position"]):
                assert whole(row) == row | {"body": BODIES[row["dl_id"]], "letter": b"head"}
    assert not os.path.exists(folder)


def test_what_the_lake_has_forgotten_or_has_otherwise_is_not_lent(
    spark: SparkSession, stock: Lake, tmp_path: Path
) -> None:
    made = plan(spark, stock, tmp_path / "plan", bodies=False, buckets=1)
    with lent(spark, made) as folder:
        row = next(row for row in rows_of(made).values() if row["position"] == 0)
        assert borrowed(folder, 0)(row | {"body_sha256": "0" * 64})["body"] is None
    assert forget(stock, "2026-12-31", bodies_only=True, execute=True).letters == 200
    with lent(spark, made) as folder:
        whole = borrowed(folder, 0)
        rows = sorted(rows_of(made).values(), key=lambda row: row["position"])
        assert [whole(row)["body"] for row in rows] == [None] * 200


def test_a_body_that_is_edited_has_to_be_in_the_plan(spark: SparkSession, stock: Lake, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="an edited body is nowhere but in the plan"):
        plan(spark, stock, tmp_path / "plan", bodies=False, edits=["body.card=none"])
    assert not (tmp_path / "plan").exists()
    made = plan(spark, stock, tmp_path / "plan", bodies=False, transform=lambda one: one.changed(body=b"none"))
    assert (made.letters, made.left_out) == (0, {"failed": 200})
    assert made.errors[0][1] == "ValueError: its body was changed, and the plan holds no bodies"


def test_a_redaction_that_cannot_be_had_is_reported_before_spark_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", "plan", str(tmp_path / "lake"), str(tmp_path / "plan"), "--redact", "nowhere:hide"]) == 2
    assert "--redact nowhere:hide: there is no module 'nowhere'" in capsys.readouterr().err
