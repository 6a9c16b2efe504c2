# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""A lake has each segment once, each record once, and all of a run or nothing, whatever is in the journal or dies."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from contextlib import nullcontext
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from redeliver_mw.errors import ConfigError
from redeliver_mw.journal.records import FIELDS
from redeliver_mw.pipeline import Compacted, Lake, LakeError, compact
from redeliver_mw.pipeline.files import PosixFiles
from redeliver_mw.pipeline.head import LostRace
from redeliver_mw.pipeline.lake import compaction_task, journal_segments, parquet_writer
from redeliver_mw.pipeline.lake.compaction import nothing_new
from redeliver_mw.pipeline.lake.compaction_task import run_tasks
from redeliver_mw.pipeline.lake.task_messages import CompactionTask, SegmentPiece
from redeliver_mw.pipeline.schemas import EVENTS
from redeliver_mw.pipeline.time_range import TimeRange
from tests.disks import fill, small_disk_at
from tests.pipeline.journals import DAY, START_US, line, lines, segment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Return a folder for segments, with no segment in it yet."""
    folder = tmp_path / "journal"
    folder.mkdir()
    return folder


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return the path of a folder at which a lake may be made."""
    return tmp_path / "lake"


def numbers(lake: Path) -> list[int]:
    """Return the numbers of the records in a lake, as its manifests and DuckDB say."""
    paths = [str(lake / file.path) for manifest in Lake(lake).manifests() for file in manifest.files]
    if not paths:
        return []
    found = duckdb.execute("SELECT record_id FROM read_parquet($paths)", {"paths": paths}).fetchall()
    return sorted(int(name.rpartition("-")[2]) for (name,) in found)


def bad_lines(lake: Path) -> list[tuple[str, int, int, str]]:
    """Return the lines in quarantine, by segment and offset."""
    paths = [str(lake / file.path) for manifest in Lake(lake).manifests() for file in manifest.quarantine]
    rows = [row for path in paths for row in pq.read_table(path, partitioning=None).to_pylist()]
    return sorted((row["segment"], row["offset"], row["length"], row["head"]) for row in rows)


def files(lake: Path) -> set[str]:
    """Return the paths of all files in a lake but the locks."""
    found = (str(path.relative_to(lake)) for path in lake.rglob("*") if path.is_file())
    return {name for name in found if not name.endswith(".lock")}


def counted(done: Compacted) -> tuple[int, int, int, int]:
    return done.records, done.duplicates, done.quarantined, done.segments


# What becomes of lines


def test_every_field_of_every_record_arrives_in_the_folder_of_its_day(
    spark: SparkSession, journal: Path, place: Path
) -> None:
    odd = {"record_id": "x-7", "app": "Käse \N{CHEESE WEDGE}", "targets": ["queue:a", ""], "propensity": 0.1}
    path = segment(journal, [*lines(range(2000)), *lines(range(86_398, 86_402)), line(7, **odd)])
    done = compact(spark, journal, place)
    assert (done.records, done.days) == (2005, (date(2026, 11, 1), date(2026, 11, 2)))

    types = EVENTS.replace("ARRAY<STRING>", "VARCHAR[]").split(", ")
    columns = ", ".join("{}: '{}'".format(*column.split(" ")) for column in types)
    given = f"SELECT * FROM read_json('{path}', format = 'newline_delimited', columns = {{{columns}}})"
    parquet = f"FROM read_parquet('{place}/events/dt=*/run=*/*.parquet', hive_partitioning = true)"
    taken = f"SELECT {', '.join(FIELDS)} {parquet}"
    assert duckdb.execute(f"({given}) EXCEPT ALL ({taken})").fetchall() == []
    assert duckdb.execute(f"({taken}) EXCEPT ALL ({given})").fetchall() == []
    assert duckdb.execute(
        f"SELECT dt, count(*), min(ts_us), max(ts_us) {parquet} GROUP BY dt ORDER BY dt"
    ).fetchall() == [
        (date(2026, 11, 1), 2003, START_US, START_US + DAY - 1_000_000),
        (date(2026, 11, 2), 2, START_US + DAY, START_US + DAY + 1_000_000),
    ]


def test_spark_reads_the_lake_as_it_is_promised(spark: SparkSession, journal: Path, place: Path) -> None:
    segment(journal, lines(range(86_390, 86_410)))
    compact(spark, journal, place)
    events = Lake(place).events(spark)
    assert events.schema.simpleString() == spark.createDataFrame([], f"{EVENTS}, dt DATE").schema.simpleString()
    assert {(row["dt"], row["count"]) for row in events.groupBy("dt").count().collect()} == {
        (date(2026, 11, 1), 10),
        (date(2026, 11, 2), 10),
    }
    some = Lake(place).events(spark, since=START_US + 86_395_000_000, until="2026-11-02T00:00:03Z")
    assert sorted(int(row["record_id"].rpartition("-")[2]) for row in some.collect()) == list(range(86_395, 86_403))
    assert Lake(place).events(spark, until="2026-11-01").collect() == []


def test_bad_lines_of_every_kind_go_to_quarantine_with_their_place(
    spark: SparkSession, journal: Path, place: Path
) -> None:
    torn = segment(journal, [*lines(range(100)), line(100)[:50]])
    huge = segment(journal, [line(101)])
    with huge.open("r+b") as file:
        file.seek(300_000_000, io.SEEK_END)  # a hole: zeros that lie on no disk
        file.write(b"\n" + line(102))
    packed = segment(journal, [line(103), b"GET / HTTP/1.1\n", line(104)], packed=True)
    half = segment(journal, lines(range(200, 260)), packed=True)
    half.write_bytes(half.read_bytes()[:-20])
    foreign = segment(journal, b"\0" * 10_000)
    for name in ("_seg-web-1-5-abc.000001.jsonl.open", "_torn-seg-a.jsonl", ".seg-a.jsonl", "notes.jsonl", "seg-a.txt"):
        (journal / name).write_bytes(line(999))
    (journal / "seg-folder.jsonl").mkdir()

    done = compact(spark, journal, place)
    assert counted(done) == (104, 0, 5, 5)
    assert numbers(place) == [*range(100), 101, 102, 103, 104]
    assert done.unfinished == 1
    hundred = sum(map(len, lines(range(100))))
    assert bad_lines(place) == sorted(
        [
            (str(torn), hundred, 50, line(100)[:50].decode()),
            (str(huge), len(line(101)), 300_000_000, "\0" * 256),
            (str(packed), len(line(103)), 14, "GET / HTTP/1.1"),
            (str(half), 0, half.stat().st_size, half.read_bytes()[:256].decode(errors="replace")),
            (str(foreign), 0, 10_000, "\0" * 256),
        ]
    )
    assert Lake(place).quarantine(spark).where("reason LIKE '%a line of more than%'").count() == 1


def test_a_packed_segment_that_arrives_whole_later_is_read_then(
    spark: SparkSession, journal: Path, place: Path
) -> None:
    path = segment(journal, lines(range(300)), packed=True)
    whole = path.read_bytes()
    path.write_bytes(whole[:500])
    assert counted(compact(spark, journal, place)) == (0, 0, 1, 1)
    path.write_bytes(whole)
    assert counted(compact(spark, journal, place)) == (300, 0, 0, 1)


# Once


def test_what_was_read_is_not_read_again_and_what_is_new_is(spark: SparkSession, journal: Path, place: Path) -> None:
    segment(journal, [*lines(range(50)), b"half"])
    assert counted(compact(spark, journal, place)) == (50, 0, 1, 1)
    before = files(place)
    again = compact(spark, journal, place)
    assert (again.run, again.known, counted(again)) == (None, 1, (0, 0, 0, 0))
    assert nothing_new(journal, place) == again
    assert files(place) == before
    segment(journal, lines(range(50, 60)))
    assert nothing_new(journal, place) is None
    assert counted(compact(spark, journal, place)) == (10, 0, 0, 1)
    assert numbers(place) == list(range(60))


def test_a_late_record_joins_its_day(spark: SparkSession, journal: Path, place: Path) -> None:
    segment(journal, lines([0, 1, 90_000]))
    compact(spark, journal, place)
    segment(journal, lines([2, 180_000]))
    assert compact(spark, journal, place).days == (date(2026, 11, 1), date(2026, 11, 3))
    events = Lake(place).events(spark, until="2026-11-02")
    assert sorted(row["record_id"][13:] for row in events.collect()) == ["0", "1", "2"]


def test_a_copy_of_a_segment_under_another_name_is_not_read(spark: SparkSession, journal: Path, place: Path) -> None:
    path = segment(journal, lines(range(100)))
    shutil.copy(path, journal / "seg-copy.jsonl")
    done = compact(spark, journal, place)
    assert (counted(done), done.copies) == ((100, 0, 0, 1), 1)
    shutil.copy(path, journal / "seg-another.jsonl")
    assert compact(spark, journal, place).copies == 1
    moved = journal.rename(journal.with_name("moved"))
    done = compact(spark, moved, place)
    assert (counted(done), done.copies) == ((0, 0, 0, 0), 3)
    assert compact(spark, moved, place).run is None
    assert numbers(place) == list(range(100))


def test_two_journals_may_have_segments_of_the_same_name_and_size(spark: SparkSession, tmp_path: Path) -> None:
    for folder, number in (("a", 1), ("b", 2)):
        segment(tmp_path / folder, lines([number]), "seg-x.jsonl")
        compact(spark, tmp_path / folder, tmp_path / "lake")
    assert numbers(tmp_path / "lake") == [1, 2]


def test_records_that_are_in_other_segments_too_are_taken_once(spark: SparkSession, journal: Path, place: Path) -> None:
    segment(journal, lines(range(100)))
    segment(journal, lines(range(90, 120)))  # ten of the same run
    done = compact(spark, journal, place)
    assert (counted(done), numbers(place)) == ((120, 10, 0, 2), list(range(120)))
    segment(journal, lines([5, 119, 120, 120, 121, 90_000]))  # two that are in the lake, one twice, one of another day
    done = compact(spark, journal, place)
    assert counted(done) == (3, 3, 0, 1)
    assert numbers(place) == [*range(122), 90_000]
    segment(journal, lines([*range(60), *range(80, 122)]))  # nothing new at all
    done = compact(spark, journal, place)
    assert (counted(done), done.files) == ((0, 102, 0, 1), 0)
    listed = {file.path for manifest in Lake(place).manifests() for file in manifest.files}
    assert {name for name in files(place) if name.endswith(".parquet")} == listed  # no file that does not count


def test_of_two_records_with_one_id_and_day_the_first_stays(spark: SparkSession, journal: Path, place: Path) -> None:
    segment(journal, [line(1, app="first"), line(1, app="second"), line(1, app="third")])
    assert compact(spark, journal, place).duplicates == 2
    segment(journal, [line(1, app="fourth")])
    assert compact(spark, journal, place).duplicates == 1
    assert [row["app"] for row in Lake(place).events(spark).collect()] == ["first"]


def test_what_is_outside_of_since_and_until_is_left_for_later(spark: SparkSession, journal: Path, place: Path) -> None:
    segment(journal, [*lines(range(10)), b"half\n", *lines(range(90_000, 90_010))])
    segment(journal, lines(range(10, 20)))
    done = compact(spark, journal, place, until="2026-11-02")
    assert (counted(done), done.outside) == ((20, 0, 1, 2), 10)
    done = compact(spark, journal, place, since="2026-11-02", until="2026-11-02T01:00:05Z")
    assert (counted(done), done.outside, done.known) == ((5, 0, 1, 1), 15, 1)
    done = compact(spark, journal, place)
    assert (counted(done), done.outside) == ((5, 15, 1, 1), 0)
    assert compact(spark, journal, place).run is None
    assert numbers(place) == [*range(20), *range(90_000, 90_010)]
    assert len(bad_lines(place)) == 1


def test_in_any_order_of_segments_and_runs_the_lake_holds_the_same(
    spark: SparkSession, journal: Path, place: Path
) -> None:
    rng = random.Random(5)
    wanted: set[int] = set()
    for _ in range(3):
        for _ in range(3):
            some = [rng.randrange(400) * 500 for _ in range(60)]
            wanted |= set(some)
            segment(journal, lines(some))
        compact(spark, journal, place)
    assert numbers(place) == sorted(wanted)


# Many tasks


def test_a_large_segment_is_shared_out_and_its_lines_are_taken_once(
    spark: SparkSession, journal: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_segments, "SPLIT", 100_000)
    monkeypatch.setattr(journal_segments, "_LEAST", 100_000)
    segment(journal, [*lines(range(1000)), b"x" * 200_000 + b"\n", *lines(range(1000, 2000)), b"half"])
    seen: list[tuple[str, int, int]] = []
    done = compact(spark, journal, place, progress=lambda *how_far: seen.append(how_far))
    assert counted(done) == (2000, 0, 2, 1)
    assert done.files == 2  # as many as there are cores, though it was cut into more pieces
    assert numbers(place) == list(range(2000))
    size = next(journal.iterdir()).stat().st_size
    assert seen[0] == ("reading", 0, size)
    assert seen[-1] == ("looking for duplicates", 1, 1)
    assert not any("_ticks/" in name for name in files(place))


def test_pieces_are_shared_out_evenly_and_neighbours_stay_together() -> None:
    mib = 1 << 20
    small = [journal_segments.ListedSegment(f"/j/seg-{number}.jsonl", 32 * mib) for number in range(64)]
    for slots, tasks in ((1, 4), (8, 8), (1000, 32)):  # 2 GiB: half a GiB each, all cores, no less than 64 MiB
        shared = journal_segments.share_out(small, set(), slots)
        assert len(shared) == tasks
        assert [piece.segment for task in shared for piece in task] == list(range(64))
        assert {len(task) for task in shared} == {64 // tasks}
    [alone] = journal_segments.share_out(small[:1], {"/j/seg-0.jsonl"}, 1000)
    assert alone == [SegmentPiece(0, "/j/seg-0.jsonl", 0, None, True)]
    large = journal_segments.share_out([journal_segments.ListedSegment("/j/seg-a.jsonl", 1000 * mib)], set(), 4)
    bounds = [(piece.start, piece.end) for task in large for piece in task]
    assert bounds[0][0] == 0
    assert bounds[-1][1] is None
    assert all(end == start for (_, end), (start, _) in pairwise(bounds))
    packed = journal_segments.share_out([journal_segments.ListedSegment("/j/seg-a.jsonl.gz", 1000 * mib)], set(), 4)
    assert sum(map(len, packed)) == 1


def test_a_task_that_runs_again_writes_the_same_files(tmp_path: Path, journal: Path) -> None:
    path = segment(journal, [*lines(range(200)), b"half\n", *lines(range(90_000, 90_100))])
    work = CompactionTask(str(tmp_path), "run", TimeRange(), [[], [SegmentPiece(0, str(path), 0, None)]])
    one = pa.record_batch([pa.array([1])], names=["id"])
    [first] = run_tasks(work, iter([one]))
    there = {file: file.read_bytes() for file in tmp_path.rglob("*.parquet")}
    [second] = run_tasks(work, iter([one]))
    assert first.to_pylist() == second.to_pylist()
    assert {file: file.read_bytes() for file in tmp_path.rglob("*.parquet")} == there
    assert len(there) == 3  # two days, and the quarantine


def test_files_of_many_days_and_of_a_good_size_are_written_in_bounded_memory(
    tmp_path: Path, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_writer, "LARGE", 20_000)
    monkeypatch.setattr(parquet_writer, "DAYS_OPEN", 5)
    monkeypatch.setattr(compaction_task, "_BAD_AT_ONCE", 10)
    rng = random.Random(7)
    some = [rng.randrange(40) * 86_400 + number % 86_400 for number in range(3000)]
    one_day = [number + 100 * 86_400 for number in range(6000)]
    path = segment(journal, [*lines(some), *[b"half\n"] * 55, *lines(one_day)])
    writer = parquet_writer.DayWriter(str(tmp_path), "run", 0, compaction_task.ARROW, waiting=200_000)
    for found in compaction_task.checked(SegmentPiece(0, str(path), 0, None)):
        if found.attempts is not None:
            for start in range(0, len(found.attempts), 500):
                writer.add(found.attempts.slice(start, 500))
    written = writer.close()
    assert sum(file.rows for file in written) == 9000
    per_day = Counter(file.path.split("/")[1] for file in written)
    assert len(per_day) == 41
    assert per_day["dt=2027-02-09"] > 1  # ended when it was large
    for file in written:
        times = pq.read_table(tmp_path / file.path, columns=["ts_us"], partitioning=None)["ts_us"].to_pylist()
        assert (min(times), max(times), len(times)) == (file.min_us, file.max_us, file.rows)
        assert file.path.split("/")[1] == f"dt={date.fromordinal(date(1970, 1, 1).toordinal() + times[0] // DAY)}"


# Bad places


def test_a_journal_that_is_none_is_your_input(spark: SparkSession, tmp_path: Path, place: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    for name, what in (("gone", "does not exist"), ("file", "is no folder"), ("empty", "no segment of a journal")):
        with pytest.raises(ConfigError, match=what) as error:
            compact(spark, tmp_path / name, place)
        assert error.value.cure
        assert not place.exists()


@pytest.mark.timeout(60)
def test_a_pipe_that_is_called_like_a_segment_is_passed_over(spark: SparkSession, journal: Path, place: Path) -> None:
    segment(journal, lines(range(5)))
    os.mkfifo(journal / "seg-web-1-4711-0123456789ab.999999.jsonl")
    assert compact(spark, journal, place).records == 5


def test_a_journal_that_is_only_begun_is_no_error(spark: SparkSession, journal: Path, place: Path) -> None:
    (journal / "_seg-web-1-5-abc.000001.jsonl.open").touch()
    done = compact(spark, journal, place)
    assert (done.run, done.unfinished) == (None, 1)


def test_a_journal_that_was_emptied_after_it_was_read_is_no_error(
    spark: SparkSession, journal: Path, place: Path
) -> None:
    path = segment(journal, lines(range(3)))
    compact(spark, journal, place)
    path.unlink()
    assert compact(spark, journal, place).run is None


def test_a_segment_that_goes_while_it_is_read_fails_the_run_and_is_named(
    spark: SparkSession, journal: Path, place: Path
) -> None:
    segment(journal, lines(range(3)))
    path = segment(journal, lines(range(3, 6)), "seg-gone.jsonl")
    with pytest.raises(LakeError, match=r"seg-gone\.jsonl on .*No such file"):
        compact(spark, journal, place, progress=lambda *_: path.unlink(missing_ok=True))
    assert files(place) == {"_lake.json"}
    assert compact(spark, journal, place).records == 3


def test_a_second_compaction_at_the_same_time_is_refused_with_the_holder(
    spark: SparkSession, journal: Path, place: Path
) -> None:
    segment(journal, lines(range(3)))
    lake = Lake(place, create=True)
    with lake.locked(), pytest.raises(LakeError, match=f"process {os.getpid()} on .* is at work on its events"):
        compact(spark, journal, place)
    assert compact(spark, journal, place).records == 3


def test_on_a_full_disk_the_lake_stays_as_it_was_and_goes_on_when_there_is_room(
    spark: SparkSession, journal: Path, tmp_path: Path
) -> None:
    segment(journal, lines(range(100)))
    with small_disk_at(tmp_path / "disk", "2m") as disk:
        place = disk / "lake"
        compact(spark, journal, place)
        before = files(place)
        segment(journal, [line(number, app=random.Random(number).randbytes(40).hex()) for number in range(100, 9000)])
        with pytest.raises(OSError, match="No space left"):
            fill(disk / "ballast")
        with pytest.raises(LakeError, match="the disk is full") as error:
            compact(spark, journal, place)
        assert error.value.cure
        assert files(place) == before
        assert numbers(place) == list(range(100))
        (disk / "ballast").unlink()
        assert compact(spark, journal, place).records == 8900


def test_a_lake_that_may_not_be_written_to_is_reported(
    spark: SparkSession, journal: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment(journal, lines(range(3)))
    Lake(place, create=True)
    (place / "events").touch()  # a file where a folder has to be
    with pytest.raises(LakeError, match="cannot be read or written"):
        compact(spark, journal, place)


def test_a_manifest_that_cannot_be_written_leaves_nothing(
    spark: SparkSession, journal: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment(journal, lines(range(3)))
    Lake(place, create=True)

    def refuse(self: PosixFiles, path: str, content: bytes) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(PosixFiles, "publish", refuse)
        with pytest.raises(LakeError, match="Input/output error"):
            compact(spark, journal, place)
    assert files(place) == {"_lake.json"}
    assert compact(spark, journal, place).records == 3


def test_of_two_compactions_at_the_same_time_one_is_published_and_the_other_ends_and_leaves_nothing(
    spark: SparkSession, journal: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment(journal, lines(range(3)))
    compact(spark, journal, place)
    segment(journal, lines(range(3, 6)))
    monkeypatch.setattr(PosixFiles, "locked", lambda *_: nullcontext())  # as in a bucket
    other: list[Compacted] = []

    def overtake(what: str, *_: int) -> None:
        if what == "looking for duplicates":
            other.append(compact(spark, journal, place))

    with pytest.raises(LostRace, match=r"the run \S+-g1 of process .* was published first") as error:
        compact(spark, journal, place, progress=overtake)
    assert error.value.cure
    assert other[0].records == 3
    assert numbers(place) == list(range(6))
    listed = {file.path for manifest in Lake(place).manifests() for file in manifest.files}
    assert {name for name in files(place) if name.endswith(".parquet")} == listed
    assert compact(spark, journal, place).run is None


def test_a_lake_of_the_format_before_is_read_and_gets_the_present_one_with_the_first_run(
    spark: SparkSession, journal: Path, place: Path
) -> None:
    segment(journal, lines(range(3)))
    first = compact(spark, journal, place).run
    old = f"{str(first).rpartition('-')[0]}"
    for path in sorted(place.rglob("*"), reverse=True):  # names had no base
        path.rename(path.with_name(path.name.replace(str(first), old)))
    manifest = place / "events/_manifests" / f"{old}.json"
    manifest.write_text(manifest.read_text().replace(str(first), old))
    shutil.rmtree(place / "events/_snapshots")
    (place / "events/_head.json").unlink()
    (place / "_lake.json").write_text('{"format": 1}')
    assert numbers(place) == [0, 1, 2]
    assert compact(spark, journal, place).run is None
    assert json.loads((place / "_lake.json").read_text())["format"] == 1  # nothing was written
    segment(journal, lines(range(3, 6)))
    assert compact(spark, journal, place).records == 3
    assert numbers(place) == list(range(6))
    assert json.loads((place / "_lake.json").read_text())["format"] == 2
    assert next(one.run for one in Lake(place).manifests()) == old


def test_a_dead_runs_files_are_removed_and_a_living_ones_are_not(
    spark: SparkSession, journal: Path, place: Path
) -> None:
    segment(journal, lines(range(3)))
    compact(spark, journal, place)
    kept = files(place)
    for folder in ("events/dt=2026-11-01/run=dead", "events/dt=2020-01-01/run=dead", "quarantine/run=dead"):
        (place / folder).mkdir(parents=True)
        (place / folder / "dead.parquet").write_bytes(b"half")
    assert numbers(place) == [0, 1, 2]
    assert Lake(place).events(spark).count() == 3
    compact(spark, journal, place)
    assert files(place) == kept


# Death


PROGRAM = """
import sys
from redeliver_mw.pipeline import compact, session
def progress(what, done, of):
    print(what, flush=True)
    if what == sys.argv[3]:
        sys.stdin.read()
compact(session("local[2]"), sys.argv[1], sys.argv[2], progress=progress)
"""


def struck(journal: Path, place: Path, word: str, number: signal.Signals) -> int:
    """Return the exit code of a compaction to which a signal was sent when it had begun what `word` says."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "adapters")])}
    command = [sys.executable, "-c", PROGRAM, str(journal), str(place), word]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, text=True
    ) as process:
        assert process.stdout is not None
        assert any(said.strip() == word for said in process.stdout)
        process.send_signal(number)
        return process.wait(60)


@pytest.mark.slow
@pytest.mark.parametrize("word", ["reading", "looking for duplicates"])
def test_after_a_kill_the_next_run_makes_the_lake_that_would_have_been(
    spark: SparkSession, journal: Path, place: Path, word: str
) -> None:
    segment(journal, [*lines(range(100)), b"half\n"])
    compact(spark, journal, place)
    for start in (100, 5100):
        segment(journal, [*lines(range(start, start + 5000)), *lines(range(start - 20, start)), b"half\n"])
    assert struck(journal, place, word, signal.SIGKILL) == -signal.SIGKILL
    assert numbers(place) == list(range(100))
    done = compact(spark, journal, place)
    assert counted(done) == (10_000, 40, 2, 2)
    assert numbers(place) == list(range(10_100))
    assert len(bad_lines(place)) == 3
    listed = {file.path for one in Lake(place).manifests() for file in [*one.files, *one.quarantine]}
    assert {name for name in files(place) if name.endswith(".parquet")} == listed


@pytest.mark.slow
def test_an_interrupt_leaves_the_lake_as_it_was(spark: SparkSession, journal: Path, place: Path) -> None:
    segment(journal, lines(range(5000)))
    assert struck(journal, place, "looking for duplicates", signal.SIGINT) != 0
    assert files(place) == {"_lake.json"}
    assert compact(spark, journal, place).records == 5000


CONNECT = """
import sys
from redeliver_mw.pipeline import Lake, compact, session
spark = session("local-connect[2]")
assert "connect" in type(spark).__module__, type(spark)
for _ in range(2):
    done = compact(spark, sys.argv[1], sys.argv[2])
    print(done.records, done.duplicates, done.quarantined)
lake = Lake(sys.argv[2])
rows = lake.events(spark, since="2026-11-01").selectExpr("dt AS day", "destination", "outcome AS reason", "ts_us AS in",
    "ts_us AS out", "CAST(NULL AS BIGINT) AS oldest_us")
print(lake.publish(spark, "dead_letter_flow", rows), lake.mart(spark, "dead_letter_flow").count())
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("connect_port")
def test_it_all_works_over_spark_connect(journal: Path, place: Path) -> None:
    segment(journal, [*lines(range(100)), b"half\n"])
    segment(journal, lines(range(90, 110)))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "adapters")])}
    command = [sys.executable, "-c", CONNECT, str(journal), str(place)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=250)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:3] == ["110 10 1", "0 0 0", "110 110"]
    assert numbers(place) == list(range(110))
