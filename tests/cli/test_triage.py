# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests redeliver dead diff, note, discard, archive, restore, expire, export, import, redirect, operations, audit."""

from __future__ import annotations

import io
import json
import logging
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import text as sql

from redeliver_mw.cli.main import run
from redeliver_mw.operations import Selection, Store, counts, find_operation, last_operations, page, show
from redeliver_mw.operations.archive import plan_archive
from redeliver_mw.operations.audit import last_entries
from redeliver_mw.operations.tables import letters
from tests.cli.running import Running
from tests.operations.taking import ids, put
from tests.pipeline.letters import letter
from tests.storage.postgres import Postgres

Capture = pytest.CaptureFixture[str]
ESC = "\x1b[2J"
NUMBER = 12


@pytest.fixture
def store_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of a store with twelve letters of two errors, in the current folder's store.db."""
    url = f"sqlite:///{tmp_path}/store.db"
    with Store(url) as store:
        for number in range(NUMBER):
            own = {"redeliver_error_type": ("KeyError", "TimeoutError")[number % 2], "token": "hunter2"}
            put(store, letter(b'{"n": %d, "password": "hunter2"}' % number, own, copy_id=f"copy-{number:02d}"))
    monkeypatch.setenv("REDELIVER_STORE", url)
    monkeypatch.chdir(tmp_path)
    return url


@pytest.fixture(autouse=True)
def _logs_left_alone() -> Iterator[None]:
    """Put loggers back that a command has set up."""
    ours = logging.getLogger("redeliver_mw")
    before = ours.handlers, ours.level, ours.propagate
    yield
    ours.handlers, ours.level, ours.propagate = before


def said(capsys: Capture, *words: str, code: int = 0) -> tuple[str, str]:
    assert run(["dead", *words]) == code, capsys.readouterr()
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    assert "hunter2" not in out + err
    assert "\x1b" not in out + err
    return out, err


def as_json(capsys: Capture, *words: str, code: int = 0) -> Any:
    return json.loads(said(capsys, *words, "--json", code=code)[0])


def typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def states(url: str) -> dict[str, int]:
    with Store(url) as store:
        return {str(state): number for state, number in counts(store).items()}


# -- choosing, and the count ------------------------------------------------------------------------


def test_a_discard_asks_for_the_exact_count_that_was_frozen(
    store_url: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("discard", "--where", "error = KeyError", "--file", "gone.jsonl")
    for answer in ("y\n", "", "12\n", "06\n"):
        typed(monkeypatch, answer)
        out, err = said(capsys, *words, code=2)
        assert err.startswith("6 letters will be discarded. Type 6 to go on: error: --yes: the count of 6 was not")
        assert (out, states(store_url)) == ("", {"waiting": NUMBER})
    typed(monkeypatch, "6\n")
    out, _ = said(capsys, *words)
    assert out.startswith(f"6 of 6 letters discarded and written to {Path.cwd()}/gone.jsonl, operation ")
    assert states(store_url) == {"waiting": 6, "discarded": 6}
    with Store(store_url) as store:
        assert [one.outcome for one in last_entries(store)] == ["success", *["denied"] * 4]
        assert [one.state for one in last_operations(store, kind="discard")] == ["done", *["cancelled"] * 4]


@pytest.mark.parametrize("command", ["discard", "archive", "restore"])
def test_nothing_is_changed_unless_something_says_which_letters(command: str, store_url: str, capsys: Capture) -> None:
    _, err = said(capsys, command, code=2)
    assert "--all: nothing says which letters" in err
    _, err = said(capsys, command, "--all", "--where", "bytes > 1", code=2)
    assert "--all: it says every letter and some letters" in err
    assert states(store_url) == {"waiting": NUMBER}


def test_letters_are_archived_restored_and_discarded_by_ids_groups_and_filters(store_url: str, capsys: Capture) -> None:
    assert as_json(capsys, "archive", "--id", "copy-00", "--id", "copy-01")["done"] == 2
    assert as_json(capsys, "archive", "--group", "error=TimeoutError")["done"] == 5
    assert states(store_url) == {"waiting": 5, "archived": 7}
    assert as_json(capsys, "restore", "--where", "error = KeyError")["done"] == 1
    assert as_json(capsys, "discard", "--state", "archived", "--all", "--yes")["done"] == 6
    assert states(store_url) == {"waiting": 6, "discarded": 6}
    assert as_json(capsys, "restore", "--all")["done"] == 6
    assert said(capsys, "restore", "--all")[0] == "no letter is meant by that\n"
    [file] = Path.cwd().glob("discarded-*.jsonl")
    assert len(file.read_bytes().splitlines()) == 1 + 6


def test_a_plan_freezes_its_letters_and_is_run_later(store_url: str, capsys: Capture) -> None:
    out, err = said(capsys, "archive", "--where", "error = KeyError", "--plan")
    assert out.startswith("6 letters would be archived, operation ")
    operation = out.split()[-1]
    assert err == f"to do it: redeliver dead archive --resume {operation}\n"
    with Store(store_url) as store:
        put(store, letter(b"late", {"redeliver_error_type": "KeyError"}, copy_id="late"))
    assert as_json(capsys, "archive", "--resume", operation)["done"] == 6
    assert states(store_url) == {"waiting": 7, "archived": 6}
    _, err = said(capsys, "archive", "--resume", operation, code=1)
    assert f"operation {operation} is done" in err
    _, err = said(capsys, "restore", "--resume", operation, code=2)
    assert "is of the kind 'archive', and not 'restore'" in err


def test_letters_that_somebody_else_has_are_skipped_and_said(store_url: str, capsys: Capture) -> None:
    with Store(store_url) as store:
        plan = plan_archive(store, Selection())
        with store.writing() as connection:
            mine = letters.c.dl_id.in_(["copy-00", "copy-01"])
            connection.execute(letters.update().where(mine).values(state="replaying"))
    out, _ = said(capsys, "archive", "--resume", plan.operation_id, code=3)
    assert "2   skipped   it is replaying now" in out
    assert "10 of 12 letters archived" in out


def test_expire_removes_what_is_old_and_what_waits_only_if_that_is_said(
    store_url: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    said(capsys, "archive", "--where", "error = KeyError")
    with Store(store_url) as store, store.writing() as connection:
        connection.execute(letters.update().values(changed_us=1))
    _, err = said(capsys, "expire", "--older-than", "30d", "--state", "waiting", code=2)
    assert "--state: letters that wait are not removed unless that is confirmed. Add --yes" in err
    typed(monkeypatch, "6\n")
    assert "6 of 6 bodies removed" in said(capsys, "expire", "--older-than", "30d", "--bodies")[0]
    out, _ = said(capsys, "show", "--id", "copy-00")
    assert out.endswith("\nits body was removed from the store\n")
    assert as_json(capsys, "show", "--id", "copy-00")["body_removed"] is True
    _, err = said(capsys, "export", "all.jsonl", "--state", "any", code=3)
    assert "note: 6 letters left out: the body was removed" in err
    out, _ = said(capsys, "restore", "--id", "copy-00", code=3)
    assert "its body was removed from the store" in out
    assert as_json(capsys, "expire", "--older-than", "30d", "--yes")["done"] == 6
    assert as_json(capsys, "expire", "--older-than", "30d", "--state", "waiting", "--yes")["done"] == 6
    assert states(store_url) == {}
    assert "nothing says how old" in said(capsys, "expire", code=2)[1]
    assert '"soon" is no length of time' in said(capsys, "expire", "--older-than", "soon", code=2)[1]


# -- files ------------------------------------------------------------------------------------------


def test_what_was_exported_is_imported_into_another_store(store_url: str, capsys: Capture) -> None:
    assert "6 letters written to" in said(capsys, "export", "some.jsonl", "--where", "error = KeyError")[1]
    other = f"sqlite:///{Path.cwd()}/other.db"
    out, err = said(capsys, "import", "some.jsonl", "--store", other)
    assert out.startswith("6 letters imported, 0 in the store before, 0 lines wrong, operation ")
    assert err == ""
    assert states(other) == {"waiting": 6}
    said(capsys, "discard", "--all", "--file", "gone.jsonl", "--yes", "--store", other)
    out, err = said(capsys, "import", "gone.jsonl", "--store", other)
    assert out.startswith("0 letters imported, 6 in the store before")
    assert "note: in the store before: 6 discarded. `redeliver dead restore` lets them wait again" in err


def test_letters_go_through_a_pipe(store_url: str, capsysbinary: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(["dead", "export", "--id", "copy-03"]) == 0
    out, err = capsysbinary.readouterr()
    assert json.loads(out)["dl_id"] == "copy-03"
    assert err == b"1 letter written to stdout\n"
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(out)))
    assert run(["dead", "import", "-", "--store", f"sqlite:///{Path.cwd()}/other.db"]) == 0


def test_wrong_lines_of_an_import_are_named(store_url: str, capsys: Capture) -> None:
    said(capsys, "export", "all.jsonl")
    text = Path("all.jsonl").read_text()
    Path("odd.jsonl").write_text(text + f"{ESC}\n" + text[:50])
    out, err = said(capsys, "import", "odd.jsonl", code=3)
    assert "12 in the store before, 2 lines wrong" in out
    assert "wrong: odd.jsonl: line 13: it is no JSON" in err
    assert "wrong: odd.jsonl: line 14: it is no JSON; it seems to be cut off" in err


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["export", "../out.jsonl"], "it leads out of its folder"),
        (["export", "store.db"], "it is there already"),
        (["discard", "--all", "--yes", "--file", "../x"], "it leads out of its folder"),
        (["export", f"a{ESC}"], r"a\x1b[2J: it is no name of a file"),
        (["import", "nowhere.jsonl"], "nowhere.jsonl: it cannot be used: No such file or directory"),
        (["import", f"no{ESC}"], r"no\x1b[2J: it cannot be used"),
        (["redirect", "add", "a", "a"], "this leads in a circle: queue:a to queue:a"),
        (["redirect", "remove", f"a{ESC}"], r"queue:a\x1b[2J is not redirected"),
        (["note", "x"], "a note is on one letter or on one group"),
        (["note", " ", "--group", "error=a"], "an empty note"),
        (["note", "x", "--group", "tenant=a"], "there are no groups by 'tenant'"),
        (["operations", "1999"], "no such operation: '1999'"),
        (["pause", "1999"], "no such operation: '1999'"),
        (["diff", "copy-00", "copy-"], "'copy-' begins the ids of 12 letters"),
        (["archive", "--where", "size > 1"], "Did you mean bytes?"),
        (["archive", "--id", "nope"], "no such letter: 'nope'"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_done(
    words: Sequence[str], what: str, store_url: str, capsys: Capture
) -> None:
    before = sorted(Path.cwd().iterdir())
    assert run(["dead", *words]) in (1, 2)
    out, err = capsys.readouterr()
    assert what in err
    assert "\x1b" not in out + err
    assert states(store_url) == {"waiting": NUMBER}
    assert sorted(Path.cwd().iterdir()) == before


# -- looking ----------------------------------------------------------------------------------------


def test_two_letters_are_compared_without_secrets_and_without_escapes(store_url: str, capsys: Capture) -> None:
    with Store(store_url) as store:
        put(store, letter(f"a\n{ESC}b".encode(), {f"x{ESC}": f"y{ESC}\u202e"}, copy_id="odd"))
        put(store, letter(f"a\n{ESC}c".encode(), copy_id="even"))
    out, _ = said(capsys, "diff", "odd", "even")
    assert r"-\x1b[2Jb" in out
    assert r"x\x1b[2J" in out
    assert r"y\x1b[2J\u202e" in out
    found = as_json(capsys, "diff", "copy-00", "copy-02")
    assert (found["body_form"], found["equal"]) == ("json", False)
    assert '+  "n": 2,' in found["body"]
    assert "body: they are equal" in said(capsys, "diff", "odd", "odd")[0]


def test_notes_are_shown_where_their_letter_and_their_group_are(store_url: str, capsys: Capture) -> None:
    assert said(capsys, "note", f"mine {ESC}", "--id", "copy-03")[0].startswith("note on letter copy-03, by ")
    said(capsys, "note", "ticket 12, token=hunter2", "--group", "error=TimeoutError")
    out, _ = said(capsys, "list")
    assert r"mine \x1b[2J" in out
    assert "ticket 12, token=***" in said(capsys, "groups", "--by", "error")[0]
    out, _ = said(capsys, "show", "--id", "copy-03")
    assert r": mine \x1b[2J" in out
    assert "note on its error, " in out
    [one] = [one for one in as_json(capsys, "groups", "--by", "error") if one["notes"]]
    assert (one["error"], one["notes"][0]["text"]) == ("TimeoutError", "ticket 12, token=***")


def test_one_list_has_all_operations_whoever_began_them(store_url: str, capsys: Capture) -> None:
    said(capsys, "archive", "--id", "copy-00")
    with Store(store_url) as store:
        plan = plan_archive(store, Selection(), who=f"ada{ESC}@shop")
    out, _ = said(capsys, "operations")
    assert r"ada\x1b[2J@shop" in out
    assert [one["kind"] for one in as_json(capsys, "operations")[:3]] == ["archive", "archive", "collect"]
    assert len(as_json(capsys, "operations", "--limit", "1")) == 1
    assert "is paused: 0 of 11 done" in said(capsys, "pause", plan.operation_id)[0]
    assert "is cancelled: 0 of 11 done" in said(capsys, "cancel", plan.operation_id[:-1])[0]
    assert "is cancelled" in said(capsys, "cancel", plan.operation_id, code=1)[1]
    shown = as_json(capsys, "operations", plan.operation_id, "--after", "9")
    assert [(one["id"], one["outcome"]) for one in shown["letters"]] == [("copy-10", None), ("copy-11", None)]
    out, _ = said(capsys, "operations", plan.operation_id, "--limit", "3")
    assert "more: --after 3" in out
    assert [(one["what"], one["outcome"]) for one in as_json(capsys, "audit")] == [
        ("cancel", "denied"),
        ("cancel", "success"),
        ("pause", "success"),
        ("archive", "success"),
    ]
    assert "success" in said(capsys, "audit", "--limit", "2")[0]


def test_redirects_are_listed(store_url: str, capsys: Capture) -> None:
    assert (
        said(capsys, "redirect", "add", "orders", "orders.eu")[0] == "letters of queue:orders go to queue:orders.eu\n"
    )
    [one] = as_json(capsys, "redirect", "list")
    assert (one["old"], one["new"]) == ("queue:orders", "queue:orders.eu")
    assert "queue:orders.eu" in said(capsys, "redirect", "list")[0]
    said(capsys, "redirect", "remove", "orders")
    assert as_json(capsys, "redirect", "list") == []


def test_the_log_has_the_fields_of_the_audit(store_url: str, capsys: Capture) -> None:
    _, err = said(capsys, "archive", "--where", "error = KeyError", "--log-format", "json")
    [line] = [json.loads(one) for one in err.splitlines() if one.startswith("{")]
    assert (line["event.action"], line["event.outcome"], line["redeliver.letters"]) == (
        "dead-letter-archive",
        "success",
        6,
    )
    assert line["redeliver.operation_id"]
    assert "KeyError" in line["redeliver.filter"]
    _, err = said(capsys, "restore", "--resume", line["redeliver.operation_id"], "--log-format", "json", code=2)
    denied = json.loads(err.splitlines()[0])
    assert (denied["level"], denied["event.outcome"]) == ("warning", "failure")
    assert "is of the kind 'archive'" in denied["redeliver.reason"]


# -- what goes wrong in the middle ------------------------------------------------------------------


def test_letters_with_ten_thousand_headers_or_a_body_that_is_no_text(store_url: str, capsys: Capture) -> None:
    with Store(store_url) as store:
        put(store, letter(b"\xff\xfe", {f"h{n:05d}": f"v{n}" for n in range(10_000)}, copy_id="many"))
    assert len(as_json(capsys, "show", "--id", "many")["headers"]) == 1000
    assert "body: they are equal" in said(capsys, "diff", "many", "many")[0]
    said(capsys, "discard", "--id", "many", "--yes", "--file", "many.jsonl")
    other = f"sqlite:///{Path.cwd()}/other.db"
    said(capsys, "import", "many.jsonl", "--store", other)
    with Store(other) as store, Store(store_url) as first:
        assert page(store).letters[0].digest == page(first, Selection(state="discarded")).letters[0].digest


ODD_BODIES = {
    "JSON in Latin-1": '{"name": "Zoë", "password": "hunter2"}'.encode("latin-1"),
    "half a surrogate": b'{"a": "\\ud800", "\\u001b": 1}',
    "a byte order mark": b"\xef\xbb\xbf{}",
    "NUL": b'{"a": "\0"}',
    "deep": b"[" * 50_000 + b"]" * 50_000,
    "long number": b"[" + b"9" * 20_000 + b", NaN, 1e999]",
    "one long word": b"x" * 3_000_000,
    "large": bytes(range(256)) * 30_000,
}


@pytest.mark.parametrize("kind", ODD_BODIES)
def test_odd_bodies_and_names_are_listed_shown_compared_and_carried_over(
    kind: str, store_url: str, capsys: Capture
) -> None:
    odd = {f"{'n' * 200}{ESC}": "v" * 5000, "a\0b": "c\0d", "half\udcff": b"\xff"}
    with Store(store_url) as store:
        put(store, letter(ODD_BODIES[kind], odd, copy_id="odd-1", content_type="x" * 200))
    assert "odd-1" in said(capsys, "list", "--where", "id = odd-1")[0]
    assert said(capsys, "show", "--id", "odd-1")[0]
    assert said(capsys, "show", "--id", "copy-00", "--body", "hex")[0]
    assert as_json(capsys, "show", "--id", "odd-1")["bytes"] == len(ODD_BODIES[kind])
    assert said(capsys, "diff", "odd-1", "copy-00")[0]
    said(capsys, "export", "odd.jsonl", "--id", "odd-1")
    other = f"sqlite:///{Path.cwd()}/other.db"
    said(capsys, "import", "odd.jsonl", "--store", other)
    with Store(other) as store:
        assert show(store, "odd-1").packed.body == ODD_BODIES[kind]


def test_a_store_of_a_newer_release_is_refused_and_left_alone(store_url: str, capsys: Capture) -> None:
    with Store(store_url) as store, store.writing() as connection:
        connection.execute(sql("UPDATE redeliver_store_version SET version = 99"))
    for words in (["list"], ["discard", "--all", "--yes"], ["audit"], ["note", "x", "--id", "copy-00"]):
        _, err = said(capsys, *words, code=2)
        assert "[store-tables]" in err
    Path("x.jsonl").write_text("")
    assert "[store-tables]" in said(capsys, "import", "x.jsonl", code=2)[1]
    assert list(Path.cwd().glob("discarded-*")) == []


def test_a_database_that_stops_in_the_middle_is_said_with_the_way_on(
    postgres: Postgres, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres.new_database()
    with Store(url) as store:
        put(store, *(letter(b"%d" % n, copy_id=f"copy-{n:04d}") for n in range(500)))
    monkeypatch.chdir(tmp_path)
    import redeliver_mw.operations.discard as module

    real, calls = module.claim_letters, iter(range(9))

    def claim(connection: Any, *given: Any) -> set[int]:
        if next(calls) == 1:  # ends this connection, as a server that goes away does
            connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")
        return real(connection, *given)

    monkeypatch.setattr(module, "claim_letters", claim)
    _, err = said(capsys, "discard", "--all", "--yes", "--file", "gone.jsonl", "--store", url, code=1)
    assert "letters of finished batches are discarded, all others are as they were. To go on: redeliver dead" in err
    with Store(url) as store:
        [operation] = last_operations(store, kind="discard")
        assert operation.done == 200
        assert counts(store) == {"discarded": 200, "waiting": 300}
    assert as_json(capsys, "discard", "--resume", operation.operation_id, "--yes", "--store", url)["done"] == 500
    _, *rows = (tmp_path / "gone.jsonl").read_bytes().splitlines()
    names = [json.loads(line)["dl_id"] for line in rows]
    assert sorted(set(names)) == [f"copy-{n:04d}" for n in range(500)]


SLOW = """
import redeliver_mw.operations.runs as runs, time
real = runs.record_results
def slow(*given):
    print("batch", flush=True)
    time.sleep(0.5)
    return real(*given)
runs.record_results = slow
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_discard_between_batches_and_says_how_to_go_on(
    number: signal.Signals, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    with Store(url) as store:
        put(store, *(letter(b"%d" % n, copy_id=f"copy-{n:04d}") for n in range(900)))
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SLOW)
    with Running(tmp_path, "dead", "discard", "--all", "--yes", "--file", "gone.jsonl", "--store", url) as command:
        assert command.saw("batch")
        command.signal(number)
        assert command.wait() == 130
    with Store(url) as store:
        [operation] = last_operations(store, kind="discard")
    assert operation.state == "paused"
    assert 0 < operation.done < 900
    left = 900 - operation.done
    way = f"To go on: redeliver dead discard --resume {operation.operation_id}"
    assert f"interrupted: {left} letters left as they were. {way}" in command.err
    assert states(url) == {"discarded": operation.done, "waiting": left}
    monkeypatch.chdir(tmp_path)
    typed(monkeypatch, f"{left}\n")
    assert (
        f"{left} letters will be discarded"
        in said(capsys, "discard", "--resume", operation.operation_id, "--store", url)[1]
    )
    with Store(url) as store:
        assert find_operation(store, operation.operation_id).done == 900
        assert ids(store) == []
    assert len((tmp_path / "gone.jsonl").read_bytes().splitlines()) == 1 + 900
