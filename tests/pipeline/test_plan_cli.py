# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests what `redeliver pipeline plan · forget` print, their exit codes, and the page about them."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from redeliver_mw.cli.main import run
from redeliver_mw.dead_letters.edits.letter import Letter
from redeliver_mw.pipeline import Lake, read_plan
from redeliver_mw.pipeline.plans.eligibility import WHY
from tests.pages import write_files
from tests.pipeline.drained import DAY, NOON, letter, put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Capture = pytest.CaptureFixture[str]
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "plan.md").read_text()


def said(capsys: Capture, *words: str | Path, code: int = 0) -> tuple[str, str]:
    assert run(["pipeline", *map(str, words)]) == code
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return out, err


@pytest.fixture
def stock(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a lake with five letters; its folder's parent, the current folder, has the page's module in it."""
    put(lake, [letter(f"d{n}", body=b'{"total":%d}' % n, headers={"tenant": "acme"}) for n in range(3)])
    put(lake, [letter("odd", body=b"odd"), letter("no", problem="it cannot be copied", dead_us=NOON + DAY)])
    write_files(PAGE, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "repairs", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return Path(lake.root)


def test_a_plan_says_what_goes_and_what_does_not(spark: SparkSession, stock: Path, capsys: Capture) -> None:
    out, err = said(capsys, "plan", stock, "plan", "--set", "to=fixed", "--where", "failures = 7")
    made = read_plan("plan")
    assert re.search(r"fixed +4 *\n", out)
    assert re.search(r"problem +1 +it cannot be sent back *\n", out)
    assert "4 letters planned where failures = 7, 1 left out\n" in out
    assert f"plan {made.plan_id} in {made.folder}, sha256 {made.sha256[:16]}\n" in out
    assert err == ""
    assert spark.range(1).count() == 1  # the session was there before, and stays


def test_the_pages_transform_makes_it_done_in_part_where_it_raises(
    spark: SparkSession, stock: Path, capsys: Capture
) -> None:
    words = ("--transform", "repairs:add_currency", "--json", "--until", "2026-11-30")
    out, err = said(capsys, "plan", stock, "plan", *words, code=3)
    told = json.loads(out)
    assert (told["letters"], told["left_out"]) == (2, {"failed": 1, "transform": 1})
    assert told["sha256"] == read_plan("plan").sha256
    assert [one["dl_id"] for one in told["errors"]] == ["odd"]
    assert err.startswith("odd: JSONDecodeError: ")


@pytest.mark.parametrize(
    "where",
    [
        "java_method('java.lang.System', 'exit', 3) IS NULL",
        "IDENTIFIER('java_method')('java.lang.System', 'exit', 3) IS NULL",
        "CASE WHEN true THEN `Reflect` ('java.lang.System', 'exit', 3) IS NULL END",
    ],
)
def test_a_condition_that_would_end_the_driver_is_refused(
    spark: SparkSession, stock: Path, capsys: Capture, where: str
) -> None:
    out, err = said(capsys, "plan", stock, "plan", "--where", where, code=2)
    assert ("runs what is no part of Spark SQL" in err, out) == (True, "")
    assert not Path("plan").exists()
    assert spark.range(1).count() == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--set", "currency=EUR"), "header.NAME=VALUE"),
        (("--header", "tenant"), "no NAME=VALUE"),
        (("--transform", "repairs:absent"), "has no attribute 'absent'"),
        (("--since", "2026-12-01", "--until", "2026-11-01"), "not after"),
        (("--max-generation", "0"), "0 replays are none"),
        (("--buckets", "0"), "0 is no number of buckets"),
        (("--where", ""), "an empty condition"),
        (("--destination", ""), "an empty name"),
    ],
)
def test_what_cannot_be_meant_is_reported_before_spark_is_started(
    stock: Path, capsys: Capture, words: tuple[str, ...], told: str
) -> None:
    _, err = said(capsys, "plan", stock, "plan", *words, "--master", "spark://127.0.0.1:1", code=2)
    assert told in err
    assert not Path("plan").exists()


def test_no_lake_and_a_plan_that_is_there_are_reported_without_spark_too(stock: Path, capsys: Capture) -> None:
    assert "no lake is here" in said(capsys, "plan", stock.parent / "none", "plan", code=2)[1]
    Path("plan").mkdir()
    Path("plan", "plan.json").write_text("{}")
    assert "a plan is here, and stays as it is" in said(capsys, "plan", stock, "plan", code=2)[1]


@pytest.mark.parametrize(("dialect", "noted"), [("activemq+stomp", True), ("artemis+proton", False)])
def test_an_order_that_activemq_does_not_show_is_not_promised(
    spark: SparkSession, lake: Lake, tmp_path: Path, capsys: Capture, dialect: str, noted: bool
) -> None:
    put(lake, [letter(f"d{n}", dialect=dialect) for n in range(2)])
    _, err = said(capsys, "plan", lake.root, tmp_path / "plan", "--ordered")
    assert ("note: activemq+stomp hides group ids, so letters from there go in no order" in err) is noted
    _, err = said(capsys, "plan", lake.root, tmp_path / "other")
    assert err == ""


def test_forgetting_counts_first_and_says_what_was_never_sent(stock: Path, capsys: Capture) -> None:
    out, err = said(capsys, "forget", stock, "--before", "2026-11-30", "--bodies")
    assert out == "4 bodies of 1 days would be removed\n"
    assert "4 of them were not sent back by any replay" in err
    assert "say --execute" in err
    out, _ = said(capsys, "forget", stock, "--before", "2026-11-30", "--execute", "--json")
    assert json.loads(out) == {
        "letters": 4,
        "unsent": 4,
        "files": 2,
        "days": 1,
        "bodies_only": False,
        "done": True,
        "staged": 0,
    }
    assert "no beginning of a day" in said(capsys, "forget", stock, "--before", "2026-11-30T01:00", code=2)[1]
    assert "--before: 'tomorrow' is no time" in said(capsys, "forget", stock, "--before", "tomorrow", code=2)[1]


def test_the_page_names_every_why_and_everything_a_letter_has() -> None:
    whys = PAGE.partition("| why | because |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)`", whys, re.MULTILINE) == list(WHY)
    table = PAGE.partition("A `redeliver_mw.pipeline.Letter` has")[2].partition("\n\nThe transform runs")[0]
    named = {name for row in re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)", row)}
    assert named == {*Letter.__dataclass_fields__, "text", "json", "changed"}
