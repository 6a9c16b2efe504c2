# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""On ActiveMQ, through stomp.py: `python -m tests.bench.activemq [--messages 10000] [--rounds 5] [--url …]`."""

from __future__ import annotations

import threading
from typing import Any

import stomp

from redeliver_mw.registry import parse_url
from tests.bench.rounds import BODY, BY_HAND, PREFETCH, Bench, Count, by_app, run


def connect(url: str, listener: Any = None) -> Any:
    """`listener` makes one, given the connection."""
    parsed = parse_url(url)
    host, port = parsed.hosts[0]
    connection = stomp.Connection12([(host, port or 61613)], auto_decode=False)
    if listener is not None:
        connection.set_listener("", listener(connection))
    connection.connect(parsed.user, parsed.password, wait=True)
    return connection


def fill(url: str, queue: str, count: int, kind: str) -> None:
    """The queue is empty: the side before this has taken all there was."""
    stored = threading.Event()

    class Stored(stomp.ConnectionListener):
        def on_receipt(self, frame: Any) -> None:
            stored.set()

    connection = connect(url, lambda _: Stored())
    for n in range(count):
        last = {"receipt": "all"} if n == count - 1 else {}
        connection.send(f"/queue/{queue}", BODY, headers={"persistent": "true", **last})
    assert stored.wait(60)
    connection.disconnect()


def consume(url: str, queue: str, count: int, listener: Any) -> None:
    """`listener` makes one, given the connection and the count."""
    done = threading.Event()
    counter = Count(count, done.set)
    connection = connect(url, lambda connection: listener(connection, counter))
    subscription = {"activemq.prefetchSize": str(PREFETCH)}
    connection.subscribe(f"/queue/{queue}", id="1", ack="client-individual", headers=subscription)
    assert done.wait(300)
    counter.report()
    connection.disconnect("bye")


class ByHand(stomp.ConnectionListener):
    """The tutorial's listener: ack each."""

    def __init__(self, connection: Any, counter: Count) -> None:
        self.connection, self.counter = connection, counter

    def on_message(self, frame: Any) -> None:
        self.connection.ack(frame.headers["ack"])
        self.counter.one()


class Counting(ByHand):
    """The same without a word of its own: the wrapper acks."""

    def on_message(self, frame: Any) -> None:
        self.counter.one()


def by_hand(url: str, queue: str, count: int, journal: str | None) -> None:
    consume(url, queue, count, ByHand)


def drop_in(url: str, queue: str, count: int, journal: str | None) -> None:
    from redeliver_stomp import redelivering

    def wrapped(connection: Any, counter: Count) -> Any:
        return redelivering(Counting(connection, counter), connection, journal=journal)

    consume(url, queue, count, wrapped)


BENCH = Bench(
    "tests.bench.activemq", "activemq", "6.3", {"tiered": True}, ("queue",), fill,
    {BY_HAND: by_hand, "drop-in": drop_in, "App": by_app},
)  # fmt: skip

if __name__ == "__main__":
    run(BENCH)
