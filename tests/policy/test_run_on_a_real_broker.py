# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the policy of `test_run_in_all_languages`, in every language, on RabbitMQ and by the wall's clock."""

from __future__ import annotations

import threading
import time

import pytest

from redeliver_mw import App, Delivery
from redeliver_mw.policy import PolicyMap, load_policies
from tests.adapters.pika.dropins import queues
from tests.brokers import Broker
from tests.policy.spelling import BY_DESTINATION, GROWING, SPELLINGS, Rule, dead_queue

pytestmark = pytest.mark.broker

LATE = 1.0  # seconds that a busy machine may be late; a delay is never too short
EARLY = 0.005  # but for two readings of the clock
PATIENCE = 30.0
RUNS = [*((spelling, 1) for spelling in SPELLINGS), *((spelling, 2) for spelling in GROWING)]


class Failing:
    """Always fails, and notes when each call began and ended."""

    def __init__(self) -> None:
        self.began: list[float] = []
        self.ended: list[float] = []
        self.counts: list[int] = []

    def __call__(self, delivery: Delivery) -> None:
        self.began.append(time.monotonic())
        self.counts.append(delivery.delivery_count)
        self.ended.append(time.monotonic())
        raise ValueError("no")

    def rested(self, rule: Rule) -> None:
        """Check that the handler was called as often as the rule says, with the rule's delays between the calls."""
        assert self.counts == list(range(1, rule.dead_after + 1))
        rests = [began - ended for ended, began in zip(self.ended, self.began[1:], strict=False)]
        for rest, least in zip(rests, rule.rests, strict=True):
            assert least - EARLY <= rest <= least + LATE


def dead(app: App, count: int) -> threading.Event:
    """Return an event that is set when so many messages are dead-lettered and settled."""
    done, letters = threading.Event(), []

    @app.on_attempt
    def told(record: object) -> None:
        if getattr(record, "outcome", "") == "dead_lettered":
            letters.append(record)
            if len(letters) == count:
                done.set()

    return done


@pytest.mark.parametrize(("spelling", "times"), RUNS)
def test_the_delays_and_the_dead_letter_are_the_same_on_rabbitmq(spelling: str, times: int, rabbitmq43: Broker) -> None:
    with queues(rabbitmq43) as q:
        # a redeliveryPlugin takes no delay below 1000 ms
        rule = Rule(q.name, 1000 if spelling == "activemq-plugin" else 200, 3, times)
        q.dlq = dead_queue(spelling, q.name)
        app, failing = App(rabbitmq43.url, policy=SPELLINGS[spelling](rule)), Failing()
        app.handler(q.name)(failing)
        over = dead(app, 1)
        with app:
            q.put("failing")
            assert over.wait(PATIENCE)
        failing.rested(rule)
        ((body, headers),) = q.dead()
        assert body == b"failing"
        assert (headers["original-destination"], headers["redeliver_failures"]) == (q.name, "3")
        assert (headers["redeliver_reason"], headers["redeliver_error_type"]) == ("exhausted", "ValueError")
        assert q.left() == []


def test_a_map_gives_each_queue_its_own_delays_on_rabbitmq(rabbitmq43: Broker) -> None:
    for spelling in BY_DESTINATION:
        with queues(rabbitmq43) as one, queues(rabbitmq43) as other:
            least = 1000 if spelling == "activemq-plugin" else 100
            rules = (Rule(one.name, least, 3), Rule(other.name, 2 * least, 2))
            policies: PolicyMap = load_policies(SPELLINGS[spelling](*rules))
            app, handlers = App(rabbitmq43.url, policy=policies), [Failing(), Failing()]
            over = dead(app, 2)
            for q, rule, failing in zip((one, other), rules, handlers, strict=True):
                q.dlq = dead_queue(spelling, rule.source)
                app.handler(q.name)(failing)
            with app:
                one.put("1")
                other.put("2")
                assert over.wait(PATIENCE), spelling
            for q, rule, failing, body in zip((one, other), rules, handlers, (b"1", b"2"), strict=True):
                failing.rested(rule)
                assert [letter for letter, _ in q.dead()] == [body], spelling
