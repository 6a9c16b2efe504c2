# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a consumer under a storm, as a program: `python -m tests.adapters.pika.storm URL QUEUE app|dropin HEALTHY`.

Each message whose body begins with `failing` fails once. The program prints `healthy N` after the last of HEALTHY other
messages: N are the seconds since the first message of the storm was handled. `warm` is a message before the storm, for
which the program prints `warm`. The program ends at the end of its input.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import pika

from redeliver_mw import App, Delivery, RedeliveryPolicy
from redeliver_mw.adapter.registry import parse_url
from redeliver_pika import redelivering

PREFETCH = 40
DELAY = 2.0
POLICY = RedeliveryPolicy(dead_after=5, backoff=DELAY)


class Storm:
    """Does what the handler does, on one thread."""

    def __init__(self, healthy: int) -> None:
        self._left, self._began = healthy, 0.0
        self._failing: set[bytes] = set()

    def handle(self, body: bytes) -> None:
        if body == b"warm":
            print("warm", flush=True)
            return
        self._began = self._began or time.monotonic()
        if body.startswith(b"failing") and body not in self._failing:
            self._failing.add(body)
            raise ConnectionError("down")
        if not body.startswith(b"failing"):
            self._left -= 1
            if self._left == 0:
                print(f"healthy {time.monotonic() - self._began:.3f}", flush=True)


def in_an_app(url: str, queue: str, storm: Storm) -> None:
    app = App(url, policy=POLICY, prefetch=PREFETCH, workers=1, log_failures=False)

    @app.handler(queue)
    def handle(delivery: Delivery) -> None:
        storm.handle(delivery.body)

    with app:
        sys.stdin.read()


def in_a_dropin(url: str, queue: str, storm: Storm) -> None:
    parsed = parse_url(url)
    host, port = parsed.hosts[0]
    credentials = pika.PlainCredentials(parsed.user or "guest", parsed.password or "guest")
    connection = pika.BlockingConnection(pika.ConnectionParameters(host, port or 5672, parsed.path or "/", credentials))
    channel = connection.channel()

    def on_message(channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        storm.handle(body)
        channel.basic_ack(method.delivery_tag)

    def ended() -> None:
        sys.stdin.read()
        connection.add_callback_threadsafe(channel.stop_consuming)

    channel.basic_qos(prefetch_count=PREFETCH)
    channel.basic_consume(queue, redelivering(on_message, policy=POLICY, log_failures=False))
    threading.Thread(target=ended, daemon=True).start()
    channel.start_consuming()


if __name__ == "__main__":
    {"app": in_an_app, "dropin": in_a_dropin}[sys.argv[3]](sys.argv[1], sys.argv[2], Storm(int(sys.argv[4])))
