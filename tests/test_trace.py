# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the tracer: its trips differ as they should, and its numbers are the same in each run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import tomllib

import pytest

from tests import trace
from tests.trace import REPOSITORY, TRIPS, Trace


@pytest.fixture(scope="module")
def traces() -> dict[str, Trace]:
    return {trip.name: trace.trace(trip) for trip in TRIPS}


def test_each_longer_trip_enters_more_files_and_changes_file_more_often(traces: dict[str, Trace]) -> None:
    healthy, failing, everything = traces["healthy"], traces["failing"], traces["everything"]
    assert 0 < len(healthy.files) < len(failing.files) < len(everything.files)
    assert 0 < healthy.changes < failing.changes < everything.changes
    assert set(healthy.files) < set(failing.files) < set(everything.files)


@pytest.mark.parametrize(
    ("trip", "files", "changes"), [("healthy", 13, 19), ("failing", 30, 150), ("everything", 53, 440)]
)
def test_no_way_is_longer_than_a_newcomer_can_follow(
    traces: dict[str, Trace], trip: str, files: int, changes: int
) -> None:
    assert len(traces[trip].files) <= files
    assert traces[trip].changes <= changes


def test_a_healthy_message_asks_no_policy(traces: dict[str, Trace]) -> None:
    assert not [file for file in traces["healthy"].files if file.startswith("redeliver_mw/policy/")]


def test_a_failing_message_enters_the_interceptor_and_the_policy_and_no_limbo(traces: dict[str, Trace]) -> None:
    files = set(traces["failing"].files)
    assert "redeliver_mw/policy/model.py" in files
    assert [file for file in files if file.endswith("/interceptor.py")]
    assert not [file for file in files if "limbo" in file or file.endswith("/breaker.py")]


def test_everything_enters_the_journal_the_breaker_and_the_database(traces: dict[str, Trace]) -> None:
    files = set(traces["everything"].files)
    assert [file for file in files if "journal" in file]
    assert [file for file in files if file.endswith("/breaker.py")]
    assert [file for file in files if file.endswith("/database.py")]


def test_only_existing_files_are_counted_and_neither_memory_nor_testing(traces: dict[str, Trace]) -> None:
    for file in traces["everything"].files:
        assert (REPOSITORY / file).is_file()
        assert file.startswith(("redeliver_mw/", "adapters/"))
        assert not file.startswith(("redeliver_mw/memory/", "redeliver_mw/testing/"))


def test_a_second_run_in_this_process_counts_the_same_calls(traces: dict[str, Trace]) -> None:
    everything = TRIPS[-1]
    before = sys.getprofile(), threading.getprofile()
    assert trace.trace(everything) == traces[everything.name]
    assert (sys.getprofile(), threading.getprofile()) == before


def test_changes_of_file_are_counted_between_neighbouring_calls() -> None:
    traced = Trace("made up", ("a.py", "a.py", "b.py", "a.py"))
    assert traced.files == {"a.py": 3, "b.py": 1}
    assert traced.changes == 2


def test_the_command_prints_the_same_numbers_as_json_in_another_process(traces: dict[str, Trace]) -> None:
    command = [sys.executable, "-m", "tests.trace", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert done.stderr == ""
    assert json.loads(done.stdout) == json.loads(trace.as_json(list(traces.values())))


def test_the_table_has_a_line_for_each_trip_and_files_are_listed_when_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "trace", lambda trip: Trace(trip.name, ("redeliver_mw/app.py",) * 3))
    assert trace.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[1:]] == [[trip.name, "1", "0"] for trip in TRIPS]
    assert trace.main(["--files"]) == 0
    assert capsys.readouterr().out.count("     3  redeliver_mw/app.py") == len(TRIPS)


@pytest.mark.parametrize("arguments", [["--no-such-option"], ["failing"], ["--files", "--json"]])
def test_bad_options_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        trace.main(arguments)
    assert refused.value.code == 2
    assert "usage: python -m tests.trace" in capsys.readouterr().err


# -- docs/architecture.md -----------------------------------------------------------------------------


def rows_of(mark: str) -> list[list[str]]:
    """Return the code spans of each row's first cell, and of its last one, in the table that follows a mark."""
    page = (REPOSITORY / "docs" / "architecture.md").read_text("utf-8")
    table = page.partition(f"<!-- {mark} -->\n")[2].partition("\n\n")[0]
    return [re.findall(r"`([^`]+)`", line) for line in table.splitlines()[2:]]


def test_the_page_on_architecture_lists_the_layers_that_are_checked() -> None:
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    [layers] = [contract["layers"] for contract in settings["contracts"] if contract["type"] == "layers"]
    named = [set(row) for row in rows_of("layers")]
    assert [set(layer.split(" | ")) for layer in layers] == [
        {name for name in row if "/" not in name and not name.startswith("@")} for row in named
    ]


def test_each_of_the_ten_questions_is_answered_by_a_file_that_exists() -> None:
    questions = rows_of("questions")
    assert len(questions) == 10
    assert [path for row in questions for path in row if not (REPOSITORY / path).is_file()] == []


def test_the_page_on_architecture_shows_the_way_of_a_healthy_message_in_its_order(traces: dict[str, Trace]) -> None:
    ways = list(traces["healthy"].files)
    named = [row[0] for row in rows_of("healthy")]
    assert named == [file for file in ways if file in named]


def test_the_page_on_architecture_shows_the_way_of_a_failing_message_in_its_order(traces: dict[str, Trace]) -> None:
    ways, healthy = list(traces["failing"].files), traces["healthy"].files
    named = [row[0] for row in rows_of("failing")]
    assert set(named) <= set(ways)
    assert [file for file in named if file not in healthy] == [
        file for file in ways if file in named and file not in healthy
    ]
