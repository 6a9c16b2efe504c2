# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs `test_changed_while_running` on real brokers; RabbitMQ needs its queues before a new version may hold."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from redeliver_mw import App, Delivery, connect
from redeliver_mw.journal.records import AttemptRecord
from tests.adapters.pika.dropins import Queues, queues
from tests.brokers import Broker

pytestmark = pytest.mark.broker

PATIENCE = 30.0


class Heard(logging.Handler):
    """Keeps the log messages that say what became of new versions."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._more = threading.Condition()

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        with self._more:
            self.lines += [line] if "new version" in line else []
            self._more.notify_all()

    def wait(self, count: int) -> list[str]:
        with self._more:
            assert self._more.wait_for(lambda: len(self.lines) >= count, PATIENCE)
        return self.lines


@pytest.fixture
def heard() -> Iterator[Heard]:
    log, found = logging.getLogger("redeliver_mw"), Heard()
    level = log.level
    log.setLevel(logging.INFO)
    log.addHandler(found)
    yield found
    log.removeHandler(found)
    log.setLevel(level)


@contextlib.contextmanager
def cleared(q: Queues, *names: str) -> Iterator[None]:
    try:
        yield
    finally:
        for name in names:
            q.channel.queue_delete(name)


def failing(url: str, source: str, file: Path, declare: str = "own") -> tuple[App, threading.Semaphore]:
    app, dead = App(url, policy=file, declare=declare), threading.Semaphore(0)

    @app.handler(source)
    def handler(delivery: Delivery) -> None:
        raise ValueError("no")

    @app.on_attempt
    def told(record: AttemptRecord) -> None:
        if record.outcome == "dead_lettered":
            dead.release()

    return app, dead


def test_between_two_messages_the_file_changes_to_another_queue_and_to_delays_that_need_a_ladder(
    rabbitmq43: Broker, tmp_path: Path, heard: Heard
) -> None:
    (file := tmp_path / "policy").write_text("1:100; 2:move(queue:one.$)", "utf-8")
    with queues(rabbitmq43) as q:
        one, two, rung = f"one.{q.name}", f"two.{q.name}", f"redeliver.retry.{q.name}.1s"
        app, dead = failing(rabbitmq43.url, q.name, file)
        with cleared(q, one, two, rung), app:
            q.put("1")
            assert dead.acquire(timeout=PATIENCE)
            assert not q.there(rung)
            file.write_text("1:1200; 2:move(queue:two.$)", "utf-8")
            (line,) = heard.wait(1)
            assert line.startswith(f"{file}: the new version holds")
            assert q.there(rung)
            q.put("2")
            assert dead.acquire(timeout=PATIENCE)
            ((body, first),) = q._taken(one)
            assert body == b"1"
            ((body, second),) = q._taken(two)
            assert body == b"2"
        assert first["redeliver_policy"] == "1:100; 2:move(queue:one.$)"
        assert second["redeliver_policy"] == "1:1200; 2:move(queue:two.$)"
        versions = first["redeliver_policy_version"], second["redeliver_policy_version"]
        assert "{} -> {}".format(*versions) in line


def test_a_dead_letter_queue_that_is_missing_and_may_not_be_made_is_refused_and_consuming_goes_on(
    rabbitmq43: Broker, tmp_path: Path, heard: Heard
) -> None:
    (file := tmp_path / "policy").write_text("1:move(queue:one.$)", "utf-8")
    with queues(rabbitmq43) as q:
        one, two = f"one.{q.name}", f"two.{q.name}"
        q.channel.queue_declare(one, durable=True)
        app, dead = failing(rabbitmq43.url, q.name, file, declare="none")
        with cleared(q, one, two), app:
            file.write_text("1:move(queue:two.$)", "utf-8")
            (line,) = heard.wait(1)
            assert "refused whole" in line
            assert f"queue:{two} cannot be used" in line
            q.put("1")
            assert dead.acquire(timeout=PATIENCE)
            assert [body for body, _ in q._taken(one)] == [b"1"]
            q.channel.queue_declare(two, durable=True)
            file.touch()
            heard.wait(2)
            q.put("2")
            assert dead.acquire(timeout=PATIENCE)
            assert [body for body, _ in q._taken(two)] == [b"2"]


@pytest.mark.parametrize("kind", ["activemq63", "artemis244"])
def test_between_two_messages_the_file_changes_on_the_other_brokers_too(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, heard: Heard
) -> None:
    url, source = request.getfixturevalue(kind).url, f"changed.{os.getpid()}"
    (file := tmp_path / "policy").write_text("1:100; 2:move(queue:one.$)", "utf-8")
    app, dead = failing(url, source, file, declare="all")
    with app, connect(url) as session:
        session.publish(source, b"1")
        assert dead.acquire(timeout=PATIENCE)
        file.write_text("1:1200; 2:move(queue:two.$)", "utf-8")
        heard.wait(1)
        session.publish(source, b"2")
        assert dead.acquire(timeout=PATIENCE)
        for queue, body in ((f"one.{source}", b"1"), (f"two.{source}", b"2")):
            letter = session.receive(queue, PATIENCE)
            assert letter is not None
            assert letter.body == body
            session.settle(letter)
    assert "the new version holds" in heard.lines[0]
