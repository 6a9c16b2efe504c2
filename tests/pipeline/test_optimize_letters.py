# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Small files of dead letters become large ones: each letter stays once, with its body, and is recognised later on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from redeliver_mw.cli.main import app
from redeliver_mw.pipeline import Lake, LakeError, optimize
from redeliver_mw.pipeline.draining.commit import gather, gather_looked
from redeliver_mw.pipeline.draining.manifests import Gathered, current, doubts_of, publish, read_all
from redeliver_mw.pipeline.draining.staging import batches
from redeliver_mw.pipeline.files import Files
from redeliver_mw.pipeline.head import LostRace
from redeliver_mw.pipeline.lake import letter_optimization
from redeliver_mw.pipeline.lake.retention import forget
from redeliver_mw.pipeline.lake.rewriting import Optimized
from redeliver_mw.pipeline.manifests import new_run
from tests.pipeline import drained
from tests.pipeline.drained import DAY, NOON
from tests.pipeline.letters import Task, gathered, letter
from tests.pipeline.many_runs import everything, publish_run
from tests.pipeline.s3_server import BUCKET, environment, s3_server

REPOSITORY = Path(__file__).resolve().parents[2]
DRAINS = 4  # of a lake; each has two letters of one day and one of the next
EARLY = NOON - 20 * DAY  # 2026-11-09T12:00:00Z
LATER = EARLY + DAY


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with s3_server() as url:
        yield url


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.long)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "folder":
        return str(tmp_path / "lake")
    for name, value in environment(request.getfixturevalue("server")).items():
        request.getfixturevalue("monkeypatch").setenv(name, value)
    return f"s3://{BUCKET}/{uuid4().hex}/lake"


def add(lake: Lake, drain: int) -> None:
    """Add the letters of one drain."""
    rows = [(f"a{drain}", EARLY), (f"b{drain}", EARLY + 1), (f"c{drain}", LATER)]
    drained.put(lake, [drained.letter(name, dead_us=at, body=name.encode() * 50) for name, at in rows])


@pytest.fixture
def lake(place: str) -> Lake:
    made = Lake(place, create=True)
    for drain in range(DRAINS):
        add(made, drain)
    return made


def rows(lake: Lake) -> list[dict[str, Any]]:
    """Return all letters that count, whole, in the order of their ids."""
    found: list[dict[str, Any]] = []
    for path in named(lake):
        with lake.files.open(path) as opened:
            found += pq.read_table(opened).to_pylist()
    return sorted(found, key=lambda row: str(row["dl_id"]))


def named(lake: Lake) -> set[str]:
    return {file.path for one in read_all(lake.files) for file in one.files}


def data(files: Files) -> set[str]:
    return {path for path in everything(files, "dead_letters") if path.endswith(".parquet")}


def optimized(lake: Lake, **options: Any) -> Optimized:
    """Optimize the lake, and return what was done to its dead letters."""
    done = optimize(lake, **options).letters
    assert done is not None
    return done


# What stays


def test_each_letter_is_there_once_with_all_its_columns_in_one_file_a_day(lake: Lake) -> None:
    before, old = rows(lake), data(lake.files)
    done = optimized(lake)
    assert (done.runs, done.merged, done.files_before, done.files, done.rows) == (1, DRAINS, 2 * DRAINS, 2, 12)
    assert rows(lake) == before
    assert (len(read_all(lake.files)), len(named(lake))) == (1, 2)
    assert data(lake.files) == old | named(lake)  # old files stay for those who read them
    assert (done.removed, done.kept, done.logged) == (0, 2 * DRAINS, False)
    assert optimized(lake) == Optimized(kept=2 * DRAINS)  # there is nothing more to do


def test_later_drains_leave_the_old_files_alone_and_these_go_when_their_time_is_over(lake: Lake) -> None:
    optimize(lake)
    kept = data(lake.files)
    task = Task(lake)
    task.keep(letter(b"new", message_id="new"), sure=True)
    gather(lake)
    assert kept < data(lake.files)
    for drain in range(DRAINS, DRAINS + 2):
        add(lake, drain)
    before = rows(lake)
    done = optimized(lake, keep_s=0)
    assert rows(lake) == before
    # Two files of drains and the large one, for each of two days; the new letter's day has one file only.
    assert (done.merged, done.files_before, done.files) == (4, 6, 2)
    assert (done.removed, done.kept) == (2 * DRAINS + 6, 0)
    assert data(lake.files) == named(lake)
    [manifest] = read_all(lake.files)
    assert set(everything(lake.files, "dead_letters/_manifests")) == {manifest.path}
    folders = {path.rpartition("/")[0] for path in named(lake)}
    for day in (entry.name for entry in lake.files.entries("dead_letters") if entry.name.startswith("dt=")):
        for entry in lake.files.entries(f"dead_letters/{day}"):
            assert f"dead_letters/{day}/{entry.name}" in folders  # no empty folder stays
    assert optimized(lake) == Optimized()


def test_letters_that_come_back_to_the_queue_are_recognised_after_a_merge(place: str) -> None:
    lake = Lake(place, create=True)
    unsure = Task(lake, "first")
    unsure.keep(letter(b"a", message_id="a"), letter(b"b", message_id="b"))  # whether the broker has them is not known
    assert gathered(lake) == (2, 0)
    Task(lake, "second").keep(letter(b"c", copy_id="copy"), sure=True)
    assert gathered(lake) == (1, 0)
    open_doubts = doubts_of(read_all(lake.files))
    assert [len(one.known) for one in open_doubts] == [2]
    assert optimized(lake).merged == 2
    assert doubts_of(read_all(lake.files)) == open_doubts
    again = Task(lake, "third")
    again.keep(letter(b"a", message_id="a", redelivered=True), letter(b"c", copy_id="copy"), sure=True)
    again.keep(letter(b"d", message_id="d"), sure=True)
    assert gathered(lake) == (1, 2)
    assert sorted(row["body"] for row in rows(lake)) == [b"a", b"b", b"c", b"d"]


def test_a_batch_whose_file_was_not_removed_before_the_merge_is_not_gathered_again(place: str) -> None:
    lake = Lake(place, create=True)
    task = Task(lake)
    task.keep(letter(b"a"), sure=True)
    [batch] = batches(lake.files)
    content = lake.files.read(batch.path)
    gather(lake)
    add(lake, 0)
    optimize(lake)
    lake.files.publish(batch.path, content)  # as after a drain that died before it had removed it
    assert gathered(lake) == (0, 0)
    assert [row["body"] for row in rows(lake)].count(b"a") == 1
    assert batches(lake.files) == []


def test_letters_that_were_only_looked_at_and_those_of_a_limbo_stay_as_they_are(lake: Lake) -> None:
    look = Task(lake, "look", owner="broker")
    look.keep(letter(b"looked at", message_id="l"))
    gather_looked(lake, look.stage.written)
    base = current(lake.files)
    copied = Gathered("copy", 1, "limbo sqlite:///limbo.db", doubts=doubts_of(base.manifests))
    publish(lake.files, base, new_run(), [*base.manifests, copied])
    add(lake, DRAINS)
    before = rows(lake)
    assert optimized(lake, keep_s=0).merged == DRAINS + 1
    assert rows(lake) == before
    assert [one.owner for one in read_all(lake.files)] == ["broker", "limbo sqlite:///limbo.db", "lake"]


def test_young_letters_stay_in_their_files_and_large_files_are_not_rewritten(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    for drain in range(20):
        at = [(f"{drain}-{number}", EARLY + drain) for number in range(100)]
        drained.put(lake, [drained.letter(name, dead_us=us, body=os.urandom(1000)) for name, us in at])
    drained.put(lake, [drained.letter("young-1", dead_us=LATER)])
    drained.put(lake, [drained.letter("young-2", dead_us=LATER)])
    young = {path for path in named(lake) if "dt=2026-11-10" in path}
    before = rows(lake)
    age = (letter_optimization.now_us() - LATER) / 1e6 + 10
    done = optimized(lake, older_than_s=age, target_bytes=400_000)
    assert rows(lake) == before
    assert young < named(lake)
    sizes = [file.bytes for one in read_all(lake.files) for file in one.files if file.path not in young]
    assert 1 < len(sizes) == done.files < 20
    assert sum(size < 200_000 for size in sizes) <= 1
    assert optimized(lake, older_than_s=age, target_bytes=400_000).run is None


def test_drains_of_a_release_without_heads_are_merged_and_their_files_go(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    for number in range(3):
        run = new_run()
        writer = drained.DayWriter(lake.root, run, 0, drained.LETTERS, table="dead_letters", by="dead_us")
        writer.add(pa.Table.from_pylist([drained.letter(f"old-{number}", dead_us=EARLY)], schema=drained.LETTERS))
        manifest = Gathered(run, EARLY + number, "lake", writer.close(), letters=1)
        given = asdict(manifest)
        for name in ("replaced", "headless"):  # which that release did not write
            del given[name]
        lake.files.publish(manifest.path, orjson.dumps(given))
    before = rows(lake)
    assert optimized(lake).files_before == 3
    gather(lake)
    assert len(data(lake.files)) == 4
    optimize(lake, keep_s=0)
    assert rows(lake) == before
    assert data(lake.files) == named(lake)
    assert len(list(everything(lake.files, "dead_letters/_manifests"))) == 1


# Forgetting


def test_forgotten_letters_are_gone_from_the_kept_files_as_well_and_no_other_kept_file_is(lake: Lake) -> None:
    optimize(lake)
    early = {path for path in data(lake.files) if "dt=2026-11-09" in path}
    later = data(lake.files) - early
    found = forget(lake, "2026-11-10", execute=True)
    assert (found.letters, found.files, found.days) == (2 * DRAINS, 1, 1)
    assert data(lake.files) == later
    assert {row["dl_id"] for row in rows(lake)} == {f"c{drain}" for drain in range(DRAINS)}


def test_bodies_are_removed_from_kept_files_and_files_without_bodies_are_left_alone(lake: Lake) -> None:
    optimize(lake)
    add(lake, DRAINS)
    forget(lake, "2026-11-11", bodies_only=True, execute=True)
    assert {row["body"] for row in rows(lake)} == {None}
    assert data(lake.files) == named(lake)
    bare = named(lake)
    assert optimized(lake, keep_s=0).files_before == 0
    assert named(lake) == bare
    assert len(read_all(lake.files)) == 1
    assert forget(lake, "2026-11-11", bodies_only=True).letters == 0


# Races, and death


def test_a_drain_that_is_published_meanwhile_wins(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    rewrite = letter_optimization.rewrite

    def slow(*args: Any, **options: Any) -> Any:
        written = rewrite(*args, **options)
        add(lake, DRAINS)
        return written

    monkeypatch.setattr(letter_optimization, "rewrite", slow)
    with pytest.raises(LostRace) as error:
        optimize(lake)
    assert error.value.code == "lost-the-race"
    monkeypatch.undo()
    assert len(read_all(lake.files)) == DRAINS + 1
    assert data(lake.files) == named(lake)  # and nothing is left of the loser


@pytest.mark.long
def test_optimize_that_is_killed_at_any_step_leaves_every_letter_once(tmp_path: Path) -> None:
    origin = Lake(tmp_path / "lake-origin", create=True)
    for drain in range(3):
        add(origin, drain)
    before = rows(origin)
    paths = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "adapters")])
    outcomes: set[int] = set()
    for step in range(1, 400, 5):
        shutil.rmtree(tmp_path / "lake", ignore_errors=True)
        shutil.copytree(tmp_path / "lake-origin", tmp_path / "lake")
        lake = Lake(tmp_path / "lake")
        command = [sys.executable, "-m", "tests.pipeline.letter_writer", lake.root, "optimize", str(step)]
        killed = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, cwd=REPOSITORY, stdout=-1)
        assert killed.returncode in (0, -signal.SIGKILL)
        assert rows(lake) == before
        outcomes.add(len(read_all(lake.files)))
        add(lake, 3)
        optimize(lake, keep_s=0)
        assert len(rows(lake)) == len(before) + 3
        assert data(lake.files) == named(lake)  # and what the dead have left is gone
        if killed.returncode == 0:
            break
    else:
        pytest.fail("it was killed each time")
    assert outcomes == {3, 1}


# What may not go, and the command


def test_no_old_file_is_removed_while_a_delta_log_may_name_it(lake: Lake) -> None:
    lake.files.publish("dead_letters/_delta_log/00000000000000000000.json", b"{}")
    done = optimized(lake, keep_s=0)
    assert (done.removed, done.kept, done.logged) == (0, 2 * DRAINS, True)
    gather(lake)
    assert len(data(lake.files)) == 2 * DRAINS + 2
    lake.files.remove("dead_letters/_delta_log")
    assert optimized(lake, keep_s=0).removed == 2 * DRAINS
    assert data(lake.files) == named(lake)


def test_the_command_says_what_became_of_dead_letters(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    publish_run(lake, 0, [0])
    words = ["pipeline", "optimize", lake.root]
    assert CliRunner().invoke(app, words).stdout == "nothing to rewrite\n"
    assert not lake.files.entries("dead_letters")  # a lake without letters gets no table of them
    for drain in range(3):
        add(lake, drain)
    assert CliRunner().invoke(app, words).stdout == (
        "6 small files of dead letters became 2, with 9 letters\n"
        "3 manifests of dead letters became one\n"
        "6 old files are kept for now\n"
    )
    lake.files.publish("dead_letters/_delta_log/0.json", b"{}")
    assert "dead_letters/_delta_log is there" in CliRunner().invoke(app, words).stderr


def test_a_drain_at_work_is_named(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    add(lake, 0)
    with lake.locked("dead_letters"), pytest.raises(LakeError) as error:
        optimize(lake.root)
    assert error.value.code == "locked-by-another-process"
