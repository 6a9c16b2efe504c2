# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the breaker on the real brokers: a dependency that is away longer than any policy waits kills no message."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from redeliver_mw import App, Breaker, Delivery, RedeliveryPolicy
from redeliver_mw.session import connect
from tests.brokers import Broker
from tests.faults.letters import declare, take
from tests.faults.load import until

pytestmark = pytest.mark.broker

SOURCE, DEAD = "breaker.orders", "breaker.dead"
PATIENCE = 30.0
MESSAGES, WORKERS, PREFETCH = 40, 4, 20
OUTAGE = 4.0  # seconds; the policy's timeline is 0.4
BREAKER = Breaker(failure_rate=0.5, window=10, min_calls=5, open_for=0.3, max_open_for=0.6)


@pytest.fixture
def broker(every_broker: Broker) -> Broker:
    declare(every_broker, SOURCE, DEAD)
    return every_broker


class Warehouse:
    """Handles messages by a dependency that may be `away`."""

    def __init__(self) -> None:
        self.away = threading.Event()
        self._lock = threading.Lock()
        self.runs = 0
        self.at: list[float] = []
        self.done: list[bytes] = []

    def __call__(self, delivery: Delivery) -> None:
        with self._lock:
            self.runs += 1
            self.at.append(time.monotonic())
        if self.away.is_set():
            raise ConnectionError("the warehouse does not answer")
        with self._lock:
            self.done.append(delivery.body)


def app_on(broker: Broker, handler: Warehouse, breaker: Breaker = BREAKER) -> App:
    policy = RedeliveryPolicy(3, 0.2, f"queue:{DEAD}")
    app = App(broker.url, policy=policy, breaker=breaker, workers=WORKERS, prefetch=PREFETCH, app_name="breaker")
    app.handler(SOURCE)(handler)
    return app


def breaker_of(app: App) -> dict[str, Any]:
    (source,) = app.health()["sources"].values()
    found: dict[str, Any] = source["breaker"]
    return found


def test_no_message_is_dead_lettered_by_an_outage_that_outlasts_its_policy(broker: Broker) -> None:
    warehouse = Warehouse()
    warehouse.away.set()
    app = app_on(broker, warehouse)
    bodies = [b"%d" % n for n in range(MESSAGES)]
    with connect(broker.url) as session:
        for body in bodies:
            session.publish(SOURCE, body)
        with app:
            until(lambda: breaker_of(app)["openings"] >= 1, PATIENCE, "it never opened")
            time.sleep(OUTAGE)  # that long it is away
            openings = breaker_of(app)["openings"]
            assert openings >= 4
            assert warehouse.runs <= BREAKER.min_calls + WORKERS + openings
            warehouse.away.clear()
            until(lambda: len(warehouse.done) >= MESSAGES, PATIENCE, "they are not all handled")
            assert breaker_of(app)["state"] == "closed"
    assert sorted(warehouse.done) == sorted(bodies)
    assert (take(broker, DEAD), take(broker, SOURCE)) == ([], [])


def test_what_was_not_begun_is_for_others_while_it_is_open(broker: Broker) -> None:
    """On ActiveMQ, which takes nothing back over STOMP, what was prefetched is kept."""
    warehouse = Warehouse()
    warehouse.away.set()
    app = app_on(broker, warehouse, Breaker(min_calls=5, open_for=60.0))
    bodies = [b"%d" % n for n in range(MESSAGES)]
    begun = 5 + WORKERS
    free = MESSAGES - (PREFETCH if broker.kind == "activemq" else begun)
    taken: list[Delivery] = []
    with connect(broker.url) as session:
        for body in bodies:
            session.publish(SOURCE, body)
        with app:
            until(lambda: breaker_of(app)["openings"] == 1, PATIENCE, "it never opened")
            with connect(broker.url) as other:
                deadline = time.monotonic() + PATIENCE
                while len(taken) < free and time.monotonic() < deadline:
                    delivery = other.receive(SOURCE, timeout=0.5)
                    if delivery is not None:
                        taken.append(delivery)
                        other.settle(delivery)
            assert len(taken) >= free
            assert warehouse.runs <= begun
            warehouse.away.clear()
            app.resume(SOURCE)  # waits no longer
            until(lambda: len(warehouse.done) + len(taken) >= MESSAGES, PATIENCE, "they are not all handled")
            session.publish(SOURCE, b"later")
            until(lambda: b"later" in warehouse.done, PATIENCE, "it does not consume again")
    assert sorted([*warehouse.done, *(delivery.body for delivery in taken)]) == sorted([*bodies, b"later"])
    assert (take(broker, DEAD), take(broker, SOURCE)) == ([], [])
