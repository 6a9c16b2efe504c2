# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds a proton consumer as it is written by hand: proton's container itself connects and attaches again.

The consumer ends where the broker refuses the user, and is run once more then.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

from proton.handlers import MessagingHandler
from proton.reactor import Container

from redeliver_mw import redeliver
from redeliver_mw.adapter.registry import parse_url
from redeliver_proton import redelivering
from tests.faults.handling import PAUSE, POLICY, PREFETCH, Log


class Orders(MessagingHandler):
    def __init__(self, url: str, queue: str, log: Log) -> None:
        super().__init__(prefetch=PREFETCH)
        self._url, self._queue, self._log = parse_url(url), queue, log

    def on_start(self, event: Any) -> None:
        hosts = [f"amqp://{host}:{port or 5672}" for host, port in self._url.hosts]
        login: dict[str, Any] = {"user": self._url.user, "password": self._url.password}
        if "heartbeat" in self._url.options:
            login["heartbeat"] = int(self._url.options["heartbeat"])
        connection = event.container.connect(urls=hosts, **login)
        event.container.create_receiver(connection, self._queue)

    def on_message(self, event: Any) -> None:
        self._log.handle(event.message.body, event.message.properties["JMSXDeliveryCount"])


class DecoratedOrders(Orders):
    @redeliver(POLICY)
    def on_message(self, event: Any) -> None:
        super().on_message(event)


class BareOrders(Orders):
    def on_message(self, event: Any) -> None:
        with contextlib.suppress(ValueError, ConnectionError):
            self._log.handle(event.message.body, 1)


def bare(url: str, queue: str, log: Log) -> None:
    """Consume without us: whatever came is accepted, whether the handler failed or not."""
    while True:
        Container(BareOrders(url, queue, log)).run()
        time.sleep(PAUSE)


def drop_in(url: str, queue: str, log: Log, *, decorated: bool) -> None:
    while True:
        orders = (DecoratedOrders if decorated else Orders)(url, queue, log)
        Container(redelivering(orders) if decorated else redelivering(orders, policy=POLICY)).run()
        time.sleep(PAUSE)
