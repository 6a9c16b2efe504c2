# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests redeliver check, and what the command line makes of errors."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from redeliver_mw.cli import check, main
from redeliver_mw.cli.main import run
from redeliver_mw.errors import BrokerUnavailable
from redeliver_mw.policy import RedeliveryPolicy

TEXT = "3:1000; 6:5000; 8:move(queue:dlq.$)"
Capture = pytest.CaptureFixture[str]


def test_a_valid_policy_is_called_valid(capsys: Capture) -> None:
    assert run(["check", TEXT]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("valid jmsjca, version ")
    assert "dead after 8 failures" in out
    assert err == ""


def test_json_tells_what_it_is(capsys: Capture) -> None:
    assert run(["check", TEXT, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "valid": True,
        "language": "jmsjca",
        "version": RedeliveryPolicy.parse(TEXT).version,
        "dead_after": 8,
        "longest_delay_s": 5.0,
        "targets": ["queue:dlq.$"],
        "text": TEXT,
        "entries": [],
        "warnings": [],
    }


ARMS = "dead_after = 3\nbackoff = 1\n[arms.patient]\nshare = 0.05\nbackoff = 60\n"


def test_arms_are_printed_and_a_wrong_one_is_refused_with_place_and_cure(capsys: Capture) -> None:
    assert run(["check", ARMS]) == 0
    assert "; arm patient (5%): dead after 3 failures; delay 60 s; queue:DLQ.$" in capsys.readouterr().out
    assert run(["check", ARMS, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["longest_delay_s"] == 60.0
    assert told["arms"] == {
        "patient": {
            "share": 0.05,
            "dead_after": 3,
            "longest_delay_s": 60.0,
            "targets": ["queue:DLQ.$"],
            "text": "dead after 3 failures; delay 60 s; queue:DLQ.$",
        }
    }
    assert run(["check", ARMS.replace("0.05", "5")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    cure = "Give a number above 0 and below 1: 0.05 is 5%"
    assert err == f"error: line 4, arms.patient.share: the share is 5. {cure} [policy-arms]\n"


def test_a_wrong_policy_is_one_message_with_place_and_cure_and_exit_2(capsys: Capture) -> None:
    assert run(["check", "3:1000; 6:move(queue)"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: E104 in element 2 of 2")
    assert "Write queue:NAME" in err
    assert err.count("\n") == 1


def test_every_entry_of_a_map_is_printed_with_what_it_takes_over_from_others(capsys: Capture) -> None:
    text = 'match = "merge"\ndead_after = 9\n[destinations."a.>"]\nbackoff = 5\n[destinations."a.b"]\ndead_after = 2\n'
    assert run(["check", text]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "valid native: 2 entries and a default"
    rows = {line.split()[0]: line for line in lines[1:] if line.strip()}
    assert "dead after 2 failures; delay 5 s" in rows["a.b"]
    assert "dead after 9 failures; delay 5 s" in rows["a.>"]
    assert "dead after 9 failures; delay 1 s times 2" in rows["any"]
    assert run(["check", text, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    entries = [(entry["destination"], entry["dead_after"], entry["longest_delay_s"]) for entry in told["entries"]]
    assert entries == [("a.b", 2, 5.0), ("a.>", 9, 5.0)]
    assert told["dead_after"] == 9


def test_warnings_go_to_stderr_and_into_the_json(capsys: Capture) -> None:
    assert run(["check", "# nothing yet", "--language", "native", "--json"]) == 0
    out, err = capsys.readouterr()
    assert err.startswith("warning: it says nothing")
    assert json.loads(out)["warnings"] == [err.removeprefix("warning: ").strip()]


def test_a_url_is_checked_without_showing_its_password(capsys: Capture) -> None:
    assert run(["check", f"tcp://me:hunter2@h?JMSJCA.redeliveryhandling={TEXT}", "--json"]) == 0
    assert run(["check", "tcp://me:hunter2@h"]) == 2
    assert run(["check", "tcp://me:hunter2@h", "--language", "jmsjca"]) == 2
    out, err = capsys.readouterr()
    assert "hunter2" not in out + err


def test_a_file_is_read_and_named_in_its_errors(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "orders.txt"
    file.write_text(TEXT + "\n")
    assert run(["check", str(file)]) == 0
    file.write_text("x")
    assert run(["check", str(file)]) == 2
    assert str(file) in capsys.readouterr().err


def test_a_file_that_is_not_there_is_exit_2(tmp_path: Path, capsys: Capture) -> None:
    assert run(["check", str(tmp_path / "nothing.toml")]) == 2
    assert "looks like a file" in capsys.readouterr().err


def test_a_dash_reads_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(TEXT.encode() + b"\n")))
    assert run(["check", "-"]) == 0
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"\xff")))
    assert run(["check", "-"]) == 2
    assert "stdin: not UTF-8, at byte 0" in capsys.readouterr().err


def test_strict_refuses_what_the_manual_refuses() -> None:
    assert run(["check", "3:6000"]) == 0
    assert run(["check", "3:6000", "--strict"]) == 2


def test_a_language_that_nobody_knows_is_exit_2(capsys: Capture) -> None:
    assert run(["check", TEXT, "--language", "cobol"]) == 2
    assert "no policy language 'cobol'" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["check"], ["chekc", TEXT], ["check", TEXT, "--nope"], ["check", TEXT, "x"]])
def test_wrong_arguments_are_exit_2_on_stderr(arguments: list[str], capsys: Capture) -> None:
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err


def test_help_is_exit_0_and_lists_the_commands(capsys: Capture) -> None:
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    assert "check" in out
    assert "explain" in out


def _raising(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(check, "read_policies", fail)


def test_the_world_is_exit_1(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    _raising(BrokerUnavailable("no answer", where="amqp://u:hunter2@h", cure="Start it"), monkeypatch)
    assert run(["check", TEXT]) == 1
    err = capsys.readouterr().err
    assert "no answer. Start it" in err
    assert "hunter2" not in err


def test_an_interrupt_is_exit_130(monkeypatch: pytest.MonkeyPatch) -> None:
    _raising(KeyboardInterrupt(), monkeypatch)
    assert run(["check", TEXT]) == 130


def test_a_bug_of_ours_is_exit_70_and_says_where_its_traceback_went(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    _raising(ZeroDivisionError("oops"), monkeypatch)
    assert run(["check", TEXT]) == 70
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    assert "ZeroDivisionError: oops" in err
    place = re.search(r"in (\S+\.txt)", err)
    assert place is not None
    assert "ZeroDivisionError: oops" in Path(place[1]).read_text()


def test_main_exits_with_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["redeliver", "check", "x"])
    with pytest.raises(SystemExit) as caught:
        main.main()
    assert caught.value.code == 2


def test_one_failure_is_not_several(capsys: Capture) -> None:
    assert run(["check", "dead_after = 1"]) == 0
    assert "dead after 1 failure; " in capsys.readouterr().out
    assert run(["check", "dead_after = 2"]) == 0
    assert "dead after 2 failures; " in capsys.readouterr().out
    setting = '<address-setting match="#"><max-delivery-attempts>1</max-delivery-attempts></address-setting>'
    assert run(["check", f"<address-settings>{setting}</address-settings>"]) == 0
    assert "a message is dropped after 1 failure\n" in capsys.readouterr().err
