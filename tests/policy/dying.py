# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds a handler that always fails, and checks what is left of its message, for tests that hand a policy over."""

from __future__ import annotations

from itertools import accumulate

from redeliver_mw import App, Delivery, PolicyMap, RedeliveryPolicy
from redeliver_mw.policy import AnyPolicy
from redeliver_mw.testing import TestApp
from tests.policy.spelling import Rule, dead_queue

CONSTANT = Rule("orders", 1000, 3)
GROWS = Rule("orders", 1000, 3, times=2)
SLOW = Rule("invoices", 2000, 2)


class Failing:
    """Always fails, and notes at which second of the test it was called, and with which count."""

    def __init__(self) -> None:
        self.test: TestApp | None = None
        self.arrivals: dict[str, list[float]] = {}
        self.counts: list[int] = []

    def __call__(self, delivery: Delivery) -> None:
        assert self.test is not None
        self.arrivals.setdefault(delivery.destination.name, []).append(self.test.clock.now().mono)
        self.counts.append(delivery.delivery_count)
        raise ValueError("no")


def expected(rule: Rule) -> list[float]:
    return [float(second) for second in accumulate([0, *rule.rests])]


def as_app(handed: AnyPolicy, url: str = "memory://") -> tuple[App, Failing]:
    app, failing = App(url, policy=handed), Failing()
    app.handler("orders")(failing)
    return app, failing


def in_code(*rules: Rule) -> PolicyMap:
    """Return the rules as a map without a language: one entry has a whole policy, the others have some fields."""
    first, *others = rules
    whole = RedeliveryPolicy(first.dead_after, first.rests, f"queue:dead.{first.source}")
    fields = {r.source: {"dead_after": r.dead_after, "backoff": r.rests, "dead_letter": "queue:dead.$"} for r in others}
    return PolicyMap({first.source: whole, **fields})


def same_death(test: TestApp, failing: Failing, spelling: str, rule: Rule) -> None:
    """Check the delays, the number of calls, and that one dead letter is in the right place, with the right marks."""
    test.send(rule.source, b"failing", {"colour": "red"})
    test.advance(100.0)
    assert failing.arrivals == {rule.source: expected(rule)}
    assert failing.counts == list(range(1, rule.dead_after + 1))
    (letter,) = test.broker.peek(dead_queue(spelling, rule.source))
    assert letter.body == b"failing"
    assert test.depth(rule.source) == 0
    marks = {
        "colour": "red",
        # as a plain client of that broker, which STOMP is on ActiveMQ, would send to it
        "original-destination": f"/queue/{rule.source}" if test.broker.ways.name == "activemq" else rule.source,
        "redeliver_original_destination": rule.source,
        "redeliver_original_kind": "queue",
        "redeliver_failures": f"{rule.dead_after}",
        "redeliver_failures_for": rule.source,
        "redeliver_reason": "exhausted",
        "redeliver_error_type": "ValueError",
    }
    assert {name: letter.headers[name] for name in marks} == marks
