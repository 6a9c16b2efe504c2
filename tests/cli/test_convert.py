# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""redeliver convert: a policy in another language, and what is lost on the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from redeliver_mw.cli.main import run
from redeliver_mw.message import DestinationKind
from redeliver_mw.policy import RedeliveryPolicy, Target
from redeliver_mw.policy.formats import READERS

Capture = pytest.CaptureFixture[str]
TEXT = "5:1000; 10:5000; 50:move(queue:dlq$error)"
JITTERED = "dead_after = 3\nbackoff = { constant = 1, jitter = 0.5 }\n"
MAP = 'backoff = 1\n[destinations."orders.>"]\ndead_after = 2\n'


def test_what_is_written_is_the_same_policy_in_the_other_language(capsys: Capture) -> None:
    assert run(["convert", TEXT, "--to", "native"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    found = READERS["native"](out, False).default
    assert found == RedeliveryPolicy.parse(TEXT)
    assert run(["convert", out, "--to", "jmsjca"]) == 0
    assert capsys.readouterr().out == f"{TEXT}\n"


def test_what_cannot_be_said_is_listed_and_nothing_is_written(capsys: Capture) -> None:
    assert run(["convert", JITTERED, "--to", "jmsjca"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert "lost in jmsjca: jitter (1 s, jitter 50%)\n" in err
    assert "--lossy" in err


def test_lossy_writes_the_nearest_and_still_says_what_is_lost(capsys: Capture) -> None:
    assert run(["convert", JITTERED, "--to", "jmsjca", "--lossy"]) == 0
    out, err = capsys.readouterr()
    assert out == "1:1000; 3:move(queue:DLQ.$)\n"
    assert err == "lost in jmsjca: jitter (1 s, jitter 50%)\n"


def test_json_has_the_text_and_the_list(capsys: Capture) -> None:
    assert run(["convert", JITTERED, "--to", "jmsjca", "--json"]) == 3
    told = {"from": "native", "to": "jmsjca", "text": None, "lost": ["jitter (1 s, jitter 50%)"], "warnings": []}
    assert json.loads(capsys.readouterr().out) == told
    assert run(["convert", JITTERED, "--to", "jmsjca", "--json", "--lossy"]) == 0
    assert json.loads(capsys.readouterr().out) == told | {"text": "1:1000; 3:move(queue:DLQ.$)"}


ARMS = "backoff = 1\n[arms.patient]\nshare = 0.05\nbackoff = 60\n"


def test_arms_are_lost_where_a_language_has_none(capsys: Capture) -> None:
    assert run(["convert", ARMS, "--to", "jmsjca"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    said = "lost in jmsjca: default: the arm patient (5%): all messages of a source are under one policy\n"
    assert said in err
    assert run(["convert", ARMS, "--to", "jmsjca", "--lossy"]) == 0
    assert capsys.readouterr() == ("1:1000; 7:move(queue:DLQ.$)\n", said)


def test_arms_are_written_in_our_own_language(capsys: Capture) -> None:
    assert run(["convert", ARMS, "--to", "native"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert READERS["native"](out, False) == READERS["native"](ARMS, False)
    assert out.endswith("[default.arms.patient]\nshare = 0.05\nbackoff = 60\n")


def test_each_entry_that_is_lost_is_named(capsys: Capture) -> None:
    assert run(["convert", MAP, "--to", "jmsjca"]) == 3
    assert "lost in jmsjca: orders.>: one string is for every destination" in capsys.readouterr().err


def test_one_destination_of_a_map_can_be_converted_alone(capsys: Capture) -> None:
    assert run(["convert", MAP, "--to", "jmsjca", "--destination", "orders.eu"]) == 0
    assert capsys.readouterr().out == "1:1000; 2:move(queue:DLQ.$)\n"


def test_a_file_is_converted(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "orders.txt"
    file.write_text(TEXT + "\n")
    assert run(["convert", str(file), "--to", "native"]) == 0
    assert "dead_after = 50" in capsys.readouterr().out


def test_a_password_in_a_url_is_not_printed(capsys: Capture) -> None:
    for to in ("native", "jmsjca", "activemq"):
        run(["convert", f"tcp://me:hunter2@h?JMSJCA.redeliveryhandling={TEXT}", "--to", to, "--lossy"])
        run(["convert", "tcp://me:hunter2@h?jms.redeliveryPolicy.maximumRedeliveries=1", "--to", to, "--lossy"])
    out, err = capsys.readouterr()
    assert out
    assert "hunter2" not in out + err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([TEXT, "--to", "nativ"], "Did you mean 'native'?"),
        ([TEXT], "--to"),
        (["3:soon", "--to", "native"], "E102"),
        ([TEXT, "--to", "native", "--destination", "topic:a", "--kind", "queue"], "is no queue"),
    ],
)
def test_wrong_input_is_exit_2_with_nothing_on_stdout(arguments: list[str], said: str, capsys: Capture) -> None:
    assert run(["convert", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_a_target_of_the_sources_kind_is_not_lost_where_the_destination_is_named(
    capsys: Capture, kind: DestinationKind
) -> None:
    assert run(["convert", "2:move(same:dead)", "--to", "artemis", "--destination", f"{kind}:prices"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert READERS["artemis"](out, False).resolve("prices", kind).targets == (Target(kind, "dead"),)


def test_a_language_that_can_say_the_sources_kind_keeps_it(capsys: Capture) -> None:
    given = "2:move(same:dead)"
    assert run(["convert", given, "--to", "jmsjca", "--destination", "topic:prices"]) == 0
    assert capsys.readouterr().out == f"{given}\n"
