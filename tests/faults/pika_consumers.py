# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Existing pika consumers, as they are written by hand: connect, consume, and once more when the broker is back."""

from __future__ import annotations

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


def pull(url: str, queue: str, log: Log) -> None:
    while True:
        try:
            for pulled in consume(connect(url), queue, policy=POLICY):
                with pulled as (_, properties, body):
                    log.handle(body.decode(), properties.headers["JMSXDeliveryCount"])
        except (pika.exceptions.AMQPError, OSError):
            time.sleep(PAUSE)


def connect(url: str) -> Any:
    parsed = parse_url(url)
    host, port = parsed.hosts[0]
    credentials = pika.PlainCredentials(parsed.user or "guest", parsed.password or "guest")
    parameters = pika.ConnectionParameters(host, port or 5672, parsed.path or "/", credentials, socket_timeout=3)
    channel = pika.BlockingConnection(parameters).channel()
    channel.basic_qos(prefetch_count=PREFETCH)
    return channel
