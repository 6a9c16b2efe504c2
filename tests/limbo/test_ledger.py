# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Counts that survive a crash: on the memory broker, a real database file, and a clock moved by hand."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from redeliver_mw import App, Delivery, RedeliveryPolicy
from redeliver_mw.errors import ConfigError
from redeliver_mw.memory import Faults
from redeliver_mw.record import AttemptRecord
from redeliver_mw.testing import TestApp

KINDS = ["rabbitmq", "activemq", "artemis"]


class Killed(BaseException):
    """Ends the handler whose process is gone."""


class Process:
    """One process after the other, each an app on the same broker, clock and file."""

    def __init__(self, folder: Path, kind: str = "rabbitmq", **options: Any) -> None:
        self.file, self.kind, self.options = folder / "limbo.db", kind, options
        self.policy = options.pop("policy", RedeliveryPolicy(3, 1.0, "queue:dead"))
        self.kills: Callable[[Delivery], bool] = lambda delivery: b"poison" in delivery.body
        self.runs: list[tuple[bytes, int]] = []
        self.done: list[bytes] = []
        self.records: list[AttemptRecord] = []
        self.faults = Faults()
        self.test: TestApp
        self.dead = True
        self._first: TestApp | None = None

    def start(self) -> TestApp:
        app = App(
            f"memory://?personality={self.kind}", policy=self.policy, limbo=f"sqlite:///{self.file}", crash_safe=True,
            app_name="orders", **self.options,
        )  # fmt: skip
        app.handler("orders")(self.handle)
        app.on_attempt(self.records.append)
        self.test = TestApp(app, faults=self.faults)
        if self._first is None:
            self._first = self.test
        self.test.broker, self.test.clock = self._first.broker, self._first.clock
        self.dead = False
        return self.test.start()

    def handle(self, delivery: Delivery) -> None:
        self.runs.append((delivery.body, delivery.delivery_count))
        if self.kills(delivery):
            self.kill()
            raise Killed
        if b"sick" in delivery.body:
            raise ValueError("no")
        self.done.append(delivery.body)

    def kill(self) -> None:
        """What SIGKILL does: nobody writes anything any more, and the broker takes back what was unsettled."""
        engine = self.test.app._engine
        assert engine is not None
        assert engine.runner is not None
        assert engine._gate is not None
        engine.runner.stopping = True
        engine._gate._stopped = engine._gate._closed = True
        engine._gate._lines.abandon()
        engine.adapter.close(0.0)
        self.dead = True

    def live(self, seconds: float = 100.0, lives: int = 20) -> int:
        """Start it again whenever it is dead, and let time pass; answers how often it was started."""
        starts = 0
        for _ in range(lives):
            if self.dead:
                self.start()
                starts += 1
            self.test.clock.advance(seconds)
            if not self.dead:
                break
        return starts

    def sql(self, statement: str) -> list[Any]:
        with sqlite3.connect(self.file) as connection:
            return connection.execute(statement).fetchall()


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_that_kills_its_process_is_counted_and_its_neighbours_are_not(tmp_path: Path, kind: str) -> None:
    process = Process(tmp_path, kind)
    process.start()
    for n in range(10):
        process.test.broker.send("orders", b"poison" if n == 4 else b"fine %d" % n, message_id=f"m{n}")
    process.live()
    (letter,) = process.test.dead_letters("orders")
    assert letter.body == b"poison"
    assert letter.headers["redeliver_reason"] == "crashed"
    assert letter.headers["redeliver_failures"] == "3"
    assert letter.headers["redeliver_error_type"] == "ProcessDied"
    assert {body for body, count in process.runs if body != b"poison" and count != 1} == set()
    assert sorted(set(process.done)) == sorted(b"fine %d" % n for n in range(10) if n != 4)
    assert process.test.depth("orders") == 0
    process.test.stop()
    # What is left was settled by a process that died before it could write so: bare marks.
    assert process.sql("SELECT * FROM redeliver_limbo_ledger WHERE rest IS NOT NULL OR failures > 0") == []


def test_without_a_limbo_it_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="crash_safe=True needs a limbo") as refused:
        App("memory://", crash_safe=True)
    assert "sqlite:///" in refused.value.cure
