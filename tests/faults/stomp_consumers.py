# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds a stomp.py consumer as it is written by hand: it connects and subscribes again when the broker is back."""

from __future__ import annotations

import contextlib
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


class BareOrders(Orders):
    def on_message(self, frame: Any) -> None:
        with contextlib.suppress(ValueError, ConnectionError):
            self._log.handle(frame.body, 1)
        self._connection.ack(frame.headers["ack"])


def bare(url: str, queue: str, log: Log) -> None:
    """Consume without us: whatever came is acknowledged, whether the handler failed or not."""
    connection = _connection(url)
    orders = BareOrders(connection, log)
    connection.set_listener("", orders)
    _consume(url, queue, connection, orders)


def drop_in(url: str, queue: str, log: Log, *, decorated: bool) -> None:
    connection = _connection(url)
    orders = (DecoratedOrders if decorated else Orders)(connection, log)
    wrapped = redelivering(orders, connection) if decorated else redelivering(orders, connection, policy=POLICY)
    connection.set_listener("", wrapped)
    _consume(url, queue, connection, orders)


def _connection(url: str) -> Any:
    """Return a connection to the first of the URL's hosts that answers."""
    hosts = [(host, port or 61613) for host, port in parse_url(url).hosts]
    return stomp.Connection12(hosts, reconnect_attempts_max=1, heartbeats=(4000, 4000), timeout=5)


def _consume(url: str, queue: str, connection: Any, orders: Orders) -> None:
    parsed = parse_url(url)
    while True:
        orders.gone.clear()
        try:
            connection.connect(parsed.user, parsed.password, wait=True)
            window = {"activemq.prefetchSize": PREFETCH}
            connection.subscribe(f"/queue/{queue}", id="orders", ack="client-individual", headers=window)
            orders.gone.wait()
        except (stomp.exception.StompException, OSError):
            time.sleep(PAUSE)
