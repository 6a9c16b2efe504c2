# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Sets the wall clock by an hour: the step is logged one time, consuming goes on, and no delay grows by it."""

from __future__ import annotations

import logging
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from redeliver_mw import App, Delivery, RedeliveryPolicy
from redeliver_mw.adapter.registry import adapter_for
from redeliver_mw.clock import Moment, StepWatchingClock, SystemClock
from redeliver_mw.session import connect
from redeliver_mw.testing import ManualClock, TestApp
from tests.brokers import Broker
from tests.faults.letters import declare, take
from tests.faults.sites import OLD_ENOUGH

HOUR = 3600.0
LATE, EARLY = 0.3, 0.005  # seconds
LATE_AT_A_BROKER = 1.0  # where the machine may do other things; twice the delay would be 2 seconds late
BOTH_WAYS = pytest.mark.parametrize("step", [HOUR, -HOUR], ids=["forward", "back"])


def said(log: pytest.LogCaptureFixture) -> list[str]:
    lines = [record.getMessage() for record in log.records if record.levelno >= logging.WARNING]
    return [line for line in lines if "wall clock" in line]


@BOTH_WAYS
def test_a_step_is_logged_once_however_often_the_clock_is_read(step: float, caplog: pytest.LogCaptureFixture) -> None:
    hand = ManualClock()
    clock = StepWatchingClock(hand)
    for _ in range(3):
        hand.advance(10.0)
        assert clock.now() == hand.now()
    assert said(caplog) == []
    hand.wall_step(step)
    for _ in range(3):
        assert clock.now() == hand.now()
        hand.advance(10.0)
    (line,) = said(caplog)
    assert ("forward" if step > 0 else "back") in line
    assert "3600 s" in line
    hand.wall_step(-step)
    clock.now()
    assert len(said(caplog)) == 2


def test_a_clock_that_is_slewed_is_not_spoken_of(caplog: pytest.LogCaptureFixture) -> None:
    hand = ManualClock()
    clock = StepWatchingClock(hand)
    for _ in range(1000):
        hand.advance(10.0)
        hand.wall_step(0.5)
        clock.now()
    assert said(caplog) == []


@BOTH_WAYS
@pytest.mark.parametrize("delay", ["auto", "schedule", "park"])
def test_no_rest_grows_by_a_step_beyond_one_more_of_the_same_length(
    delay: Any, step: float, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A hold goes by the monotonic clock. A copy that comes an hour early waits for this step's delay."""
    rest = 8.0
    app = App(
        "memory://", policy=RedeliveryPolicy(2, rest, "queue:dead"), delay=delay, limbo=f"sqlite:///{tmp_path}/limbo.db"
    )
    at: list[float] = []

    @app.handler("orders")
    def handle(delivery: Delivery) -> None:
        if delivery.body == b"failing":
            at.append(test.clock.now().mono)
            raise ValueError("no")

    with TestApp(app) as test:
        test.send("orders", b"failing")
        test.advance(1.0)
        test.clock.wall_step(step)
        test.send("orders", b"well")
        assert test.depth("orders") == 0
        test.advance(3 * rest if delay != "park" or step > 0 else HOUR + 3 * rest)
        assert len(test.dead_letters("orders")) == 1
    began, again = at
    if delay == "auto":
        assert again - began == pytest.approx(rest, abs=0.01)
    elif delay == "schedule":
        assert rest <= again - began <= (2 * rest if step < 0 else rest) + 0.01
    else:  # a date in a database is a date, as the operator reads it there
        assert again - began <= (HOUR + rest if step < 0 else rest) + LATE
    assert len(said(caplog)) == 1


class Stepped:
    """Tells the machine's time, with a wall clock that a test can set."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self.step = 0.0

    def now(self) -> Moment:
        mono, wall = self._clock.now()
        return Moment(mono, wall + self.step)


@pytest.mark.broker
@pytest.mark.slow
@BOTH_WAYS
def test_on_a_real_broker_consuming_goes_on_and_an_early_rest_is_no_longer_than_its_delay(
    every_broker: Broker, step: float, caplog: pytest.LogCaptureFixture
) -> None:
    source, dead, rest = "stepped.orders", "stepped.dead", 2.0
    declare(every_broker, source, dead)
    clock = Stepped()
    app = App(every_broker.url, policy=RedeliveryPolicy(3, rest, f"queue:{dead}"), delay="schedule")
    at: list[float] = []
    well, over = threading.Event(), threading.Event()
    app.on_attempt(lambda record: over.set() if record.outcome == "dead_lettered" else None)

    @app.handler(source)
    def handle(delivery: Delivery) -> None:
        if delivery.body == b"well":
            clock.step = step
            return well.set()
        at.append(time.monotonic())
        raise ValueError("no")

    app._start(adapter_for(every_broker.url), clock)
    try:
        if every_broker.kind == "rabbitmq":
            time.sleep(OLD_ENOUGH)  # until then no copy goes to a new helper queue
        with connect(every_broker.url) as session:
            session.publish(source, b"failing")
            session.publish(source, b"well")
        assert well.wait(20)
        assert over.wait(20)
    finally:
        app.stop()
    rests = [later - earlier for earlier, later in pairwise(at)]
    first, second = rests
    assert rest - EARLY <= second <= rest + LATE_AT_A_BROKER, rests
    assert first <= (rest if step > 0 else 2 * rest) + LATE_AT_A_BROKER, (
        rests
    )  # forward: what comes after a first hop is due already
    assert step > 0 or first >= rest - EARLY, rests
    assert len(said(caplog)) == 1
    assert (len(take(every_broker, dead)), take(every_broker, source)) == (1, [])
