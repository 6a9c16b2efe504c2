# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""An existing stomp.py consumer, as it is written by hand: connects and subscribes again when the broker is back."""

from __future__ import annotations

import threading
import time
from typing import Any

import stomp

from redeliver_mw import redeliver
from redeliver_mw.adapter.registry import parse_url
from redeliver_stomp import redelivering
from tests.faults.handling import PAUSE, POLICY, PREFETCH, Log


class Orders(stomp.ConnectionListener):
    def __init__(self, connection: Any, log: Log) -> None:
        self._connection, self._log = connection, log
        self.gone = threading.Event()

    def on_message(self, frame: Any) -> None:
        self._log.handle(frame.body, int(frame.headers["JMSXDeliveryCount"]))
        self._connection.ack(frame.headers["ack"])

    def on_disconnected(self) -> None:
        self.gone.set()


class DecoratedOrders(Orders):
    @redeliver(POLICY)
    def on_message(self, frame: Any) -> None:
        super().on_message(frame)


def drop_in(url: str, queue: str, log: Log, *, decorated: bool) -> None:
    parsed = parse_url(url)
    host, port = parsed.hosts[0]
    connection: Any = stomp.Connection12([(host, port or 61613)], reconnect_attempts_max=1, heartbeats=(4000, 4000))
    orders = (DecoratedOrders if decorated else Orders)(connection, log)
    wrapped = redelivering(orders, connection) if decorated else redelivering(orders, connection, policy=POLICY)
    connection.set_listener("", wrapped)
    while True:
        orders.gone.clear()
        try:
            connection.connect(parsed.user, parsed.password, wait=True)
            window = {"activemq.prefetchSize": PREFETCH}
            connection.subscribe(f"/queue/{queue}", id="orders", ack="client-individual", headers=window)
            orders.gone.wait()
        except (stomp.exception.StompException, OSError):
            time.sleep(PAUSE)
