# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs an App on a real broker whose database is away for a while: it notifies, and again when the outage is over."""

from __future__ import annotations

import threading
from collections import Counter

from redeliver_mw import App, Delivery, RedeliveryPolicy
from redeliver_mw.flow.breaker import Breaker
from redeliver_mw.notifications import Notify
from redeliver_mw.session import connect
from tests.brokers import Broker
from tests.cli.test_run_processes import eventually
from tests.dead_letters.many_letters import depth
from tests.faults.letters import declare
from tests.notifications.receiver import SECRET, receiving

MESSAGES = 60


def test_an_outage_on_a_broker_is_one_notification_and_its_end_another(rabbitmq43: Broker) -> None:
    queues = ("notified.orders", "notified.bills")
    declare(rabbitmq43, *queues)
    away, handled, failed = threading.Event(), Counter[str](), Counter[str]()
    away.set()
    with receiving() as receiver:
        app = App(
            rabbitmq43.url,
            policy=RedeliveryPolicy(1, dead_letter="queue:notified.dead"),
            breaker=Breaker(min_calls=20, open_for=0.5),
            app_name="shop",
            notify=Notify(receiver.url, quiet=2.5, gather=1.0),
            notify_secret=SECRET,
            log_failures=False,
        )

        def handle(delivery: Delivery) -> None:
            if away.is_set():
                failed[delivery.text] += 1
                raise ConnectionError("no database at postgresql://shop:geheim@db/shop")
            handled[delivery.text] += 1

        for queue in queues:
            app.handler(queue)(handle)
        with app, connect(rabbitmq43.url) as session:
            for n in range(MESSAGES):
                session.publish(queues[n % 2], str(n).encode())
            (begun,) = receiver.until(1)
            assert begun["type"] in ("dead-letter", "breaker-open")
            assert {source["source"] for source in begun["data"]["sources"]} <= {f"queue:{queue}" for queue in queues}
            assert "geheim" not in str(begun)
            away.clear()
            assert eventually(lambda: handled.total() + depth(rabbitmq43, "notified.dead") == MESSAGES)
            _, over = receiver.until(2)
        dead = depth(rabbitmq43, "notified.dead")
        assert dead + handled.total() == MESSAGES
        assert (over["type"], over["data"]["outage_id"]) == ("recovered", begun["data"]["outage_id"])
        assert over["data"]["dead_letters"] == dead > 0
        assert over["data"]["breakers_opened"] >= 1
        assert {source["source"] for source in over["data"]["sources"]} == {f"queue:{queue}" for queue in queues}
    assert receiver.types == [begun["type"], "recovered"]
