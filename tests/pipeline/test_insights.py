# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests `insights` from a journal to all marts in a lake, from Python and from the command line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from redeliver_mw.cli.main import run
from redeliver_mw.errors import ConfigError
from redeliver_mw.journal.records import FIELDS, row_to_line
from redeliver_mw.pipeline import Lake, LakeError, compact
from redeliver_mw.pipeline.insights import insights
from redeliver_mw.pipeline.schemas import MARTS
from redeliver_mw.pipeline.storm_watch import recent_storms
from tests.pages import FENCE
from tests.pipeline.histories import Journal, Row, history, row
from tests.pipeline.journals import segment

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "marts.md"
HOUR = 3600.0
ROWS = [
    *history((0, "redelivered"), (1, "accepted"), message_key="heals"),
    *history((0, "redelivered"), (1, "dead_lettered"), message_key="dies", reason="exhausted"),
    row(2, "accepted", message_key="never fails"),
    *history((25 * HOUR, "redelivered"), (26 * HOUR, "accepted"), message_key="fails on the next day"),
]


def lake_of(spark: SparkSession, rows: list[Row], folder: Path) -> Lake:
    segment(folder / "journal", [row_to_line([one[name] for name in FIELDS]) for one in rows])
    compact(spark, folder / "journal", folder / "lake")
    return Lake(folder / "lake")


def test_all_marts_are_published_and_as_long_as_it_says(spark: SparkSession, tmp_path: Path) -> None:
    lake = lake_of(spark, ROWS, tmp_path)
    told: list[tuple[str, int, int]] = []
    rows = insights(spark, lake, progress=lambda name, done, of: told.append((name, done, of)))
    assert set(rows) == set(MARTS)
    assert {name: lake.mart(spark, name).count() for name in rows} == rows
    assert {one["message_key"] for one in lake.mart(spark, "messages").collect()} == {
        "heals",
        "dies",
        "fails on the next day",
    }
    assert sum(one["n"] for one in lake.mart(spark, "recovery").collect()) == rows["messages"] == 3
    assert told == [*((name, done, 9) for done, name in enumerate(rows)), ("done", 9, 9)]


def test_a_span_leaves_out_what_is_not_in_it(spark: SparkSession, tmp_path: Path) -> None:
    lake = lake_of(spark, ROWS, tmp_path)
    assert insights(spark, str(tmp_path / "lake"), until="2026-03-03")["messages"] == 2
    assert insights(spark, lake, since="2026-03-03")["messages"] == 1
    assert [one["message_key"] for one in lake.mart(spark, "messages").collect()] == ["fails on the next day"]


def test_a_span_without_records_gives_empty_marts(spark: SparkSession, tmp_path: Path) -> None:
    lake = lake_of(spark, ROWS, tmp_path)
    assert insights(spark, lake, since="2030-01-01") == dict.fromkeys(insights(spark, lake, since="2031-01-01"), 0)


def test_a_lake_without_records_is_one_clear_error(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(LakeError, match="holds no records yet"):
        insights(spark, lake)


def test_a_folder_that_is_no_lake_is_the_users_error(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no lake is here"):
        insights(spark, tmp_path)


def test_the_command_prints_how_many_rows_each_mart_has(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = lake_of(spark, ROWS, tmp_path)
    assert run(["pipeline", "insights", lake.root, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows == {name: lake.mart(spark, name).count() for name in MARTS}
    assert run(["pipeline", "insights", lake.root, "--until", "2026-03-03"]) == 0
    out, err = capsys.readouterr()
    assert [line.split() for line in out.splitlines() if "messages" in line] == [["messages", "2"]]
    assert err == ""


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        (["gone"], 2, "no lake is here: _lake.json is missing. Run `redeliver pipeline compact"),
        (["lake", "--since", "soon"], 2, "since: 'soon' is no time"),
        (["lake", "--conf", "fast"], 2, "--conf fast: no KEY=VALUE"),
        (["lake"], 1, "the lake holds no records yet"),
    ],
)
def test_bad_input_is_one_message_and_no_traceback(
    spark: SparkSession,
    lake: Lake,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    code: int,
    what: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["pipeline", "insights", *words]) == code
    out, err = capsys.readouterr()
    assert (what in err, out, err.count("\n")) == (True, "", 1)


def test_the_page_on_marts_names_every_column_of_each() -> None:
    page = PAGE.read_text()
    for name, ddl in MARTS.items():
        section = page.partition(f"\n## `{name}`\n")[2].partition("\n## ")[0]
        table = section.partition("| column | is |")[2].partition("\n\n")[0]
        cells = re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)
        named = [word for cell in cells for word in re.findall(r"`(\w+)`", cell)]
        assert sorted(named) == sorted(re.findall(r"(?:^|, )(\w+) (?![^<]*>)", ddl)), name


def test_the_snippets_of_the_page_on_marts_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake_of(spark, ROWS, tmp_path)
    monkeypatch.chdir(tmp_path)
    snippets = [block["text"] for block in FENCE.finditer(PAGE.read_text()) if block["info"].strip() == "py"]
    known: dict[str, Any] = {}
    for snippet in snippets:
        exec(snippet, known)
    known["query"].processAllAvailable()
    known["query"].stop()
    assert known["rows"] == {name: Lake("lake").mart(spark, name).count() for name in MARTS}
    assert recent_storms(spark, "storms").count() == 1  # those before lie an hour back, or more


CONNECT = """
import json, sys
from redeliver_mw.pipeline import session
from redeliver_mw.pipeline.insights import insights
spark = session("local-connect[2]")
assert "connect" in type(spark).__module__, type(spark)
print(json.dumps(insights(spark, sys.argv[1])))
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("connect_port")
def test_the_marts_are_the_same_over_spark_connect(spark: SparkSession, tmp_path: Path) -> None:
    lake = lake_of(spark, Journal(seed=1, messages=100).rows, tmp_path)
    rows = insights(spark, lake)
    here = {name: sorted(lake.mart(spark, name).collect(), key=str) for name in rows}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "adapters")])}
    command = [sys.executable, "-c", CONNECT, lake.root]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=800)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == rows
    assert {name: sorted(lake.mart(spark, name).collect(), key=str) for name in rows} == here
