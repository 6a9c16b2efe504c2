# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests a consumer that RabbitMQ has forgotten without a word, as 3.10 does at times when a quorum queue is deleted."""

from __future__ import annotations

import queue as queues

import pytest

from redeliver_mw import App, Delivery
from redeliver_pika import consumer
from tests.brokers import Broker
from tests.brokers.rabbitmq import RabbitMQ
from tests.brokers.skips import only_if

from .test_adapter import queue_on

NAME = "forgotten.consumer"
# What a cancel does to the queue's state, without an answer to the client.
FORGET = """
{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"%s">>)),
[ra:process_command(amqqueue:get_pid(Q), rabbit_fifo:make_checkout({element(2, C), element(1, C)}, cancel, #{}))
 || C <- rabbit_amqqueue:consumers(Q)], ok.
"""


@pytest.mark.broker
def test_a_consumer_that_the_broker_has_forgotten_subscribes_again(
    rabbitmq310: RabbitMQ, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    only_if(rabbitmq310.can_restart, "command")
    monkeypatch.setattr(consumer, "LOOK_EVERY", 0.2)
    app, handled = consuming(rabbitmq310)
    with queue_on(rabbitmq310, NAME, "quorum") as channel, app:
        channel.basic_publish("", NAME, b"before")
        assert handled.get(timeout=20) == "before"
        assert channel.queue_declare(NAME, passive=True).method.consumer_count == 1
        rabbitmq310.evaluate(FORGET % NAME)
        channel.basic_publish("", NAME, b"after")
        assert handled.get(timeout=20) == "after"
    assert "does not know the consumer" in caplog.text


@pytest.mark.broker
def test_a_consumer_that_waits_for_long_subscribes_once(
    rabbitmq310: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(consumer, "LOOK_EVERY", 0.05)
    app, handled = consuming(rabbitmq310)
    with queue_on(rabbitmq310, NAME, "quorum") as channel, app:
        for body in ("1", "2"):
            channel.connection.sleep(1.0)  # twenty looks
            channel.basic_publish("", NAME, body.encode())
            assert handled.get(timeout=20) == body
    assert "subscrib" not in caplog.text


def consuming(broker: Broker) -> tuple[App, queues.Queue[str]]:
    """Return an App that is not started, and what its handler gets."""
    handled: queues.Queue[str] = queues.Queue()
    app = App(broker.url)

    @app.handler(NAME)
    def handle(delivery: Delivery) -> None:
        handled.put(delivery.text)

    return app, handled
