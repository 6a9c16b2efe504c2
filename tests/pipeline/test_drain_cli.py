# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests what `redeliver pipeline drain` says of bad input, before Spark is started and before any letter is taken."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from redeliver_mw.cli.main import run
from redeliver_mw.errors import ConfigError
from redeliver_mw.message import Destination
from redeliver_mw.pipeline import Lake
from redeliver_mw.pipeline.draining.job import carry_out
from redeliver_mw.pipeline.draining.order import DrainOrder
from redeliver_mw.session import connect
from tests.brokers import Broker
from tests.faults.letters import declare, put_dead_letters, take
from tests.pipeline.letters import Task, letter, table

Capture = pytest.CaptureFixture[str]
SOURCE, DLQ = "drain.orders", "dlq.drain.orders"


def refused(capsys: Capture, *words: str | Path, code: int = 2) -> str:
    assert run(["pipeline", "drain", *map(str, words)]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    return err


def drained(capsys: Capture, *words: str | Path, code: int = 0) -> str:
    assert run(["pipeline", "drain", *map(str, words)]) == code
    out: str = capsys.readouterr().out
    return out


# -- bad input: nothing is connected to -------------------------------------------------------------


def test_a_memory_broker_cannot_be_reached_from_tasks(capsys: Capture, tmp_path: Path) -> None:
    assert "a memory broker lives in one process" in refused(capsys, "memory://", "DLQ.orders", tmp_path)


@pytest.mark.parametrize(("option", "value"), [("--tasks", "0"), ("--batch", "0"), ("--batch", "10001")])
def test_a_number_that_cannot_be_meant(option: str, value: str, capsys: Capture, tmp_path: Path) -> None:
    err = refused(capsys, "rabbitmq://h/", "DLQ.orders", tmp_path, option, value)
    assert f"{option.strip('-')}: {value} is no number from 1" in err


def test_a_topic_holds_no_letters(capsys: Capture, tmp_path: Path) -> None:
    assert "topic:dead is no queue" in refused(capsys, "rabbitmq://h/", "topic:dead", tmp_path)


def test_a_broker_that_is_not_there(capsys: Capture, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    err = refused(capsys, f"rabbitmq://me:hunter2@127.0.0.1:{port}/", "DLQ.orders", tmp_path, code=1)
    assert "hunter2" not in err
    assert not (tmp_path / "_lake.json").exists()


def test_speculative_execution_is_refused(tmp_path: Path) -> None:
    """Only a new session can be given the setting; of a session nothing but the settings is asked before."""
    session: Any = SimpleNamespace(conf={"spark.speculation": "true"})
    order = DrainOrder("rabbitmq://h/", "h", Destination("DLQ.orders"), Lake(tmp_path, create=True), 2, 1000, 1)
    with pytest.raises(ConfigError, match="speculative execution runs a task twice"):
        carry_out(session, order)


# -- on real brokers --------------------------------------------------------------------------------


def test_a_queue_that_is_not_there_is_named(rabbitmq43: Broker, capsys: Capture, tmp_path: Path) -> None:
    err = refused(capsys, rabbitmq43.url, "no.such.dlq", tmp_path, code=1)
    assert "there is no queue:no.such.dlq. Check its name" in err


def test_credentials_that_are_refused(rabbitmq43: Broker, capsys: Capture, tmp_path: Path) -> None:
    url = f"rabbitmq://guest:hunter2@{rabbitmq43.host}:{rabbitmq43.port}/"
    err = refused(capsys, url, DLQ, tmp_path, code=1)
    assert "refuse" in err
    assert "hunter2" not in err


def test_a_folder_of_something_else_is_no_lake_and_nothing_is_taken(
    rabbitmq43: Broker, capsys: Capture, tmp_path: Path
) -> None:
    declare(rabbitmq43, DLQ)
    (tmp_path / "thesis.txt").write_text("years of work")
    assert "no lake is here, and other things are" in refused(capsys, rabbitmq43.url, DLQ, tmp_path)


def test_a_lake_of_a_newer_release_is_refused(rabbitmq43: Broker, capsys: Capture, tmp_path: Path) -> None:
    declare(rabbitmq43, DLQ)
    (tmp_path / "_lake.json").write_text('{"format": 99}')
    assert "Upgrade redeliver-mw" in refused(capsys, rabbitmq43.url, DLQ, tmp_path)


def test_an_empty_queue_takes_no_spark(rabbitmq43: Broker, capsys: Capture, tmp_path: Path) -> None:
    """A session would have reported that the master does not exist."""
    declare(rabbitmq43, DLQ)
    assert drained(capsys, rabbitmq43.url, DLQ, tmp_path, "--master", "spark://127.0.0.1:1") == f"nothing is in {DLQ}\n"


def test_what_a_killed_run_has_staged_is_in_the_lake_though_the_queue_is_empty(
    rabbitmq43: Broker, capsys: Capture, tmp_path: Path
) -> None:
    declare(rabbitmq43, DLQ)
    lake = Lake(tmp_path, create=True)
    Task(lake).keep(letter(b"a", message_id="1"))
    done = json.loads(drained(capsys, rabbitmq43.url, DLQ, tmp_path, "--json"))
    assert (done["found"], done["letters"], done["earlier"]) == (0, 1, 1)
    assert table(lake, "body") == [(b"a",)]


def test_a_second_drain_of_a_lake_is_refused_while_one_is_at_work(
    rabbitmq43: Broker, capsys: Capture, tmp_path: Path
) -> None:
    declare(rabbitmq43, DLQ)
    lake = Lake(tmp_path, create=True)
    with lake.locked("dead_letters"):
        assert "is at work on its dead_letters" in refused(capsys, rabbitmq43.url, DLQ, tmp_path, code=1)


# -- only looking -----------------------------------------------------------------------------------


def test_rabbitmq_cannot_be_looked_into_without_a_trace(rabbitmq43: Broker, capsys: Capture, tmp_path: Path) -> None:
    declare(rabbitmq43, DLQ)
    err = refused(capsys, rabbitmq43.url, DLQ, tmp_path, "--peek")
    assert "rabbitmq+pika cannot look without a trace" in err
    assert "Drain it without peek" in err


def test_letters_that_are_looked_at_stay_and_are_rows_once(activemq63: Broker, capsys: Capture, tmp_path: Path) -> None:
    declare(activemq63, DLQ)
    with connect(activemq63.url) as session:
        put_dead_letters(session, DLQ, SOURCE, [b"a", b"\xff\x00"])
    first = json.loads(drained(capsys, activemq63.url, DLQ, tmp_path, "--peek", "--json"))
    second = json.loads(drained(capsys, activemq63.url, DLQ, tmp_path, "--peek", "--json"))
    assert [(done["found"], done["letters"], done["again"]) for done in (first, second)] == [(2, 2, 0), (2, 0, 2)]
    assert table(Lake(tmp_path), "dl_id, body, owner") == [
        ("copy-0", b"a", "broker"),
        ("copy-1", b"\xff\x00", "broker"),
    ]
    assert len(take(activemq63, DLQ)) == 2


def test_a_queue_with_a_delivery_limit_is_not_looked_into(artemis244: Broker, capsys: Capture, tmp_path: Path) -> None:
    declare(artemis244, DLQ)
    err = refused(capsys, artemis244.url, DLQ, tmp_path, "--peek")
    assert "lets a letter come back 10 times only" in err
