# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The documentation's command lines print what it says they print, and its tables name what there is.

Its Python is run by `test_texts.py`. A block marked `console` is a `$ redeliver …` and all of its output; a block
marked with a file's name is that file, in the folder where the command runs.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from redeliver_mw.cli.main import run
from redeliver_mw.journal.records import POLICY_SCHEMA, SCHEMA, FieldTypes
from tests.pages import files_of, write_files

DOCS = Path(__file__).resolve().parent.parent / "docs"
CONSOLE = re.compile(r"^```console\n\$ redeliver (?P<line>[^\n]*)\n(?P<output>.*?)^```$", re.DOTALL | re.MULTILINE)


def commands() -> Iterator[Any]:
    for page in sorted(DOCS.glob("*.md")):
        for number, block in enumerate(CONSOLE.finditer(page.read_text()), start=1):
            yield pytest.param(page, block["line"], block["output"], id=f"{page.name}-{number}")


def tidy(text: str) -> list[str]:
    """Return the lines without blanks at their end, and without blank lines at both ends."""
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n").splitlines()


@pytest.mark.parametrize(("page", "line", "output"), list(commands()))
def test_a_command_of_the_documentation_prints_what_it_shows(
    page: Path,
    line: str,
    output: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_files(page.read_text(), tmp_path)
    monkeypatch.chdir(tmp_path)
    run(shlex.split(line))
    out, err = capsys.readouterr()
    assert tidy(out + err) == tidy(output)


def test_only_a_block_that_is_marked_with_a_name_is_a_file() -> None:
    page = "```xml a-file.xml\n<a/>\n```\n\n```xml\n<b/>\n```\n\n```python continued\nx = 1\n```\n"
    assert files_of(page) == {"a-file.xml": "<a/>\n"}


@pytest.mark.parametrize(
    ("heading", "schema"), [("## Fields", SCHEMA), ("## A policy file that changed", POLICY_SCHEMA)]
)
def test_the_page_on_records_names_every_field_once_and_marks_those_that_may_be_missing(
    heading: str, schema: FieldTypes
) -> None:
    section = (DOCS / "records.md").read_text().partition(heading)[2].partition("\n## ")[0]
    named = [
        (name, bool(mark))
        for row in re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE)
        for name, mark in re.findall(r"`(\w+)`(\??)", row)
    ]
    assert sorted(named) == sorted((name, field.nullable) for name, field in schema.items())


def test_every_page_is_listed_on_the_first() -> None:
    index = (DOCS / "index.md").read_text()
    assert [page.name for page in DOCS.glob("*.md") if page.name != "index.md" and f"({page.name})" not in index] == []
