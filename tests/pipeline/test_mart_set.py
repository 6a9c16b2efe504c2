# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The marts of a lake are those of one run: while another run is at work, after it has died, and for other programs."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from redeliver_mw.cli.main import run
from redeliver_mw.errors import ConfigError
from redeliver_mw.journal.records import FIELDS, row_to_line
from redeliver_mw.pipeline import Lake, LakeError, SparkError, compact
from redeliver_mw.pipeline.delta.export import export
from redeliver_mw.pipeline.files import PosixFiles
from redeliver_mw.pipeline.head import LostRace
from redeliver_mw.pipeline.insights import insights
from redeliver_mw.pipeline.lake import mart_set
from redeliver_mw.pipeline.lake.mart_set import HEAD, MANIFESTS, RUNS, MartSet, SetManifest, new_marts
from redeliver_mw.pipeline.report import job
from redeliver_mw.pipeline.schemas import ALL, BACKTEST, MARTS
from tests.disks import fill, small_disk_at
from tests.pages import FENCE
from tests.pipeline.histories import Row, history
from tests.pipeline.journals import segment

Capture = pytest.CaptureFixture[str]
REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
FIRST = [
    *history((0, "redelivered"), (1, "accepted"), message_key="heals"),
    *history((0, "redelivered"), (1, "dead_lettered"), message_key="dies", reason="exhausted"),
    *history((100_000, "redelivered"), (100_001, "accepted"), message_key="heals on the next day"),
]
LATER = history((200_000, "redelivered"), (200_001, "dead_lettered"), message_key="dies later", reason="exhausted")
EARLIER = [  # the marts of releases that gave each a pointer of its own, in the order in which they made them
    "messages",
    "attempt_curve",
    "recovery",
    "poison",
    "fingerprints",
    "waste",
    "storms",
    "dead_letter_flow",
]
KEYS = {"heals", "dies", "heals on the next day"}


def add(spark: SparkSession, lake: Path, rows: list[Row]) -> None:
    """Compact a segment of these rows into the lake."""
    segment(lake.parent / "journal", [row_to_line([one[name] for name in FIELDS]) for one in rows])
    compact(spark, lake.parent / "journal", lake)


def keys(marts: Lake | MartSet, spark: SparkSession) -> set[str]:
    return {one["message_key"] for one in marts.mart(spark, "messages").collect()}


def counts(marts: Lake | MartSet, spark: SparkSession, names: Iterable[str] = MARTS) -> dict[str, int]:
    return {name: marts.mart(spark, name).count() for name in names}


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a lake that has one set of marts; tests work on copies of the lake."""
    folder = tmp_path_factory.mktemp("made")
    add(spark, folder / "lake", FIRST)
    insights(spark, folder / "lake")
    return folder


@pytest.fixture(scope="module")
def twice(spark: SparkSession, made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lake in which insights has run twice, for tests that only read the lake."""
    folder = tmp_path_factory.mktemp("twice")
    shutil.copytree(made / "lake", folder / "lake")
    insights(spark, folder / "lake")
    return folder / "lake"


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    """Copy the lake, and the journal beside it, and return the copy of the lake."""
    shutil.copytree(made / "journal", tmp_path / "journal")
    shutil.copytree(made / "lake", tmp_path / "lake")
    return tmp_path / "lake"


def as_earlier_releases_made_it(place: Path, name: str, rows: int, run_of: str) -> None:
    """Put the mart that the head names where a pointer of its own names it."""
    source = next((place / RUNS).iterdir()) / name
    files = [f"marts/{name}/run={run_of}/{file.name}" for file in source.glob("*.parquet")]
    shutil.rmtree(place / "marts" / name)
    shutil.copytree(source, place / "marts" / name / f"run={run_of}")
    pointer = {"run": run_of, "files": files, "rows": rows}
    (place / "marts" / name / "_current.json").write_text(json.dumps(pointer))


@pytest.fixture
def earlier(spark: SparkSession, place: Path) -> Path:
    """Return the lake as left by a release that gave each mart a pointer; its marts were made second by second."""
    for second, (name, rows) in enumerate(counts(Lake(place), spark, EARLIER).items()):
        as_earlier_releases_made_it(place, name, rows, f"20260309T0601{second:02d}Z-abcdef")
    (place / HEAD).unlink()
    shutil.rmtree(place / MANIFESTS)
    shutil.rmtree(place / RUNS)
    return place


# One set


def test_a_mart_that_is_published_by_itself_stands_beside_the_others(spark: SparkSession, place: Path) -> None:
    lake, before = Lake(place), counts(Lake(place), spark)
    assert lake.publish(spark, "messages", lake.mart(spark, "messages").where("message_key = 'dies'")) == 1
    assert counts(lake, spark) == {**before, "messages": 1}
    lake.publish(spark, "messages", lake.mart(spark, "messages"))
    assert counts(lake, spark) == {**before, "messages": 1}


def test_the_head_names_a_manifest_with_files_rows_events_and_bounds_and_the_set_keeps_to_them(
    spark: SparkSession, place: Path
) -> None:
    rows = insights(spark, place, since="2026-03-03", until="2026-03-10")
    head = json.loads((place / HEAD).read_text())
    assert set(head) == {"generation", "run", "manifest", "by"}
    assert head["generation"] == 2
    manifest = json.loads((place / head["manifest"]).read_text())
    assert manifest["run"] == head["run"]
    assert {name: mart["rows"] for name, mart in manifest["marts"].items()} == rows
    assert all((place / path).is_file() for mart in manifest["marts"].values() for path in mart["files"])
    assert manifest["events"] == [one.run for one in Lake(place).manifests()]
    assert (manifest["since_us"], manifest["until_us"]) == (1_772_496_000_000_000, 1_773_100_800_000_000)
    marts = Lake(place).marts()
    assert {one["message_key"] for one in marts.events(spark).collect()} == {"heals on the next day"}
    unknown = MartSet(marts.lake, SetManifest("20260309T060102Z-abcdef", 0, events=["a run that was rewritten since"]))
    assert {one["message_key"] for one in unknown.events(spark).collect()} == KEYS


def test_a_reader_that_opened_a_set_reads_it_while_and_after_another_is_made(spark: SparkSession, place: Path) -> None:
    marts = Lake(place).marts()
    before, told = counts(marts, spark), list[str]()
    add(spark, place, LATER)

    def look(name: str, done: int, of: int) -> None:
        if name == "storms":  # six are written
            told.append(name)
            assert keys(Lake(place), spark) == KEYS
            assert counts(marts, spark) == counts(Lake(place), spark) == before

    insights(spark, place, progress=look)
    assert told == ["storms"]
    assert keys(marts, spark) == KEYS
    assert counts(marts, spark) == before
    assert keys(Lake(place), spark) == {*KEYS, "dies later"}
    assert {one["message_key"] for one in marts.events(spark).collect()} == KEYS
    assert {one["message_key"] for one in Lake(place).marts().events(spark).collect()} == {*KEYS, "dies later"}


def test_the_report_reads_one_set_though_another_is_published_meanwhile(spark: SparkSession, place: Path) -> None:
    whole = job.report(spark, place)
    add(spark, place, LATER)
    published: list[str] = []

    def publish(name: str, done: int, of: int) -> None:
        if not published:
            published.append(name)
            insights(spark, place)

    meanwhile = job.report(spark, place, progress=publish)
    assert published
    assert (meanwhile.totals, meanwhile.failures, meanwhile.poison) == (whole.totals, whole.failures, whole.poison)
    assert job.report(spark, place).totals.failed == whole.totals.failed + 1


def test_a_table_that_is_no_mart_of_the_set_has_a_pointer_of_its_own(spark: SparkSession, place: Path) -> None:
    lake = Lake(place)
    with pytest.raises(LakeError, match="'backtest' is not there yet"):
        lake.mart(spark, "backtest")
    empty = spark.createDataFrame([], BACKTEST)
    assert lake.publish(spark, "backtest", empty) == 0
    insights(spark, place)
    assert lake.mart(spark, "backtest").columns == empty.columns
    with pytest.raises(ConfigError, match="is no mart"):
        lake.publish(spark, "events", empty)


# Death


PROGRAM = """
import sys
from redeliver_mw.pipeline import session
from redeliver_mw.pipeline.insights import insights
def progress(name, done, of):
    print(name, flush=True)
    if name == sys.argv[2]:
        sys.stdin.read()
insights(session("local[2]"), sys.argv[1], progress=progress)
"""


def killed(place: Path, name: str) -> None:
    """Kill a run of insights that has begun to make this mart."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "adapters")])}
    command = [sys.executable, "-c", PROGRAM, str(place), name]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=environment, text=True, **pipes) as process:
        assert process.stdout is not None
        assert any(said.strip() == name for said in process.stdout)
        process.send_signal(signal.SIGKILL)
        assert process.wait(60) == -signal.SIGKILL


@pytest.mark.slow
def test_a_run_that_is_killed_after_one_mart_leaves_the_set_before_it(spark: SparkSession, place: Path) -> None:
    before, said = counts(Lake(place), spark), job.report(spark, place)
    add(spark, place, LATER)
    killed(place, "attempt_curve")
    lake = Lake(place)
    assert len(lake.files.entries(RUNS)) == 2  # the dead run's, too
    assert counts(lake, spark) == before
    again = job.report(spark, place)
    assert (again.totals, again.failures) == (said.totals, said.failures)
    insights(spark, place)
    assert keys(lake, spark) == {*KEYS, "dies later"}
    assert len(lake.files.entries(RUNS)) == 2  # this one's, and the set before it
    assert {entry.name for entry in lake.files.entries(MANIFESTS)} == {
        f"{entry.name}.json" for entry in lake.files.entries(RUNS)
    }


def test_a_set_whose_head_was_not_written_counts_for_nothing_and_is_removed(spark: SparkSession, place: Path) -> None:
    lake = Lake(place)
    with new_marts(lake, spark) as new:
        dead = new.run
        new.write("messages", lake.mart(spark, "messages").limit(0))
        manifest = (place / HEAD).read_text()
    (place / HEAD).write_text(manifest)  # as if it had died before the last step
    assert keys(lake, spark) == KEYS
    lake.publish(spark, "messages", lake.mart(spark, "messages"))
    assert dead not in {entry.name for entry in lake.files.entries(RUNS)}
    assert f"{dead}.json" not in {entry.name for entry in lake.files.entries(MANIFESTS)}


def test_a_set_whose_publication_was_done_and_not_answered_stays(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, publish = Lake(place), PosixFiles.publish

    def lose_the_answer(files: PosixFiles, path: str, content: bytes) -> None:
        publish(files, path, content)
        if path == HEAD:
            raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(PosixFiles, "publish", lose_the_answer)
        lake.publish(spark, "messages", lake.mart(spark, "messages").where("message_key = 'dies'"))
    assert keys(lake, spark) == {"dies"}


def test_of_two_sets_with_one_base_the_second_names_the_first_and_leaves_nothing(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, other = Lake(place), Lake(place)
    monkeypatch.setattr(PosixFiles, "locked", lambda *_: nullcontext())  # as in a bucket

    def lose() -> None:
        with new_marts(lake, spark, keep=True) as new:
            lost.append(new.run)
            new.write("messages", lake.mart(spark, "messages").limit(0))
            other.publish(spark, "messages", other.mart(spark, "messages").where("message_key = 'dies'"))

    lost: list[str] = []
    with pytest.raises(LostRace, match=r"the run \S+-g1 of process \d+ on \S+ was published first"):
        lose()
    assert keys(lake, spark) == {"dies"}
    assert lost[0] not in {entry.name for entry in lake.files.entries(RUNS)}


def test_of_two_tables_by_themselves_with_one_base_the_second_is_not_published(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, empty = Lake(place), spark.createDataFrame([], BACKTEST)
    lake.publish(spark, "backtest", empty)
    monkeypatch.setattr(PosixFiles, "locked", lambda *_: nullcontext())
    write = mart_set.write_table

    def write_late(*given: Any) -> Any:
        monkeypatch.setattr(mart_set, "write_table", write)
        lake.publish(spark, "backtest", empty)
        return write(*given)

    monkeypatch.setattr(mart_set, "write_table", write_late)
    with pytest.raises(LostRace, match=r"the run \S+-g1 was published first"):
        lake.publish(spark, "backtest", empty)
    pointer = json.loads((place / "marts/backtest/_current.json").read_text())
    assert pointer["generation"] == 2
    assert lake.mart(spark, "backtest").columns == empty.columns


def test_a_mart_that_fails_leaves_the_set_before_it_and_no_files(spark: SparkSession, place: Path) -> None:
    lake, before = Lake(place), counts(Lake(place), spark)
    failing = lake.mart(spark, "recovery").selectExpr("* EXCEPT (n)", "n + raise_error('gone wrong')::BIGINT AS n")

    def fail() -> None:
        with new_marts(lake, spark) as new:
            new.write("messages", lake.mart(spark, "messages").limit(1))
            new.write("recovery", failing)

    with pytest.raises(SparkError, match="gone wrong"):
        fail()
    assert counts(lake, spark) == before
    assert len(lake.files.entries(RUNS)) == 1


def test_a_full_disk_leaves_the_whole_set_before_it(spark: SparkSession, place: Path, tmp_path: Path) -> None:
    with small_disk_at(tmp_path / "disk", "1m") as disk:
        shutil.copytree(place, disk / "lake")
        lake, before = Lake(disk / "lake"), counts(Lake(place), spark)
        with pytest.raises(OSError, match="No space left"):
            fill(disk / "ballast")
        with (disk / "ballast").open("r+b") as ballast:
            ballast.truncate((disk / "ballast").stat().st_size - 40_000)  # room for the first marts
        written: list[str] = []
        with pytest.raises(LakeError, match="the disk is full") as error:
            insights(spark, lake, progress=lambda name, done, of: written.append(name))
        assert len(written) > 1
        assert "as it was" not in str(error.value)
        assert counts(lake, spark) == before
        assert len(lake.files.entries(RUNS)) == 1


# What is missing or damaged


def test_files_that_were_deleted_are_one_error_with_place_and_cure(
    spark: SparkSession, place: Path, capsys: Capture
) -> None:
    for mart, words in (("recovery", ["report", str(place), "--json"]), ("messages", ["backtest", str(place)])):
        shutil.rmtree(next((place / RUNS).iterdir()) / mart)
        with pytest.raises(LakeError, match=rf"the mart '{mart}' .* its file marts/_runs/\S+/{mart}/\S+ is missing"):
            Lake(place).mart(spark, mart)
        assert run(["pipeline", *words]) == 1
        out, err = capsys.readouterr()
        assert (out, err.count("\n"), "Traceback" in err) == ("", 1, False)
        assert f"{place}: the mart '{mart}' cannot be read" in err
        assert "Run `redeliver pipeline insights LAKE`" in err


@pytest.mark.parametrize(
    ("path", "content", "what"),
    [
        (HEAD, b"{", "_head.json: this file is damaged"),
        (HEAD, b'{"run": "x"}', "_head.json: this file is damaged"),
        (
            HEAD,
            b'{"run": "x", "manifest": "marts/_manifests/x.json"}',
            r"the head of the marts leads to is missing: \S+marts/_manifests/x\.json",
        ),
        (MANIFESTS, b'{"marts": []}', r"_manifests/\S+\.json: this file is damaged"),
    ],
)
def test_a_damaged_head_or_manifest_is_one_error_until_insights_runs(
    spark: SparkSession, place: Path, path: str, content: bytes, what: str
) -> None:
    found = place / path
    (next(found.iterdir()) if found.is_dir() else found).write_bytes(content)
    with pytest.raises(LakeError, match=what) as error:
        Lake(place).marts()
    assert error.value.cure == "Run `redeliver pipeline insights LAKE`"
    with pytest.raises(LakeError, match=what):
        Lake(place).publish(spark, "messages", spark.createDataFrame([], MARTS["messages"]))
    with new_marts(Lake(place), spark) as new:  # as insights does
        new.write("messages", spark.createDataFrame([], MARTS["messages"]))
    assert keys(Lake(place), spark) == set()


def test_a_set_that_was_replaced_twice_while_it_was_read_is_one_error(spark: SparkSession, place: Path) -> None:
    lake = Lake(place)
    marts = lake.marts()
    opened = marts.mart(spark, "messages")
    for _ in range(2):
        with new_marts(lake, spark) as new:
            new.write("messages", spark.createDataFrame([], MARTS["messages"]))
    with pytest.raises(LakeError, match="is missing"):
        marts.mart(spark, "messages")
    from redeliver_mw.pipeline.errors import readable_errors

    with pytest.raises(LakeError, match=r"a file is missing: \S+\.parquet\. Run it again"), readable_errors(lake.root):
        opened.collect()


# Lakes of earlier releases


def test_marts_of_an_earlier_release_are_read_until_insights_runs(spark: SparkSession, earlier: Path) -> None:
    lake = Lake(earlier)
    assert counts(lake.marts(), spark, EARLIER)["messages"] == len(KEYS)
    assert keys(lake.marts(), spark) == KEYS
    assert job.report(spark, lake).totals.failed == len(KEYS)
    add(spark, earlier, LATER)
    assert insights(spark, lake) == counts(lake, spark)
    assert not list((earlier / "marts").glob("*/_current.json"))
    assert spark.read.parquet(str(earlier / "marts" / "messages")).count() == len(KEYS) + 1


def test_marts_of_an_earlier_release_that_are_of_different_runs_are_refused(
    spark: SparkSession, earlier: Path, capsys: Capture
) -> None:
    pointer = earlier / "marts" / "messages" / "_current.json"
    pointer.write_text(pointer.read_text().replace('"run": "20260309', '"run": "20260310'))
    with pytest.raises(LakeError, match="its marts are of different runs of insights"):
        Lake(earlier).marts()
    assert run(["pipeline", "report", str(earlier), "--json"]) == 1
    assert "Run `redeliver pipeline insights LAKE`" in capsys.readouterr().err


def test_a_single_mart_over_those_of_an_earlier_release_keeps_the_others(spark: SparkSession, earlier: Path) -> None:
    lake = Lake(earlier)
    before = counts(lake, spark, EARLIER)
    lake.publish(spark, "messages", lake.mart(spark, "messages").where("message_key = 'dies'"))
    assert counts(lake, spark, EARLIER) == {**before, "messages": 1}


# Other programs


def test_the_folder_of_a_mart_holds_the_newest_run_and_no_other(spark: SparkSession, twice: Path) -> None:
    polars = import_module("polars")
    for name, rows in counts(Lake(twice), spark).items():
        folder = str(twice / "marts" / name)
        (in_duckdb,) = (
            duckdb.connect().execute("SELECT count(*) FROM read_parquet(?)", [f"{folder}/*.parquet"]).fetchone() or ()
        )
        read = [spark.read.parquet(folder).count(), len(pd.read_parquet(folder)), len(polars.read_parquet(folder))]
        assert [*read, in_duckdb] == [rows] * 4, name


def test_without_hard_links_there_is_no_such_folder_and_the_head_counts(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)
    lake = Lake(place)
    lake.publish(spark, "messages", lake.mart(spark, "messages"))
    assert keys(lake, spark) == KEYS
    assert {entry.name for entry in lake.files.entries("marts")} == {"_head.json", "_manifests", "_runs"}


def blocks(page: str, info: str) -> Iterator[str]:
    for block in FENCE.finditer((DOCS / page).read_text()):
        if block["info"].strip() == info:
            yield block["text"]


def test_the_recipes_for_duckdb_count_each_row_once(
    spark: SparkSession, twice: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(twice.parent)
    simple, whole = blocks("marts.md", "sql")
    ended = sorted([("accepted", 2), ("dead_lettered", 1)])
    assert sorted(duckdb.connect().execute(simple).fetchall()) == ended
    with duckdb.connect() as connection:
        *_, outcomes, flow = [connection.execute(one).fetchall() for one in whole.split(";") if one.strip()]
    assert sorted(outcomes) == ended
    assert [row[1:] for row in flow] == [(1, 0)]


@pytest.mark.parametrize("program", ["pandas", "polars"])
def test_the_recipe_for_a_program_reads_what_the_head_names(
    spark: SparkSession, twice: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, program: str
) -> None:
    monkeypatch.chdir(twice.parent)
    (recipe,) = blocks("marts.md", f"py {program}")
    known: dict[str, Any] = {}
    exec(recipe, known)
    read = {name: known["mart"](name) for name in MARTS}
    rows = {name: len(mart if program == "pandas" else mart.collect()) for name, mart in read.items()}
    assert rows == counts(Lake(twice), spark)
    assert "accepted" in capsys.readouterr().out


def test_a_delta_log_has_each_row_of_each_mart_once(spark: SparkSession, place: Path) -> None:
    export(place)
    wanted = counts(Lake(place), spark)
    assert {name: len(DeltaTable(place / "delta" / name).to_pyarrow_table()) for name in MARTS} == wanted


def test_the_recipe_for_the_quarantine_and_the_words_of_sql_are_as_duckdb_has_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment(tmp_path / "journal", [b"no record\n", b"nor this\n"])
    compact(spark, tmp_path / "journal", tmp_path / "lake")
    monkeypatch.chdir(tmp_path)
    (recipe,) = blocks("pipeline.md", "sql")
    assert [row[2:] for row in duckdb.connect().execute(recipe).fetchall()] == [(2, 0)]
    words = set[str]()
    for name in {name for ddl in ALL.values() for name in re.findall(r"(?:^|, )(\w+) (?![^<]*>)", ddl)}:
        try:
            duckdb.connect().execute(f'SELECT {name} FROM (SELECT 1 AS "{name}")')
        except duckdb.Error:
            words.add(name)
    (told,) = re.findall(
        r"^The columns (.+?) are also SQL keywords", (DOCS / "marts.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert set(re.findall(r"`(\w+)`", told)) == words
