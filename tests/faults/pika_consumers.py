# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds pika consumers as they are written by hand: connect, consume, and once more when the broker is back."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pika

from redeliver_mw import redeliver
from redeliver_mw.adapter.registry import parse_url
from redeliver_pika import consume, redelivering
from tests.faults.handling import PAUSE, POLICY, PREFETCH, Log


def drop_in(url: str, queue: str, log: Log, *, decorated: bool) -> None:
    def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        log.handle(body.decode(), properties.headers["JMSXDeliveryCount"])
        channel.basic_ack(method.delivery_tag)

    wrapped = redelivering(redeliver(POLICY)(on_message)) if decorated else redelivering(on_message, policy=POLICY)
    while True:
        try:
            channel = connect(url)
            channel.basic_consume(queue, wrapped)
            channel.start_consuming()
        except (pika.exceptions.AMQPError, OSError):
            time.sleep(PAUSE)


def bare(url: str, queue: str, log: Log) -> None:
    """Consume without us: whatever came is acknowledged, whether the handler failed or not."""

    def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        with contextlib.suppress(ValueError, ConnectionError):
            log.handle(body.decode(), 1)
        channel.basic_ack(method.delivery_tag)

    while True:
        try:
            channel = connect(url)
            channel.basic_consume(queue, on_message)
            channel.start_consuming()
        except (pika.exceptions.AMQPError, OSError):
            time.sleep(PAUSE)


def pull(url: str, queue: str, log: Log) -> None:
    while True:
        try:
            for pulled in consume(connect(url), queue, policy=POLICY):
                with pulled as (_, properties, body):
                    log.handle(body.decode(), properties.headers["JMSXDeliveryCount"])
        except (pika.exceptions.AMQPError, OSError):
            time.sleep(PAUSE)


def connect(url: str) -> Any:
    """Connect to the first of the URL's hosts that answers."""
    parsed = parse_url(url)
    credentials = pika.PlainCredentials(parsed.user or "guest", parsed.password or "guest")
    heartbeat = int(parsed.options["heartbeat"]) if "heartbeat" in parsed.options else None
    more: dict[str, Any] = {"socket_timeout": 3, "stack_timeout": 5, "heartbeat": heartbeat}
    parameters = [
        pika.ConnectionParameters(host, port or 5672, parsed.path or "/", credentials, **more)
        for host, port in parsed.hosts
    ]
    channel = pika.BlockingConnection(parameters).channel()
    channel.basic_qos(prefetch_count=PREFETCH)
    return channel
