# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the sides on ActiveMQ, through stomp.py."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote, urlsplit

import stomp

from tests.bench.app import by_app
from tests.bench.side import Count, Side, Task, play


def connect(url: str, listener: Callable[[Any], Any]) -> Any:
    """Connect to the broker at `url` with the listener that `listener` makes, given the connection."""
    parts = urlsplit(url)
    connection = stomp.Connection12([(parts.hostname, parts.port or 61613)], auto_decode=False)
    connection.set_listener("", listener(connection))
    connection.connect(unquote(parts.username or ""), unquote(parts.password or ""), wait=True)
    return connection


def fill(task: Task) -> None:
    """Fill the queue, which is empty: the side before this has taken all there was."""
    stored = threading.Event()

    class Stored(stomp.ConnectionListener):
        def on_receipt(self, frame: Any) -> None:
            stored.set()

    connection = connect(task.url, lambda _: Stored())
    body = task.text.encode()
    for n in range(task.messages):
        last = {"receipt": "all"} if n == task.messages - 1 else {}
        connection.send(f"/queue/{task.queue}", body, headers={"persistent": "true", **last})
    assert stored.wait(60)
    connection.disconnect()


def consume(task: Task, listener: Callable[[Any, Count], Any]) -> None:
    """Consume all messages of the task with the listener that `listener` makes, given the connection and the count."""
    done = threading.Event()
    count = Count(task, done.set)
    connection = connect(task.url, lambda connection: listener(connection, count))
    subscription = {"activemq.prefetchSize": str(task.prefetch)}
    connection.subscribe(f"/queue/{task.queue}", id="1", ack="client-individual", headers=subscription)
    done.wait()
    count.report()
    connection.disconnect("bye")


class ByHand(stomp.ConnectionListener):
    """Acks each message, as the tutorial's listener does."""

    def __init__(self, connection: Any, count: Count) -> None:
        self.connection, self.count = connection, count

    def on_message(self, frame: Any) -> None:
        self.connection.ack(frame.headers["ack"])
        self.count.one()  # with the last one the connection goes


class Counting(ByHand):
    """Settles nothing itself: the wrapper acks each message."""

    def on_message(self, frame: Any) -> None:
        self.count.one()


def by_hand(task: Task) -> None:
    consume(task, ByHand)


def drop_in(task: Task) -> None:
    from redeliver_stomp import redelivering

    def wrapped(connection: Any, count: Count) -> Any:
        return redelivering(Counting(connection, count), connection, journal=task.journal, settle="return")

    consume(task, wrapped)


SIDES: dict[str, Side] = {"by hand": by_hand, "drop-in": drop_in, "App": by_app}

if __name__ == "__main__":
    play(SIDES)
