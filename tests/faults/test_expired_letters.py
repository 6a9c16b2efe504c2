# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests messages that a broker let expire, and dead-lettered itself.

Such a message is a dead letter to us too, and lives on when it is sent back.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pika
import pytest
import stomp

from redeliver_mw.session import connect
from tests.brokers import Broker
from tests.cli.running import redeliver
from tests.faults.letters import declare, take, until_there
from tests.faults.load import channel_on

pytestmark = pytest.mark.broker
SOURCE = "expired.orders"
LIFE = 0.5  # seconds
DEAD_LETTER_QUEUES = {"activemq": "ActiveMQ.DLQ", "artemis": "ExpiryQueue", "rabbitmq": f"dlx.{SOURCE}"}


def expired_on_rabbitmq(broker: Broker, dead_letter_queue: str) -> None:
    with channel_on(broker) as channel:
        for name in (SOURCE, dead_letter_queue):
            channel.queue_delete(name)
        to_dead_letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead_letter_queue}
        channel.queue_declare(SOURCE, durable=True, arguments=to_dead_letters)
        channel.queue_declare(dead_letter_queue, durable=True)
        short = pika.BasicProperties(delivery_mode=2, expiration=str(round(LIFE * 1000)))
        channel.basic_publish("", SOURCE, b"one", short)


def expired_on_the_others(broker: Broker, dead_letter_queue: str) -> None:
    declare(broker, SOURCE, dead_letter_queue)
    connection = stomp.Connection12([(broker.host, broker.stomp_port)])
    connection.connect(broker.user, broker.password, wait=True)
    address = f"/queue/{SOURCE}" if broker.kind == "activemq" else SOURCE
    expires = str(round((time.time() + LIFE) * 1000))
    headers = {"persistent": "true", "expires": expires, "receipt": "1"}
    connection.send(address, b"one", headers=headers | ({"destination-type": "ANYCAST"} if address == SOURCE else {}))
    connection.disconnect()
    if broker.kind == "activemq":  # it looks for expired ones every 30 s, and when a consumer comes
        time.sleep(LIFE)
        with connect(broker.url) as session:
            assert session.receive(SOURCE, timeout=1.0) is None


def asked(folder: Path, broker: Broker, *words: str) -> Any:
    done = redeliver(folder, "dead", *words, "--json", extra={"BROKER": broker.url})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_what_expired_on_a_broker_is_listed_with_where_it_came_from_and_goes_back_to_stay(
    every_broker: Broker, tmp_path: Path
) -> None:
    dead_letter_queue = DEAD_LETTER_QUEUES[every_broker.kind]
    (expired_on_rabbitmq if every_broker.kind == "rabbitmq" else expired_on_the_others)(every_broker, dead_letter_queue)
    until_there(every_broker, dead_letter_queue)
    (letter,) = asked(tmp_path, every_broker, "list", "env:BROKER", dead_letter_queue)
    assert (letter["from"], letter["reason"], letter["evidence"]) == (f"queue:{SOURCE}", "expired", "broker")
    assert asked(tmp_path, every_broker, "replay", "env:BROKER", dead_letter_queue)["replayed"] == 1
    time.sleep(2 * LIFE)  # a lifetime of its own would be over
    (back,) = take(every_broker, SOURCE)
    assert (back.body, back.headers["redeliver_generation"]) == (b"one", "1")
    assert asked(tmp_path, every_broker, "list", "env:BROKER", dead_letter_queue) == []
