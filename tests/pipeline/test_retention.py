# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Letters that were kept long enough leave the lake by whole days; no Spark is used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from redeliver_mw.dead_letters.sending.batch_publisher import BatchAnswer
from redeliver_mw.errors import ConfigError
from redeliver_mw.pipeline import Lake
from redeliver_mw.pipeline.draining.manifests import read_all
from redeliver_mw.pipeline.files import files_at
from redeliver_mw.pipeline.lake.retention import forget
from redeliver_mw.pipeline.plans.plan_file import Plan, PlanFile, freeze, hash_of, path_of
from redeliver_mw.pipeline.replaying import registry
from redeliver_mw.pipeline.replaying.ledger import BucketAttempt
from tests.pipeline.drained import DAY, NOON, letter, put

FIRST, SECOND = "2026-11-29", "2026-11-30"  # the day of NOON, and the one after it


@pytest.fixture
def stock(lake: Lake) -> Lake:
    """Return a lake with two runs of a drain, which have letters of two days each."""
    put(lake, [letter("a1"), letter("a2", problem="no"), letter("b1", dead_us=NOON + DAY)])
    put(lake, [letter("a3"), letter("b2", dead_us=NOON + DAY)])
    return lake


def rows(lake: Lake) -> dict[str, dict[str, Any]]:
    listed = [file for one in read_all(lake.files) for file in one.files]
    tables = [pq.read_table(lake.files.url(file.path), partitioning=None) for file in listed]
    assert [len(table) for table in tables] == [file.rows for file in listed]
    return {row["dl_id"]: row for row in pa.concat_tables(tables).to_pylist()} if tables else {}


def on_disk(lake: Lake) -> int:
    return len(list(Path(lake.root, "dead_letters").glob("dt=*/run=*/*")))


def test_the_letters_before_a_day_go_and_the_others_stay(stock: Lake) -> None:
    done = forget(stock, SECOND, execute=True)
    assert (done.letters, done.files, done.days, done.done) == (3, 2, 1, True)
    assert set(rows(stock)) == {"b1", "b2"}
    assert on_disk(stock) == 2
    assert forget(stock, SECOND, execute=True).letters == 0


def test_without_a_word_it_is_only_counted(stock: Lake) -> None:
    assert forget(stock, "2026-12-01").letters == 5
    assert forget(stock, FIRST).letters == 0
    assert len(rows(stock)) == 5


def test_bodies_go_alone_and_the_letters_say_so(stock: Lake) -> None:
    before = rows(stock)
    assert forget(stock, SECOND, bodies_only=True, execute=True).letters == 3
    after = rows(stock)
    assert on_disk(stock) == 4
    for dl_id, row in after.items():
        if dl_id.startswith("b"):
            assert row == before[dl_id]
        else:
            assert (row["body"], row["letter"]) == (None, None)
            assert row["body_sha256"] == before[dl_id]["body_sha256"]
    assert after["a1"]["problem"].startswith("its body was removed on 20")
    assert after["a2"]["problem"] == "no"
    assert forget(stock, SECOND, bodies_only=True).letters == 0
    assert forget(stock, SECOND, execute=True).letters == 3


def test_the_number_of_letters_that_were_never_sent_back_is_printed(stock: Lake, tmp_path: Path) -> None:
    files = files_at(tmp_path / "plan")
    files.publish(path_of(0), b"")
    pq.write_table(pa.table({"position": [0, 1], "dl_id": ["a1", "b1"]}), files.url(path_of(0)))
    file = PlanFile(path_of(0), 2, *hash_of(files, path_of(0)))
    plan = freeze(
        files,
        Plan(folder=files.url(), plan_id="0" * 16, created_us=1, lake=stock.root, letters=2, buckets=1, files=(file,)),
    )
    registry.register(plan, NOON)
    one = BucketAttempt(plan.folder, plan.plan_id, 0, "run")
    one.intend({0, 1})
    one.answer(BatchAnswer(confirmed={0, 1}))
    one.close()
    assert forget(stock, SECOND).unsent == 2  # a2 and a3
    assert forget(stock, "2026-12-01").unsent == 3  # and b2


def test_what_a_killed_run_left_goes_with_the_next(stock: Lake) -> None:
    listed = read_all(stock.files)[0].files[0].path
    Path(stock.root, listed).with_name("old.parquet").write_bytes(b"not listed any more")
    forget(stock, FIRST, execute=True)
    assert on_disk(stock) == 4
    assert len(rows(stock)) == 5


def test_bodies_that_a_killed_replay_had_borrowed_go_and_those_of_one_at_work_stay(stock: Lake, tmp_path: Path) -> None:
    plans = {}
    for name in ("killed", "moved", "working"):
        plans[name] = files_at(tmp_path / name)
        plan = Plan(
            folder=plans[name].url(), plan_id=name, created_us=1, lake=stock.root, letters=0, buckets=1, files=()
        )
        freeze(plans[name], plan)
        registry.register(plan, NOON)
        stock.files.publish(f"replays/{name}.bodies/letters/bucket-00000.parquet", b"bodies")
    plans["moved"].remove("")
    with plans["working"].locked("_replay.lock", "replay"):
        forget(stock, FIRST, execute=True)
        assert sorted(Path(stock.root, "replays").glob("*.bodies")) == [Path(stock.root, "replays/working.bodies")]
    forget(stock, FIRST, execute=True)
    assert list(Path(stock.root, "replays").glob("*.bodies")) == []


@pytest.mark.parametrize("before", ["2026-11-30T06:00:00", "yesterday", ""])
def test_what_is_no_day_is_refused(stock: Lake, before: str) -> None:
    with pytest.raises(ConfigError, match=r"--?(before|until)|no time|no beginning"):
        forget(stock, before, execute=True)
    assert len(rows(stock)) == 5
