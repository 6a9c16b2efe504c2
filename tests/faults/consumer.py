# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""A consumer to be killed: `python -m tests.faults.consumer WAY URL QUEUE LOG`.

WAY is `app`, `drop-in`, `decorated` or `pull`. Every run of the handler is a line in LOG, written with one
system call, so that a kill leaves whole lines: `begin BODY COUNT SECONDS` and, when it succeeds, `done` with the
same; the seconds are the machine's monotonic clock.
A body `poison:ID` always fails, `heal:N:ID` succeeds at its N-th attempt, anything else at once.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import pika

from redeliver_mw import App, Delivery, RedeliveryPolicy, redeliver
from redeliver_mw.registry import parse_url

DELAYS = [0.2, 0.3, 0.4]  # seconds after the first, second and third failure
POLICY = RedeliveryPolicy(dead_after=4, backoff=DELAYS)
PREFETCH = 40


class Log:
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def handle(self, body: bytes, count: int) -> None:
        """The handler of all ways in: 5 ms of work, then success or not."""
        kind, _, rest = body.decode().partition(":")
        os.write(self._file, f"begin {body.decode()} {count} {time.monotonic()}\n".encode())
        time.sleep(0.005)
        if kind == "poison":
            raise ValueError(f"{rest} is poison")
        if kind == "heal" and count < int(rest.partition(":")[0]):
            raise ConnectionError(f"{rest} is not well yet")
        os.write(self._file, f"done {body.decode()} {count} {time.monotonic()}\n".encode())


def by_app(url: str, queue: str, log: Log) -> None:
    app = App(url, policy=POLICY, prefetch=PREFETCH, workers=2, stop_timeout=5)

    @app.handler(queue)
    def handle(delivery: Delivery) -> None:
        log.handle(delivery.body, delivery.delivery_count)

    app.run()


def by_drop_in(url: str, queue: str, log: Log, *, decorated: bool) -> None:
    """As an existing consumer would: connect, consume, and once more when the broker is back."""
    from redeliver_pika import redelivering

    def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        log.handle(body, properties.headers["JMSXDeliveryCount"])

    wrapped = redelivering(redeliver(POLICY)(on_message)) if decorated else redelivering(on_message, policy=POLICY)
    while True:
        try:
            channel = connect(url)
            channel.basic_consume(queue, wrapped)
            channel.start_consuming()
        except (pika.exceptions.AMQPError, OSError):
            time.sleep(0.3)


def by_pull(url: str, queue: str, log: Log) -> None:
    from redeliver_pika import consume

    while True:
        try:
            for pulled in consume(connect(url), queue, policy=POLICY):
                with pulled as (_, properties, body):
                    log.handle(body, properties.headers["JMSXDeliveryCount"])
        except (pika.exceptions.AMQPError, OSError):
            time.sleep(0.3)


def connect(url: str) -> Any:
    parsed = parse_url(url)
    host, port = parsed.hosts[0]
    credentials = pika.PlainCredentials(parsed.user or "guest", parsed.password or "guest")
    parameters = pika.ConnectionParameters(host, port or 5672, parsed.path or "/", credentials, socket_timeout=3)
    channel = pika.BlockingConnection(parameters).channel()
    channel.basic_qos(prefetch_count=PREFETCH)
    return channel


def main() -> None:
    way, url, queue, path = sys.argv[1:]
    log = Log(path)
    if way == "app":
        by_app(url, queue, log)
    elif way == "pull":
        by_pull(url, queue, log)
    else:
        by_drop_in(url, queue, log, decorated=way == "decorated")


if __name__ == "__main__":
    main()
