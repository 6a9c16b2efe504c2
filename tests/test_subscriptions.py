# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests a topic as a source: a durable subscription, whose retries and replays reach nobody else."""

from __future__ import annotations

import pytest

from redeliver_mw import App, Delivery, Destination
from redeliver_mw.errors import ConfigError
from redeliver_mw.testing import TestApp


def failing_auditor(personality: str) -> tuple[TestApp, list[tuple[str, int]]]:
    """Return an App with two subscriptions to one topic, and its calls. The handler of `audit` always fails."""
    app, seen = App(f"memory://?personality={personality}", policy="1:1000; 2:move(queue:dlq.$)"), []

    @app.handler("topic:prices", subscription="audit")
    def audit(delivery: Delivery) -> None:
        seen.append(("audit", delivery.delivery_count))
        raise ValueError("no")

    @app.handler("topic:prices::billing")
    def bill(delivery: Delivery) -> None:
        seen.append(("billing", delivery.delivery_count))

    return TestApp(app), seen


@pytest.mark.parametrize("personality", ["rabbitmq", "activemq", "artemis"])
def test_a_retry_reaches_only_the_subscription_that_failed(personality: str) -> None:
    test, seen = failing_auditor(personality)
    with test:
        test.send("topic:prices", b"1")
        test.advance(5.0)
        (letter,) = test.dead_letters("topic:prices::audit")
    assert sorted(seen) == [("audit", 1), ("audit", 2), ("billing", 1)]
    assert letter.headers["redeliver_original_destination"] == "prices"
    assert letter.headers["redeliver_original_kind"] == "topic"
    assert letter.headers["redeliver_failures_for"] == "prices::audit"
    assert test.broker.peek("queue:dlq.prices") == [letter]


@pytest.mark.parametrize("personality", ["rabbitmq", "activemq", "artemis"])
def test_a_stop_sends_what_is_held_to_its_own_subscription_with_its_count(personality: str) -> None:
    test, seen = failing_auditor(personality)
    test.send("topic:prices", b"1")
    test.stop()
    waiting = {place.destination.name for place in test.broker.everything()}
    assert waiting == {"prices::audit"}
    assert sorted(seen) == [("audit", 1), ("billing", 1)]


@pytest.mark.parametrize(
    ("source", "subscription", "what"),
    [
        ("topic:prices", None, "none is named"),
        ("queue:orders", "audit", "no subscriptions"),
        ("topic:prices", "a/b", "no name"),
        ("topic:prices", "a b", "no name"),
    ],
)
def test_a_subscription_that_cannot_be_is_refused_when_it_is_written(
    source: str, subscription: str | None, what: str
) -> None:
    with pytest.raises(ConfigError, match=what):
        App("memory://").handler(source, subscription=subscription)


def test_a_selector_is_refused_at_start_where_the_broker_has_none() -> None:
    app = App("memory://")
    app.handler("orders", selector="n = 1")(lambda delivery: None)
    with pytest.raises(ConfigError, match=r"queue:orders.*knows no selectors"):
        TestApp(app).start()


def test_a_subscription_is_told_from_its_topic_and_from_others() -> None:
    audit = Destination.parse("topic:prices::audit")
    assert audit == Destination("prices", "topic", "audit")
    assert str(audit) == "topic:prices::audit"
    assert len({audit, Destination("prices", "topic"), Destination("prices", "topic", "billing")}) == 3
    assert Destination.parse("queue:a::b") == Destination("a::b")  # a name as Artemis has them
