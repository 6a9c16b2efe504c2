# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""On Artemis, through proton: `python -m tests.bench.artemis [--messages 10000] [--rounds 5] [--url …]`."""

from __future__ import annotations

from typing import Any

from proton import Message, symbol
from proton.handlers import MessagingHandler
from proton.reactor import Container, SenderOption

from tests.bench.rounds import BODY, BY_HAND, PREFETCH, Bench, Count, by_app, run


class AsQueue(SenderOption):
    """A name that is new becomes a queue, not a topic."""

    def apply(self, sender: Any) -> None:
        sender.target.capabilities.put_object(symbol("queue"))


class Filling(MessagingHandler):
    def __init__(self, url: str, queue: str, count: int) -> None:
        super().__init__()
        self.url, self.queue = url, queue
        self.left = self.unconfirmed = count
        self.message = Message(body=BODY, durable=True, inferred=True)

    def on_start(self, event: Any) -> None:
        event.container.create_sender(event.container.connect(self.url), self.queue, options=AsQueue())

    def on_sendable(self, event: Any) -> None:
        while self.left and event.sender.credit:
            event.sender.send(self.message)
            self.left -= 1

    def on_accepted(self, event: Any) -> None:
        self.unconfirmed -= 1
        if not self.unconfirmed:
            event.connection.close()


class Counting(MessagingHandler):
    """The tutorial's handler: it returns, and the driver accepts. The same one by hand and wrapped."""

    def __init__(self, url: str, queue: str, count: int) -> None:
        super().__init__(prefetch=PREFETCH)
        self.url, self.queue = url, queue
        self.connection: Any = None
        self.counter = Count(count, lambda: self.connection.close())

    def on_start(self, event: Any) -> None:
        self.connection = event.container.connect(self.url)
        event.container.create_receiver(self.connection, self.queue)

    def on_message(self, event: Any) -> None:
        _ = event.message.body  # what a handler looks at
        self.counter.one()


def amqp(url: str) -> str:
    return url.replace("artemis", "amqp", 1)


def fill(url: str, queue: str, count: int, kind: str) -> None:
    """The queue is empty: the side before this has taken all there was."""
    Container(Filling(amqp(url), queue, count)).run()


def by_hand(url: str, queue: str, count: int, journal: str | None) -> None:
    handler = Counting(amqp(url), queue, count)
    Container(handler).run()
    handler.counter.report()


def drop_in(url: str, queue: str, count: int, journal: str | None) -> None:
    from redeliver_proton import redelivering

    handler = Counting(amqp(url), queue, count)
    Container(redelivering(handler, journal=journal)).run()
    handler.counter.report()


BENCH = Bench(
    "tests.bench.artemis", "artemis", "2.44", {"tiered": True}, ("queue",), fill,
    {BY_HAND: by_hand, "drop-in": drop_in, "App": by_app},
)  # fmt: skip

if __name__ == "__main__":
    run(BENCH)
