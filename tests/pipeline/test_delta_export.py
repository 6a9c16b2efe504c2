# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The Delta logs of a lake name exactly its files, whatever happens to the lake or to a log; no Spark is used."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from redeliver_mw.cli.main import run as command
from redeliver_mw.errors import ConfigError
from redeliver_mw.pipeline import Lake, LakeError
from redeliver_mw.pipeline.arrow_schemas import arrow_schema
from redeliver_mw.pipeline.delta import export as exporting
from redeliver_mw.pipeline.delta.export import DeltaExport, ExportedTable, export, folder_of
from redeliver_mw.pipeline.delta.log import FOLDER, LogFile, files_named, update
from redeliver_mw.pipeline.draining.manifests import read_all, to_json
from redeliver_mw.pipeline.draining.rows import LETTERS
from redeliver_mw.pipeline.lake.retention import forget
from redeliver_mw.pipeline.lake.validation import ARROW
from redeliver_mw.pipeline.object_files import ObjectFiles
from redeliver_mw.pipeline.schemas import DEAD_LETTERS, EVENTS
from tests.disks import small_disk_at
from tests.pipeline.drained import DAY, NOON, letter, put
from tests.pipeline.journals import DAY as DAY_US
from tests.pipeline.journals import SECOND, START_US
from tests.pipeline.s3_server import BUCKET, KEY, SECRET, config, environment, s3_server
from tests.pipeline.written_lakes import put_events, put_marts

Capture = pytest.CaptureFixture[str]
NEXT_DAY = DAY_US // SECOND  # the number of the first record of the second day
FLOW = {"destination": "orders", "reason": "exhausted", "in": 1, "out": 0}
WASTE = {"destination": "orders", "fingerprint": "aa", "attempts": 3}


@pytest.fixture
def full(lake: Lake) -> Lake:
    """Return a lake with events of two days, letters of two days, and two marts."""
    put_events(lake, [0, 1, 2, NEXT_DAY])
    put(lake, [letter("a1", headers={"x": "y"}), letter("a2"), letter("b1", dead_us=NOON + DAY)])
    put_marts(lake, 0, {"dead_letter_flow": [FLOW], "waste": [WASTE, WASTE]})
    return lake


def by_name(done: DeltaExport) -> dict[str, ExportedTable]:
    return {one.table: one for one in done.tables}


def changes(done: DeltaExport) -> dict[str, tuple[int, int]]:
    """Return how many files were added and removed, for each table that has changed."""
    return {one.table: (one.added, one.removed) for one in done.tables if one.added or one.removed}


def rows(lake: Lake, table: str) -> list[dict[str, Any]]:
    """Return the rows of a table as its log has them."""
    found: list[dict[str, Any]] = DeltaTable(lake.files.url(folder_of(table))).to_pyarrow_table().to_pylist()
    return found


def ids(lake: Lake) -> set[str]:
    return {row["dl_id"] for row in rows(lake, "dead_letters")}


def records(lake: Lake) -> set[str]:
    return {row["record_id"].partition("-")[2] for row in rows(lake, "events")}


def test_the_schemas_of_arrow_are_those_of_the_ddl() -> None:
    assert arrow_schema(EVENTS) == ARROW
    assert arrow_schema(DEAD_LETTERS) == LETTERS
    nested = arrow_schema("n SMALLINT, h ARRAY<STRUCT<a: INT, m: MAP<STRING, DOUBLE>>>, d DATE")
    inside = pa.struct([("a", pa.int32()), ("m", pa.map_(pa.string(), pa.float64()))])
    assert nested == pa.schema([("n", pa.int16()), ("h", pa.list_(inside)), ("d", pa.date32())])


# What is exported


def test_each_table_has_its_files_rows_and_partitions_and_no_data_is_copied(full: Lake) -> None:
    def inodes() -> set[int]:
        return {path.stat().st_ino for path in Path(full.root).rglob("*.parquet")}

    before = inodes()
    done = by_name(export(full))
    assert {name: (one.version, one.files, one.rows, one.added, one.removed) for name, one in done.items()} == {
        "events": (0, 2, 4, 2, 0),
        "dead_letters": (0, 2, 3, 2, 0),
        "dead_letter_flow": (0, 1, 1, 1, 0),
        "waste": (0, 1, 2, 1, 0),
    }
    assert inodes() == before
    assert {(row["record_id"].partition("-")[2], str(row["dt"])) for row in rows(full, "events")} == {
        ("0", "2026-11-01"),
        ("1", "2026-11-01"),
        ("2", "2026-11-01"),
        (str(NEXT_DAY), "2026-11-02"),
    }
    runs = {one.run for one in full.manifests()}
    assert {row["run"] for row in rows(full, "events")} == runs
    assert {(row["dl_id"], str(row["dt"])) for row in rows(full, "dead_letters")} == {
        ("a1", "2026-11-29"),
        ("a2", "2026-11-29"),
        ("b1", "2026-11-30"),
    }
    assert [row["attempts"] for row in rows(full, "waste")] == [3, 3]
    assert all(not os.path.isabs(path) for path in log_paths(full, "events"))


def log_paths(lake: Lake, table: str) -> list[str]:
    found: list[str] = pa.table(DeltaTable(lake.files.url(folder_of(table))).get_add_actions())["path"].to_pylist()
    return found


def test_statistics_let_a_reader_spare_files(full: Lake) -> None:
    export(full)
    table = DeltaTable(full.files.url("events"))
    stats = {row["num_records"]: row for row in pa.table(table.get_add_actions(flatten=True)).to_pylist()}
    files = {file.rows: file for one in full.manifests() for file in one.files}
    assert {count: (row["min.ts_us"], row["max.ts_us"]) for count, row in stats.items()} == {
        count: (file.min_us, file.max_us) for count, file in files.items()
    }
    assert len(table.file_uris(file_pruning_predicate=[("dt", "=", "2026-11-02")])) == 1


def test_conditions_on_columns_without_statistics_find_all_rows(full: Lake) -> None:
    export(full)
    events = DeltaTable(full.files.url("events")).to_pyarrow_dataset()
    assert len(events.to_table(filter=ds.field("outcome") == "redelivered")) == 2
    assert len(events.to_table(filter=ds.field("ts_us") > START_US)) == 3
    letters = DeltaTable(full.files.url("dead_letters")).to_pyarrow_dataset()
    assert len(letters.to_table(filter=ds.field("dlq") == "DLQ.orders")) == 3
    assert pl.scan_delta(full.files.url("events")).filter(pl.col("outcome") == "redelivered").collect().height == 2


def test_a_second_export_commits_only_the_difference(full: Lake) -> None:
    export(full)
    assert changes(export(full)) == {}
    put_events(full, [3, 4])
    put(full, [letter("a3")])
    done = export(full)
    assert changes(done) == {"events": (1, 0), "dead_letters": (1, 0)}
    assert (by_name(done)["events"].version, by_name(done)["waste"].version) == (1, 0)
    assert records(full) == {"0", "1", "2", "3", "4", str(NEXT_DAY)}
    assert ids(full) == {"a1", "a2", "a3", "b1"}


def test_letters_that_are_forgotten_leave_the_log_and_the_command_says_that_it_is_time(
    full: Lake, capsys: Capture
) -> None:
    assert command(["pipeline", "forget", full.root, "--before", "2026-11-30"]) == 0
    assert "Delta" not in capsys.readouterr().err
    export(full)
    assert command(["pipeline", "forget", full.root, "--before", "2026-11-30", "--execute"]) == 0
    assert "run `redeliver pipeline export LAKE --delta`" in capsys.readouterr().err
    assert changes(export(full)) == {"dead_letters": (0, 1)}
    assert ids(full) == {"b1"}
    forget(full, "2026-12-01", bodies_only=True, execute=True)
    assert changes(export(full)) == {"dead_letters": (1, 1)}
    assert [row["body"] for row in rows(full, "dead_letters")] == [None]
    forget(full, "2026-12-01", execute=True)
    assert changes(export(full)) == {"dead_letters": (0, 1)}
    assert rows(full, "dead_letters") == []


def test_new_marts_take_the_place_of_old_ones_whose_files_stay_for_their_readers(full: Lake) -> None:
    export(full)
    reader = DeltaTable(full.files.url("delta/waste"))
    put_marts(full, 1, {"dead_letter_flow": [FLOW]})
    assert [row["attempts"] for row in rows(full, "waste")] == [3, 3]  # until the next export
    assert changes(export(full)) == {"dead_letter_flow": (1, 1), "waste": (0, 1)}
    assert rows(full, "waste") == []
    assert len(reader.to_pyarrow_table()) == 2  # until the next but one
    put_marts(full, 2, {"dead_letter_flow": [FLOW, FLOW], "waste": []})
    assert changes(export(full)) == {"dead_letter_flow": (1, 1), "waste": (1, 0)}
    assert len(rows(full, "dead_letter_flow")) == 2
    links = [path for path in Path(full.root, "delta").glob("*/*") if path.name != FOLDER]
    assert sorted((path.parent.name, len(list(path.iterdir()))) for path in links) == [
        ("dead_letter_flow", 1),
        ("dead_letter_flow", 1),
        ("waste", 1),
    ]


def test_a_log_that_is_lost_is_written_again_with_the_same_rows(full: Lake) -> None:
    export(full)
    before = {table: rows(full, table) for table in ("events", "dead_letters", "waste")}
    for log in list(Path(full.root).rglob(FOLDER)):
        shutil.rmtree(log)
    assert {one.version for one in export(full).tables} == {0}
    assert {table: rows(full, table) for table in before} == before


def test_a_lake_that_was_moved_takes_its_logs_along(full: Lake, tmp_path: Path) -> None:
    export(full)
    shutil.move(full.root, tmp_path / "moved here")
    moved = Lake(tmp_path / "moved here")
    assert changes(export(moved)) == {}
    assert ids(moved) == {"a1", "a2", "b1"}
    assert len(rows(moved, "waste")) == 2


def test_the_files_that_a_log_names_are_told_to_those_who_remove_files(full: Lake) -> None:
    assert files_named(full.files, "events") == frozenset()
    export(full)
    old = files_named(full.files, "events")
    assert old == {file.path for one in full.manifests() for file in one.files}
    put_events(full, [5])
    assert files_named(full.files, "events") == old
    assert files_named(full.files, "dead_letters") == {file.path for one in read_all(full.files) for file in one.files}


def test_what_another_program_has_done_to_the_files_in_a_log_is_put_right(full: Lake) -> None:
    export(full)
    table = DeltaTable(full.files.url("events"))
    table.optimize.compact()
    table.delete("dt = '2026-11-02'")
    done = export(full)
    assert changes(done)["events"][0] >= 1
    assert records(full) == {"0", "1", "2", str(NEXT_DAY)}
    assert sorted(log_paths(full, "events")) == sorted(
        file.path.removeprefix("events/") for one in full.manifests() for file in one.files
    )


def test_vacuum_of_another_program_removes_no_file_that_the_log_does_not_know_yet(full: Lake) -> None:
    export(full)
    put_events(full, [7])
    for file in Path(full.root, "events").rglob("*.parquet"):
        os.utime(file, (1, 1))
    assert DeltaTable(full.files.url("events")).vacuum(dry_run=False) == []
    assert changes(export(full)) == {"events": (1, 0)}
    assert "7" in records(full)


def test_columns_of_a_later_release_come_with_one_commit(full: Lake) -> None:
    old = arrow_schema(EVENTS).remove(0)
    update(full.files, "events", "events", old, [], {})
    assert changes(export(full))["events"] == (2, 0)
    table = DeltaTable(full.files.url("events"))
    assert table.version() == 1
    assert [one.name for one in table.schema().fields][:2] == ["v", "record_id"]
    assert table.metadata().partition_columns == ["dt", "run"]


# Letters that were only looked at


def look(lake: Lake, letters: list[dict[str, Any]]) -> None:
    """Add one more run of `drain --peek`, with these letters."""
    put(lake, [one | {"owner": "broker", "headers": dict(one["headers"])} for one in letters])
    newest = read_all(lake.files)[-1]
    lake.files.publish(newest.path, to_json(replace(newest, owner="broker", created_us=newest.created_us + 1)))


def test_letters_that_were_looked_at_are_in_the_table_and_none_is_twice_when_it_is_drained_later(lake: Lake) -> None:
    look(lake, [letter("l1"), letter("l2"), letter("l3", dead_us=NOON + DAY)])
    export(lake)
    assert ids(lake) == {"l1", "l2", "l3"}
    put(lake, [letter("l3", dead_us=NOON + DAY)])
    assert (changes(done := export(lake)), done.notes) == ({"dead_letters": (1, 1)}, [])
    assert [row["owner"] for row in rows(lake, "dead_letters") if row["dl_id"] == "l3"] == ["lake"]
    put(lake, [letter("l1")])
    done = export(lake)
    assert sorted(row["dl_id"] for row in rows(lake, "dead_letters")) == ["l1", "l3"]
    assert len(done.notes) == 1
    assert done.notes[0].startswith("dead_letters: 1 letter that were only looked at are left out")


# Two at once


def test_a_second_export_in_a_folder_is_refused_while_one_is_at_work(full: Lake) -> None:
    with Lake(full.root).locked("delta"), pytest.raises(LakeError, match="is at work on its delta") as caught:
        export(full)
    assert caught.value.code == "locked-by-another-process"


def test_of_two_writers_of_one_log_the_later_begins_again(lake: Lake) -> None:
    schema = pa.schema([("n", pa.int64())])

    def write(name: str) -> None:
        for number in range(4):
            path = f"{name}-{number}.parquet"
            update(lake.files, "events", "events", schema, [], {path: LogFile(path, 1, 1)})

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(write, ["a", "b"]))
    (last,) = log_paths(lake, "events")
    assert last in ("a-3.parquet", "b-3.parquet")
    assert DeltaTable(lake.files.url("events")).version() == 7


def test_letters_that_are_forgotten_during_an_export_are_not_in_its_log(
    full: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = update

    def forget_once(*args: Any) -> Any:
        done = original(*args)
        if args[1] == "dead_letters":
            forget(full, "2026-11-30", execute=True)
        return done

    monkeypatch.setattr(exporting, "update", forget_once)
    assert by_name(export(full))["dead_letters"].rows == 1
    assert ids(full) == {"b1"}


# Bad input


def test_the_command_prints_what_it_did_and_json_has_the_same(full: Lake, capsys: Capture) -> None:
    assert command(["pipeline", "export", full.root, "--delta"]) == 0
    out, err = capsys.readouterr()
    lines = {line.split()[0]: line.split() for line in out.splitlines() if full.root in line}
    assert lines["events"] == ["events", f"{full.root}/events", "0", "4", "2", "2", "0"]
    assert set(lines) == {"events", "dead_letters", "dead_letter_flow", "waste"}
    assert err == ""
    assert command(["pipeline", "export", full.root, "--delta", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["table"] for one in told["tables"]] == list(lines)
    assert {(one["added"], one["removed"]) for one in told["tables"]} == {(0, 0)}


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        (["gone", "--delta"], 2, "no lake is here: _lake.json is missing"),
        (["lake"], 2, "export: no format is named. Say --delta"),
        (["lake", "--delta"], 1, "the lake holds no records yet"),
        (["hdfs://host/lake", "--delta"], 2, "a lake on hdfs:// cannot be had yet"),
    ],
)
def test_bad_input_is_one_message_with_its_exit_code(
    lake: Lake,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
    words: list[str],
    code: int,
    what: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command(["pipeline", "export", *words]) == code
    out, err = capsys.readouterr()
    assert (what in err, out, err.count("\n")) == (True, "", 1)


@pytest.mark.parametrize("damage", ["half a line", "no beginning", "a file in its place"])
def test_a_damaged_log_is_said_and_its_cure_works(full: Lake, capsys: Capture, damage: str) -> None:
    export(full)
    log = Path(full.root, "events", FOLDER)
    first = log / f"{0:020d}.json"
    if damage == "half a line":
        first.write_text(first.read_text()[:300])
    elif damage == "no beginning":
        put_events(full, [8])
        export(full)
        first.unlink()
    else:
        shutil.rmtree(log)
        log.touch()
    assert command(["pipeline", "export", full.root, "--delta"]) == 1
    err = capsys.readouterr().err
    assert (err.count("\n"), "[delta-log-damaged]" in err, "nothing is lost" in err) == (1, True, True)
    assert "unknown" not in err
    if damage != "a file in its place":
        with pytest.raises(LakeError):
            files_named(full.files, "events")
    shutil.rmtree(log) if log.is_dir() else log.unlink()
    export(full)
    assert records(full) >= {"0", "1", "2", str(NEXT_DAY)}


def test_the_table_of_another_program_is_left_alone(full: Lake, capsys: Capture) -> None:
    place = full.files.url("events")
    deltalake.write_deltalake(place, pa.table({"mine": [1]}), name="my table")
    assert command(["pipeline", "export", full.root, "--delta"]) == 2
    err = capsys.readouterr().err
    assert "the Delta table my table of another program is here" in err
    assert "[delta-log-foreign]" in err
    assert DeltaTable(place).to_pyarrow_table().to_pydict() == {"mine": [1]}


def test_a_protocol_that_cannot_be_kept_is_said(full: Lake) -> None:
    export(full)
    log = Path(full.root, "events", FOLDER, f"{1:020d}.json")
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["new"], "writerFeatures": ["new"]}
    log.write_text(json.dumps({"protocol": protocol}))
    put_events(full, [9])
    with pytest.raises((ConfigError, LakeError)) as caught:
        export(full)
    assert caught.value.code in ("delta-log-foreign", "delta-log-damaged")
    assert "Remove the folder _delta_log" in str(caught.value) or "remove the folder _delta_log" in str(caught.value)


def test_a_path_that_the_package_cannot_use_is_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "50%25", create=True)
    put_events(lake, [1])
    with pytest.raises(ConfigError, match="a path with a percent sign") as caught:
        export(lake)
    assert caught.value.code == "path-not-usable"


def test_a_disk_that_cannot_be_written_to_is_said_and_nothing_is_half_written(tmp_path: Path, capsys: Capture) -> None:
    with small_disk_at(tmp_path / "disk", "2m") as disk:
        lake = Lake(disk / "lake", create=True)
        put_events(lake, [1])
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        assert command(["pipeline", "export", lake.root, "--delta"]) == 1
        assert "Read-only file system" in capsys.readouterr().err
        assert not Path(lake.root, "events", FOLDER).exists()


# A bucket


def test_the_events_of_a_bucket_have_a_log_and_of_two_exports_none_is_lost(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with s3_server() as url:
        for name, value in environment(url).items():
            monkeypatch.setenv(name, value)
        place = f"s3://{BUCKET}/orders/lake"
        lake = Lake(place, create=True)
        put_events(lake, [0, 1])
        put_marts(lake, 0, {"waste": [WASTE]})
        done = export(lake)
        assert changes(done) == {"events": (1, 0)}
        assert done.notes == ["marts: a bucket has no links, so that only events have a Delta log there"]
        put_events(lake, [2])
        with ThreadPoolExecutor(2) as threads:
            both = list(threads.map(lambda _: export(place), range(2)))
        assert sum(one.tables[0].added for one in both) == 1
        options = ObjectFiles(place, config(url)).delta_options()
        table = DeltaTable(f"{place}/events", storage_options=options)
        assert table.version() == 1
        assert len(table.file_uris()) == 2
        assert len(files_named(lake.files, "events")) == 2
        found = pa.table(deltalake.QueryBuilder().register("e", table).execute("SELECT record_id FROM e").read_all())
        assert len(found) == 3
        log = "".join(
            ObjectFiles(place, config(url)).read(f"events/{FOLDER}/{number:020d}.json").decode() for number in range(2)
        )
    assert KEY not in log
    assert SECRET not in log
    out, err = capfd.readouterr()
    assert KEY not in out + err
