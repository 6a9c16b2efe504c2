# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""An existing proton consumer, as it is written by hand: proton's container itself connects and attaches again."""

from __future__ import annotations

from typing import Any

from proton.handlers import MessagingHandler
from proton.reactor import Container

from redeliver_mw import redeliver
from redeliver_mw.adapter.registry import parse_url
from redeliver_proton import redelivering
from tests.faults.handling import POLICY, PREFETCH, Log


class Orders(MessagingHandler):
    def __init__(self, url: str, queue: str, log: Log) -> None:
        super().__init__(prefetch=PREFETCH)
        self._url, self._queue, self._log = parse_url(url), queue, log

    def on_start(self, event: Any) -> None:
        host, port = self._url.hosts[0]
        address = f"amqp://{host}:{port or 5672}"
        connection = event.container.connect(address, user=self._url.user, password=self._url.password)
        event.container.create_receiver(connection, self._queue)

    def on_message(self, event: Any) -> None:
        self._log.handle(event.message.body, event.message.properties["JMSXDeliveryCount"])


class DecoratedOrders(Orders):
    @redeliver(POLICY)
    def on_message(self, event: Any) -> None:
        super().on_message(event)


def drop_in(url: str, queue: str, log: Log, *, decorated: bool) -> None:
    orders = (DecoratedOrders if decorated else Orders)(url, queue, log)
    Container(redelivering(orders) if decorated else redelivering(orders, policy=POLICY)).run()
