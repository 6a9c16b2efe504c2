# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests `redeliver pipeline backtest`: its rows, files and sentences, and its exit codes."""

from __future__ import annotations

import json
import random
import re
import shlex
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from redeliver_mw.cli.main import run
from redeliver_mw.pipeline import Lake, compact
from redeliver_mw.pipeline.backtest import Candidate, how_wrong
from redeliver_mw.pipeline.backtest.lake_input import known, policies_in_use
from redeliver_mw.pipeline.insights import insights
from redeliver_mw.pipeline.report.backtest_input import NO_TEXT
from redeliver_mw.pipeline.schemas import BACKTEST
from redeliver_mw.policy import Backoff, PolicyMap, RedeliveryPolicy, load_policies
from redeliver_mw.policy.formats import LANGUAGES, WRITERS
from tests.pages import FENCE
from tests.pipeline.journals import SECOND, START_US, line, segment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Capture = pytest.CaptureFixture[str]
PAGE = Path(__file__).resolve().parents[3] / "docs" / "backtest.md"

IN_USE = "1:1000; 5:move(queue:dlq.$)"  # at 0, 1, 2, 3 and 4 s, and then it is dead
PRESENT = load_policies(IN_USE).resolve("orders")
SLOW = RedeliveryPolicy(6, Backoff.exponential(2, 2), "queue:dlq.$")  # an arm: at 0, 2, 6, 14, 30 and 62 s
BETTER = RedeliveryPolicy(5, [2, 4, 8, 16], "queue:dlq.$")
COLUMNS = [column.split()[0] for column in BACKTEST.split(", ")]


def message(
    key: str, heals_s: float, policy: RedeliveryPolicy, /, fingerprint: str = "00112233445566aa", **about: Any
) -> Iterator[bytes]:
    """Yield the records of one message until it succeeds or is dead-lettered; messages are spread over a day."""
    at, begin = 0.0, START_US + zlib.crc32(key.encode()) % 80_000 * SECOND
    for number in range(1, (policy.dead_after or 0) + 1):
        ok, last = at >= heals_s, number == policy.dead_after
        now = begin + round(at * SECOND)
        told: dict[str, Any] = (
            {"outcome": "accepted"}
            if ok
            else {
                "outcome": "dead_lettered" if last else "redelivered",
                "reason": "exhausted" if last else "handler",
                "error_type": "TimeoutError",
                "error_message": "no answer",
                "error_fingerprint": fingerprint,
                "error_frames": ["shop.orders:on_order"],
                "last_failure_us": now,
            }
        )
        yield line(
            3,
            record_id=f"{key}-{number}",
            ts_us=now,
            message_id=key,
            message_key=key,
            delivery_count=number,
            attempts_total=number,
            first_attempt_us=begin,
            handler_us=1_000,
            broker_redelivered=number > 1,
            **NOTHING | told | about,
        )
        if ok:
            return
        at += policy.backoff.span(number).low


NOTHING: dict[str, Any] = dict.fromkeys(
    (
        "reason",
        "error_type",
        "error_message",
        "error_fingerprint",
        "error_frames",
        "last_failure_us",
        "mechanism",
        "delay_us",
        "delay_base_us",
    )
)


def journal() -> Iterator[tuple[str, float, bytes]]:
    """Yield for each record its message, after how many seconds that message recovers, and the record.

    Of 600 orders every fourth goes to the arm. Of 200 mails a tenth never recovers, and the journal does not spell the
    policy of the mails.
    """
    rng = random.Random(1)
    for number in range(600):
        heals, slow = 4.0 * rng.lognormvariate(0, 1.0), number % 4 == 0
        arm = {"policy_arm": "slow", "propensity": 0.25} if slow else {"policy_arm": "main", "propensity": 0.75}
        about = {"policy": IN_USE, "policy_version": PRESENT.version, **arm}
        for one in message(f"o{number}", heals, SLOW if slow else PRESENT, **about):
            yield f"o{number}", heals, one
    for number in range(200):
        heals = 3.0 * rng.lognormvariate(0, 1.0) if number % 10 else 1e9
        about = {"policy": "…", "policy_version": "cut", "destination": "mail"}
        for one in message(f"m{number}", heals, PRESENT, "ff00", **about):
            yield f"m{number}", heals, one


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("backtest")
    segment(folder / "journal", [one for _, _, one in journal()])
    compact(spark, folder / "journal", folder / "lake")
    insights(spark, folder / "lake")
    return str(folder / "lake")


def said(capsys: Capture, *words: str | Path, code: int = 0) -> tuple[str, str]:
    assert run(["pipeline", "backtest", *map(str, words)]) == code, capsys.readouterr()
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return out, err


def rows_of(capsys: Capture, *words: str | Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(said(capsys, *words, "--json")[0])
    return found


def mapped(language: str, place: str, policy: RedeliveryPolicy) -> PolicyMap:
    """Return a map with this policy: under the place's name where the language has no default, else as the default."""
    return PolicyMap({f"queue:{place}": policy}) if language in ("patchbay", "weblogic") else PolicyMap(None, policy)


def cells(table: str) -> list[list[str]]:
    """Return the cells of a table's lines, its head first, without its rule."""
    lines = [re.split(r" {2,}", one.strip()) for one in table.splitlines() if one.strip()]
    return [lines[0], *lines[2:]]


def healed_by(seconds: float, first: str) -> float:
    """Return the share that recovers within so many seconds, of the failing messages whose key begins with `first`.

    The share is counted from what the messages were made of. `first` is o for orders and m for mails.
    """
    every = {key: heals for key, heals, _ in journal() if key.startswith(first)}
    failed = [heals for heals in every.values() if heals > 0]
    return sum(heals <= seconds for heals in failed) / len(failed)


def test_json_has_a_row_for_each_candidate_destination_and_failure(lake: str, capsys: Capture) -> None:
    rows = rows_of(capsys, lake, "--candidate", IN_USE, "--candidate", "1:2000; 4:move(queue:dlq.$)")
    assert [list(row) for row in rows] == [COLUMNS] * len(rows)
    places = [(None, None), ("mail", None), ("mail", "ff00"), ("orders", None), ("orders", "00112233445566aa")]
    assert [(row["destination"], row["error_fingerprint"]) for row in rows] == places * 2
    assert [row["candidate"] for row in rows] == [IN_USE] * 5 + ["1:2000; 4:move(queue:dlq.$)"] * 5
    by_place = {row["destination"]: row for row in rows[:5] if row["error_fingerprint"] is None}
    assert {place: row["messages"] for place, row in by_place.items()} == {None: 800, "mail": 200, "orders": 600}
    assert by_place["mail"]["p_recover"] == pytest.approx(healed_by(4, "m"), abs=0.005)
    assert by_place["orders"]["p_recover"] == pytest.approx(healed_by(4, "o"), abs=0.03)  # a quarter went another way
    assert by_place["mail"]["dead_letter_share"] == pytest.approx(1 - by_place["mail"]["p_recover"])


def test_candidates_come_as_files_of_every_language_and_say_the_same(
    lake: str, tmp_path: Path, capsys: Capture
) -> None:
    words: list[str] = []
    for language in LANGUAGES:
        policy = RedeliveryPolicy(4, 2.0, "queue:dlq")
        (tmp_path / language).write_text(WRITERS[language](mapped(language, "mail", policy)).text)
        words += ["--candidate", str(tmp_path / language)]
    rows = [row for row in rows_of(capsys, lake, *words, "--destination", "mail") if row["error_fingerprint"] is None]
    assert [row["candidate"] for row in rows] == [str(tmp_path / language) for language in LANGUAGES]
    for row in rows:  # at 2, 4 and 6 s; history saw no mail later than 4 s
        assert row["p_recover"] == pytest.approx(healed_by(4, "m"), abs=0.005), row
        assert row["extrapolated"], row
        assert row["ttr_mean_s"] is None, row


def test_a_table_is_for_people(lake: str, capsys: Capture) -> None:
    out, err = said(capsys, lake, "--candidate", IN_USE, "--candidate", "1:2000; 3:move(queue:dlq.$)")
    head, *lines = cells(out)
    assert head[:6] == ["candidate", "messages", "recover", "from", "to", "dead"]
    assert [line[0] for line in lines] == [IN_USE, "1:2000; 3:move(queue:dlq.$)"]
    assert err.startswith(f"all destinations: stay with {IN_USE}")
    by_place, _ = said(capsys, lake, "--candidate", IN_USE, "--by", "destination")
    assert [line[:3] for line in cells(by_place)[1:]] == [[IN_USE, "mail", "200"], [IN_USE, "orders", "600"]]


def test_arms_make_the_horizon_longer_and_tell_how_wrong_it_is(lake: str, spark: SparkSession, capsys: Capture) -> None:
    found = known(spark, lake)
    assert found.history.horizon("orders") == pytest.approx(62, rel=0.02)  # the arm's; the policy itself ends at 4 s
    assert found.history.horizon("mail") == pytest.approx(4, rel=0.02)
    checks = {check.policy_version: check for check in how_wrong(found.apart)}
    assert sorted(checks) == [f"{PRESENT.version} main", f"{PRESENT.version} slow"]
    assert [check.wrong for check in checks.values()] == [False, False]
    assert {check.messages for check in checks.values()} == {450, 150}
    [orders, mail] = [
        row for row in found.history.backtest([Candidate("c", BETTER)]) if row.destination in ("orders", "mail")
    ][::-1]
    assert (orders.extrapolated, mail.extrapolated) == (False, True)
    assert orders.p_recover == pytest.approx(healed_by(30, "o"), abs=0.03)
    assert policies_in_use(spark, lake) == {"orders": PRESENT}  # a text that was cut is none
    _, err = said(capsys, lake, "--candidate", IN_USE, "--destination", "mail")
    assert "how wrong the back-test is here is not known: history knows one policy" in err


def test_a_grid_is_as_many_candidates_as_it_has_combinations(lake: str, capsys: Capture) -> None:
    grid = "attempts=3-5 initial=1,2 multiplier=1,2 cap=60"
    rows = rows_of(capsys, lake, "--destination", "orders", "--present", IN_USE, "--grid", grid, "--by", "all")
    whole = Counter(row["candidate"] for row in rows if row["error_fingerprint"] is None)
    assert set(whole.values()) == {1}
    assert len(whole) == 3 * 2 * 2 + 1
    assert "in use" in whole


def test_a_search_goes_where_the_journal_tells_the_policy(lake: str, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "better.toml"
    out, err = said(capsys, lake, "--write", file)
    assert "orders: sure: take " in err or "orders: fairly sure: take " in err
    assert "instead of in use" in err
    assert f"not looked at: mail: {NO_TEXT}. Name the policy with --destination and --present" in err
    assert "mail" not in out
    best = load_policies(file).resolve("orders")
    assert best.targets == PRESENT.targets
    [row] = [
        row
        for row in rows_of(capsys, lake, "--candidate", file, "--destination", "orders")
        if row["error_fingerprint"] is None
    ]
    assert not row["extrapolated"]
    assert row["p_recover"] > healed_by(4, "o") + 0.1


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_best_is_written_in_any_language_and_what_is_lost_is_listed(
    language: str, lake: str, tmp_path: Path, capsys: Capture
) -> None:
    file = tmp_path / "best"
    (tmp_path / "candidate.toml").write_text(WRITERS["native"](PolicyMap(None, BETTER)).text)
    lost = WRITERS[language](mapped(language, "orders", BETTER)).lost
    words = [
        lake,
        "--destination",
        "orders",
        "--candidate",
        IN_USE,
        "--candidate",
        tmp_path / "candidate.toml",
        "--write",
        file,
        "--to",
        language,
    ]
    _, err = said(capsys, *words, code=3 if lost else 0)
    assert err.count(f"lost in {language}: ") == len(lost)
    assert file.exists() == (not lost)
    if lost:
        assert "Nothing is written. Use --lossy to write the nearest" in err
        said(capsys, *words, "--lossy")
    read = load_policies(file, language).resolve("orders")
    assert read.dead_after == BETTER.dead_after
    if not lost:
        spans = [read.backoff.span(failures).low for failures in range(1, 5)]
        assert spans == pytest.approx([2, 4, 8, 16])


def test_where_nothing_is_better_nothing_is_written(lake: str, tmp_path: Path, capsys: Capture) -> None:
    worse = "1:1000; 2:move(queue:dlq.$)"
    _, err = said(capsys, lake, "--candidate", IN_USE, "--candidate", worse, "--write", tmp_path / "x.toml")
    assert "x.toml is not written: nothing is known to be better than what is in use" in err
    assert list(tmp_path.iterdir()) == []


def test_a_present_policy_that_no_history_can_judge_is_reported_as_one(lake: str, capsys: Capture) -> None:
    daily = "1:86400000; 9:move(queue:dlq.$)"
    out, err = said(capsys, lake, "--candidate", daily, "--candidate", IN_USE)
    assert f"history cannot judge {daily}" in err
    [judged] = [line for line in cells(out) if line[0] == daily]
    assert judged[-4:-1] == ["?", "?", "?"]


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        (
            ["--candidate", IN_USE, "--destination", "order"],
            2,
            "'order': no message of it has failed in these histories. Did you mean 'orders'?",
        ),
        (["--candidate", "1:1; 100000:move(queue:dlq.$)"], 2, "it tries more than 10000 times within"),
        (["--candidate", IN_USE, "--candidate", IN_USE], 2, "two candidates are called so. Give each once"),
        (
            ["--destination", "mail"],
            2,
            f"mail: the journal does not tell which policy is in use: {NO_TEXT}. Name it with --present POLICY",
        ),
        (["--since", "2031-01-01"], 2, "no message has failed in these histories"),
    ],
)
def test_what_a_history_cannot_answer_is_one_message(
    lake: str, words: list[str], code: int, what: str, capsys: Capture
) -> None:
    out, err = said(capsys, lake, *words, code=code)
    assert (what in err, out, err.count("\n")) == (True, "", 1), err


def test_a_lake_without_marts_is_the_worlds_fault(spark: SparkSession, tmp_path: Path, capsys: Capture) -> None:
    bare = Lake(tmp_path / "lake", create=True)
    out, err = said(capsys, bare.root, "--candidate", IN_USE, code=1)
    assert ("Run `redeliver pipeline insights LAKE`" in err, out, err.count("\n")) == (True, "", 1), err


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--candidate", "3:x"], "3:x"),
        (["--candidate", "no-such-file.toml"], "no-such-file.toml"),
        (["--objective", "luck"], "'luck': there is no such objective. Take one of fewer-dead-letters"),
        (["--grid", "attempts=3-8"], "this is no grid. Add initial, as in attempts=3-8 initial=1,2"),
        (["--grid", "attempts=3 initial=fast"], "'initial=fast': this is no grid. Write numbers"),
        (["--grid", "attempts=3 initial=1 luck=2"], "'luck=2': this is no grid. Write each of attempts"),
        (["--grid", "attempts=3-4 initial=nan"], "initial"),
        (["--grid", "attempts=2.5 initial=1"], "attempts=2.5"),
        (["--grid", "attempts=3-2 initial=1"], "attempts=3-2"),
        (["--grid", "attempts=0 initial=1"], "attempts"),
        (["--grid", "attempts=3 initial=-1"], "initial"),
        (["--grid", "attempts=1-2000 initial=1-2000"], "these are too many candidates"),
        (["--write", "no/such/folder/x", "--candidate", IN_USE], "no file can be there"),
        (["--to", "patchbray", "--candidate", IN_USE], "there is no policy language 'patchbray'. Did you mean"),
        (["--since", "2026-11-01T06:00"], "within one"),
        (["--by", "luck"], "luck"),
        ([], "no lake is here"),
    ],
)
def test_what_cannot_be_meant_is_reported_before_spark_is_started(
    words: list[str], what: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))  # no Spark could start
    monkeypatch.chdir(tmp_path)
    out, err = said(capsys, tmp_path, *words, code=2)
    assert (what in err, out) == (True, ""), err
    assert err.count("\n") == 1 or words[:1] == ["--by"], err


# The page


def test_the_page_names_every_column_and_every_option(capsys: Capture) -> None:
    page = PAGE.read_text()
    section = page.partition("\n## Columns\n")[2].partition("\n## ")[0]
    named = [
        word for cell in re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE) for word in re.findall(r"`(\w+)`", cell)
    ]
    assert named == COLUMNS
    options = page.partition("| option | is |")[2].partition("\n\n")[0]
    shown = set(re.findall(r"`(--[a-z]+)", options)) | {"--json", "--help"}
    assert run(["pipeline", "backtest", "--help"]) == 0
    assert set(re.findall(r"--[a-z]+", capsys.readouterr().out)) <= shown


def test_the_programs_and_commands_of_the_page_run(
    lake: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lake").symlink_to(lake)
    (tmp_path / "new.toml").write_text(WRITERS["native"](PolicyMap(None, BETTER)).text)
    blocks = [(block["info"].strip(), block["text"]) for block in FENCE.finditer(PAGE.read_text())]
    program: dict[str, Any] = {}
    for text in (text for info, text in blocks if info == "py"):
        exec(text, program)
    assert program["choice"].best.candidate == "patient"
    assert len(program["checks"]) == 2
    [commands] = [text.splitlines() for info, text in blocks if info == "sh"]
    for command in commands:
        assert run(shlex.split(command)[1:]) == 0, capsys.readouterr().err
    assert load_policies(tmp_path / "better.toml").resolve("orders").dead_after is not None
