# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The load that the main job is shown on: 300 messages on a real RabbitMQ, and a consumer in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pika

from tests.bench.rabbitmq import parameters
from tests.brokers import Broker

OLD_ENOUGH = 11.0  # seconds: a quorum queue that is killed younger than that comes back empty (facts)


class Line(NamedTuple):
    """One line of a consumer's log: `begin` or `done`, the body, the delivery count, the monotonic clock."""

    what: str
    body: str
    count: int
    at: float


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


def prepare(broker: Broker, queue: str, kind: str, *, age: float = OLD_ENOUGH) -> None:
    """New queues of this kind with all messages in them; a quorum queue is given time to be `age` seconds old."""
    with channel_on(broker) as channel:
        for name in (queue, f"DLQ.{queue}"):
            channel.queue_delete(name)
            channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind})
        if kind == "quorum" and age:
            channel.connection.sleep(age)
        channel.confirm_delivery()
        for body in bodies():
            channel.basic_publish(
                "", queue, body.encode(), pika.BasicProperties(delivery_mode=2, message_id=body), mandatory=True
            )


def start(way: str, broker: Broker, queue: str, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.faults.consumer", way, broker.url, queue, str(log)]
    with log.with_suffix(".err").open("ab") as errors:  # pytest keeps the folder of a failed test
        return subprocess.Popen(command, stderr=errors, start_new_session=True)


def kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def lines(log: Path) -> list[Line]:
    text = log.read_text() if log.exists() else ""
    return [Line(w, body, int(count), float(at)) for w, body, count, at in map(str.split, text.splitlines())]


def all_ended(broker: Broker, queue: str, log: Path) -> bool:
    """Every message that can be handled was, and every other one lies in the dead-letter queue."""
    handled = {line.body for line in lines(log) if line.what == "done"}
    alive = {body for body in bodies() if not body.startswith("poison")}
    return alive <= handled and ready(broker, f"DLQ.{queue}") >= 30


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
