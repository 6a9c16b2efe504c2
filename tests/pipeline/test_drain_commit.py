# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the way from staging files to the table: each letter is there once, whichever process dies and when.

The files are real; there is no Spark and no broker.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import proton
import pytest

from redeliver_mw.pipeline import Lake, LakeError
from redeliver_mw.pipeline.draining import commit, manifests
from redeliver_mw.pipeline.draining.commit import gather, gather_looked
from redeliver_mw.pipeline.draining.staging import LOOKED, STAGING, TABLE, batches
from redeliver_mw.pipeline.lake.retention import forget
from redeliver_mw.pipeline.plans.selection import condition
from tests.disks import fill, small_disk_at
from tests.pipeline.letters import DIED_US, OURS, Task, gathered, ids, letter, table

BODY = b"\x00\xff no text"


# -- a row -----------------------------------------------------------------------------------------


def test_a_letter_of_ours_is_a_row_with_all_that_it_says(lake: Lake) -> None:
    Task(lake).keep(letter(BODY, {"tenant": "a"}, copy_id="c1", message_id="m1", content_type="x/y"), sure=True)
    assert gathered(lake) == (1, 0)
    assert table(lake, "dl_id, message_key, original_destination, dlq, broker, dialect, owner, source") == [
        ("c1", "L", "orders", "DLQ.orders", "host:5672/", "rabbitmq+pika", "lake", "dlq")
    ]
    assert table(lake, "dead_us, failures, error_type, reason, generation, problem, headers['tenant']") == [
        (DIED_US, 3, "ValueError", "exhausted", 1, None, "a")
    ]
    assert table(lake, "body, body_sha256, body_bytes, content_type, message_id") == [
        (BODY, hashlib.sha256(BODY).hexdigest(), len(BODY), "x/y", "m1")
    ]
    days = [entry.name for entry in lake.files.entries("dead_letters") if entry.name.startswith("dt=")]
    assert days == ["dt=2026-11-29"]


def test_a_letter_that_nobody_can_send_back_is_kept_with_its_problem(lake: Lake) -> None:
    Task(lake).keep(letter(BODY), sure=True)
    gathered(lake)
    assert table(lake, "original_destination, problem, owner") == [
        ("", "no dead letter: no original destination", "lake")
    ]


def test_numbers_of_amqp_are_written_as_numbers(lake: Lake) -> None:
    headers = {"a": proton.int32(8), "b": proton.ulong(9), "c": proton.float32(0.5), "d": proton.symbol("s")}
    Task(lake).keep(letter(BODY, headers), sure=True)
    gathered(lake)
    assert table(lake, "headers['a'], headers['b'], headers['c'], headers['d']") == [("8", "9", "0.5", "s")]


def test_lists_and_tables_of_amqp_are_written_without_their_classes(lake: Lake) -> None:
    headers = {
        "list": [proton.ulong(9), proton.symbol("s"), [proton.ubyte(2), b"\xff"]],
        "map": {proton.symbol("k"): proton.float32(0.5), "none": None},
    }
    Task(lake).keep(letter(BODY, headers), sure=True)
    gathered(lake)
    assert table(lake, "headers['list'], headers['map']") == [
        ('[9, "s", [2, "\\\\xff"]]', '{"k": 0.5, "none": null}'),
    ]


def test_a_plan_asks_for_a_number_of_amqp_by_its_digits(lake: Lake) -> None:
    for number, value in enumerate((proton.int32(8), proton.ulong(8), proton.ubyte(9), "8")):
        Task(lake, f"run-{number}").keep(letter(BODY, {"x-int": value}, message_id=str(number)), sure=True)
    gathered(lake)
    assert condition(headers={"x-int": "8"}) == "headers['x-int'] = '8'"
    assert table(lake, "headers['x-int']") == [("8",), ("8",), ("8",), ("9",)]


def test_values_that_are_no_text_are_written_as_text(lake: Lake) -> None:
    headers = {"n": 1, "raw": b"\xff", "list": [1, {"a": b"b"}], "none": None, "yes": True}
    Task(lake).keep(letter(BODY, headers), sure=True)
    gathered(lake)
    shown = "map_extract(headers, 'n')[1], headers['raw'], headers['list'], headers['none'], headers['yes']"
    assert table(lake, shown) == [("1", "\\xff", '[1, {"a": "b"}]', "None", "True")]


def test_what_makes_an_id_tells_letters_apart_and_is_the_same_each_time(lake: Lake, tmp_path: Path) -> None:
    letters = [letter(b"a", message_id="1"), letter(b"a", message_id="2"), letter(b"b", message_id="1"), letter(b"a")]
    Task(lake).keep(*letters, sure=True)
    gathered(lake)
    other = Lake(tmp_path / "other", create=True)
    Task(other, "another-run").keep(*reversed(letters), sure=True)
    gathered(other)
    assert ids(lake) == ids(other)
    assert len(set(ids(lake))) == 4


# -- once ------------------------------------------------------------------------------------------


def test_a_second_genuine_death_is_another_letter(lake: Lake) -> None:
    Task(lake).keep(letter(b"a", message_id="1"), letter(b"a", message_id="1"), sure=True)
    gathered(lake)
    Task(lake, "later").keep(letter(b"a", message_id="1", redelivered=True), sure=True)
    assert gathered(lake) == (1, 0)
    first = ids(lake)[0]
    assert ids(lake) == [first, f"{first}-2", f"{first}-3"]


def test_what_came_back_after_a_kill_is_in_the_table_once(lake: Lake) -> None:
    """The first task died before its batch was off the queue; another task then has the letters."""
    Task(lake).keep(letter(b"a", message_id="1"), letter(b"b", message_id="2"))
    Task(lake).keep(letter(b"b", message_id="2", redelivered=True), letter(b"c", message_id="3"), sure=True)
    assert gathered(lake) == (3, 1)
    assert sorted(table(lake, "body")) == [(b"a",), (b"b",), (b"c",)]


def test_what_comes_back_in_a_later_run_is_in_the_table_once(lake: Lake) -> None:
    Task(lake).keep(letter(b"a", message_id="1"), letter(b"b", message_id="2"))
    assert gathered(lake) == (2, 0)
    Task(lake, "later").keep(letter(b"a", message_id="1", redelivered=True), sure=True)
    assert gathered(lake) == (0, 1)
    assert len(ids(lake)) == 2


def test_once_the_queue_was_seen_empty_nothing_comes_back_any_more(lake: Lake) -> None:
    Task(lake).keep(letter(b"a", message_id="1"))
    assert gathered(lake, seen_empty="host:5672/ DLQ.orders") == (1, 0)
    Task(lake, "later").keep(letter(b"a", message_id="1", redelivered=True), sure=True)
    assert gathered(lake) == (1, 0)
    assert len(ids(lake)) == 2


def test_a_queue_seen_empty_ends_its_doubts_without_a_letter(lake: Lake) -> None:
    Task(lake).keep(letter(b"a", message_id="1"))
    gathered(lake)
    gathered(lake, seen_empty="host:5672/ DLQ.orders")
    Task(lake, "later").keep(letter(b"a", message_id="1", redelivered=True), sure=True)
    assert gathered(lake) == (1, 0)


def test_a_copy_that_was_sent_twice_is_one_letter(lake: Lake) -> None:
    Task(lake).keep(letter(b"a", copy_id="c1"), letter(b"a", copy_id="c1"), letter(b"b", copy_id="c1"), sure=True)
    assert gathered(lake) == (2, 1)
    assert ids(lake) == ["c1", "c1-2"]


def test_copies_that_a_broker_dead_lettered_may_share_an_id_and_are_all_there(lake: Lake) -> None:
    """A handler has forwarded all headers of its message to several queues, from which they were rejected."""
    death = {"x-first-death-queue": "audit", "x-first-death-reason": "rejected", "redeliver_copy_id": "c1"}
    Task(lake).keep(letter(b"a", death, message_id="1"), letter(b"a", death, message_id="2"), sure=True)
    assert gathered(lake) == (2, 0)
    assert ids(lake) == ["c1", "c1-2"]


# -- all or nothing --------------------------------------------------------------------------------


def test_nothing_staged_is_nothing_to_do(lake: Lake) -> None:
    assert gathered(lake) == (0, 0)
    assert lake.files.entries("dead_letters/_manifests") == []


def test_staging_is_gone_once_it_is_in_the_table(lake: Lake) -> None:
    Task(lake).keep(letter(b"a", message_id="1"))
    gathered(lake)
    assert lake.files.entries(STAGING) == []


@pytest.mark.parametrize("whole", [True, False])
def test_a_batch_that_was_torn_by_a_kill_is_gone_after_the_next_drain(whole: bool, lake: Lake) -> None:
    Task(lake).keep(letter(b"secret", message_id="1"))
    (batch,) = batches(lake.files)
    path = Path(lake.files.url(batch.path))
    content = path.read_bytes()
    path.rename(path.with_name(f"_0a1b2c3d-{path.name}"))
    path.with_name(f"_0a1b2c3d-{path.name}").write_bytes(content if whole else content[: len(content) // 2])
    Task(lake).keep(letter(b"other", message_id="2"))
    assert gathered(lake) == (1, 0)
    assert [str(found) for found in Path(lake.root).rglob("_*.parquet")] == []
    assert lake.files.entries(STAGING) == []


@pytest.mark.parametrize("torn", [True, False])
@pytest.mark.parametrize("way", ["drain", "forget"])
def test_what_a_killed_look_has_copied_is_gone_after_the_next_drain_or_forgetting(
    way: str, torn: bool, lake: Lake
) -> None:
    Task(lake, owner="broker").keep(letter(b"secret", message_id="1"))
    (path,) = Path(lake.files.url(LOOKED)).glob("*/*.parquet")
    if torn:
        path.rename(path.with_name(f"_0a1b2c3d-{path.name}"))
    if way == "drain":
        assert gathered(lake) == (0, 0)
    else:
        forget(lake, "2026-11-30", execute=True)
    assert list(Path(lake.root).rglob("*.parquet")) == []


def test_forgetting_takes_what_a_drain_that_died_has_staged_with_it(lake: Lake) -> None:
    Task(lake).keep(letter(b"staged", OURS, message_id="1"))
    found = forget(lake, "2026-11-30")
    assert (found.letters, found.staged, len(batches(lake.files))) == (0, 1, 1)
    found = forget(lake, "2026-11-30", execute=True)
    assert (found.letters, found.staged) == (1, 0)
    assert batches(lake.files) == []
    assert list(Path(lake.root).rglob("*.parquet")) == []


def test_who_dies_between_the_manifest_and_the_cleaning_up_has_done_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    Task(lake).keep(letter(b"a", message_id="1"))
    with monkeypatch.context() as patched:
        patched.setattr(commit, "remove", lambda files, found: None)
        gathered(lake)
    assert len(batches(lake.files)) == 1
    assert gathered(lake) == (0, 0)
    assert (batches(lake.files), len(ids(lake))) == ([], 1)


def test_who_dies_before_the_manifest_has_done_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    Task(lake).keep(letter(b"a", message_id="1"))

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(lake.files, "publish", dies)
        patched.setattr(manifests, "_remove", lambda files, run: None)
        with pytest.raises(KeyboardInterrupt):
            gathered(lake)
    assert len(list(Path(lake.root).rglob("dt=*/run=*/*.parquet"))) == 1
    assert gathered(lake) == (1, 0)
    assert len(list(Path(lake.root).rglob("dt=*/run=*/*.parquet"))) == 1


def test_a_task_that_outlives_its_driver_loses_nothing(lake: Lake) -> None:
    """The task stages one more batch, and is sure of the batch before only when that batch has been gathered."""
    alive = Task(lake)
    alive.keep(letter(b"a", message_id="1"))
    gathered(lake)
    alive.keep(letter(b"b", message_id="2"))
    alive.stage.sure(2)
    assert gathered(lake) == (1, 0)
    assert sorted(table(lake, "body")) == [(b"a",), (b"b",)]


def test_a_full_disk_leaves_what_was_staged(tmp_path: Path) -> None:
    with small_disk_at(tmp_path / "disk", "512k") as disk:
        lake = Lake(disk / "lake", create=True)
        Task(lake).keep(letter(os.urandom(60_000), message_id="1"))
        with lake.locked(TABLE):
            with pytest.raises(OSError, match="No space left"):
                fill(disk / "ballast")
            with pytest.raises(LakeError, match="the disk is full") as refused:
                gather(lake)
        assert f"1 letter taken off the queue lie in {lake.files.url(STAGING)}" in str(refused.value)
        assert "the next drain puts them into the table" in refused.value.cure
        assert "the lake is as it was" not in str(refused.value)
        (disk / "ballast").unlink()
        assert gathered(lake) == (1, 0)


def test_a_full_disk_keeps_nothing_of_a_batch(tmp_path: Path) -> None:
    with small_disk_at(tmp_path / "disk", "512k") as disk:
        lake = Lake(disk / "lake", create=True)
        task = Task(lake)
        task.keep(letter(b"a", message_id="1"), sure=True)
        with pytest.raises(OSError, match="No space left"):
            task.keep(letter(os.urandom(700_000), message_id="2"))
        assert gathered(lake) == (1, 0)


def test_a_damaged_manifest_is_named_and_nothing_is_counted_without_it(lake: Lake) -> None:
    Task(lake).keep(letter(b"a", message_id="1"))
    gathered(lake)
    (manifest,) = Path(lake.root, "dead_letters/_manifests").glob("*.json")
    manifest.write_text(manifest.read_text()[:-5])
    Task(lake, "later").keep(letter(b"b", message_id="2"))
    with pytest.raises(LakeError, match="this file is damaged"):
        gathered(lake)


# -- letters that were only looked at --------------------------------------------------------------


def looked(lake: Lake, *bodies: bytes) -> int:
    task = Task(lake, "looked", owner="broker")
    task.keep(*(letter(body, message_id="m") for body in bodies))
    done = gather_looked(lake, task.stage.written).letters
    lake.files.remove("dead_letters/_looked")
    return done


def test_looking_twice_makes_no_second_row(lake: Lake) -> None:
    assert looked(lake, b"a", b"b", b"b") == 3
    assert looked(lake, b"a", b"b", b"b", b"c") == 1


def test_what_was_drained_before_is_told_from_what_looks_like_it(lake: Lake) -> None:
    Task(lake).keep(letter(b"a", message_id="m"), sure=True)
    gathered(lake)
    assert looked(lake, b"a") == 1
    assert [owner for _, owner in table(lake, "dl_id, owner")] == ["lake", "broker"]


def test_what_was_looked_at_and_is_drained_then_is_under_the_same_id(lake: Lake) -> None:
    looked(lake, b"a", b"a")
    Task(lake).keep(letter(b"a", message_id="m"), letter(b"a", message_id="m"), sure=True)
    assert gathered(lake) == (2, 0)

    def owned(by: str) -> list[str]:
        return [dl_id for dl_id, owner in table(lake, "dl_id, owner") if owner == by]

    assert owned("lake") == owned("broker")


def test_manifests_are_json_that_others_can_read(lake: Lake) -> None:
    batch = Task(lake).keep(letter(b"a", message_id="1"))
    gathered(lake)
    (manifest,) = Path(lake.root, "dead_letters/_manifests").glob("*.json")
    told = json.loads(manifest.read_text())
    assert (told["owner"], told["letters"], told["again"], told["staged"]) == ("lake", 1, 0, [batch.name])
