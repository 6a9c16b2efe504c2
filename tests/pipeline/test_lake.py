# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""A lake that is none, newer, damaged, locked or full is one clear error; readers see old or new, never half."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from redeliver_mw.errors import ConfigError
from redeliver_mw.pipeline import Lake, LakeError, SparkError
from redeliver_mw.pipeline.errors import readable_errors
from redeliver_mw.pipeline.files import files_at
from redeliver_mw.pipeline.manifests import DataFile, Manifest, SegmentEntry, read_manifests, to_json
from redeliver_mw.pipeline.time_range import DAY_US, TimeRange, day_of, micros, span
from tests.disks import fill, small_disk_at

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

MANIFEST = Manifest(
    run="r-1",
    created_us=5,
    journal="/j",
    segments=[SegmentEntry("seg-a.jsonl", 10, "m", 1, 2, 3, 4)],
    files=[DataFile("events/dt=2026-11-01/run=r-1/a.parquet", 1, 2, 3, 4)],
    duplicates=7,
)
FORMATS = [f'{{"format": {value}}}' for value in ('"one"', "null", "true", "0", "-1", "1.0", "[1]")]


def refusal(root: str | Path, **options: bool) -> ConfigError:
    with pytest.raises(ConfigError) as refused:
        Lake(root, **options)
    assert refused.value.where
    assert refused.value.cure
    return refused.value


def flow(spark: SparkSession, numbers: range) -> DataFrame:
    """Return rows of the mart `dead_letter_flow`."""
    days = spark.range(numbers.start, numbers.stop)
    return days.selectExpr(
        "DATE'2026-11-01' AS day",
        "'orders' AS destination",
        "'fatal' AS reason",
        "id AS in",
        "id AS out",
        "CAST(NULL AS BIGINT) AS oldest_us",
    )


def said(frame: DataFrame) -> list[int]:
    return sorted(row["in"] for row in frame.collect())


# What is a lake


def test_a_path_without_a_lake_is_your_input_and_says_how_to_make_one(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nothing"):
        assert "redeliver pipeline compact" in refusal(place).cure
    assert list(tmp_path.iterdir()) == []


def test_a_lake_is_not_made_among_other_things(tmp_path: Path) -> None:
    (tmp_path / "seg-a.jsonl").touch()
    assert "other things" in refusal(tmp_path, create=True).what
    assert [file.name for file in tmp_path.iterdir()] == ["seg-a.jsonl"]


def test_a_lake_of_a_newer_release_is_refused_and_left_alone(tmp_path: Path) -> None:
    Lake(tmp_path, create=True)
    (tmp_path / "_lake.json").write_text('{"format": 3}')
    for create in (False, True):
        error = refusal(tmp_path, create=create)
        assert (error.what, error.cure) == (
            "the lake has the format 3, and this release knows 2",
            "Upgrade redeliver-mw",
        )


@pytest.mark.parametrize("content", ["", "{}", "[]", "format: 1", "{", "\0", *FORMATS])
def test_a_lake_that_does_not_name_its_format_is_damaged_and_no_cure_asks_to_guess_it(
    tmp_path: Path, content: str
) -> None:
    (tmp_path / "_lake.json").write_text(content)
    error = refusal(tmp_path)
    assert error.what == "_lake.json is damaged"
    assert error.cure.startswith("Put back the one of a backup; if no other release has ever written to this lake")


@pytest.mark.parametrize(
    "place", ["hdfs://name/lake", "http://bucket/lake", "hdfs://me:pass-word@name/lake", "", "file://"]
)
def test_a_place_that_is_no_folder_is_refused_with_what_to_do(place: str) -> None:
    with pytest.raises(
        ConfigError, match=r"cannot be had yet\. Give a folder that driver and executors share|empty path"
    ) as error:
        Lake(place, create=True)
    assert "pass-word" not in str(error.value)


@pytest.mark.parametrize("place", ["s3://lakes/lake", "gs://lakes/lake", "abfss://c@a.dfs.core.windows.net/lake"])
def test_a_journal_or_a_plan_in_a_bucket_is_refused_before_the_bucket_is_asked(place: str, tmp_path: Path) -> None:
    for job in (
        lambda: files_at(place, "journal"),
        lambda: files_at(place, "plan"),
    ):
        with pytest.raises(ConfigError) as error:
            job()
        assert error.value.cure
        assert error.value.code == "path-not-usable"


def test_a_file_url_is_the_folder_it_names(tmp_path: Path) -> None:
    Lake(f"file://{tmp_path}/lake", create=True)
    assert Lake(tmp_path / "lake").root == str(tmp_path / "lake")


def test_a_file_in_the_place_of_a_lake_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lake").touch()
    refusal(tmp_path / "lake")


# Manifests


def test_a_manifest_is_read_as_it_was_written(lake: Lake) -> None:
    lake.files.publish(MANIFEST.path, to_json(MANIFEST))
    (Path(lake.root) / "events" / "_manifests" / "_new-x.json").write_text("half")
    assert read_manifests(lake.files) == [MANIFEST]


@pytest.mark.parametrize("content", [b"", b"{}", b'{"run": "r', b"[]", to_json(MANIFEST)[:-1], b'{"run":1,"more":2}'])
def test_a_damaged_manifest_is_reported_because_counting_without_it_is_wrong(lake: Lake, content: bytes) -> None:
    lake.files.publish(MANIFEST.path, content)
    with pytest.raises(LakeError, match=r"r-1\.json: this manifest is damaged") as error:
        lake.manifests()
    assert error.value.cure


# One writer


def test_the_error_of_a_second_writer_names_the_first(lake: Lake) -> None:
    holder = rf"process {os.getpid()} on .* is at work on its events"
    with lake.locked(), pytest.raises(LakeError, match=holder), Lake(lake.root).locked():
        pytest.fail("two have it")
    with Lake(lake.root).locked():  # and after the first nobody
        pass


def test_who_has_a_lock_may_enter_again_and_other_parts_are_free(lake: Lake) -> None:
    with lake.locked(), lake.locked(), Lake(lake.root).locked("marts"):
        pass
    with lake.locked():
        with lake.locked():
            pass
        with pytest.raises(LakeError), Lake(lake.root).locked():
            pass


def test_the_lock_of_a_killed_process_is_free(lake: Lake) -> None:
    program = (
        "import sys; from redeliver_mw.pipeline import Lake\n"
        "with Lake(sys.argv[1]).locked(): print('has it', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, lake.root]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "has it\n"
        with pytest.raises(LakeError, match=f"process {other.pid} "), lake.locked():
            pass
        other.send_signal(signal.SIGKILL)
        other.wait()
        with lake.locked():
            pass


# Marts


def test_a_mart_is_read_as_it_was_published_last(spark: SparkSession, lake: Lake) -> None:
    assert lake.publish(spark, "dead_letter_flow", flow(spark, range(3))) == 3
    assert said(lake.mart(spark, "dead_letter_flow")) == [0, 1, 2]
    assert lake.publish(spark, "dead_letter_flow", flow(spark, range(2, 4))) == 2
    assert said(lake.mart(spark, "dead_letter_flow")) == [2, 3]


def test_who_reads_a_mart_while_it_is_replaced_sees_the_old_one(spark: SparkSession, lake: Lake) -> None:
    lake.publish(spark, "dead_letter_flow", flow(spark, range(3)))
    old = lake.mart(spark, "dead_letter_flow")
    lake.publish(spark, "dead_letter_flow", flow(spark, range(5)))
    assert said(old) == [0, 1, 2]
    lake.publish(spark, "dead_letter_flow", flow(spark, range(1)))
    assert len(lake.files.entries("marts/_runs")) == 2  # this one, and the one that may still be read


def test_a_mart_of_other_columns_is_a_bug_and_not_published(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(TypeError, match=r"dead_letter_flow has the columns .*'in', 'bigint'"):
        lake.publish(spark, "dead_letter_flow", flow(spark, range(3)).withColumnRenamed("out", "gone"))
    with pytest.raises(LakeError, match="is not there yet"):
        lake.mart(spark, "dead_letter_flow")


def test_a_mart_that_fails_half_way_leaves_the_old_one(spark: SparkSession, lake: Lake) -> None:
    lake.publish(spark, "dead_letter_flow", flow(spark, range(3)))
    failing = flow(spark, range(1000)).selectExpr(
        "day", "destination", "reason", "IF(in = 999, raise_error('gone wrong'), in) AS in", "out", "oldest_us"
    )
    with pytest.raises(SparkError, match="gone wrong"):
        lake.publish(spark, "dead_letter_flow", failing)
    assert said(lake.mart(spark, "dead_letter_flow")) == [0, 1, 2]
    assert len(lake.files.entries("marts/_runs")) == 1


def test_a_mart_on_a_full_disk_is_one_error_and_the_old_one_stays(spark: SparkSession, tmp_path: Path) -> None:
    with small_disk_at(tmp_path / "disk", "512k") as disk:
        lake = Lake(disk / "lake", create=True)
        lake.publish(spark, "dead_letter_flow", flow(spark, range(3)))
        with pytest.raises(OSError, match="No space left"):
            fill(disk / "ballast")
        with pytest.raises(LakeError, match="the disk is full") as error:
            lake.publish(spark, "dead_letter_flow", flow(spark, range(50_000)))
        assert error.value.cure
        assert said(lake.mart(spark, "dead_letter_flow")) == [0, 1, 2]
        (disk / "ballast").unlink()
        assert lake.publish(spark, "dead_letter_flow", flow(spark, range(50_000))) == 50_000


def test_a_name_that_is_no_mart_is_your_input(spark: SparkSession, lake: Lake) -> None:
    for name in ("events", "recoveries", "../events"):
        with pytest.raises(ConfigError, match="attempt_curve"):
            lake.mart(spark, name)


def test_an_empty_lake_says_that_nothing_was_compacted(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(LakeError, match="holds no records yet"):
        lake.events(spark)
    assert lake.quarantine(spark).collect() == []


def test_a_lake_in_a_folder_that_looks_like_a_pattern_is_read(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "a [b] {c,d}* é%20 #1", create=True)
    lake.publish(spark, "dead_letter_flow", flow(spark, range(3)))
    assert said(lake.mart(spark, "dead_letter_flow")) == [0, 1, 2]


def test_a_lake_that_was_moved_is_read(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    lake.publish(spark, "dead_letter_flow", flow(spark, range(3)))
    Path(lake.root).rename(tmp_path / "moved")
    assert said(Lake(tmp_path / "moved").mart(spark, "dead_letter_flow")) == [0, 1, 2]


# Troubles, and times


def test_a_bug_of_ours_keeps_its_own_name() -> None:
    with pytest.raises(ZeroDivisionError), readable_errors("here"):
        _ = 1 / 0


def test_what_goes_wrong_in_a_task_is_reported_for_what_it_is(spark: SparkSession) -> None:
    def run(work: Callable[[], object]) -> None:
        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            work()
            yield from batches

        with readable_errors("here"):
            spark.range(1).mapInArrow(task, "id BIGINT").collect()

    from pyspark.errors import PythonException

    with pytest.raises(SparkError, match=r"Spark gave up: ZeroDivisionError: division by zero.*spark\.log\.level"):
        run(lambda: 1 / 0)
    with pytest.raises(SparkError, match=r"a worker lacks a package: ModuleNotFoundError.*pipeline doctor"):
        run(lambda: __import__("no_such_package"))
    with pytest.raises(LakeError, match="disk is full"):
        run(lambda: Path("/dev/full").write_text("x"))
    with pytest.raises(LakeError, match=r"FileNotFoundError: \[Errno 2\]"):
        run(lambda: Path("/no/such/file").read_text())
    with pytest.raises(PythonException, match="Invalid isoformat"):  # a bug of ours: it keeps its traceback
        run(lambda: micros("yesterday"))


@pytest.mark.parametrize(
    ("moment", "us"),
    [
        (5, 5),
        ("1970-01-02", DAY_US),
        ("1970-01-01T00:00:01", 1_000_000),
        ("1970-01-01T01:00:00.000002+01:00", 2),
        (" 1970-01-01T00:00:01Z ", 1_000_000),
        (day_of(DAY_US * 3 - 1), 2 * DAY_US),
    ],
)
def test_a_moment_is_in_utc_and_exact(moment: int | str, us: int) -> None:
    assert micros(moment) == us


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01", "", "2026-11-01T25:00", "99999-01-01"])
def test_text_that_is_no_time_is_your_input(text: str) -> None:
    with pytest.raises(ConfigError, match="is no time"):
        span(until=text)


def test_an_end_before_the_beginning_is_your_input() -> None:
    with pytest.raises(ConfigError, match="not after"):
        span("2026-11-02", "2026-11-02")


def test_a_span_holds_its_first_instant_and_not_its_last() -> None:
    one = TimeRange(10, 20)
    assert [one.touches(at, at) for at in (9, 10, 19, 20)] == [False, True, True, False]
    assert [one.holds(10, 19), one.holds(9, 19), one.holds(10, 20)] == [True, False, False]
    assert json.dumps(TimeRange()) == "[null, null]"
    assert TimeRange().holds(-5, 5)
