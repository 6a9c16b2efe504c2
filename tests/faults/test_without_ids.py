# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests counts of messages without an id while connections are cut.

No message is tried more often than its policy says.
"""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import closing

import pytest

from redeliver_mw import App, Delivery, RedeliveryPolicy
from redeliver_mw.adapter.registry import parse_url
from redeliver_mw.session import connect
from tests.brokers import Broker
from tests.faults.letters import declare, take
from tests.faults.load import until
from tests.faults.proxy import Proxy

pytestmark = pytest.mark.broker

SOURCE, DEAD = "nameless.orders", "nameless.dead"
PATIENCE = 30.0
DEAD_AFTER = 4
BODIES = [b"one", b"twin", b"twin"]
WITHOUT_IDS = ["rabbitmq310", "rabbitmq43", "artemis244"]  # ActiveMQ gives every message an id


@pytest.fixture(params=WITHOUT_IDS)
def broker(request: pytest.FixtureRequest) -> Broker:
    found: Broker = request.getfixturevalue(request.param)
    declare(found, SOURCE, DEAD)
    return found


def test_after_each_cut_the_counts_go_on(broker: Broker) -> None:
    host, port = parse_url(broker.url).hosts[0]
    assert port is not None
    runs: list[tuple[bytes, int, object]] = []
    dead = threading.Semaphore(0)
    with closing(Proxy(host, port)) as proxy, connect(broker.url) as session:
        url = broker.url.replace(f"{host}:{port}", f"127.0.0.1:{proxy.port}")
        app = App(url, policy=RedeliveryPolicy(DEAD_AFTER, 1.0, f"queue:{DEAD}"), delay="hold", prefetch=20)

        @app.handler(SOURCE)
        def handle(delivery: Delivery) -> None:
            runs.append((delivery.body, delivery.delivery_count, delivery.message_id))
            raise ValueError("no")

        app.on_attempt(lambda record: dead.release() if record.outcome == "dead_lettered" else None)
        for body in BODIES:
            session.publish(SOURCE, body)
        with app:
            for attempt in (1, 2, 3):
                until(lambda n=attempt: len(runs) >= n * len(BODIES), PATIENCE, "they do not come again")
                proxy.cut()  # all of them are held
            for _ in BODIES:
                assert dead.acquire(timeout=PATIENCE), runs
    assert {message_id for _, _, message_id in runs} == {None}
    counted = Counter((body, count) for body, count, _ in runs)
    assert counted == {(body, n): times for body, times in Counter(BODIES).items() for n in range(1, DEAD_AFTER + 1)}
    letters = take(broker, DEAD)
    assert Counter(letter.body for letter in letters) == Counter(BODIES)
    assert {letter.headers["redeliver_failures"] for letter in letters} == {str(DEAD_AFTER)}
    assert take(broker, SOURCE) == []
