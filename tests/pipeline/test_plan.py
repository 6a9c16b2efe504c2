# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests plans made from a lake: which letters they have, in which order, and what is frozen."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from redeliver_mw.dead_letters.sending.batch_publisher import BatchAnswer
from redeliver_mw.errors import ConfigError
from redeliver_mw.pipeline import Lake, LakeError, Letter, Plan, plan, read_plan
from redeliver_mw.pipeline.plans.bucket_files import small_batches
from redeliver_mw.pipeline.plans.plan_dir import new_folder
from redeliver_mw.pipeline.replaying import registry
from redeliver_mw.pipeline.replaying.ledger import BucketAttempt
from tests.pipeline.drained import DAY, NOON, letter, put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LETTERS = [
    letter(f"d{n:03}", dead_us=NOON + n % 7, headers={"tenant": "acme" if n % 2 else "other"}) for n in range(300)
]
OTHERS = [
    letter("odd", body=b"\xff\xfe", dead_us=NOON + DAY, headers={"tenant": "o'neil\\"}),
    letter("topic", original_destination="topic:prices::audit", dead_us=NOON + DAY),
    letter("new", message_key="twice", dead_us=NOON + DAY),
    letter("old", message_key="twice", dead_us=NOON + DAY - 1),
    letter("tired", generation=5, dead_us=NOON + DAY),
    letter("stuck", problem="no dead letter: no original destination", original_destination="", dead_us=NOON + DAY),
    letter("empty", body=b"", dead_us=NOON + DAY),
    letter("bare", body=None, letter=None, dead_us=NOON + DAY),
]

IN_THE_BODY = "try_variant_get(try_parse_json(CAST(body AS STRING)), '$.order', 'double') > 0"


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Return a lake with all letters of `LETTERS` and `OTHERS`, which are of two days."""
    lake = Lake(tmp_path_factory.mktemp("stock") / "lake", create=True)
    put(lake, LETTERS + OTHERS)
    return lake


@pytest.fixture(scope="module")
def whole(spark: SparkSession, stock: Lake, tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """Return a plan of the whole lake, in four buckets."""
    return plan(spark, stock, tmp_path_factory.mktemp("plans") / "whole", buckets=4)


def rows_of(made: Plan) -> list[dict[str, Any]]:
    """Return the letters of a plan, bucket by bucket."""
    return [row for file in made.files for row in pq.read_table(os.path.join(made.folder, file.path)).to_pylist()]


def left_out(made: Plan) -> dict[str, tuple[str, str | None]]:
    table = pq.read_table(os.path.join(made.folder, "left_out.parquet"))
    return {row["dl_id"]: (row["why"], row["detail"]) for row in table.to_pylist()}


def ids(made: Plan) -> set[str]:
    return {row["dl_id"] for row in rows_of(made)}


def test_a_plan_has_each_letter_that_can_go_once_and_says_why_the_others_do_not(whole: Plan) -> None:
    given = {row["dl_id"] for row in LETTERS + OTHERS}
    assert left_out(whole) == {
        "old": ("superseded", "new"),
        "tired": ("lifetime", "replayed 5 times"),
        "stuck": ("problem", "no dead letter: no original destination"),
        "bare": ("problem", "its body was not kept"),
    }
    assert sorted(row["dl_id"] for row in rows_of(whole)) == sorted(given - left_out(whole).keys())
    assert whole.letters == len(given) - 4
    assert whole.left_out == {"lifetime": 1, "problem": 2, "superseded": 1}
    assert whole.destinations == {"orders": whole.letters - 1, "topic:prices::audit": 1}
    assert read_plan(whole.folder) == whole
    assert sorted(os.listdir(whole.folder)) == ["left_out.parquet", "letters", "plan.json"]


def test_a_letter_goes_into_a_plan_byte_for_byte(whole: Plan) -> None:
    rows = {row["dl_id"]: row for row in rows_of(whole)}
    for given in LETTERS + OTHERS:
        if found := rows.get(given["dl_id"]):
            same = ("body", "body_sha256", "letter", "dlq", "broker", "dialect", "generation", "dead_us", "message_key")
            assert {name: found[name] for name in same} == {name: given[name] for name in same}
            assert (found["edits"], found["edited_body"]) == (None, False)


def test_ranks_count_all_letters_and_a_first_part_of_them_is_a_first_part_of_each_bucket(whole: Plan) -> None:
    rows = rows_of(whole)
    assert sorted(row["rank"] for row in rows) == list(range(whole.letters))
    assert len(whole.files) == 4
    for file in whole.files:
        found = pq.read_table(os.path.join(whole.folder, file.path), columns=["position", "rank"]).to_pylist()
        assert [row["position"] for row in found] == list(range(file.rows))
        assert [row["rank"] for row in found] == sorted(row["rank"] for row in found)
        first = sum(row["rank"] < 100 for row in found)  # of 304, in four buckets: 25 each, more or less
        assert 8 <= first <= 50


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"where": "body_bytes = 0 AND body IS NOT NULL"}, {"empty"}),
        ({"headers": {"tenant": "o'neil\\"}}, {"odd"}),
        ({"destinations": ["prices"]}, {"topic"}),
        ({"where": f"dl_id <= 'd003' AND {IN_THE_BODY}", "headers": {"tenant": "acme"}}, {"d001", "d003"}),
        ({"since": NOON + DAY, "destinations": ["queue:orders"], "min_attempts": 7}, {"odd", "new", "empty"}),
    ],
)
def test_what_is_asked_for_is_what_is_planned(
    spark: SparkSession, stock: Lake, tmp_path: Path, asked: dict[str, Any], expected: set[str]
) -> None:
    made = plan(spark, stock, tmp_path / "plan", **asked)
    assert ids(made) == expected
    assert json.loads(Path(made.folder, "plan.json").read_text())["where"] == made.where


def test_a_transform_changes_what_it_can_and_what_it_raises_is_counted_and_reported(
    spark: SparkSession, stock: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mending.py").write_text(
        "def repair(letter):\n"
        "    if letter.dl_id == 'd000':\n"
        "        return None\n"
        "    return letter.changed(json=letter.json() | {'id': letter.dl_id}, headers={'x-fixed': '1'})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    where = "dl_id IN ('d000', 'd001', 'd002', 'odd', 'empty')"
    made = plan(spark, stock, tmp_path / "plan", where=where, transform="mending:repair", edits=["to=fixed"])
    rows = {row["dl_id"]: row for row in rows_of(made)}
    assert {dl_id: json.loads(row["body"]) for dl_id, row in rows.items()} == {
        "d001": {"order": 1, "id": "d001"},
        "d002": {"order": 1, "id": "d002"},
    }
    assert {row["edits"] for row in rows.values()} == {'{"headers": {"x-fixed": "1"}}'}
    assert made.destinations == {"fixed": 2}
    assert made.left_out == {"failed": 2, "transform": 1}
    assert [dl_id for dl_id, _ in made.errors] == ["empty", "odd"]
    assert "JSONDecodeError" in made.errors[0][1]
    assert (made.transform, made.edits) == ("mending:repair", ("to=fixed",))


def test_a_transform_that_answers_differently_each_time_is_asked_once_a_letter(
    spark: SparkSession, stock: Lake, tmp_path: Path
) -> None:
    def mark(one: Letter) -> Letter:
        import uuid

        unique = uuid.uuid4().hex
        return one.changed(body=unique, headers={"mark": unique})

    made = plan(spark, stock, tmp_path / "plan", where="rand() < 0.5", transform=mark)
    rows = rows_of(made)
    assert len(rows) == made.letters
    assert 0 < made.letters < 304
    assert all(json.loads(row["edits"]) == {"headers": {"mark": row["body"].decode()}} for row in rows)


def test_in_an_ordered_plan_a_group_keeps_its_order_and_waits_behind_what_cannot_go(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    put(lake, [letter(f"a{n}", group_id="a", dead_us=NOON + 10 - n) for n in range(10)])
    put(lake, [letter(f"b{n}", group_id="b", dead_us=NOON + n, problem="no" if n == 3 else None) for n in range(6)])
    put(lake, [letter(f"c{n}") for n in range(90)])
    made = plan(spark, lake, tmp_path / "plan", ordered=True, buckets=3)
    rows = rows_of(made)
    assert [row["dl_id"] for row in rows if row["group_id"] == "a"] == [f"a{n}" for n in reversed(range(10))]
    assert [row["dl_id"] for row in rows if row["group_id"] == "b"] == ["b0", "b1", "b2"]
    assert left_out(made) == {"b3": ("problem", "no"), "b4": ("behind", "b3"), "b5": ("behind", "b3")}


def test_what_a_replay_has_confirmed_is_not_planned_again(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    put(lake, [letter(f"d{n}") for n in range(6)])
    first = plan(spark, lake, tmp_path / "first", buckets=1)
    registry.register(first, NOON)
    sent = [row["dl_id"] for row in rows_of(first)]
    one = BucketAttempt(first.folder, first.plan_id, 0, "run")
    one.intend({0, 1, 2})
    one.answer(BatchAnswer(confirmed={0, 1}, refused={2: "no room"}))
    one.close()
    again = letter("again", message_key=f"key-{sent[0]}", generation=1, dead_us=NOON + DAY)
    put(lake, [again, letter("copy", message_key=f"key-{sent[1]}", dead_us=NOON + DAY)])
    second = plan(spark, lake, tmp_path / "second")
    assert left_out(second) == {sent[0]: ("replayed", None), sent[1]: ("replayed", None), "copy": ("replayed", None)}
    assert ids(second) == {*sent[2:], "again"}
    Path(first.folder, "plan.json").unlink()
    with pytest.raises(LakeError, match="this plan was replayed and is gone"):
        plan(spark, lake, tmp_path / "third")


def test_a_lake_without_letters_gives_a_plan_without_letters(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    put(lake, [letter("one", problem="no")])
    made = plan(spark, lake, tmp_path / "plan")
    assert (made.letters, made.files, made.left_out) == (0, (), {"problem": 1})
    assert read_plan(made.folder) == made


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("nothing = 1", r"there is no column `nothing`\. Columns are dl_id, message_key"),
        ("failures >", "no condition: Syntax error"),
        ("failures", "no condition: .*not a boolean"),
        ("count(*) > 1", "no condition: "),
        (" ", "an empty condition"),
        ("CAST(headers['tenant'] AS INT) > 1", r"a value that it cannot bear.*Use try_cast"),
    ],
)
def test_a_condition_that_means_nothing_is_one_error_and_leaves_no_folder(
    spark: SparkSession, stock: Lake, tmp_path: Path, where: str, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match=told) as raised:
        plan(spark, stock, tmp_path / "plan", where=where)
    assert "--where" in raised.value.where
    assert not (tmp_path / "plan").exists()
    assert "Traceback" not in capfd.readouterr().err


def test_a_plan_is_never_written_over_and_other_things_are_left_alone(
    spark: SparkSession, stock: Lake, whole: Plan, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"a plan is here, and stays as it is"):
        plan(spark, stock, whole.folder)
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"other things are here: thesis\.txt"):
        plan(spark, stock, tmp_path)
    with pytest.raises(ConfigError, match="it is no folder"):
        plan(spark, stock, tmp_path / "thesis.txt")
    assert read_plan(whole.folder) == whole


def test_two_makers_of_one_plan_do_not_mix(tmp_path: Path) -> None:
    inside, over = threading.Event(), threading.Event()

    def hold() -> None:
        with new_folder(tmp_path / "plan"):
            inside.set()
            over.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert inside.wait(60)
        with pytest.raises(LakeError, match="is at work on its plan"), new_folder(tmp_path / "plan"):
            pass
    finally:
        over.set()
        holder.join()


def test_what_a_maker_left_that_was_killed_is_removed_by_the_next(tmp_path: Path) -> None:
    for name in ("_work/decided/part.parquet", "letters/bucket-00000.parquet", "left_out.parquet", "_plan.lock"):
        (tmp_path / "plan" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "plan" / name).write_bytes(b"half")
    with new_folder(tmp_path / "plan") as files:
        assert [entry.name for entry in files.entries()] == ["_plan.lock"]


def test_the_settings_of_the_session_are_changed_for_a_plan_only(spark: SparkSession) -> None:
    name = "spark.sql.execution.arrow.maxBytesPerBatch"
    before = spark.conf.get(name)
    with small_batches(spark):
        assert spark.conf.get(name) == str(32 << 20)
    assert spark.conf.get(name) == before
