# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The consumer on each page about a driver's drop-in runs on that driver's broker, and prints what the page shows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from proton import Message
from proton.utils import BlockingConnection

from redeliver_mw import App, connect
from tests.brokers import Broker
from tests.pages import FENCE, files_of, own_name

REPOSITORY = Path(__file__).resolve().parents[2]


def shown(page: str) -> str:
    """Return the output that the page shows: its only block marked `text`."""
    (output,) = (block["text"] for block in FENCE.finditer(page) if block["info"] == "text")
    return output


def follow(driver: str, scheme: str, broker: Broker, folder: Path, send: Callable[[str, Sequence[str]], None]) -> None:
    """Run the page's consumer for a lamp and a sofa, and look at its output and at the dead letter."""
    page = (REPOSITORY / "docs" / f"drop-in-{driver}.md").read_text("utf-8")
    queue = own_name("orders")
    program = files_of(page)["consumer.py"]
    (folder / "consumer.py").write_text(program.replace('"orders"', f'"{queue}"').replace("/orders", f"/{queue}"))
    assert queue in (folder / "consumer.py").read_text()

    path = os.pathsep.join(map(str, (REPOSITORY, REPOSITORY / "adapters")))
    env = os.environ | {"PYTHONPATH": path, "BROKER": broker.url.replace(broker.kind, scheme, 1)}
    declare(broker, queue)
    send(queue, ("lamp", "sofa"))
    argv = [sys.executable, "consumer.py"]
    with subprocess.Popen(argv, cwd=folder, env=env, stdout=subprocess.PIPE, text=True) as consumer:
        try:
            with connect(broker.url) as session:
                letter = session.receive(f"dlq.{queue}", timeout=60)
                assert letter is not None
                session.settle(letter)
        finally:
            consumer.kill()
            said = consumer.communicate()[0]
    assert letter.text == "sofa"
    assert letter.headers["redeliver_failures"] == "3"
    assert said == shown(page)


def declare(broker: Broker, queue: str) -> None:
    """Make the queue, and its dead-letter queue."""
    app = App(broker.url, policy="3:move(queue:dlq.$)", declare="all")
    app.handler(queue)(print)
    with app:
        pass


@pytest.mark.broker
def test_the_consumer_of_the_page_about_pika_does_what_the_page_shows(rabbitmq: Broker, tmp_path: Path) -> None:
    follow("pika", "amqp", rabbitmq, tmp_path, partial(publish, rabbitmq))


@pytest.mark.broker
def test_the_consumer_of_the_page_about_stomp_does_what_the_page_shows(activemq: Broker, tmp_path: Path) -> None:
    follow("stomp", "stomp", activemq, tmp_path, partial(publish, activemq))


@pytest.mark.broker
def test_the_consumer_of_the_page_about_proton_does_what_the_page_shows(artemis: Broker, tmp_path: Path) -> None:
    follow("proton", "amqp", artemis, tmp_path, partial(publish_texts, artemis))


def publish(broker: Broker, queue: str, bodies: Sequence[str]) -> None:
    with connect(broker.url) as session:
        for body in bodies:
            session.publish(queue, body.encode())


def publish_texts(broker: Broker, queue: str, bodies: Sequence[str]) -> None:
    """Send AMQP values that are texts, as a proton producer does."""
    url = f"amqp://{broker.host}:{broker.port}"
    connection = BlockingConnection(url, user=broker.user, password=broker.password, allowed_mechs="PLAIN")
    sender = connection.create_sender(queue)
    for body in bodies:
        sender.send(Message(body=body, durable=True))
    connection.close()
