# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The table of verbs is drawn from the records, and docs/verbs.md shows what is drawn."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from redeliver_mw.adapter import verb_table
from redeliver_mw.adapter.capabilities import Capabilities, Trust, VerbRecord
from redeliver_mw.adapter.verb_table import MARKS, main, records, table, written
from redeliver_mw.errors import ConfigError, MissingExtra

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "verbs.md"


def record(version: str, *named: VerbRecord, kind: str = "rabbitmq") -> Capabilities:
    return Capabilities(dialect="x", broker_kind=kind, broker_version=version, verbs=named)


def cells(text: str) -> list[list[str]]:
    return [line.strip("| ").split(" | ") for line in text.splitlines()[2:]]


def test_versions_and_types_of_queue_where_a_verb_does_the_same_share_a_row() -> None:
    alike = [VerbRecord("nack", "back, marked", "held", kind=kind) for kind in ("classic", "quorum")]
    other = [alike[0], VerbRecord("nack", "back, counted", "held", "a hot loop", "quorum", Trust.DECLARED)]
    drawn = cells(table([record("1.0", *alike), record("1.1", *alike), record("2.0", *other)]))
    assert drawn == [
        ["RabbitMQ 1.0, 1.1 classic, quorum; 2.0 classic", "nack", "**back, marked**", "held", "proved"],
        ["RabbitMQ 2.0 quorum", "nack", "**back, counted**; a hot loop", "held", "declared"],
    ]


def test_rows_go_broker_by_broker_and_verb_by_verb() -> None:
    def both(outcome_of_first: str) -> list[VerbRecord]:
        return [VerbRecord("a", "gone", outcome_of_first), VerbRecord("b", "gone", "same")]

    drawn = cells(table([record("1", *both("x")), record("5", *both("y"), kind="artemis"), record("2", *both("y"))]))
    assert [row[:2] for row in drawn] == [
        ["RabbitMQ 1", "a"],
        ["RabbitMQ 2", "a"],
        ["RabbitMQ 1, 2", "b"],
        ["Artemis 5", "a"],
        ["Artemis 5", "b"],
    ]


def test_a_bar_does_not_end_a_cell() -> None:
    assert r"a\|b" in table([record("1", VerbRecord("a|b", "gone", ""))])


def test_every_adapter_that_is_built_tells_what_was_tried_and_what_was_not() -> None:
    found = {(one.dialect, verb.basis) for one in records() for verb in one.verbs}
    for dialect in ("activemq+stomp", "artemis+proton", "rabbitmq+pika", "rabbitmq+proton"):
        assert {(dialect, Trust.PROVED), (dialect, Trust.UNKNOWN)} <= found
    assert all(one.verbs for one in records())


def test_what_is_unknown_and_only_that_was_not_tried() -> None:
    untried = {verb.basis for one in records() for verb in one.verbs if verb.outcome == "not tried"}
    assert untried == {Trust.UNKNOWN}


def test_the_page_on_verbs_shows_the_table_that_the_records_give() -> None:
    begin, end = MARKS
    found = re.search(f"{begin}\n\n(.*?)\n\n{end}", PAGE.read_text(), re.DOTALL)
    assert found is not None
    assert found[1] == table(records()), "run: python -m redeliver_mw.adapter.verb_table --write docs/verbs.md"


def test_the_table_is_drawn_by_a_command() -> None:
    command = [sys.executable, "-m", "redeliver_mw.adapter.verb_table"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == table(records())


def test_the_command_writes_between_the_marks_and_nowhere_else(tmp_path: Path) -> None:
    page, (begin, end) = tmp_path / "page.md", MARKS
    page.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    main(["--write", str(page)])
    assert page.read_text() == f"before\n{begin}\n\n{table(records())}\n\n{end}\nafter\n"


def test_a_page_without_marks_is_left_alone() -> None:
    with pytest.raises(ConfigError, match="no place"):
        written("text", "table")


def test_a_missing_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> None:
        raise ModuleNotFoundError(name="stomp")

    monkeypatch.setattr(verb_table, "import_module", load)
    with pytest.raises(MissingExtra, match=r"redeliver-mw\[stomp\]"):
        records()


def test_an_adapter_without_records_has_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("other+thing", "json:loads", verb_table.GROUP)
    monkeypatch.setattr(verb_table, "entry_points", lambda group: [entry])
    assert records() == []
