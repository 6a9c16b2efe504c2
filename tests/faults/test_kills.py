# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Consumer and broker are killed under load, and every message is accounted for by its id.

What may happen: a message is handled, or dead-lettered, more often than once, when a kill came between the
handler's end and the broker's knowledge of it. What may not: a message that is in neither place, a healthy
one among the dead, a poisonous one among the handled, two different dead letters of one message.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pika
import pytest

from tests.bench.rabbitmq import parameters
from tests.brokers import Broker
from tests.faults.consumer import PREFETCH

CONSUMER_KILLS, BROKER_KILLS = 5, 2
OLD_ENOUGH = 11.0  # seconds: a quorum queue that is killed younger than that comes back empty (facts)


def bodies() -> list[str]:
    """300 messages: 30 always fail, 30 heal at the second attempt, 30 at the third."""
    return [
        f"poison:{n}" if n % 10 == 0 else f"heal:{2 + n // 10 % 2}:{n}" if n % 10 in (3, 7) else f"fine:{n}"
        for n in range(300)
    ]


@contextmanager
def channel_on(broker: Broker) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
    connection = pika.BlockingConnection(parameters(broker.url))
    try:
        yield connection.channel()
    finally:
        if connection.is_open:
            connection.close()


def prepare(broker: Broker, queue: str, kind: str) -> None:
    with channel_on(broker) as channel:
        for name in (queue, f"DLQ.{queue}"):
            channel.queue_delete(name)
            channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind})
        if kind == "quorum":
            channel.connection.sleep(OLD_ENOUGH)
        channel.confirm_delivery()
        for body in bodies():
            channel.basic_publish("", queue, body.encode(), pika.BasicProperties(delivery_mode=2, message_id=body), mandatory=True)


def start(way: str, broker: Broker, queue: str, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.faults.consumer", way, broker.url, queue, str(log)]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)


def kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def lines(log: Path) -> list[list[str]]:
    return [line.split() for line in log.read_text().splitlines()] if log.exists() else []


def until(what: Callable[[], bool], seconds: float, why: str) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, why
        time.sleep(0.02)  # between two looks at another process; nothing here can be waited for


def ready(broker: Broker, queue: str) -> int:
    try:
        with channel_on(broker) as channel:
            found: int = channel.queue_declare(queue, passive=True).method.message_count
            return found
    except pika.exceptions.AMQPError:
        return -1


def drain(broker: Broker, queue: str) -> list[tuple[str, dict[str, object]]]:
    found = []
    with channel_on(broker) as channel:
        while True:
            method, properties, body = channel.basic_get(queue, auto_ack=True)
            if method is None:
                return found
            found.append((body.decode(), properties.headers))


def play(way: str, broker: Broker, queue: str, log: Path) -> int:
    """Kill the consumer five times and the broker twice, each as soon as there was some progress; then let it end."""
    consumer = start(way, broker, queue, log)
    try:
        for n in range(CONSUMER_KILLS):
            before = len(lines(log))
            until(lambda before=before: len(lines(log)) >= before + 45, 60, "the consumer makes no progress")
            if n in (1, 3):
                broker.kill()
                broker.start()
            else:
                kill(consumer)
                consumer = start(way, broker, queue, log)
            if n in (1, 3):
                until(lambda before=len(lines(log)): len(lines(log)) >= before + 20, 60, "it did not come back")
                kill(consumer)
                consumer = start(way, broker, queue, log)
        wanted = set(bodies())

        def all_there() -> bool:
            handled = {line[1] for line in lines(log) if line[0] == "done"}
            alive = {body for body in wanted if not body.startswith("poison")}
            return alive <= handled and ready(broker, f"DLQ.{queue}") >= 30

        until(all_there, 90, "not every message came to its end")
        os.kill(consumer.pid, signal.SIGTERM)
        consumer.wait(20)
    finally:
        kill(consumer)
    return CONSUMER_KILLS


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "kind", "fixture"),
    [
        ("app", "classic", "rabbitmq310"),
        ("app", "quorum", "rabbitmq43"),
        ("drop-in", "quorum", "rabbitmq310"),
        ("decorated", "classic", "rabbitmq43"),
    ],
)
def test_nothing_is_lost_when_consumer_and_broker_are_killed_under_load(
    way: str, kind: str, fixture: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    broker: Broker = request.getfixturevalue(fixture)
    if not broker.can_restart:
        pytest.skip("this broker came from the environment and cannot be killed")
    queue, log = f"kills.{way}.{kind}", tmp_path / "runs.log"
    prepare(broker, queue, kind)

    play(way, broker, queue, log)

    handled = Counter(line[1] for line in lines(log) if line[0] == "done")
    letters = drain(broker, f"DLQ.{queue}")
    dead = Counter(body for body, _ in letters)
    left = Counter(body for body, _ in drain(broker, queue))
    poison = {body for body in bodies() if body.startswith("poison")}
    assert set(bodies()) - handled.keys() - dead.keys() == set(), "lost"
    assert handled.keys() & poison == set()
    assert dead.keys() == poison
    twice = {body: n for body, n in handled.items() if n > 1}
    # A kill can undo at most what was unsettled at that moment: one prefetch window each.
    assert sum(twice.values()) - len(twice) <= PREFETCH * (CONSUMER_KILLS + BROKER_KILLS)
    for body in poison:
        copies = {str(headers["redeliver_copy_id"]) for letter, headers in letters if letter == body}
        assert len(copies) == 1, "a second dead letter must be the same copy, sent again"
    for _, headers in letters:
        assert headers["original-destination"] == queue
        assert headers["redeliver_failures"] == "4"
    print(
        f"\n{way} on {kind}, {broker.describe()}: {len(lines(log))} runs; handled twice: {len(twice)}; "
        f"dead-lettered twice: {sum(n > 1 for n in dead.values())}; left in the queue as duplicates: {sum(left.values())}"
    )
