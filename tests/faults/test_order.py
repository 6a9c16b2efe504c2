# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests order by key, and batches, on the real brokers."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from typing import Any
from urllib.parse import urlsplit

import pytest

from redeliver_mw import App, Breaker, Delivery, RedeliveryPolicy
from redeliver_mw.errors import ConfigError
from redeliver_mw.session import connect
from tests.brokers import Broker
from tests.faults.letters import declare, take
from tests.faults.load import channel_on, until
from tests.faults.proxy import Proxy

pytestmark = pytest.mark.broker

SOURCE, DEAD = "order.orders", "order.dead"
PATIENCE = 40.0
KEYS, EACH = "abcdef", 10
ALL = [f"{key}{n}" for n in range(EACH) for key in KEYS]


@pytest.fixture
def broker(every_broker: Broker) -> Broker:
    declare(every_broker, SOURCE, DEAD)
    return every_broker


class Shop:
    """Fails on some texts, so often, as a handler.

    The handler remembers which texts ran beside each other, and in which order they were done.
    """

    def __init__(self, **failures: int) -> None:
        self.left = Counter(failures)
        self.away = False
        self._lock = threading.Lock()
        self._running = set[str]()
        self.together: list[str] = []
        self.counts: defaultdict[str, list[int]] = defaultdict(list)
        self.done: list[str] = []
        self.at: dict[str, float] = {}

    def __call__(self, delivery: Delivery) -> None:
        text = delivery.text
        with self._lock:
            self.together += {text[0]} & self._running
            self._running.add(text[0])
            self.counts[text].append(delivery.delivery_count)
            fails = self.away or self.left[text] > 0
            self.left[text] -= fails
        time.sleep(0.002)  # so that runs overlap
        with self._lock:
            self._running.discard(text[0])
            if fails:
                raise ConnectionError(text)
            self.done.append(text)
            self.at.setdefault(text, time.monotonic())

    def of(self, key: str) -> list[str]:
        """Return the texts of a key in the order in which each was done first."""
        return [text for text in dict.fromkeys(self.done) if text[0] == key]


def app_on(
    broker: Broker, handler: Any, *, url: str = "", rest: float = 0.3, key: str = "customer", **more: Any
) -> App:
    policy = RedeliveryPolicy(4, rest, f"queue:{DEAD}")
    app = App(url or broker.url, policy=policy, workers=4, prefetch=200, app_name="order", **more)
    app.handler(SOURCE, key=key)(handler)
    return app


def publish(broker: Broker, texts: list[str]) -> None:
    with connect(broker.url) as session:
        for text in texts:
            session.publish(SOURCE, text.encode(), {"customer": text[0]})


def test_messages_of_a_key_stay_in_order_over_failures_and_no_other_key_waits(broker: Broker) -> None:
    shop = Shop(a2=2, b0=3, c5=9)
    publish(broker, ALL)
    with app_on(broker, shop):
        until(lambda: len(shop.done) >= len(ALL) - 1, PATIENCE, "they are not all handled")
        time.sleep(0.2)  # nothing more comes
    assert shop.together == []
    for key in KEYS:
        assert shop.of(key) == [f"{key}{n}" for n in range(EACH) if f"{key}{n}" != "c5"]
    assert Counter(shop.done) == Counter(set(ALL) - {"c5"})
    assert (shop.counts["a2"], shop.counts["b0"], shop.counts["c5"]) == ([1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4])
    assert max(shop.at[f"{key}{EACH - 1}"] for key in "def") < shop.at["b0"]
    assert [letter.text for letter in take(broker, DEAD)] == ["c5"]
    assert take(broker, SOURCE) == []


def test_a_key_waits_for_a_copy_that_the_broker_delays(broker: Broker) -> None:
    shop = Shop(a2=1, b0=1)
    publish(broker, ALL)
    with app_on(broker, shop, delay="schedule", rest=2.0):
        until(lambda: len(shop.done) >= len(ALL), PATIENCE, "they are not all handled")
    assert shop.together == []
    for key in KEYS:
        assert shop.of(key) == [f"{key}{n}" for n in range(EACH)]
    assert Counter(shop.done) == Counter(ALL)
    assert max(shop.at[f"{key}{EACH - 1}"] for key in "cdef") < shop.at["b0"]
    assert (take(broker, DEAD), take(broker, SOURCE)) == ([], [])


def test_lost_connections_keep_the_order(broker: Broker) -> None:
    shop = Shop(a2=2, b0=2, c5=2)
    publish(broker, ALL)
    port = urlsplit(broker.url).port
    assert port is not None
    proxy = Proxy(broker.host, port)
    try:
        with app_on(broker, shop, url=broker.url.replace(f":{port}", f":{proxy.port}"), rest=0.5):
            until(lambda: bool(shop.counts["a2"]), PATIENCE, "it does not consume")
            for _ in range(3):
                proxy.cut()
                time.sleep(0.3)  # an outage
            until(lambda: len(set(shop.done)) >= len(ALL), PATIENCE, "they are not all handled")
            until(lambda: len(shop.done) >= len(ALL), PATIENCE, "they are not all handled")
    finally:
        proxy.close()
    for key in KEYS:
        assert shop.of(key) == [f"{key}{n}" for n in range(EACH)]
    assert take(broker, DEAD) == []


def test_an_open_breaker_keeps_the_order(broker: Broker) -> None:
    shop = Shop()
    shop.away = True
    publish(broker, ALL)
    breaker = Breaker(failure_rate=0.5, window=10, min_calls=4, open_for=0.3, max_open_for=0.6)
    with app_on(broker, shop, breaker=breaker) as app:
        until(
            lambda: app.health()["sources"][f"queue:{SOURCE}"]["breaker"]["openings"] >= 3, PATIENCE, "it is not open"
        )
        shop.away = False
        until(lambda: len(shop.done) >= len(ALL), PATIENCE, "they are not all handled")
    assert shop.together == []
    for key in KEYS:
        assert shop.of(key) == [f"{key}{n}" for n in range(EACH)]
    assert Counter(shop.done) == Counter(ALL)
    assert (take(broker, DEAD), take(broker, SOURCE)) == ([], [])


def test_a_key_waits_for_a_message_that_rabbitmq_keeps_until_it_is_due(rabbitmq43: Broker) -> None:
    """Over AMQP 1.0 it is given back with a delay, and is the same message."""
    declare(rabbitmq43, DEAD)
    with channel_on(rabbitmq43) as channel:
        channel.queue_delete(SOURCE)
        channel.queue_declare(SOURCE, durable=True, arguments={"x-queue-type": "quorum"})
    shop = Shop(a2=1, b0=1)
    try:
        with connect(rabbitmq43.url) as session:
            for text in ALL:
                session.publish(SOURCE, text.encode(), {"JMSXGroupID": text[0]})
        url = rabbitmq43.url.replace("rabbitmq://", "rabbitmq+proton://", 1)
        with app_on(rabbitmq43, shop, url=url, rest=10.5, key="JMSXGroupID"):
            until(lambda: len(shop.done) >= len(ALL), PATIENCE, "they are not all handled")
    finally:
        with channel_on(rabbitmq43) as channel:
            channel.queue_delete(SOURCE)
    assert shop.together == []
    for key in KEYS:
        assert shop.of(key) == [f"{key}{n}" for n in range(EACH)]
    assert (shop.counts["a2"], Counter(shop.done)) == ([1, 2], Counter(ALL))
    assert max(shop.at[f"{key}{EACH - 1}"] for key in "cdef") < shop.at["b0"]


def test_the_group_of_a_message_is_a_key_where_the_broker_shows_it(broker: Broker) -> None:
    shop = Shop(a2=2)
    app = app_on(broker, shop, key="JMSXGroupID")
    if broker.kind == "activemq":
        with pytest.raises(ConfigError, match="does not show the group"):
            app.start()
        return
    with connect(broker.url) as session:
        for text in ALL:
            session.publish(SOURCE, text.encode(), {"JMSXGroupID": text[0]})
    with app:
        until(lambda: len(shop.done) >= len(ALL), PATIENCE, "they are not all handled")
    assert shop.together == []
    for key in KEYS:
        assert shop.of(key) == [f"{key}{n}" for n in range(EACH)]


def test_a_batch_fails_as_one_and_each_message_keeps_its_own_count(broker: Broker) -> None:
    batches: list[list[tuple[str, int]]] = []
    done, texts = list[str](), [f"m{n}" for n in range(40)]

    def on_orders(deliveries: list[Delivery]) -> None:
        batches.append([(delivery.text, delivery.delivery_count) for delivery in deliveries])
        if any(delivery.text in ("m7", "m23") for delivery in deliveries):
            raise ConnectionError
        done.extend(delivery.text for delivery in deliveries)

    publish(broker, texts)
    app = App(broker.url, policy=RedeliveryPolicy(3, 0.3, f"queue:{DEAD}"), prefetch=100, app_name="order")
    app.handler(SOURCE, batch=10)(on_orders)
    app.start()
    until(lambda: len(done) >= 38, PATIENCE, "they are not all handled")
    until(lambda: sum((text, 3) in batch for batch in batches for text in ("m7", "m23")) == 2, PATIENCE, "not tried")
    app.stop()
    assert max(map(len, batches)) <= 10
    assert sum(len(batch) > 1 for batch in batches) >= 2
    assert {len(batch) for batch in batches if any(count > 1 for _, count in batch)} == {1}
    counts = defaultdict[str, list[int]](list)
    for text, count in (one for batch in batches for one in batch):
        counts[text].append(count)
    assert {tuple(found) for text, found in counts.items() if text not in ("m7", "m23")} <= {(1,), (1, 2)}
    assert (counts["m7"], counts["m23"]) == ([1, 2, 3], [1, 2, 3])
    assert sorted(done) == sorted(set(texts) - {"m7", "m23"})
    letters = {letter.text: letter.headers["redeliver_failures"] for letter in take(broker, DEAD)}
    assert letters == {"m7": "3", "m23": "3"}
    assert take(broker, SOURCE) == []
