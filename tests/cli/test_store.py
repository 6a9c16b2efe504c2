# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests redeliver dead list, groups and show of a store: what they print, without secrets, and about bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from redeliver_mw.cli.main import run
from redeliver_mw.operations import Store
from redeliver_mw.operations.tables import letters
from tests.operations.taking import DLQ, put
from tests.pipeline.letters import DIED_US, letter

Capture = pytest.CaptureFixture[str]
HISTORY = '[{"t":"2026-01-01T00:00:00.000Z","f":"0123456789abcdef","h":"shop-1","d":1.5}]'


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    """Return the URL of a store with three letters: two of ours, and one of a stranger who knows terminals."""
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


@pytest.fixture
def triage_url(tmp_path: Path) -> str:
    """Return the URL of a store with letters of two errors and two days, one of which is archived."""
    url = f"sqlite:///{tmp_path}/triage.db"
    with Store(url) as store:
        for number in range(6):
            own = {
                "redeliver_error_type": ("KeyError", "TimeoutError")[number % 2],
                "redeliver_last_failed_at": f"2026-11-{20 + number}T12:00:00Z",
                "tenant": f"t{number}",
            }
            put(store, letter(b"x" * number, own, copy_id=f"copy-{number}"))
        with store.writing() as connection:
            connection.execute(letters.update().where(letters.c.dl_id == "copy-5").values(state="archived"))
    return url


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "43210"),
        (["--where", "error = TimeoutError"], "31"),
        (["--where", "header.tenant in (t0, t4) and bytes > 0"], "4"),
        (["--since", "2026-11-23"], "43"),
        (["--since", "2026-11-23T12:00:01Z"], "4"),
        (["--since", "30000d"], "43210"),
        (["--state", "archived"], "5"),
        (["--state", "any"], "543210"),
        (["--state", "any", "--where", "state = archived"], "5"),
        (["--group", "error=KeyError"], "420"),
        (["--group", "day=2026-11-21"], "1"),
        (["--group", "app="], "43210"),
        (["--group", "source=orders", "--sort", "bytes"], "01234"),
        (["--sort", "died"], "01234"),
        (["--sort", "bytes:desc", "--limit", "2"], "43"),
    ],
)
def test_letters_are_chosen_and_sorted(words: list[str], expected: str, triage_url: str, capsys: Capture) -> None:
    found = as_json(capsys, "list", "--store", triage_url, *words)["letters"]
    assert "".join(one["id"][-1] for one in found) == expected


def test_a_list_of_groups_is_what_groups_prints(triage_url: str, capsys: Capture) -> None:
    for words in (["--where", "bytes > 1"], ["--state", "any", "--since", "2026-11-22"]):
        listed = said(capsys, "list", "--store", triage_url, "--group", "error", *words)
        assert listed == said(capsys, "groups", "--store", triage_url, "--by", "error", *words)
        assert "KeyError" in listed[0]


def test_the_letter_that_is_shown_can_be_chosen(triage_url: str, capsys: Capture) -> None:
    words = ("show", "--store", triage_url)
    assert as_json(capsys, *words, "--where", "error = TimeoutError")["id"] == "copy-3"
    assert as_json(capsys, *words, "--sort", "died")["id"] == "copy-0"
    assert as_json(capsys, *words, "--state", "archived")["id"] == "copy-5"
    assert said(capsys, *words, "--where", "failures > 99")[1].startswith("no letter of the store is meant by that")


def test_a_list_of_all_states_names_them(triage_url: str, capsys: Capture) -> None:
    out, _ = said(capsys, "list", "--store", triage_url, "--state", "any")
    assert "archived" in out
    assert "6 letters of 6 in the store" in out


def test_a_body_is_shown_as_json_text_or_hex(store_url: str, capsys: Capture) -> None:
    words = ("show", "--store", store_url, "--id")
    out, _ = said(capsys, *words, "copy-0")
    assert out.endswith('{\n  "lamp": 1,\n  "password": "***"\n}\n')
    assert said(capsys, *words, "copy-0", "--body", "text")[0].endswith('{"lamp": 1, "password": "***"}\n')
    assert said(capsys, *words, "copy-1", "--body", "hex")[0].endswith(f"00000000  {'00 ff':<47}  ..\n")
    assert said(capsys, *words, "odd")[0].endswith("\na\\x1b[2Jb\n")
    assert "the body is not UTF-8, at byte 1" in said(capsys, *words, "copy-1", "--body", "text", code=2)[1]
    assert "the body is no JSON" in said(capsys, *words, "odd", "--body", "json", code=2)[1]


DECODERS = """
import sys
def upper(body): return body.decode().upper()
def read(body): return {"length": len(body), "secret": "password=hunter2", "odd": "\\x1b[2J"}
def fails(body): raise ValueError("no schema \\x1b[2J token=hunter2")
def leaves(body): sys.exit(3)
def same(body): return body
"""


def test_a_body_is_shown_as_a_function_decodes_it(
    store_url: str, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "avro_like.py").write_text(DECODERS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    words = ("show", "--store", store_url, "--id", "odd", "--decode")
    assert said(capsys, *words, "avro_like:upper")[0].endswith("\nA\\x1b[2JB\n")
    assert '"length": 6' in said(capsys, *words, "avro_like:read")[0]
    assert said(capsys, *words, "avro_like:same")[0].endswith("\na\\x1b[2Jb\n")
    for name, text in (("fails", "ValueError: no schema \\x1b[2J token=***"), ("leaves", "SystemExit: 3")):
        out, err = said(capsys, *words, f"avro_like:{name}", code=3)
        assert out.endswith("\na\\x1b[2Jb\n")
        assert f"--decode: the function raises {text}; this is the body as it is" in err
    found = json.loads(said(capsys, *words, "avro_like:fails", "--json", code=3)[0])
    assert found["decode_error"].startswith("ValueError: no schema")
    assert found["body_encoding"] == "utf-8"


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
        (["list", "--group", "tenant"], "--group: there are no groups by 'tenant'"),
        (["list", "--group", "tenant=a"], "--group: there are no groups by 'tenant'"),
        (["list", "--group", "error", "--cursor", "x"], "--cursor: this option is for letters in a list"),
        (["groups", "--group", "error"], "--group: 'error' names no group"),
        (["groups", "--group", "day=today"], "--group: 'today' is no day"),
        (["list", "--where", "failures > "], "--where: column 12: a value is needed here, not the end of the filter"),
        (["groups", "--where", "size > 3"], "Did you mean bytes?"),
        (["show", "--where", "a" * 10_001], "--where: column 10001"),
        (["list", "--since", "soon"], '--since: "soon" is no time. Write a length of time as in 2h or 3d'),
        (["list", "--state", "gone"], "--state: there is no state 'gone'. Write one of waiting,"),
        (["list", "--sort", "size"], "--sort: letters cannot be sorted by 'size'"),
        (["list", "rabbitmq://h/", "q", "--state", "any"], "--state: this option is for letters in a store"),
        (["list", "rabbitmq://h/", "q", "--sort", "died"], "--sort: this option is for letters in a store"),
        (["list", "rabbitmq://h/", "q", "--where", "a"], "--where: column 1:"),
        (["show", "--body", "xml"], "--body: there is no form 'xml'"),
        (["show", "--decode", "nowhere_at_all:f"], "--decode nowhere_at_all:f: there is no module 'nowhere_at_all'"),
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
