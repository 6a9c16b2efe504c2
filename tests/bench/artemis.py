# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the sides on Artemis, through proton."""

from __future__ import annotations

from typing import Any

from proton import Message, symbol
from proton.handlers import MessagingHandler
from proton.reactor import Container, SenderOption

from tests.bench.app import by_app
from tests.bench.side import Count, Side, Task, play


class AsQueue(SenderOption):
    """Makes a name that is new a queue, not a topic."""

    def apply(self, sender: Any) -> None:
        sender.target.capabilities.put_object(symbol("queue"))


class Filling(MessagingHandler):
    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task = task
        self.left = self.unconfirmed = task.messages
        self.message = Message(body=task.text.encode(), durable=True, inferred=True)

    def on_start(self, event: Any) -> None:
        event.container.create_sender(event.container.connect(self.task.amqp), self.task.queue, options=AsQueue())

    def on_sendable(self, event: Any) -> None:
        while self.left and event.sender.credit:
            event.sender.send(self.message)
            self.left -= 1

    def on_accepted(self, event: Any) -> None:
        self.unconfirmed -= 1
        if not self.unconfirmed:
            event.connection.close()


class Counting(MessagingHandler):
    """Returns from its handler, as the tutorial's does, and the driver accepts; by hand and wrapped it is the same."""

    def __init__(self, task: Task) -> None:
        super().__init__(prefetch=task.prefetch)
        self.task = task
        self.connection: Any = None
        self.count = Count(task, lambda: self.connection.close())

    def on_start(self, event: Any) -> None:
        self.connection = event.container.connect(self.task.amqp)
        event.container.create_receiver(self.connection, self.task.queue)

    def on_message(self, event: Any) -> None:
        _ = event.message.body  # what a handler looks at
        self.count.one()


def fill(task: Task) -> None:
    """Fill the queue, which is empty: the side before this has taken all there was."""
    Container(Filling(task)).run()


def by_hand(task: Task) -> None:
    handler = Counting(task)
    Container(handler).run()
    handler.count.report()


def drop_in(task: Task) -> None:
    from redeliver_proton import redelivering

    handler = Counting(task)
    Container(redelivering(handler, journal=task.journal)).run()
    handler.count.report()


SIDES: dict[str, Side] = {"by hand": by_hand, "drop-in": drop_in, "App": by_app}

if __name__ == "__main__":
    play(SIDES)
