# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the hook of metrics, traces and notifications: which moments are announced, when, without any other effect."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from redeliver_mw import App, Delivery, RedeliveryPolicy
from redeliver_mw.flow.breaker import Breaker
from redeliver_mw.message import Destination
from redeliver_mw.redelivery.commands import RecordAttempt
from redeliver_mw.telemetry.hook import MOMENTS, NO_TELEMETRY, TelemetryHook, TelemetrySink
from redeliver_mw.telemetry.state import ObservedConsumer
from redeliver_mw.testing import Faults, TestApp
from tests.dropin.memory_driver import Consumer, Message

ORDERS = Destination("orders")


class Kept(TelemetrySink):
    """Keeps the name of every moment, with its most telling value."""

    def __init__(self) -> None:
        self.moments: list[str] = []
        self.attempts: list[RecordAttempt] = []
        self.consumers: list[ObservedConsumer] = []

    def since(self, number: int) -> list[str]:
        return self.moments[number:]


def _keeps(moment: str, value: Any) -> Any:
    def method(self: Kept, *values: Any) -> None:
        self.moments.append(f"{moment} {value(*values)}".strip())
        if moment == "attempt_recorded":
            self.attempts.append(values[0])
        if moment == "started":
            self.consumers.append(values[0])

    return method


_VALUES = {
    "started": lambda consumer: "",
    "stopped": lambda consumer: "",
    "run_begins": lambda delivery: delivery.delivery_count,
    "run_goes_on": lambda delivery: "",
    "run_ended": lambda delivery, error, at, ran: f"{type(error).__name__} {ran:g}",
    "run_cancelled": lambda delivery: "",
    "handled": lambda delivery, at, ran: "",
    "attempt_recorded": lambda attempt: f"{attempt.outcome} {attempt.mechanism}",
    "copy_sent": lambda copy, after, parked: f"{copy.target.name} {after:g} {parked}",
    "copy_answered": lambda copy, verdict, why, at, seconds: f"{copy.target.name} {verdict}",
    "parked_copy_answered": lambda copy, verdict, why, at, seconds: f"{copy.target.name} {verdict}",
    "settled": lambda delivery, settlement, at, seconds: settlement,
    "breaker_changed": lambda source, state, why, rest: f"{source.name} {state} {rest:g}",
    "source_paused": lambda source, why, loud: f"{source.name} {loud}",
    "source_resumed": lambda source: source.name,
    "connected": lambda broker: "",
    "subscribed": lambda source, at: source.name,
    "subscription_lost": lambda source, error: source.name,
}
for _moment in MOMENTS:
    setattr(Kept, _moment, _keeps(_moment, _VALUES[_moment]))


def app_with(sink: TelemetrySink, handle: Any, **options: Any) -> TestApp:
    app = App("memory://", **options)
    app.handler("orders")(handle)
    app._sinks.append(sink)
    return TestApp(app)


def failing(times: int) -> Any:
    left = [times]

    def handle(delivery: Delivery) -> None:
        if left[0]:
            left[0] -= 1
            raise ValueError("no stock")

    return handle


def test_a_message_that_is_handled_at_once_is_announced_once():
    kept = Kept()
    with app_with(kept, failing(0)) as test:
        assert kept.moments == ["connected", "started", "subscribed orders"]
        test.send("orders", b"fine")
        assert kept.since(3) == ["run_begins 1", "run_ended NoneType 0", "handled"]
    assert kept.since(6) == ["stopped"]


def test_a_held_message_is_announced_attempt_by_attempt():
    kept = Kept()
    with app_with(kept, failing(1), policy=RedeliveryPolicy(dead_after=3, backoff=4.0)) as test:
        test.send("orders", b"late")
        assert kept.since(3) == ["run_begins 1", "run_ended ValueError 0", "attempt_recorded redelivered hold"]
        assert kept.attempts[0].delay == 4.0
        (consumer,) = kept.consumers
        assert consumer.telemetry_state().sources[ORDERS].held == 1
        test.advance(4.0)
        assert kept.since(6) == [
            "run_begins 2",
            "run_ended NoneType 0",
            "attempt_recorded accepted None",
            "settled accepted",
        ]
        assert consumer.telemetry_state().sources[ORDERS].held == 0


def test_a_dead_letter_is_announced_after_its_copy_is_confirmed():
    kept = Kept()
    with app_with(kept, failing(9), policy=RedeliveryPolicy(dead_after=1)) as test:
        test.send("orders", b"broken")
    outcome = [moment for moment in kept.since(5) if not moment.startswith(("subscription", "stopped"))]
    assert outcome.index("attempt_recorded dead_lettered None") > outcome.index(
        next(moment for moment in outcome if moment.startswith("copy_answered") and moment.endswith("ok"))
    )
    assert outcome[0].startswith("copy_sent")
    assert "settled accepted" in outcome


def test_a_target_that_refuses_copies_pauses_its_source_until_it_takes_them():
    kept, faults = Kept(), Faults()
    app = App("memory://", policy=RedeliveryPolicy(dead_after=1))
    app.handler("orders")(failing(1))
    app._sinks.append(kept)
    with TestApp(app, faults=faults) as test:
        (target,) = app.dead_letter_targets("orders")
        faults.refuse(target, times=3)
        test.send("orders", b"broken")
        test.advance(20.0)
        assert test.depth(target) == 1
    answers = [moment for moment in kept.moments if moment.startswith(("copy_answered", "source_", "attempt_"))]
    assert answers == [
        f"copy_answered {target.name} refused",
        f"copy_answered {target.name} refused",
        f"copy_answered {target.name} refused",
        "source_paused orders True",
        f"copy_answered {target.name} ok",
        "attempt_recorded dead_lettered None",
        "source_resumed orders",
    ]


def test_a_lost_connection_is_announced_and_so_is_its_return():
    kept, faults = Kept(), Faults()
    app = App("memory://")
    app.handler("orders")(failing(0))
    app._sinks.append(kept)
    with TestApp(app, faults=faults) as test:
        faults.cut()
        test.advance(60.0)
        assert kept.since(3) == ["subscription_lost orders", "connected", "subscribed orders"]


def test_the_states_of_a_breaker_are_announced():
    kept = Kept()
    breaker = Breaker(min_calls=2, window=2, open_for=10.0)
    with app_with(kept, failing(3), breaker=breaker, policy=RedeliveryPolicy(dead_after=9, backoff=1.0)) as test:
        test.send("orders", b"1")
        test.send("orders", b"2")
        test.advance(60.0)
        states = [moment for moment in kept.moments if moment.startswith("breaker")]
    assert states == [
        "breaker_changed orders open 10",
        "breaker_changed orders half-open 0",
        "breaker_changed orders open 20",
        "breaker_changed orders half-open 0",
        "breaker_changed orders closed 0",
    ]


def test_a_drop_in_wrapper_announces_the_same():
    kept, left = Kept(), [1]

    def callback(message: Message) -> None:
        if left[0]:
            left[0] -= 1
            raise ValueError("no stock")

    consumer = Consumer(callback, sinks=[kept], policy=RedeliveryPolicy(dead_after=3, backoff=4.0))
    consumer.put("late")
    consumer.clock.advance(4.0)
    assert [moment for moment in kept.moments if not moment.startswith(("started", "subscribed"))] == [
        "run_begins 1",
        "run_ended ValueError 0",
        "attempt_recorded redelivered hold",
        "run_begins 2",
        "run_ended NoneType 0",
        "settled accepted",
        "attempt_recorded accepted None",
    ]


def test_a_sink_that_fails_is_logged_once_and_changes_nothing(caplog: pytest.LogCaptureFixture):
    class Broken(TelemetrySink):
        def handled(self, *values: Any) -> None:
            raise OSError("no space left")

    with caplog.at_level(logging.ERROR), app_with(Broken(), failing(0)) as test:
        test.send("orders", b"1")
        test.send("orders", b"2")
        assert test.depth("orders") == 0
    assert [r.getMessage() for r in caplog.records] == [
        "Broken failed in handled; later errors of this kind are not logged"
    ]


def test_a_moment_that_no_sink_wants_is_none():
    class OnlyBegins(TelemetrySink):
        def run_begins(self, delivery: Delivery, /) -> None: ...

    assert all(getattr(NO_TELEMETRY, moment) is None for moment in MOMENTS)
    hook = TelemetryHook([OnlyBegins(), OnlyBegins()])
    assert [moment for moment in MOMENTS if getattr(hook, moment) is not None] == ["run_begins"]
    assert not hook.times_runs
