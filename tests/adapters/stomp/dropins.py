# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds users' listeners and connections for tests of the drop-in, and a witness that reads what is left."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import stomp

from redeliver_stomp import redelivering
from tests.adapters.stomp.plain import Plain, Seen
from tests.brokers import Broker

_names = itertools.count(1)


def new_name() -> str:
    return f"dropin.{os.getpid()}.{next(_names)}"


class Listener(stomp.ConnectionListener):
    """Does what it is told to with each message, as a user's listener, and keeps a protocol."""

    def __init__(self, act: Callable[[Listener, Any], object] = lambda *_: None) -> None:
        self.act = act
        self.conn: Any = None
        self.counts: dict[Any, list[str]] = defaultdict(list)
        self.spans: dict[Any, list[tuple[float, float]]] = defaultdict(list)
        self.done: list[Any] = []
        self.told: list[str] = []
        self.gone = threading.Event()

    def attempts(self, body: Any) -> int:
        return len(self.counts[body])

    def ack(self, frame: Any) -> None:
        """Ack a frame as a user of either version of the protocol does."""
        if self.conn.version == "1.1":
            self.conn.ack(frame.headers["message-id"], frame.headers["subscription"])
        else:
            self.conn.ack(frame.headers["ack"])

    def nack(self, frame: Any) -> None:
        if self.conn.version == "1.1":
            self.conn.nack(frame.headers["message-id"], frame.headers["subscription"])
        else:
            self.conn.nack(frame.headers["ack"])

    def on_message(self, frame: Any) -> None:
        body, began = frame.body, time.monotonic()
        self.counts[body].append(frame.headers["JMSXDeliveryCount"])
        try:
            self.act(self, frame)
            self.done.append(body)
        finally:
            self.spans[body].append((began, time.monotonic()))

    def on_receipt(self, frame: Any) -> None:
        self.told.append(f"receipt {frame.headers['receipt-id']}")

    def on_error(self, frame: Any) -> None:
        self.told.append(f"error {frame.headers.get('message')}")

    def on_disconnected(self) -> None:
        self.told.append("disconnected")
        self.gone.set()

    def on_heartbeat_timeout(self) -> None:
        self.told.append("heart-beat timeout")


def connect(broker: Broker, *, port: int = 0, kind: Any = stomp.Connection12, **more: Any) -> Any:
    return kind([(broker.host, port or broker.port)], reconnect_attempts_max=1, **more)


def begin(conn: Any, broker: Broker, listener: Listener, **options: Any) -> None:
    """Connect as a user's program does, with the one line changed."""
    listener.conn = conn
    conn.set_listener("", redelivering(listener, conn, **options))
    conn.connect(broker.user, broker.password, wait=True)


@contextlib.contextmanager
def consuming(
    broker: Broker,
    destination: str,
    listener: Listener,
    *,
    ack: str = "auto",
    headers: Any = None,
    connection: Any = None,
    **options: Any,
) -> Iterator[Any]:
    conn = connection or connect(broker)
    begin(conn, broker, listener, **options)
    conn.subscribe(destination, id="1", ack=ack, headers=headers)
    try:
        yield conn
    finally:
        if conn.is_connected():
            conn.disconnect(receipt="bye")


def until(done: Callable[[], Any], timeout: float = 60.0) -> None:
    deadline = time.monotonic() + timeout
    while not done():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.02)


def settled(conn: Any) -> bool:
    """Return whether nothing is in hand, held, or on its way."""
    scope = vars(conn)["_redeliver_scope"]
    return not scope._open and not scope.publisher._waiting


def put(broker: Broker, queue: str, *bodies: str, headers: Any = None) -> None:
    witness = Plain(broker)
    for body in bodies:
        assert witness.send(f"/queue/{queue}", body.encode(), headers) == ""
    witness.close()


def left(broker: Broker, queue: str, least: int = 0) -> list[Seen]:
    """Take what lies in a queue, and return it."""
    witness = Plain(broker)
    witness.say("SUBSCRIBE", {"id": "w", "destination": f"/queue/{queue}", "ack": "client-individual"})
    found = []
    while (frame := witness.wait(5.0 if len(found) < least else 0.4)) is not None:
        found.append(frame)
        witness.say("ACK", {"id": frame.headers["ack"]})
    witness.close()
    return found
