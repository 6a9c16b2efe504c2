# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a consumer to be killed: `python -m tests.faults.consumer WAY URL QUEUE LOG [LIMBO]`.

WAY is `app`, `sending`, `drop-in`, `decorated` or `pull`; `app` with a LIMBO, the URL of its database, parks whatever
has a delay. `handling` says what the consumer does with a message.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from redeliver_mw import App, Delivery, connect
from redeliver_mw.adapter.registry import parse_url
from tests.faults.handling import POLICY, PREFETCH, Log

CONSUMERS = {"rabbitmq": "pika_consumers", "activemq": "stomp_consumers", "artemis": "proton_consumers"}


def by_app(url: str, queue: str, log: Log, limbo: str | None = None) -> None:
    parks: dict[str, Any] = {"limbo": limbo, "delay": "park", "app_name": "killed"} if limbo else {}
    app = App(url, policy=POLICY, prefetch=PREFETCH, workers=2, stop_timeout=5, **parks)

    @app.handler(queue)
    def handle(delivery: Delivery) -> None:
        log.handle(delivery.text, delivery.delivery_count)

    app.run()


def by_sending(url: str, queue: str, log: Log) -> None:
    """Send on each message that is handled, to where the dead letters would go: none is dead-lettered here."""
    app = App(url, policy=POLICY, prefetch=PREFETCH, workers=2, stop_timeout=5)

    @app.handler(queue)
    def handle(delivery: Delivery) -> None:
        delivery.send(f"DLQ.{queue}", delivery.body)
        log.handle(delivery.text, delivery.delivery_count)

    app.run()


def by_session(url: str, queue: str, log: Log) -> None:
    with connect(url) as session:
        for pulled in session.deliveries(queue, policy=POLICY, prefetch=PREFETCH):
            with pulled as delivery:
                log.handle(delivery.text, delivery.delivery_count)


def main() -> None:
    way, url, queue, path, *limbo = sys.argv[1:]
    log = Log(path)
    driver = import_module(f"tests.faults.{CONSUMERS[parse_url(url).dialect.partition('+')[0]]}")
    if way == "app":
        by_app(url, queue, log, *limbo)
    elif way == "sending":
        by_sending(url, queue, log)
    elif way == "pull":
        getattr(driver, "pull", by_session)(url, queue, log)
    else:
        driver.drop_in(url, queue, log, decorated=way == "decorated")


if __name__ == "__main__":
    main()
