# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""redeliver dead list, groups and show of a store: what they print, without secrets, and what is said of bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from redeliver_mw.cli.main import run
from redeliver_mw.operations import Store
from tests.operations.taking import DLQ, put
from tests.pipeline.letters import DIED_US, letter

Capture = pytest.CaptureFixture[str]
HISTORY = '[{"t":"2026-01-01T00:00:00.000Z","f":"0123456789abcdef","h":"shop-1","d":1.5}]'


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    """A store with three letters: two of ours, and one of a stranger who knows terminals."""
    url = f"sqlite:///{tmp_path}/store.db"
    own = {
        "redeliver_error_message": "no such lamp, password=hunter2",
        "redeliver_history": HISTORY,
        "token": "hunter2",
    }
    with Store(url) as store:
        put(
            store,
            letter(b'{"lamp": 1, "password": "hunter2"}', own, copy_id="copy-0"),
            letter(b"\x00\xff", own | {"redeliver_error_type": "KeyError"}, copy_id="copy-1"),
            letter(b"a\x1b[2Jb", {"x\x1b[2J": "y\x1b[2J\u202e"}, copy_id="odd", message_id="m\x1b[2J"),
        )
    return url


def said(capsys: Capture, *words: str, code: int = 0) -> tuple[str, str]:
    assert run(["dead", *words]) == code
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    assert "hunter2" not in out + err
    assert "\x1b" not in out + err
    return out, err


def as_json(capsys: Capture, *words: str) -> Any:
    return json.loads(said(capsys, *words, "--json")[0])


def test_letters_of_a_store_are_listed(store_url: str, capsys: Capture) -> None:
    out, err = said(capsys, "list", "--store", store_url)
    rows = [line.split() for line in out.splitlines() if DLQ.name in line]
    assert sorted(row[:3] for row in rows) == [[name, DLQ.name, "queue:orders"] for name in ("copy-0", "copy-1", "odd")]
    assert "3 letters of 3 that wait in the store" in out
    assert err == ""


def test_a_page_ends_with_the_cursor_of_the_next(store_url: str, capsys: Capture) -> None:
    out, err = said(capsys, "list", "--store", store_url, "--limit", "2")
    assert "2 letters of 3" in out
    cursor = err.removeprefix("more: --cursor ").strip()
    rest = as_json(capsys, "list", "--store", store_url, "--cursor", cursor)
    first = as_json(capsys, "list", "--store", store_url, "--limit", "2")
    assert (first["next_cursor"], rest["next_cursor"]) == (cursor, None)
    assert {one["id"] for one in first["letters"] + rest["letters"]} == {"copy-0", "copy-1", "odd"}


def test_a_letter_in_json_has_all_that_is_known_of_it_and_no_secret(store_url: str, capsys: Capture) -> None:
    [found] = [one for one in as_json(capsys, "list", "--store", store_url)["letters"] if one["id"] == "copy-0"]
    assert (found["from"], found["failures"], found["died_s"]) == ("queue:orders", 3, DIED_US / 1e6)
    assert found["error_message"] == "no such lamp, password=***"
    assert (found["state"], found["queue"], found["problem"]) == ("waiting", DLQ.name, None)


def test_a_letter_of_a_store_is_shown_with_its_headers_history_and_body(store_url: str, capsys: Capture) -> None:
    out, _ = said(capsys, "show", "--store", store_url, "--id", "copy-0")
    assert out.startswith("letter copy-0, from queue:orders, 34 bytes, waiting\n")
    assert "  token: ***" in out
    assert "0123456789abcdef" in out
    assert '"lamp": 1' in out
    shown = as_json(capsys, "show", "--store", store_url, "--id", "copy-1")
    assert (shown["body"], shown["body_encoding"]) == ("00 ff", "hex")
    assert shown["history"] == [
        {"at_s": 1767225600.0, "fingerprint": "0123456789abcdef", "host": "shop-1", "delay_s": 1.5}
    ]
    out, _ = said(capsys, "show", "--store", store_url, "--id", "odd")
    assert r"x\x1b[2J: y\x1b[2J\u202e" in out


def test_without_an_id_the_newest_letter_is_shown(store_url: str, capsys: Capture) -> None:
    with Store(store_url) as store:
        put(store, letter(b"new", {"redeliver_last_failed_at": "2027-01-01T00:00:00Z"}, copy_id="new"))
    assert as_json(capsys, "show", "--store", store_url)["id"] == "new"


def test_groups_of_a_store_are_listed_the_largest_first(store_url: str, capsys: Capture) -> None:
    out, _ = said(capsys, "groups", "--store", store_url, "--by", "error")
    assert [line.split()[:2] for line in out.splitlines() if "Error" in line] == [
        ["2", "ValueError"],
        ["1", "KeyError"],
    ]
    [group] = as_json(capsys, "groups", "--store", store_url)
    assert (group["fingerprint"], group["letters"]) == ("0123456789abcdef", 3)
    assert (group["first_s"], group["last_s"]) == (DIED_US / 1e6, DIED_US / 1e6)


def test_the_store_is_that_of_the_variable_if_none_is_given(
    store_url: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDELIVER_STORE", store_url)
    assert len(as_json(capsys, "list")["letters"]) == 3
    monkeypatch.setenv("OTHER", store_url)
    monkeypatch.delenv("REDELIVER_STORE")
    assert len(as_json(capsys, "list", "--store", "env:OTHER")["letters"]) == 3


# -- bad input --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["list", "rabbitmq://h/", "q", "--store", "sqlite:///s.db"], "--store: this option is for letters in a store"),
        (["list", "rabbitmq://h/", "q", "--cursor", "x"], "--cursor: this option is for letters in a store"),
        (["list", "rabbitmq://h/", "q", "--queue", "x"], "--queue: this option is for letters in a store"),
        (["list", "--id", "x"], "--id: this option is for letters in a queue"),
        (["show", "--limit", "3"], "--limit: this option is for letters in a queue"),
        (["list", "rabbitmq://h/"], "DLQ"),
        (["list", "--store", "nonsense"], "[store-url]"),
        (["list", "--store", "env:NOT_THERE"], "env:NOT_THERE: the variable 'NOT_THERE' is not set"),
        (["list", "--store", "sqlite:///s.db", "--limit", "0"], "--limit: 0 is no number from 1 on"),
        (["show", "--store", "sqlite:///s.db", "--id", " "], "--id: an empty id"),
        (["groups", "--by", "tenant"], "--by: there are no groups by 'tenant'"),
        (["collect", "memory://", "q"], "memory://: a memory broker lives in one process"),
        (["collect", "rabbitmq://h/", "topic:t"], "topic:t is no queue"),
        (["collect", "rabbitmq://h/", "q", "--limit", "0"], "--limit: 0 is no number from 1 on"),
        (["collect", "rabbitmq://h/", "q", "--limit", "1", "--follow"], "--limit: a collect with --follow has no end"),
        (["collect", "rabbitmq://h/"], "QUEUE"),
        (["collect", "rabbitmq://h/", "q", "--store", "postgresql://u:hunter2@127.0.0.1:1/d"], "postgresql"),
    ],
)
def test_bad_input_is_refused_and_no_file_is_made(
    words: list[str], what: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("REDELIVER_STORE", raising=False)
    code = 1 if "postgresql" in what else 2
    out, err = said(capsys, *words, code=code)
    assert what in err
    assert out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_is_not_there_is_not_made_by_looking(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("REDELIVER_STORE", raising=False)
    for words in (["list"], ["show"], ["groups"]):
        _, err = said(capsys, *words, code=1)
        assert "there is no such file. Name the store with --store, or fill it first" in err
    assert list(tmp_path.iterdir()) == []


def test_an_id_that_no_letter_has_and_one_that_several_begin_with(store_url: str, capsys: Capture) -> None:
    _, err = said(capsys, "show", "--store", store_url, "--id", "nope", code=1)
    assert "no such letter: 'nope'" in err
    _, err = said(capsys, "show", "--store", store_url, "--id", "copy", code=2)
    assert "'copy' begins the ids of 2 letters" in err
