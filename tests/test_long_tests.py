# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The table of tests that `make test` leaves out names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.files_of_a_stage import holds_none
from tests.long_tests import FIRST, LONG, SLOW, LongTest

TESTS = Path(__file__).parent
MARK = "pytest.mark"  # this file has no such mark itself


@pytest.mark.parametrize("row", LONG, ids=lambda row: f"{row.file}-{row.test}")
def test_a_row_names_a_file_and_a_test_that_there_are(row: LongTest) -> None:
    text = (TESTS / row.file).read_text()
    assert row.test == "*" or re.search(rf"^ *(async )?def {row.test}\(", text, re.MULTILINE)


@pytest.mark.parametrize("file", [*FIRST, *SLOW])
def test_a_file_of_a_list_is_there(file: str) -> None:
    assert (TESTS / file).is_file()


def test_a_row_is_about_its_file_its_test_and_its_parameters() -> None:
    row = LongTest("faults/test_a.py", "test_b", "310", "why")
    assert row.covers("faults/test_a.py", "test_b", "rabbitmq310-quorum")
    assert not row.covers("faults/test_a.py", "test_b", "rabbitmq43-quorum")
    assert not row.covers("faults/test_a.py", "test_c", "rabbitmq310-quorum")
    assert not row.covers("faults/test_d.py", "test_b", "rabbitmq310-quorum")
    assert LongTest("faults/test_a.py", "*", "310", "why").covers("faults/test_a.py", "test_c", "310")


def test_every_test_on_spark_is_where_make_spark_tests_looks_for_it() -> None:
    makefile = (TESTS.parent / "Makefile").read_text()
    (places,) = re.findall(r"^SPARK_TESTS := (.*)$", makefile, re.MULTILINE)
    looked_for = [TESTS.parent / place for place in places.split()]
    assert all(place.exists() for place in looked_for)
    marked = [path for path in TESTS.rglob("*.py") if re.search(r"^.*mark\.spark\b", path.read_text(), re.MULTILINE)]
    elsewhere = [path for path in marked if not any(path == one or one in path.parents for one in looked_for)]
    assert elsewhere == []


@pytest.mark.parametrize(
    ("text", "unit", "broker"),
    [
        ("pytestmark = pytest.mark.broker\n", True, False),
        ("pytestmark = [pytest.mark.broker, pytest.mark.slow]\n", True, False),
        (f"pytestmark = [{MARK}.spark, {MARK}.slow]\n", True, True),
        ("@pytest.mark.broker\ndef test_a(): ...\ndef test_b(): ...\n", False, False),
        ("def test_a(rabbitmq43): ...\ndef test_b(): ...\n", False, False),
        ("def test_a(rabbitmq43_policy): ...\n", False, True),
    ],
)
def test_a_file_is_left_out_only_where_no_test_of_it_is_of_that_stage(text: str, unit: bool, broker: bool) -> None:
    fixtures = {"rabbitmq43", "artemis244"}
    assert holds_none(text, "not broker and not spark and not long", fixtures) == unit
    assert holds_none(text, "broker and not spark and not long", fixtures) == broker
    assert not holds_none(text, "long", fixtures)
    assert not holds_none(text, "broker or long", fixtures)
