# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests what a dead letter tells of its last attempts, whichever way its delays were spent."""

from __future__ import annotations

import json
import socket
from datetime import datetime
from typing import Any

import pytest

from redeliver_mw import App, Delivery, RedeliveryPolicy, RetryAfter
from redeliver_mw.failure import describe
from redeliver_mw.redelivery.delays import Option
from redeliver_mw.testing import TestApp

HOST = socket.gethostname()[:64]


class FailingHandler:
    """Fails with each of `errors` in turn, then with the last one for ever; remembers when, and as what."""

    def __init__(self, *errors: type[Exception]) -> None:
        self.errors, self.prints = errors, list[str]()
        self.test: TestApp | None = None
        self.at: list[float] = []

    def __call__(self, delivery: Delivery) -> None:
        assert self.test is not None
        self.at.append(self.test.clock.now().wall)
        try:
            raise self.errors[min(len(self.prints), len(self.errors) - 1)]("no")
        except Exception as error:
            self.prints.append(describe(error).fingerprint)
            raise


def failing_app(policy: RedeliveryPolicy, handler: FailingHandler, delay: Option = "hold") -> TestApp:
    app = App("memory://", policy=policy, delay=delay, app_name="shop")
    app.handler("orders")(handler)
    handler.test = TestApp(app)
    return handler.test


def told(test: TestApp) -> list[dict[str, Any]]:
    (letter,) = test.dead_letters("orders")
    text = letter.headers["redeliver_history"]
    assert len(text) <= 2048
    found: list[dict[str, Any]] = json.loads(text)
    return found


def times(items: list[dict[str, Any]]) -> list[float]:
    return [datetime.fromisoformat(item["t"]).timestamp() for item in items]


@pytest.mark.parametrize("delay", ["hold", "schedule", "nack", "auto"])
def test_the_history_has_times_hosts_fingerprints_and_delays_of_three_failures(delay: Option) -> None:
    failing = FailingHandler(ValueError, KeyError, OSError)
    with failing_app(RedeliveryPolicy(3, [1.0, 2.5]), failing, delay) as test:
        test.send("orders", b"x", message_id="m1")
        test.advance(1.0)
        test.advance(2.5)
        items = told(test)
    assert len(set(failing.prints)) == 3
    assert [item["f"] for item in items] == failing.prints
    assert [item["h"] for item in items] == [HOST] * 3
    assert [item.get("d") for item in items] == [1.0, 2.5, None]
    assert set(items[-1]) == {"t", "f", "h"}
    assert times(items) == pytest.approx(failing.at, abs=0.001)
    assert [later - failing.at[0] for later in failing.at] == pytest.approx([0.0, 1.0, 3.5], abs=0.003)


def test_a_retry_copy_carries_what_happened_so_far() -> None:
    failing = FailingHandler(ValueError)
    with failing_app(RedeliveryPolicy(3, [5.0, 1.0]), failing) as test:
        test.send("orders", b"x", message_id="m1")
    (copy,) = test.broker.peek(test.app.sources[0])  # the stop put it back, stamped
    (item,) = json.loads(copy.headers["redeliver_history"])
    assert (item["f"], item["d"]) == (failing.prints[0], 5.0)


@pytest.mark.parametrize("delay", ["hold", "schedule"])
def test_the_history_has_the_last_ten_of_more_failures(delay: Option) -> None:
    failing = FailingHandler(ValueError, KeyError)
    rests = [1.0 + n / 4 for n in range(24)]
    with failing_app(RedeliveryPolicy(25, rests), failing, delay) as test:
        test.send("orders", b"x", message_id="m1")
        for rest in rests:
            test.advance(rest)
        items = told(test)
    assert [item.get("d") for item in items] == [*rests[15:], None]
    assert times(items) == pytest.approx(failing.at[-10:], abs=0.001)


def test_an_uncounted_delay_is_an_attempt_in_the_history() -> None:
    class Later(RetryAfter):
        def __init__(self, _: str) -> None:
            super().__init__(4.0, count=False)

    failing = FailingHandler(Later, ValueError)
    with failing_app(RedeliveryPolicy(1, 1.0), failing) as test:
        test.send("orders", b"x", message_id="m1")
        test.advance(4.0)
        assert [item.get("d") for item in told(test)] == [4.0, None]
        assert test.dead_letters("orders")[0].headers["redeliver_failures"] == "1"


@pytest.mark.parametrize("text", ["[" * 3_000, "{{{", "[1]", "x" * 2_000, b"\xff", 7, '[{"t":"never"}]'])
def test_a_strangers_history_is_passed_over(text: Any) -> None:
    with failing_app(RedeliveryPolicy(1), FailingHandler(ValueError)) as test:
        test.send("orders", b"x", {"redeliver_history": text, "tenant": "a"}, message_id="m1")
        assert len(told(test)) == 1


def test_a_replayed_message_starts_a_history_of_its_own() -> None:
    failing = FailingHandler(ValueError)
    with failing_app(RedeliveryPolicy(2, 1.0), failing) as test:
        test.send("orders", b"x", message_id="m1")
        test.advance(1.0)
        first = told(test)
        test.replay("orders")
        test.advance(1.0)
        second = told(test)
    assert (len(first), len(second)) == (2, 2)
    assert min(times(second)) >= max(times(first))
