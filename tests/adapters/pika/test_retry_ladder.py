# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the first seconds of a process: which rungs are young, and what waits for that."""

from __future__ import annotations

import logging
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import pika
import pytest

from redeliver_mw.message import Destination
from redeliver_pika.capabilities import rung_arguments, rung_queue
from redeliver_pika.dropin.copies import SharedConnection
from redeliver_pika.queues import Queues as Asked
from redeliver_pika.retry_ladder import MARKER_ARGUMENTS, MARKER_TTL, marker_queue
from tests.adapters.pika.dropins import Queues, parameters, queues, until
from tests.brokers import Broker

pytestmark = pytest.mark.broker

RUNGS = (1.0, 2.0)
HEALTHY, FAILING = 500, 50
STARTS = 3


@pytest.fixture
def q(rabbitmq: Broker) -> Iterator[Queues]:
    with queues(rabbitmq) as found:
        yield found
        for name in ("1s", "2s", "4s", "young"):
            found.connection.channel().queue_delete(f"redeliver.retry.{found.name}.{name}")


# -- a storm ----------------------------------------------------------------------------------------------


@contextmanager
def consumer(q: Queues, kind: str) -> Iterator[IO[str]]:
    """Run a consumer, and yield what it prints."""
    command = [sys.executable, "-m", "tests.adapters.pika.storm", q.broker.url, q.name, kind, str(HEALTHY)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout
            process.communicate(timeout=20)
        finally:
            process.kill()


def storm(q: Queues, name: str) -> None:
    """Publish messages faster than they are handled: without confirms."""
    channel = q.connection.channel()
    for body in (*(f"failing.{name}.{n}" for n in range(FAILING)), *(f"well.{name}.{n}" for n in range(HEALTHY))):
        given = pika.BasicProperties(message_id=body, delivery_mode=2)
        channel.basic_publish("", q.name, body.encode(), given)
    channel.close()


def healthy_after(said: IO[str]) -> float:
    word, seconds = said.readline().split()
    assert word == "healthy"
    return float(seconds)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dropin", "app"])
def test_in_a_second_start_under_a_storm_healthy_messages_come_as_soon_as_in_an_old_process(
    kind: str, q: Queues
) -> None:
    starts = []
    with consumer(q, kind) as said:
        q.put("warm")
        assert said.readline() == "warm\n"
        began = time.monotonic()
        while time.monotonic() - began < MARKER_TTL:  # it has to be that old, whatever there is to be seen of it
            q.connection.process_data_events(0.2)
        storm(q, "old")
        old = healthy_after(said)
    for n in range(STARTS):
        q.channel.queue_purge(q.name)
        storm(q, f"new.{n}")
        with consumer(q, kind) as said:
            starts.append(healthy_after(said))
    q.connection.process_data_events(0.1)
    new = statistics.median(starts)
    assert new <= 1.3 * old + 0.3, (starts, old)  # and what starts on a shared machine costs; it was four seconds


# -- what makes a ladder young ----------------------------------------------------------------------------


class Connected:
    """Holds a drop-in's connection, in a process that knows nothing of the broker's queues."""

    def __init__(self, q: Queues) -> None:
        self.connection = pika.BlockingConnection(parameters(q.broker))
        self.shared = SharedConnection.of(self.connection)
        self.source = Destination(q.name)

    def ensure(self, *rungs: float) -> None:
        answers: list[Any] = []
        self.shared._ladder.ensure(self.source, rungs, answers.append)
        until(self.connection, lambda: bool(answers))
        assert answers == [0]

    def wait(self, rung: float = 1.0) -> float:
        return self.shared.schedule_wait(self.source, rung)


@contextmanager
def connected(q: Queues) -> Iterator[Connected]:
    found = Connected(q)
    try:
        yield found
    finally:
        found.connection.close()


def declare(q: Queues, *rungs: float) -> None:
    """Declare rungs by hand, as an earlier process did."""
    for rung in rungs:
        source = Destination(q.name)
        q.channel.queue_declare(rung_queue(source, rung), durable=True, arguments=rung_arguments(source, rung))


def mark(q: Queues, *, young: bool) -> None:
    marker = marker_queue(Destination(q.name))
    q.channel.queue_declare(marker, durable=True, arguments=MARKER_ARGUMENTS)
    if young:
        q.channel.basic_publish("", marker, b"", pika.BasicProperties(delivery_mode=2))


def markers(q: Queues) -> int:
    return int(q.channel.queue_declare(marker_queue(Destination(q.name)), passive=True).method.message_count)


def test_missing_rungs_are_made_after_a_marker_and_are_young_for_every_process(q: Queues) -> None:
    with connected(q) as first, connected(q) as second:
        first.ensure(*RUNGS)
        assert markers(q) == 1
        assert all(q.there(rung_queue(first.source, rung)) for rung in RUNGS)
        assert 9.0 < first.wait() <= 10.0
        second.ensure(*RUNGS)
        assert 0.0 < second.wait() <= 1.0  # it looks again then
        assert markers(q) == 1
        q.channel.queue_purge(marker_queue(second.source))  # as when its time is over
        until(second.connection, lambda: second.wait() == 0.0, 5)
        assert first.wait() > 0.0


def test_rungs_beside_an_empty_marker_queue_are_old(q: Queues) -> None:
    declare(q, *RUNGS)
    mark(q, young=False)
    with connected(q) as found:
        found.ensure(*RUNGS)
        assert (found.wait(1.0), found.wait(2.0), markers(q)) == (0.0, 0.0, 0)


def test_rungs_that_others_declared_are_young_when_they_are_first_seen_and_old_at_the_next_start(q: Queues) -> None:
    declare(q, *RUNGS)
    with connected(q) as found:
        found.ensure(*RUNGS)
        assert 9.0 < found.wait() <= 10.0
        until(found.connection, lambda: q.there(marker_queue(found.source)) and markers(q) == 1)
    q.channel.queue_purge(marker_queue(Destination(q.name)))
    with connected(q) as found:
        found.ensure(*RUNGS)
        assert found.wait() == 0.0


def test_a_rung_that_is_added_to_an_old_ladder_is_young_alone(q: Queues) -> None:
    declare(q, 1.0)
    mark(q, young=False)
    with connected(q) as found:
        found.ensure(*RUNGS)
        assert found.wait(1.0) == 0.0
        assert (found.wait(2.0) > 9.0, markers(q)) == (True, 1)


def test_a_process_killed_between_marker_and_declaration_leaves_a_ladder_that_the_next_one_makes(q: Queues) -> None:
    mark(q, young=True)
    with connected(q) as found:
        found.ensure(*RUNGS)
        assert found.wait() > 9.0
        assert markers(q) == 2  # its own too: the other's ends before the rungs are old


def test_two_processes_at_once_make_one_ladder_that_both_take_for_young(q: Queues) -> None:
    with connected(q) as one, connected(q) as two:
        answers: list[Any] = []
        for each in (one, two):
            each.shared._ladder.ensure(each.source, RUNGS, answers.append)
        while len(answers) < 2:
            one.connection.process_data_events(0.01)
            two.connection.process_data_events(0.01)
        assert answers == [0, 0]
        assert min(one.wait(), two.wait()) > 0.0


def test_a_declaration_that_takes_long_is_covered_by_a_marker_before_and_after(
    q: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker's answer to the declaration comes late."""
    make = Asked.make

    def slow(self: Asked, queue: str, arguments: dict[str, Any], answer: Any) -> None:
        make(self, queue, arguments, lambda found: later(found, answer))

    def later(found: Any, answer: Any) -> None:
        connection.shared.raw_later(3.0 if q.name in seen else 0.0, lambda: answer(found))
        seen.add(q.name)

    seen: set[str] = set()
    monkeypatch.setattr(Asked, "make", slow)
    with connected(q) as connection:
        connection.ensure(1.0)  # the marker queue is made at once, the rung late
        assert markers(q) == 2


def test_the_driver_warns_of_a_missing_queue_of_the_users_and_not_of_ours(
    q: Queues, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "pika")
    with connected(q) as found:
        found.ensure(*RUNGS)
        assert [r.getMessage() for r in caplog.records] == []
        with pytest.raises(pika.exceptions.ChannelClosedByBroker):
            found.connection.channel().queue_declare(f"{q.name}.nowhere", passive=True)
        assert any("404" in r.getMessage() for r in caplog.records)


def test_a_user_who_logs_all_that_the_driver_says_keeps_the_connection(
    q: Queues, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "pika")
    connection = pika.BlockingConnection(parameters(q.broker))
    channel = connection.channel()
    channel.queue_declare(q.name, passive=True)
    channel.close()  # the driver logs the broker's answer, an object that cannot be compared with a number
    assert any("CloseOk" in r.getMessage() for r in caplog.records if r.name == "pika.channel")
    assert connection.is_open
    connection.close()
