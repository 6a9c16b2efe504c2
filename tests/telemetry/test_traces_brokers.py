# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests spans of an App on each broker: their names, what they have links to, and what a dead letter carries."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable

import pytest

from redeliver_mw import App, Delivery, RedeliveryPolicy, connect
from tests.brokers import Broker
from tests.telemetry.spans import PRODUCER, Spans, links, text

pytestmark = pytest.mark.broker

HEADERS = {"traceparent": PRODUCER, "tracestate": "vendor=1"}
URLS: dict[str, tuple[str, Callable[[str], str], str, str]] = {
    "activemq+stomp": ("activemq63", str, "activemq", ""),
    "artemis+proton": ("artemis244", str, "activemq", "artemis+proton"),
    "rabbitmq+pika": ("rabbitmq43", str, "rabbitmq", ""),
    "rabbitmq+proton": ("rabbitmq43", lambda url: url.replace("rabbitmq:", "rabbitmq+proton:"), "rabbitmq", ""),
}


@pytest.mark.parametrize("dialect", URLS)
def test_an_app_makes_the_same_spans_on_each_broker(dialect: str, request: pytest.FixtureRequest) -> None:
    fixture, url_of, system, named = URLS[dialect]
    broker: Broker = request.getfixturevalue(fixture)
    url, queue, spans, over = url_of(broker.url), f"traces.{uuid.uuid4().hex[:8]}", Spans(), threading.Event()
    policy = RedeliveryPolicy(dead_after=2, backoff=0.1, dead_letter=f"queue:{queue}.dead")
    app = App(url, declare="all", policy=policy, traces=spans.provider)

    @app.handler(queue)
    def handle(delivery: Delivery) -> None:
        if delivery.failures:
            over.set()
        raise ValueError("no such lamp")

    with app, connect(url) as session:
        session.publish(queue, b"one lamp", headers=HEADERS)
        assert over.wait(20)
        letter = session.receive(f"{queue}.dead", timeout=20)
        assert letter is not None
        session.settle(letter)
    first, second = spans.named(f"process {queue}")
    (sent,) = spans.named(f"send {queue}.dead")
    assert {span.attributes["messaging.system"] for span in spans.all} == {system}
    assert first.attributes.get("redeliver.dialect", "") == named
    assert (first.attributes["server.address"], first.attributes["server.port"]) == ("127.0.0.1", broker.port)
    assert first.attributes["messaging.destination.name"] == queue
    assert links(first) == [(PRODUCER[3:-3], "")]
    assert links(second) == [(PRODUCER[3:-3], ""), (text(first), "previous attempt")]
    assert text(sent.parent) == text(second)
    assert {name: letter.headers[name] for name in HEADERS} == HEADERS
    assert str(letter.headers["redeliver_trace"])[3:52] == text(second)
