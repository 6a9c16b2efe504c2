# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests redeliver control: what it prints about running Apps, and what is said of bad input."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from redeliver_mw.cli.main import run
from redeliver_mw.operations import Store
from redeliver_mw.operations.control import SILENT_US, SourceReport, last_wishes
from redeliver_mw.operations.operation import now_us, person
from tests.operations.test_control import report

Capture = pytest.CaptureFixture[str]
ORDERS = SourceReport("queue:orders", True, breaker="open", forced=True, waiting=3)
ODD = SourceReport("queue:o\x1b[2Jdd", False, "no broker: password=hunter2 \x1b[2J")


@pytest.fixture
def store_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of a store to which two processes of an App have reported, of which one is silent."""
    url = f"sqlite:///{tmp_path}/store.db"
    with Store(url) as store:
        report(store, "p1", sources=(ORDERS, ODD), host="mill1", pid=4711)
        report(store, "p2", sources=(ORDERS,), host="mill2", pid=4712, at_us=now_us() - SILENT_US - 1_000_000)
    monkeypatch.setenv("REDELIVER_STORE", url)
    return url


def said(capsys: Capture, *words: str, code: int = 0) -> tuple[str, str]:
    assert run(["control", *words]) == code
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    assert "hunter2" not in out + err
    assert "\x1b" not in out + err
    return out, err


@pytest.mark.usefixtures("store_url")
def test_status_shows_each_source_of_each_process(capsys: Capture) -> None:
    out, err = said(capsys, "shop", "status")
    rows = [line.split() for line in out.splitlines() if "mill" in line]
    assert sorted(row[:4] for row in rows) == [
        ["mill1", "4711", "running", "queue:o\\x1b[2Jdd"],
        ["mill1", "4711", "running", "queue:orders"],
        ["mill2", "4712", "silent", "queue:orders"],
    ]
    assert "consuming open (by an operator) 3" in " ".join(out.split())
    assert err == ""


@pytest.mark.usefixtures("store_url")
def test_status_as_json(capsys: Capture) -> None:
    first, second = json.loads(said(capsys, "shop", "status", "--json")[0])
    assert (first["pid"], first["state"], second["state"]) == (4711, "running", "silent")
    assert first["sources"][0] == {
        "source": "queue:orders",
        "consuming": True,
        "why_not_consuming": None,
        "breaker": "open",
        "breaker_forced": True,
        "waiting": 3,
    }
    assert first["seen_s"] > second["seen_s"]


def test_commands_say_what_was_asked_for_and_who_asked_is_kept(store_url: str, capsys: Capture) -> None:
    assert said(capsys, "shop", "pause", "orders") == ("shop: pause queue:orders; 1 running process\n", "")
    assert said(capsys, "shop", "breaker", "close")[0] == "shop: breaker close queue:orders; 1 running process\n"
    found = json.loads(said(capsys, "shop", "resume", "queue:orders", "--store", store_url, "--json")[0])
    assert found == {
        "app": "shop",
        "subject": "consumption",
        "wish": "resume",
        "sources": ["queue:orders"],
        "running": 1,
    }
    with Store(store_url) as store:
        wishes = last_wishes(store, "shop")
    assert {(one.wish, one.who) for one in wishes} == {("resume", person()), ("close", person())}


def test_an_app_that_does_not_run_obeys_later(store_url: str, capsys: Capture) -> None:
    with Store(store_url) as store:
        report(store, "p1", sources=(ORDERS,), host="mill1", state="stopped")
    out, err = said(capsys, "shop", "pause", "orders")
    assert out == "shop: pause queue:orders; 0 running processes\n"
    assert err == "note: no running process has reported these; the App obeys when it starts\n"


@pytest.mark.usefixtures("store_url")
@pytest.mark.parametrize(
    ("words", "what", "code"),
    [
        (("shopp", "status"), "no App of the name 'shopp'.*Name one of shop", "control-app"),
        (("shop", "pause", "bills"), "shop has no source queue:bills. Name one of .*queue:orders", "control-source"),
        (("shop", "breaker", "open", "o\x1b[2Jdd"), r"queue:o\\x1b\[2Jdd of shop has no breaker", "control-no-breaker"),
        (("shop", "breaker", "shut"), "a breaker cannot be set to 'shut'. Write one of open, close, auto", "option-"),
        (("shop", "pause", "topic:"), "names no destination", "destination-name"),
    ],
)
def test_bad_input_is_refused_in_one_line(capsys: Capture, words: tuple[str, ...], what: str, code: str) -> None:
    out, err = said(capsys, *words, code=2)
    assert out == ""
    assert err.count("\n") == 1
    assert re.search(what, err), err
    assert f"[{code}" in err


def test_a_store_that_is_not_there_is_refused(tmp_path: Path, capsys: Capture) -> None:
    _, err = said(capsys, "shop", "status", "--store", f"sqlite:///{tmp_path}/none.db", code=1)
    assert "[store-file-missing]" in err
