# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Small files become large ones: each record stays once, readers see before or after, and a race has one winner."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from redeliver_mw.cli.main import app
from redeliver_mw.errors import ConfigError
from redeliver_mw.pipeline import Lake, LakeError, compact, optimize
from redeliver_mw.pipeline import head as head_module
from redeliver_mw.pipeline.files import Files
from redeliver_mw.pipeline.head import LostRace
from redeliver_mw.pipeline.lake import optimization, rewriting, snapshots
from redeliver_mw.pipeline.lake.compaction import nothing_new
from redeliver_mw.pipeline.lake.rewriting import Optimized, RewriteOrder
from redeliver_mw.pipeline.manifests import run_folders
from tests.bench.lake_runs import build, figures
from tests.pipeline.drained import DAY, NOON
from tests.pipeline.journals import lines, segment
from tests.pipeline.many_runs import SMALL, add_run, everything, ids, publish_run, rows_of, segments
from tests.pipeline.s3_server import BUCKET, Fault, environment, proxy_to, s3_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).resolve().parents[2]
RUNS = 4  # of a lake; each has records of two days
SECONDS = 86_400
EARLY = NOON - 20 * DAY  # 2026-11-09T12:00:00Z


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


def numbers(run: int) -> list[int]:
    return [*range(run * 10, run * 10 + 10), SECONDS + run]


@pytest.fixture
def lake(place: str) -> Lake:
    """Return a lake of many runs, each with a file for each of two days."""
    made = Lake(place, create=True)
    for run in range(RUNS):
        publish_run(made, run, numbers(run))
    return made


def data(files: Files) -> set[str]:
    return {path for path in everything(files) if path.startswith("events/dt=")}


def named(lake: Lake) -> set[str]:
    return {file.path for one in lake.manifests() for file in one.files}


# What stays


def test_each_record_and_each_read_segment_is_there_once_in_one_file_a_day(lake: Lake) -> None:
    before, read, old = ids(lake), segments(lake), data(lake.files)
    done = optimize(lake)
    assert (done.runs, done.merged, done.files_before, done.files, done.rows) == (1, RUNS, 2 * RUNS, 2, len(before))
    assert ids(lake) == before
    assert segments(lake) == read
    assert len(lake.manifests()) == 1
    assert len(named(lake)) == 2
    assert data(lake.files) == old | named(lake)  # old files stay for those who read them
    assert (done.removed, done.kept) == (0, 2 * RUNS)
    assert optimize(lake) == Optimized(kept=2 * RUNS)  # there is nothing more to do


def test_runs_before_and_after_are_merged_again_and_old_files_go_when_their_time_is_over(lake: Lake) -> None:
    optimize(lake)
    kept = data(lake.files)
    for run in range(RUNS, RUNS + 3):
        publish_run(lake, run, numbers(run))
    assert kept < data(lake.files)  # runs that come later leave the old files alone
    before, read = ids(lake), segments(lake)
    done = optimize(lake, keep_s=0)
    assert (ids(lake), segments(lake)) == (before, read)
    assert [done.merged, done.files, done.kept] == [4, 2, 0]
    assert data(lake.files) == named(lake)
    assert len(list(everything(lake.files, "events/_segments"))) == 2
    assert list(everything(lake.files, "events/_replaced")) == []
    [manifest] = lake.manifests()
    assert set(everything(lake.files, "events/_manifests")) == {manifest.path}
    publish_run(lake, RUNS + 3, [5_000_000])
    assert len(ids(lake)) == len(before) + 1
    assert optimize(lake, keep_s=0).merged == 2
    assert set(run_folders(lake.files)) == {path.split("run=")[1].split("/")[0] for path in named(lake)}


def test_lists_of_segments_become_one_when_there_are_many(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimization, "_LISTS", 2)
    for run in range(RUNS, RUNS + 4):
        read = segments(lake)
        optimize(lake, keep_s=0)
        assert segments(lake) == read
        publish_run(lake, run, [run])
        assert len(list(everything(lake.files, "events/_segments"))) <= 2


def test_files_are_of_the_size_that_was_asked_for_and_young_ones_and_large_ones_stay(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    for run in range(20):
        publish_run(lake, run, range(run * 500, run * 500 + 500))
    publish_run(lake, 20, [SECONDS])
    publish_run(lake, 21, [SECONDS + 1])
    young = {path for path in named(lake) if "dt=2026-11-02" in path}
    age = (optimization.now_us() - lake.manifests()[19].files[0].max_us) / 1e6 - 10
    before = ids(lake)
    done = optimize(lake, older_than_s=age, target_bytes=40_000)
    assert ids(lake) == before
    assert young < named(lake)
    sizes = [file.bytes for one in lake.manifests() for file in one.files if file.path not in young]
    assert 1 < len(sizes) < 10
    assert sum(size < 40_000 for size in sizes) <= 1
    assert done.files == len(sizes)
    assert optimize(lake, older_than_s=age, target_bytes=40_000).run is None


def test_much_work_is_done_in_several_runs(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewriting, "_FILES_AT_ONCE", RUNS)
    before, read = ids(lake), segments(lake)
    done = optimize(lake, keep_s=0)
    assert (done.runs, done.files) == (2, 2)
    assert (ids(lake), segments(lake), data(lake.files)) == (before, read, named(lake))


def test_columns_that_an_earlier_release_did_not_write_are_null(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    for run in range(2):
        publish_run(lake, run, [run])
    for path in named(lake):
        table = pq.read_table(lake.files.url(path), partitioning=None)
        pq.write_table(table.drop_columns(["policy_arm"]), lake.files.url(path))
    optimize(lake)
    [path] = named(lake)
    table = pq.read_table(lake.files.url(path), partitioning=None)
    assert table["policy_arm"].to_pylist() == [None, None]
    assert table.schema.equals(rows_of([0]).schema)


# Races, and death


def test_a_compaction_that_is_published_meanwhile_wins_and_optimize_says_so(lake: Lake) -> None:
    base = snapshots.current(lake.files)
    wanted = RewriteOrder(optimization.now_us(), optimization.now_us(), SMALL, 1)
    late = optimization._MergingRun(
        lake, base, wanted, wanted.small([file for one in base.manifests for file in one.files])
    )
    winner = publish_run(lake, RUNS, [9_000])
    before = ids(lake)
    with pytest.raises(LostRace, match=winner) as error:
        late.publish()
    assert error.value.code == "lost-the-race"
    assert ids(lake) == before
    assert len(lake.manifests()) == RUNS + 1
    assert data(lake.files) == named(lake)  # and nothing is left of it
    assert not list(everything(lake.files, "events/_segments"))
    assert not list(everything(lake.files, "events/_replaced"))


def test_a_compaction_loses_to_optimize_and_names_it(lake: Lake) -> None:
    base = snapshots.current(lake.files)
    manifest = add_run(lake, base, RUNS, rows_of([9_000]))
    before = ids(lake)
    run = optimize(lake).run
    snapshots.write(lake.files, base, manifest)
    with pytest.raises(LostRace, match=str(run)):
        snapshots.publish(lake.files, base, manifest)
    assert ids(lake) == before
    assert manifest.run not in run_folders(lake.files)


def test_a_run_whose_answer_was_lost_has_won_also_if_optimize_has_merged_it_since(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head_module, "_PAUSES", (0.0, 0.01, 0.02))
    place = f"s3://{BUCKET}/{uuid4().hex}/lake"
    with proxy_to(server) as proxy:
        for name, value in environment(server).items():
            monkeypatch.setenv(name, value)
        direct = Lake(place, create=True)
        publish_run(direct, 0, [0])
        for name, value in environment(proxy.url).items():
            monkeypatch.setenv(name, value)
        through = Lake(place)
        publish_run(through, 1, [1])
        followers: list[str | None] = []
        fault = Fault(
            "PUT", r"events/_head\.json", handed_on=True, then=lambda: followers.append(optimize(direct, keep_s=0).run)
        )
        proxy.faults.append(fault)
        run = publish_run(through, 2, [2])
    assert [one.run for one in direct.manifests()] == followers
    assert len(ids(direct)) == 3
    assert run not in {one.run for one in direct.manifests()}


def test_a_run_that_was_merged_long_ago_is_in_doubt_and_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head_module, "_PAUSES", (0.0, 0.01))
    monkeypatch.setattr(optimization, "_REMEMBERED", 2)
    lake = Lake(tmp_path / "lake", create=True)
    base = snapshots.current(lake.files)
    early = add_run(lake, base, 0, rows_of([0]))
    snapshots.write(lake.files, base, early)
    snapshots.publish(lake.files, base, early)
    for run in range(1, 4):
        publish_run(lake, run, [run])
    optimize(lake)
    with pytest.raises(LakeError) as error:
        snapshots.publish(lake.files, base, early)  # as a writer does that had no answer for a long time
    assert error.value.code == "publication-in-doubt"
    assert early.run in run_folders(lake.files)


@pytest.mark.long
def test_optimize_that_is_killed_at_any_step_leaves_every_record_and_segment_once(tmp_path: Path) -> None:
    origin = Lake(tmp_path / "lake-origin", create=True)
    for run in range(4):
        publish_run(origin, run, numbers(run))
    before, read = ids(origin), segments(origin)
    paths = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "adapters")])
    outcomes: set[int] = set()
    for step in range(1, 400, 7):
        shutil.rmtree(tmp_path / "lake", ignore_errors=True)
        shutil.copytree(tmp_path / "lake-origin", tmp_path / "lake")
        lake = Lake(tmp_path / "lake")
        command = [sys.executable, "-m", "tests.pipeline.many_runs", lake.root, str(step)]
        killed = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, cwd=REPOSITORY, stdout=-1)
        assert killed.returncode in (0, -signal.SIGKILL)
        assert (ids(lake), segments(lake)) == (before, read)
        outcomes.add(len(lake.manifests()))
        publish_run(lake, 5, [7_000])
        optimize(lake, keep_s=0)
        assert (len(ids(lake)), len(segments(lake))) == (len(before) + 1, len(read) + 1)
        assert data(lake.files) == named(lake)  # and what the dead have left is gone
        if killed.returncode == 0:
            break
    else:
        pytest.fail("it was killed each time")
    assert outcomes == {4, 1}


# Many runs


@pytest.mark.long
def test_a_lake_of_2000_runs_costs_little_after_optimize(tmp_path: Path) -> None:
    lake, journal = Lake(tmp_path / "lake", create=True), tmp_path / "journal"
    segment(journal, lines(range(5)), "seg-000000.jsonl")
    build(lake, 2000, 5)
    read = segments(lake)
    before = figures(lake, journal, 2000, None)
    done = optimize(lake, keep_s=0)
    assert done.files == 2  # of two days
    after = figures(lake, journal, 2000, None)
    assert [before["manifests"], after["manifests"], after["data_files"]] == [2000, 1, 3]
    assert after["rows"] == before["rows"] + 10
    assert after["snapshot_bytes"] < before["snapshot_bytes"] / 100
    for what in ("read_what_counts_s", "look_for_dead_s", "publish_a_run_s", "read_all_s"):
        assert after[what][1] < before[what][1] / 3, (what, before[what], after[what])  # seconds of the processor
    assert segments(lake)[: len(read)] == read


# What may not go


def test_no_old_file_is_removed_while_a_delta_log_may_name_it(lake: Lake) -> None:
    lake.files.publish("events/_delta_log/00000000000000000000.json", b"{}")
    done = optimize(lake, keep_s=0)
    assert (done.removed, done.kept, done.logged) == (0, 2 * RUNS, True)
    assert len(data(lake.files)) == 2 * RUNS + 2
    lake.files.remove("events/_delta_log")
    assert optimize(lake, keep_s=0).removed == 2 * RUNS
    assert data(lake.files) == named(lake)


def test_marts_still_know_the_records_that_they_were_made_from(lake: Lake) -> None:
    early = [one.run for one in lake.manifests()]
    publish_run(lake, RUNS, [9_000])
    later = [one.run for one in lake.manifests()]
    optimize(lake)
    publish_run(lake, RUNS + 1, [9_001])
    now = lake.manifests()

    def rows(runs: list[str]) -> int | None:
        found = snapshots.of_runs(lake.files, now, runs)
        return None if found is None else sum(file.rows for one in found for file in one.files)

    everything_now = sum(file.rows for one in now for file in one.files)
    assert rows([one.run for one in now]) == everything_now
    assert rows(later) == everything_now - 1  # the merged manifest has just these
    assert rows(early) == everything_now - 2  # the old manifests have these, as long as they are kept
    optimize(lake, keep_s=0)
    now = lake.manifests()
    assert rows(early) is None


# The command


def test_the_command_says_what_was_done(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    for run in range(3):
        publish_run(lake, run, numbers(run))
    run_it = CliRunner().invoke
    words = ["pipeline", "optimize", lake.root]
    assert run_it(app, words).stdout == (
        "6 small files became 2, with 33 records\n3 manifests became one\n6 old files are kept for now\n"
    )
    lake.files.publish("events/_delta_log/0.json", b"{}")
    assert "events/_delta_log is there" in run_it(app, [*words, "--keep", "0s"]).stderr
    lake.files.remove("events/_delta_log")
    assert run_it(app, [*words, "--keep", "0s"]).stdout == "nothing to rewrite\n6 old files were removed\n"
    for option, value in (("--target-size", "big"), ("--target-size", "1B"), ("--keep", "soon"), ("--older-than", "x")):
        refused = run_it(app, [*words, option, value])
        assert isinstance(refused.exception, ConfigError) or refused.exit_code == 2, (option, refused.output)


def test_another_process_at_work_is_named(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    publish_run(lake, 0, [0])
    with lake.locked(), pytest.raises(LakeError) as error:
        optimize(lake.root)
    assert error.value.code == "locked-by-another-process"


# Spark


def test_spark_reads_the_same_records_and_no_segment_or_record_is_read_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    journal, place = tmp_path / "journal", tmp_path / "lake"
    for number in range(3):
        segment(journal, lines(range(number * 20, number * 20 + 20)))
        compact(spark, journal, place)
    lake = Lake(place)
    before = sorted(map(tuple, lake.events(spark).collect()))
    assert optimize(lake, keep_s=0).files == 1
    assert sorted(map(tuple, lake.events(spark).collect())) == before
    again = nothing_new(journal, place)
    assert again is not None
    assert again.known == 3
    segment(journal, lines(range(50, 70)))  # of these ten are in the lake
    done = compact(spark, journal, place)
    assert (done.records, done.duplicates, done.known) == (10, 10, 3)
    assert lake.events(spark).count() == 70
