# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds proton consumers as they are written by hand, driven in their container until a test has seen enough."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import proton
from proton.handlers import MessagingHandler
from proton.reactor import Container

from redeliver_proton.dropin.wrapper import redelivering
from tests.brokers import Broker, _amqp10
from tests.brokers._amqp10 import plain_connection

_names = itertools.count(1)
PATIENCE = 90.0


def connect(broker: Broker) -> Any:
    url = f"amqp://{broker.host}:{broker.port}"
    return plain_connection(url, timeout=30, user=broker.user, password=broker.password, allowed_mechs="PLAIN")


class Queues:
    """Holds the queues of one test, and reads what is in them, on a connection of its own."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.connection = connect(broker)
        self._management = _amqp10.Management(self.connection)
        self.name = f"dropin.{os.getpid()}.{next(_names)}"
        self.dlq = f"DLQ.{self.name}"
        for queue in (self.name, self.dlq):
            self.make(queue)

    def make(self, queue: str, address: str | None = None, routing: str = "ANYCAST") -> None:
        """Make a durable queue as `Management.make_queue` does."""
        self._management.make_queue(queue, address, routing)

    def put(self, *bodies: str, address: str | None = None, **fields: Any) -> None:
        """Send each body in a message whose id is that body, too."""
        sender = self.connection.create_sender(address or self.name, name=f"put-{next(_names)}")
        for body in bodies:
            sender.send(proton.Message(body=body, id=body, durable=True, **fields))
        sender.close()

    def take(self, queue: str) -> list[proton.Message]:
        """Take all that the queue has, and return it.

        The broker gives back what a closed link had before this method asks.
        """
        receiver = self.connection.create_receiver(queue, credit=0, name=f"take-{next(_names)}")
        found: list[proton.Message] = []
        count = self.depth(queue)
        receiver.flow(count)
        tries = 0
        while len(found) < count:
            try:
                found.append(receiver.receive(timeout=1))
                receiver.accept()
            except proton.Timeout:
                if self.depth(queue) == 0:  # the broker had counted a message whose settlement was on its way
                    break
                tries += 1
                assert tries < 10, f"{queue} gives fewer messages than it has"
        receiver.close()
        return found

    def depth(self, queue: str | None = None) -> int:
        """Return how many messages the broker has in a queue, those that a consumer has in hand included."""
        name = queue or self.name
        return int(self._management.ask(f"queue.{name.partition('::')[2] or name}", "messageCount"))

    def left(self, queue: str | None = None) -> list[str]:
        return [m.body for m in self.take(queue or self.name)]

    def dead(self) -> list[proton.Message]:
        return self.take(self.dlq)


class Consumer(MessagingHandler):
    """Does `act(event)` with each message, as a user's handler, and keeps a protocol."""

    def __init__(self, broker: Any, source: str, act: Callable[[Any], object] = lambda _: None, **how: Any) -> None:
        self.connect: dict[str, Any] = how.pop("connect", {})
        self.options: Any = how.pop("options", None)
        super().__init__(**how)
        self.broker, self.source, self.act = broker, source, act
        self.counts: dict[str, list[int]] = defaultdict(list)
        self.spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self.handled: list[str] = []
        self.disconnects = 0
        self.done: Callable[[], bool] = lambda: False
        self.timed_out = False

    def on_start(self, event: Any) -> None:
        self.container = event.container
        self.until = time.monotonic() + PATIENCE
        given = {"user": self.broker.user, "password": self.broker.password, "allowed_mechs": "PLAIN"} | self.connect
        self.connection = event.container.connect(f"amqp://{self.broker.host}:{self.broker.port}", **given)
        self.receiver = event.container.create_receiver(self.connection, self.source, options=self.options)
        event.container.schedule(0.02, self)

    def on_timer_task(self, event: Any) -> None:
        self.timed_out = time.monotonic() > self.until
        if self.done() or self.timed_out:
            self.connection.close()
        elif self.connection.state & proton.Endpoint.LOCAL_ACTIVE:
            event.container.schedule(0.02, self)

    def on_message(self, event: Any) -> None:
        body, began = event.message.body, time.monotonic()
        self.counts[body].append((event.message.properties or {})["JMSXDeliveryCount"])
        try:
            self.act(event)
            self.handled.append(body)
        finally:
            self.spans[body].append((began, time.monotonic()))

    def on_disconnected(self, event: Any) -> None:
        self.disconnects += 1


def drive(consumer: Consumer, done: Callable[[], bool], **options: Any) -> Consumer:
    """Run the consumer until `done`; what the consumer settled has then reached the broker."""
    consumer.done = done
    Container(redelivering(consumer, **options)).run()
    assert not consumer.timed_out, (dict(consumer.counts), consumer.handled)
    return consumer


def unsettled(consumer: Consumer) -> int:
    """Return the number of deliveries that are not settled yet, on all links of the consumer."""
    watch = vars(consumer.container).get("_redeliver_watch")
    return sum(len(s._open) for g in watch._user_connections.values() for s in g.scopes.values()) if watch else 0


class NamelessPeer(MessagingHandler):
    """Listens on a free port as a broker without a product name, sends one message, and notes what is settled."""

    def __init__(self) -> None:
        super().__init__(auto_settle=False)
        self.listening = threading.Event()
        self.outcomes: list[Any] = []
        self.sent = 0

    def on_start(self, event: Any) -> None:
        self.acceptor = event.container.listen("127.0.0.1:0")
        self.port = self.acceptor._selectable._delegate.getsockname()[1]
        self.listening.set()

    def on_link_opening(self, event: Any) -> None:
        event.link.source.address = event.link.remote_source.address
        event.link.open()

    def on_sendable(self, event: Any) -> None:
        if not self.sent:
            self.sent += 1
            event.sender.send(proton.Message(body="1", id="1"))

    def on_accepted(self, event: Any) -> None:
        self.outcomes.append(event.delivery.remote_state)

    def on_disconnected(self, event: Any) -> None:
        self.acceptor.close()

    on_connection_closed = on_disconnected
