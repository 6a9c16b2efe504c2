# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests what `redeliver pipeline compact · schema · doctor` print, their exit codes, and the page about them."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from redeliver_mw.cli.main import run
from redeliver_mw.journal.records import FIELDS
from redeliver_mw.pipeline import Lake
from redeliver_mw.pipeline.schemas import ALL
from tests.cli.running import COMMAND, environment
from tests.pages import FENCE
from tests.pipeline.javas import fake_java
from tests.pipeline.journals import RUN, line, lines, segment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Capture = pytest.CaptureFixture[str]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "pipeline.md"


def said(capsys: Capture, *words: str | Path, code: int = 0) -> tuple[str, str]:
    assert run(["pipeline", *map(str, words)]) == code
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return out, err


def as_json(capsys: Capture, *words: str | Path, code: int = 0) -> Any:
    return json.loads(said(capsys, *words, "--json", code=code)[0])


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    folder = tmp_path / "journal"
    segment(folder, lines(range(100)))
    return folder


# compact


def test_a_compaction_says_what_it_did(spark: SparkSession, journal: Path, tmp_path: Path, capsys: Capture) -> None:
    segment(journal, lines(range(90, 110)))
    (journal / "_seg-web-1-5-abc.000001.jsonl.open").touch()
    out, err = said(capsys, "compact", journal, tmp_path / "lake")
    assert out == (
        "110 records from 2 segments, 2026-11-01 to 2026-11-01\n"
        "10 records were in the lake already\n"
        "1 segments are still being written\n"
    )
    assert err == ""
    assert spark.range(1).count() == 1  # the session was there before, and stays


def test_bad_lines_make_it_done_in_part_once(
    spark: SparkSession, journal: Path, tmp_path: Path, capsys: Capture
) -> None:
    segment(journal, b"half\n\n")
    done = as_json(capsys, "compact", journal, tmp_path / "lake", code=3)
    wanted = {
        "records": 100,
        "quarantined": 2,
        "duplicates": 0,
        "others": 0,
        "outside": 0,
        "segments": 2,
        "known": 0,
        "copies": 0,
        "unfinished": 0,
        "days": ["2026-11-01"],
    }
    assert {name: done[name] for name in wanted} == wanted
    assert done["run"] == Lake(tmp_path / "lake").manifests()[0].run
    assert as_json(capsys, "compact", journal, tmp_path / "lake")["run"] is None


def test_since_and_until_leave_records_for_later(
    spark: SparkSession, journal: Path, tmp_path: Path, capsys: Capture
) -> None:
    span = ["--since", "2026-11-01T00:00:10Z", "--until", "2026-11-01T00:01:00"]
    out, _ = said(capsys, "compact", journal, tmp_path / "lake", *span)
    assert out.splitlines() == [
        "50 records from 1 segments, 2026-11-01 to 2026-11-01",
        "50 records are left for later by --since or --until",
    ]


def test_when_there_is_nothing_new_spark_is_not_started(
    journal: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    for path in journal.iterdir():
        path.rename(path.with_name(f"_{path.name}.open"))
    out, _ = said(capsys, "compact", journal, tmp_path / "lake", "--master", "local[1]")
    assert out == "nothing new\n1 segments are still being written\n"


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--conf", "foo"], "--conf foo: no KEY=VALUE. Write it as in --conf"),
        (["--conf", "=4g"], "--conf =4g: no KEY=VALUE"),
        (["--conf", "spark.master=nonsense"], "--master nonsense: this is no master of Spark's"),
        (["--master", "nonsense://x"], "--master nonsense://x: this is no master of Spark's. Take local[N], spark://"),
        (["--master", "local[many]"], "--master local[many]: this is no master of Spark's"),
        (["--master", "sc://"], "--master sc://: this is no master of Spark's"),
    ],
)
def test_options_are_looked_at_where_there_is_nothing_new_too(
    journal: Path, tmp_path: Path, capsys: Capture, words: list[str], what: str
) -> None:
    for path in journal.iterdir():
        path.rename(path.with_name(f"_{path.name}.open"))
    assert said(capsys, "compact", journal, tmp_path / "lake")[0].startswith("nothing new\n")
    out, err = said(capsys, "compact", journal, tmp_path / "lake", *words, code=2)
    assert (out, err.count("\n")) == ("", 1)
    assert what in err


@pytest.mark.parametrize(
    "master",
    [
        "local",
        "local[4]",
        "local[*]",
        "local[2,4]",
        "local-connect[2]",
        "local-cluster[2,1,1024]",
        "yarn",
        "k8s://https://host:443",
        "spark://a:7077,b:7077",
        "sc://host:15002/;user_id=me",
    ],
)
def test_every_kind_of_master_that_spark_takes_is_taken(
    journal: Path, tmp_path: Path, capsys: Capture, master: str
) -> None:
    for path in journal.iterdir():
        path.rename(path.with_name(f"_{path.name}.open"))
    words = ["--master", master, "--conf", f"spark.master={master}"]
    assert said(capsys, "compact", journal, tmp_path / "lake", *words)[0].startswith("nothing new\n")


def test_segments_in_folders_of_the_journal_are_counted_on_stderr_with_the_cure(
    journal: Path, tmp_path: Path, capsys: Capture
) -> None:
    for path in journal.iterdir():
        path.rename(path.with_name(f"_{path.name}.open"))
    for folder in ("web-1", "web-2", "old/2025"):
        (journal / folder).mkdir(parents=True)
        segment(journal / folder, lines(range(2)))
    segment(journal / "web-1", lines(range(2)), packed=True)
    (journal / "web-2" / "_seg-web-1-5-abc.000001.jsonl.open").touch()
    out, err = said(capsys, "compact", journal, tmp_path / "lake")
    assert out == "nothing new\n1 segments are still being written\n"
    assert err == (
        f"note: 4 segments in folders of {journal} are not read: old/2025, web-1, web-2."
        " Compact each of these folders by itself\n"
    )
    below = as_json(capsys, "compact", journal, tmp_path / "lake")["below"]
    assert below == {"old/2025": 1, "web-1": 2, "web-2": 1}


def test_a_journal_whose_segments_are_all_in_folders_of_it_is_refused_with_the_cure(
    journal: Path, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "all").mkdir()
    journal.rename(tmp_path / "all" / "web-1")
    _, err = said(capsys, "compact", tmp_path / "all", tmp_path / "lake", code=2)
    cure = "Compact each of these folders by itself [journal-missing]"
    assert f"all: no segment of a journal is here, but in web-1. {cure}\n" in err


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        (["gone", "lake"], 2, "gone: the journal does not exist. Give the folder that"),
        (["journal", "hdfs://name/lake"], 2, "hdfs://name/lake: a lake on hdfs:// cannot be had yet. Give a folder"),
        (
            ["journal", "s3://bucket"],
            2,
            "s3://bucket: no address of a lake in a bucket. Write it as s3://bucket/prefix",
        ),
        (
            ["s3://bucket/journal", "lake"],
            2,
            "s3://bucket/journal: a journal cannot be in a bucket. Give a folder",
        ),
        (["", "lake"], 2, "journal: an empty path. Give the journal's folder"),
        (["journal", "journal"], 2, "journal: no lake is here, and other things are. Give an empty folder"),
        (["journal", "lake", "--since", "yesterday"], 2, "since: 'yesterday' is no time. Write a day or a time in UTC"),
        (["journal", "lake", "--since", "2026-11-02", "--until", "2026-11-01"], 2, "until: ends at 2026-11-01"),
        (["journal", "lake", "--conf", "fast"], 2, "--conf fast: no KEY=VALUE. Write it as in --conf"),
        (["journal", "lake", "--master", "local[1]"], 2, "Java 11 is too old for Spark 4. Install Java 17 or 21"),
    ],
)
def test_bad_input_is_one_message_with_place_and_cure(
    journal: Path,
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    code: int,
    what: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.22")))
    out, err = said(capsys, "compact", *words, code=code)
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert what in err


def test_a_lake_of_a_newer_release_is_refused_before_spark_is_started(
    journal: Path, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "_lake.json").write_text('{"format": 99}')
    _, err = said(capsys, "compact", journal, tmp_path / "lake", code=2)
    assert err.endswith(
        "lake: the lake has the format 99, and this release knows 2. Upgrade redeliver-mw [format-newer]\n"
    )


def test_a_lake_that_another_process_writes_to_is_the_worlds_fault(
    spark: SparkSession, journal: Path, tmp_path: Path, capsys: Capture
) -> None:
    with Lake(tmp_path / "lake", create=True).locked():
        _, err = said(capsys, "compact", journal, tmp_path / "lake", code=1)
    assert "is at work on its events. Run it again when that one is done" in err


@pytest.mark.slow
@pytest.mark.spark
def test_as_a_command_it_prints_nothing_of_sparks_own(journal: Path, tmp_path: Path) -> None:
    words = ["pipeline", "compact", "journal", "lake", "--master", "local[1]"]
    env = environment(tmp_path)
    done = subprocess.run([*COMMAND, *words], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=250)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "100 records from 1 segments, 2026-11-01 to 2026-11-01\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal", "lake"]


# schema


@pytest.mark.parametrize("name", ALL)
def test_a_schema_has_a_line_for_each_column(name: str, capsys: Capture) -> None:
    out, _ = said(capsys, "schema", name)
    assert ", ".join(out.splitlines()) == ALL[name]
    columns = as_json(capsys, "schema", name)
    assert [f"{column['name']} {column['type']}" for column in columns] == out.splitlines()
    assert all(re.fullmatch(r"\w+", column["name"]) for column in columns)


def test_the_schema_of_the_events_is_that_of_the_records_and_the_day(capsys: Capture) -> None:
    assert [column["name"] for column in as_json(capsys, "schema", "events")] == [*FIELDS, "dt"]


def test_a_type_with_commas_in_it_stays_whole(capsys: Capture) -> None:
    [history] = [line for line in said(capsys, "schema", "messages")[0].splitlines() if line.startswith("history ")]
    assert history.startswith("history ARRAY<STRUCT<attempt: INT, ts_us: BIGINT, ")


def test_a_table_that_is_not_there_is_your_input(capsys: Capture) -> None:
    _, err = said(capsys, "schema", "recoveries", code=2)
    assert err.startswith("error: NAME: 'recoveries' is no table of a lake. Take one of events, quarantine, ")


# doctor


def test_the_doctor_finds_nothing_bad_here(capsys: Capture) -> None:
    out, _ = said(capsys, "doctor")
    packages = ["java", "pyspark", "pyarrow", "pandas", "numpy", "protobuf", "PYSPARK_PYTHON"]
    good = [line.partition(" ok ")[0].strip() for line in out.splitlines() if " ok " in line]
    assert good == [*packages, "spark jars", "hadoop-aws"]
    assert all(finding["ok"] for finding in as_json(capsys, "doctor"))


def test_the_doctor_names_what_is_bad_and_the_cure(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, "11.0.22")))
    [java] = [finding for finding in as_json(capsys, "doctor", code=1) if not finding["ok"]]
    assert java["name"] == "java"
    assert java["cure"].startswith("Install Java 17 or 21")
    assert "Install Java 17 or 21" in said(capsys, "doctor", code=1)[0]


# The page


@pytest.mark.slow
def test_the_programs_and_the_commands_of_the_page_do_what_it_shows(
    spark: SparkSession, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's Python, marked `py` because it needs Spark, runs in one process; each command prints its output."""
    blocks = [(block["info"].strip(), block["text"]) for block in FENCE.finditer(PAGE.read_text())]
    program = "\n".join(text for info, text in blocks if info == "py")
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    monkeypatch.chdir(tmp_path)
    shown = [text for info, text in blocks if info == "sh" and text.startswith("$ redeliver pipeline compact")]
    assert shown
    for text in shown:
        command, _, output = text.partition("\n")
        segment(tmp_path / "journal", [line(7, record_id=f"{RUN}-doc"), b"half a li"], "seg-web-1-1-abc.000001.jsonl")
        run(shlex.split(command)[2:])
        assert capsys.readouterr().out == output
