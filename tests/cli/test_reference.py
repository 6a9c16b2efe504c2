# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The reference of the command line is printed from the commands, and docs/cli.md shows what is printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from redeliver_mw.cli.reference import MARKS, main, reference

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "cli.md"


def test_the_page_on_the_command_line_shows_the_commands_as_they_are() -> None:
    begin, end = MARKS
    found = re.search(f"{begin}\n\n(.*?)\n\n{end}", PAGE.read_text(), re.DOTALL)
    assert found is not None
    assert found[1] == reference(), "run: python -m redeliver_mw.cli.reference --write docs/cli.md"


def test_every_command_has_its_place_with_its_usage_its_options_and_an_example() -> None:
    sections = dict(re.findall(r"^### (redeliver [^\n]+)\n(.*?)(?=^##|\Z)", reference(), re.DOTALL | re.MULTILINE))
    assert {"redeliver check", "redeliver dead list", "redeliver limbo release", "redeliver pipeline plan"} <= set(
        sections
    )
    for path, text in sections.items():
        assert f"```text\n{path} " in text
        named = path.replace(" APP ", " shop ")  # the example has a name in the place of the argument
        assert f"Example: `{named}" in text
        assert "| `--" in text


def test_what_markdown_would_take_for_markup_is_escaped() -> None:
    text = reference()
    assert r"| `--kind <queue\|topic>` |" in text
    assert r"else local\[\*\]" in text or r"else local\[\*]" in text


def test_the_width_of_the_terminal_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = reference()
    monkeypatch.setenv("COLUMNS", "40")
    assert reference() == before


def test_the_command_prints_the_reference_or_writes_it_between_the_marks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, (begin, end) = tmp_path / "page.md", MARKS
    page.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    main(["--write", str(page)])
    assert page.read_text() == f"before\n{begin}\n\n{reference()}\n\n{end}\nafter\n"
    main([])
    assert capsys.readouterr().out == reference() + "\n"
