# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds the load that the main job is shown on.

The load is 300 messages on a real broker, and a consumer in a process of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pika

from tests.bench.rabbitmq import parameters
from tests.brokers import Broker

if TYPE_CHECKING:
    from tests.faults.sites import Site


class Line(NamedTuple):
    """Holds one line of a consumer's log: `begin` or `done`, the body, the delivery count, the monotonic clock."""

    what: str
    body: str
    count: int
    at: float


def bodies(count: int = 300) -> list[str]:
    """Return bodies: of ten messages one always fails, one recovers at the second attempt, one at the third."""
    return [
        f"poison:{n}" if n % 10 == 0 else f"heal:{2 + n // 10 % 2}:{n}" if n % 10 in (3, 7) else f"fine:{n}"
        for n in range(count)
    ]


@contextmanager
def channel_on(broker: Broker) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
    connection = pika.BlockingConnection(parameters(broker.url))
    try:
        yield connection.channel()
    finally:
        if connection.is_open:
            connection.close()


def start(way: str, broker: Broker, queue: str, log: Path) -> subprocess.Popen[bytes]:
    return start_at(broker.url, way, queue, log)


def start_at(url: str, way: str, queue: str, log: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.faults.consumer", way, url, queue, str(log), *more]
    with log.with_suffix(".err").open("ab") as errors:  # pytest keeps the folder of a failed test
        return subprocess.Popen(command, stderr=errors, start_new_session=True)


def kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def lines(log: Path) -> list[Line]:
    """Return the lines of a log that are whole: the last may be read while it is being written."""
    text = log.read_text() if log.exists() else ""
    text = text[: text.rfind("\n") + 1]
    return [Line(w, body, int(count), float(at)) for w, body, count, at in map(str.split, text.splitlines())]


def all_ended(site: Site, queue: str, log: Path) -> bool:
    """Return whether every message that can be handled was, and every other one lies in the dead-letter queue."""
    handled = {line.body for line in lines(log) if line.what == "done"}
    alive = {body for body in bodies() if not body.startswith("poison")}
    return alive <= handled and site.count(f"DLQ.{queue}") >= 30


def until(what: Callable[[], bool], seconds: float, why: str) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, why
        time.sleep(0.02)  # between two looks at another process; nothing here can be waited for
