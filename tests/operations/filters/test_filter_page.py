# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests docs/filters.md: its examples select what it says, and its tables and limits are those of the code."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, insert, select

from redeliver_mw.errors import ConfigError
from redeliver_mw.operations.filters import parser
from redeliver_mw.operations.filters.compiler import compile_filter
from redeliver_mw.operations.filters.fields import FIELDS, OTHER_NAMES
from redeliver_mw.operations.filters.matching import FilterSubject, HeaderValue, header_number, matches
from redeliver_mw.operations.filters.model import KEYWORDS
from redeliver_mw.operations.filters.parser import parse_filter
from tests.operations.filters.ways import COLUMNS, NOW_US, headers, letters, metadata

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "filters.md").read_text("utf-8")
GRAMMAR = re.compile(r"^ *(filter     = all .*?value      = \w+ \| \w+)$", re.DOTALL | re.MULTILINE)


def rows_of(mark: str) -> list[list[str]]:
    """Return the cells of each row of the table after a mark."""
    table = PAGE.partition(f"<!-- {mark} -->\n")[2].partition("\n\n")[0]
    return [cells(line) for line in table.splitlines()[2:]]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")[1:-1]]


def code(cell: str) -> str | None:
    return cell.strip("`") or None


def letter_of(row: list[str]) -> FilterSubject:
    number, queue, error, message, failures, died, shown = row
    return FilterSubject(
        dl_id=code(number),
        queue=code(queue),
        error_type=code(error),
        error_message=code(message),
        failures=int(failures),
        died_us=round(datetime.fromisoformat(died).timestamp()) * 1_000_000 if died else None,
        headers={
            name: HeaderValue(value, header_number(value))
            for name, value in re.findall(r"`([^`]+)`: ?`([^`]*)`", shown)
        },
    )


LETTERS = [letter_of(row) for row in rows_of("letters")]
EXAMPLES = [(str(code(row[0])), set(row[1].split()) - {"none"}) for row in rows_of("examples")]


def store_of_the_page() -> Engine:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        metadata.create_all(connection)
        for number, letter in enumerate(LETTERS):
            values: dict[str, Any] = {column.name: getattr(letter, column.name) for column in list(letters.c)[1:]}
            connection.execute(insert(letters), [{"letter_id": number, **values}])
            for name, value in letter.headers.items():
                connection.execute(insert(headers), [{"letter_id": number, "name": name, **value._asdict()}])
    return engine


def test_the_page_shows_the_dead_letters_that_its_examples_speak_of() -> None:
    assert [letter.dl_id for letter in LETTERS] == ["a1", "a2", "a3", "b1", "b2"]
    assert LETTERS[3].headers == {"x trace": ("", None)}
    assert (LETTERS[4].error_type, LETTERS[4].died_us, LETTERS[4].failures) == (None, None, 0)
    assert len(EXAMPLES) >= 25


@pytest.mark.parametrize(("text", "selected"), EXAMPLES, ids=[text for text, _ in EXAMPLES])
def test_an_example_selects_what_the_page_says(text: str, selected: set[str]) -> None:
    condition = parse_filter(text)
    assert {letter.dl_id for letter in LETTERS if matches(condition, letter, NOW_US)} == selected
    engine = store_of_the_page()
    with engine.connect() as connection:
        statement = select(letters.c.dl_id).where(compile_filter(condition, COLUMNS, NOW_US))
        assert set(connection.execute(statement).scalars()) == selected
    engine.dispose()


def test_the_table_of_fields_is_that_of_the_code() -> None:
    assert [(code(row[0]), row[1]) for row in rows_of("fields")] == [(f.name, f.kind) for f in FIELDS.values()]
    assert set(OTHER_NAMES.values()) <= FIELDS.keys()
    assert not OTHER_NAMES.keys() & FIELDS.keys()


def test_each_condition_and_value_of_the_tables_is_read() -> None:
    operators = PAGE.partition("## Operators\n\n")[2].partition("\n\n")[0].splitlines()[2:]
    conditions = [cells(row)[0] for row in operators]
    shown = [text for cell in conditions for text in re.findall(r"`([^`]+)`", cell) if "…" not in text]
    assert len(shown) == 10
    for text in shown:
        parse_filter(text)
    field = {"text": "key", "number": "header.n", "time": "died", "age": "age"}
    values = PAGE.partition("| value | written as |")[2].partition("\n\n")[0].splitlines()[2:]
    assert len(values) == 4
    for row in values:
        kind, _, examples = cells(row)
        for value in re.findall(r"`([^`]+)`", examples):
            parse_filter(f"{field[kind]} = {value}")


def test_the_grammar_of_the_page_is_that_of_the_parser() -> None:
    on_page, in_code = GRAMMAR.findall(PAGE), GRAMMAR.findall(str(parser.__doc__))
    assert len(on_page) == len(in_code) == 1

    def tidy(text: str) -> list[str]:
        text = text.replace("the table above", "FIELDS").replace("WORD", "word").replace("STRING", "string")
        return [line.strip() for line in text.splitlines()]

    assert tidy(on_page[0]) == tidy(in_code[0])


def test_the_page_names_the_keywords_and_the_limits() -> None:
    text = " ".join(PAGE.split())
    for number, of in (
        (f"{parser.MAX_LENGTH:,}".replace(",", " "), "characters"),
        (parser.MAX_CONDITIONS, "conditions"),
        (parser.MAX_NESTING, "brackets"),
        (parser.MAX_VALUES, "values"),
    ):
        assert f"{number} {of}" in text
    assert f"{parser.LONGEST_SPAN // 86_400}d" in text
    assert f"at most {parser.LARGEST_NUMBER}" in text
    keywords = re.search(r"The keywords (.*?) may be written in capitals", text)
    assert keywords is not None
    assert set(re.findall(r"`(\w+)`", keywords[1])) == KEYWORDS


def test_the_page_shows_an_error_as_it_is() -> None:
    shown = PAGE.partition("<!-- error -->\n```text\n")[2].partition("\n```")[0]
    with pytest.raises(ConfigError) as caught:
        parse_filter(shown.splitlines()[1].strip())
    assert str(caught.value) == shown


def test_the_first_filter_of_the_page_is_read() -> None:
    parse_filter(PAGE.partition("```text\n")[2].partition("\n```")[0])
