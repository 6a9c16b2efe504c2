# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests a handler that kills its process on one message among a hundred, on each broker.

That message alone is dead-lettered.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from redeliver_mw.session import connect
from tests.brokers import Broker
from tests.faults.letters import declare, take

pytestmark = pytest.mark.broker

PATIENCE = 60.0
LIVES = 8
NEIGHBOURS = [f"fine:{n}" for n in range(99)]


@pytest.fixture
def broker(every_broker: Broker) -> Broker:
    return every_broker


class Consumer:
    """Runs a process that is started again whenever it has died."""

    def __init__(self, broker: Broker, source: str, dead: str, folder: Path) -> None:
        self._command = [sys.executable, "-m", "tests.faults.crashing", broker.url, source, dead, str(folder)]
        self._errors = folder / "errors"
        self.lives = 0
        self.process: subprocess.Popen[bytes]
        self.start()

    def start(self) -> None:
        with self._errors.open("ab") as errors:  # pytest keeps the folder of a failed test
            self.process = subprocess.Popen(self._command, stderr=errors)
        self.lives += 1

    def again(self) -> None:
        """Start the process if it has died, which only SIGKILL may have done."""
        if (code := self.process.poll()) is not None:
            assert code == -signal.SIGKILL, self._errors.read_text()
            assert self.lives < LIVES, "it dies for ever"
            self.start()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(20)
        finally:
            if self.process.poll() is None:
                os.kill(self.process.pid, signal.SIGKILL)


def runs(folder: Path) -> Counter[tuple[str, str, int]]:
    file = folder / "runs"
    lines = file.read_text().splitlines() if file.exists() else []
    return Counter((what, body, int(count)) for what, body, count in map(str.split, lines))


@pytest.mark.parametrize("known", [True, False], ids=["with an id", "without an id"])
def test_only_the_message_that_kills_its_process_is_dead_lettered(broker: Broker, tmp_path: Path, known: bool) -> None:
    source, dead = f"crash.{int(known)}.orders", f"crash.{int(known)}.dead"
    declare(broker, source, dead)
    with connect(broker.url) as session:
        for n in range(100):
            body = "poison" if n == 50 else NEIGHBOURS[n - (n > 50)]
            session.publish(source, body.encode(), **({"message_id": f"m-{n}"} if known else {}))
        consumer = Consumer(broker, source, dead, tmp_path)
        try:
            deadline = time.monotonic() + PATIENCE
            while session.depth(dead) < 1 or {b for what, b, _ in runs(tmp_path) if what == "done"} != {*NEIGHBOURS}:
                consumer.again()
                assert time.monotonic() < deadline, (session.depth(dead), consumer.lives, len(runs(tmp_path)))
                time.sleep(0.05)  # between two looks at another process
        finally:
            consumer.end()
    (letter,) = take(broker, dead)
    assert (letter.body, letter.headers["redeliver_failures"]) == (b"poison", "3")
    assert letter.headers["redeliver_reason"] == "crashed"
    seen = runs(tmp_path)
    assert {count for _, body, count in seen if body != "poison"} == {1}
    assert take(broker, source) == []
