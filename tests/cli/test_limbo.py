# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests redeliver limbo list, show, release: what is printed, and what is said of bad input."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from redeliver_mw.cli.main import run
from redeliver_mw.limbo import Limbo, Parking
from redeliver_mw.message import Outgoing
from tests.limbo.messages import message, sql

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'limbo.db'}"


def fill(url: str, *outs: Outgoing, after: float = 3600.0) -> list[int]:
    with Limbo(url, app="shop") as store:
        now = time.time()
        return store.park([Parking(out, now + after + n) for n, out in enumerate(outs)])


def said(capsys: Capture, *words: str, code: int = 0) -> tuple[str, str]:
    assert run(["limbo", *words]) == code
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return out, err


def as_json(capsys: Capture, *words: str) -> Any:
    return json.loads(said(capsys, *words, "--json")[0])


def test_list_tells_what_waits_until_when_and_for_whom(url: str, capsys: Capture) -> None:
    first, second = fill(url, message(1), message(2, headers={}))
    out, err = said(capsys, "list", url)
    assert [line.split()[0] for line in out.splitlines() if "queue:orders" in line] == [str(first), str(second)]
    assert "2 parked: 2 waiting, 0 due, 0 given up" in out
    assert err == "note: no running app sends these at present; start shop\n"
    rows = as_json(capsys, "list", url)
    assert [(r["id"], r["to"], r["from"], r["state"], r["failures"]) for r in rows] == [
        (first, "queue:orders", "queue:orders", "waiting", 3),
        (second, "queue:orders", None, "waiting", 0),
    ]
    assert rows[0]["due_s"] == pytest.approx(time.time() + 3600, abs=60)
    assert (rows[0]["copy_id"], rows[0]["lineage"], rows[0]["bytes"]) == ("copy-1", "lineage-1", len(b"order 1"))


def letter(number: int) -> Outgoing:
    """Return a message as the interceptor makes it of one that cannot be copied."""
    made = message(number)
    ours = {"redeliver_uncopyable": "its headers need 130000 bytes", "redeliver_reason": "exhausted"}
    return replace(made, headers={**made.headers, **ours})


def test_a_dead_letter_is_listed_with_its_reason_and_released_by_its_id_only(url: str, capsys: Capture) -> None:
    parked, dead = fill(url, message(1), letter(2))
    out, _ = said(capsys, "list", url)
    (line,) = [line for line in out.splitlines() if line.split()[:1] == [str(dead)]]
    assert "dead letter (exhausted)" in line
    assert "its headers need 130000 bytes" in line
    assert "2 parked: 1 waiting, 0 due, 0 given up, 1 dead letter\n" in out
    assert [(r["id"], r["state"], r["reason"]) for r in as_json(capsys, "list", url)] == [
        (dead, "dead letter", "exhausted"),
        (parked, "waiting", None),
    ]
    out, err = said(capsys, "release", url)
    assert out == "1 of 2 released\n"
    assert "1 dead letter stays; release it with --id" in err
    with Limbo(url, app="shop") as store:
        assert [row.id for row in store.due()] == [parked]
    assert said(capsys, "release", url, "--id", str(dead))[0] == "1 of 2 released\n"
    with Limbo(url, app="shop") as store:
        assert sorted(row.id for row in store.due()) == [parked, dead]


def test_list_of_an_empty_limbo_is_no_error(url: str, capsys: Capture) -> None:
    fill(url)
    assert "0 parked" in said(capsys, "list", url)[0]
    assert as_json(capsys, "list", url) == []


def test_messages_of_a_running_app_need_no_start(url: str, capsys: Capture) -> None:
    with Limbo(url, app="shop") as store:
        store.park([Parking(message(1), time.time() + 60)])
        assert said(capsys, "list", url)[1] == ""


@pytest.mark.parametrize("id_", ["copy-2", "lineage-2"])
def test_a_message_is_found_by_its_copy_and_by_its_lineage(url: str, id_: str, capsys: Capture) -> None:
    _, second = fill(url, message(1), message(2))
    assert [row["id"] for row in as_json(capsys, "list", url, "--id", id_)] == [second]
    assert [row["id"] for row in as_json(capsys, "show", url, "--id", str(second))] == [second]


def test_show_prints_headers_and_body_without_secrets_and_without_what_steers_a_terminal(
    url: str, capsys: Capture
) -> None:
    fill(url, message(1, headers={"password": "hunter2", "odd": "\x1b[2J"}, body=b'{"lamp": 1, "password": "hunter2"}'))
    out, _ = said(capsys, "show", url)
    assert "hunter2" not in out
    assert "\x1b" not in out
    assert '{"lamp": 1' in out
    (shown,) = as_json(capsys, "show", url)
    assert (shown["headers"]["password"], shown["body_encoding"]) == ("***", "utf-8")


def test_show_prints_a_body_that_is_no_text_in_hex(url: str, capsys: Capture) -> None:
    fill(url, message(1, body=b"\x00\xff"))
    assert "00 ff (hex)" in said(capsys, "show", url)[0]


def test_release_makes_one_due_or_all(url: str, capsys: Capture) -> None:
    ids = fill(url, message(1), message(2), message(3))
    assert as_json(capsys, "release", url, "--id", str(ids[1])) == {"released": 1, "parked": 3}
    assert [row["state"] for row in as_json(capsys, "list", url)] == ["due", "waiting", "waiting"]
    out, err = said(capsys, "release", url)
    assert out == "3 of 3 released\n"
    assert "start shop" in err
    with Limbo(url, app="shop") as store:
        assert len(store.due()) == 3


def test_release_takes_up_what_was_given_up(url: str, capsys: Capture) -> None:
    fill(url, message(1), after=0)
    sql(url, "UPDATE dms_limbo_msg SET delivery_count = 85")
    assert as_json(capsys, "list", url)[0]["state"] == "given up"
    said(capsys, "release", url, "--limit", "1")
    assert [(r["state"], r["delivery_count"]) for r in as_json(capsys, "list", url)] == [("due", 1)]


def test_an_id_that_is_not_there_is_the_worlds_fault(url: str, capsys: Capture) -> None:
    fill(url, message(1))
    for command in ("list", "show", "release"):
        out, err = said(capsys, command, url, "--id", "77", code=1)
        assert (out, "no such message: '77'" in err) == ("", True)


@pytest.mark.parametrize("command", ["list", "show", "release"])
def test_a_file_that_is_not_there_is_not_made(url: str, command: str, capsys: Capture) -> None:
    assert "there is no such file" in said(capsys, command, url, code=1)[1]
    assert not Path(url.removeprefix("sqlite:///")).exists()


@pytest.mark.parametrize(
    ("words", "what"),
    [(["--limit", "0"], "--limit"), (["--limit", "many"], "--limit"), (["--id", ""], "--id: an empty id")],
)
def test_bad_options_are_your_input(url: str, words: list[str], what: str, capsys: Capture) -> None:
    assert what in said(capsys, "list", url, *words, code=2)[1]


def test_what_is_no_database_url_is_your_input(capsys: Capture) -> None:
    assert "is no database URL" in said(capsys, "list", "limbo.db", code=2)[1]
    assert "the variable 'NOT_SET' is not set" in said(capsys, "list", "env:NOT_SET", code=2)[1]


def test_a_variable_may_hold_the_url(url: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(url, message(1))
    monkeypatch.setenv("LIMBO", url)
    assert len(as_json(capsys, "list", "env:LIMBO")) == 1
