# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a consumer of Artemis that fails on every delivery, with a stop-watch: proton alone, nothing of ours."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import proton
from proton.handlers import MessagingHandler
from proton.reactor import Container, ReceiverOption, SenderOption

from tests.brokers import Broker

APART = 0.02  # seconds between two messages: each is measured while few others are on their way


@dataclass
class Life:
    """Describes one message, from its first delivery to its end."""

    counts: list[int] = field(default_factory=list)  # as each delivery tells it, from 1
    rests: list[float] = field(default_factory=list)  # seconds: after failure 1, 2, ...
    dead_in: str = ""  # the dead-letter queue it came to
    _failed_at: float = 0.0

    @property
    def deliveries(self) -> int:
        return len(self.counts)

    def arrives(self, count: int) -> None:
        self.was_seen(count, time.monotonic() - self._failed_at)

    def was_seen(self, count: int, rest: float) -> None:
        """Note a delivery. `rest` are the seconds since the message failed, if it has."""
        if self.counts:
            self.rests.append(rest)
        self.counts.append(count)

    def fails(self) -> None:
        self._failed_at = time.monotonic()


@dataclass(frozen=True)
class Plan:
    """Says what to do with the messages of one address.

    All deliveries fail; but number `accept` is accepted, of a message that would never end. Nothing tells that a
    message was dropped: `forget` is the delivery after which the message is no longer waited for, and yet counted.
    """

    accept: int = 0
    forget: int = 0


def lives(
    broker: Broker, plans: Mapping[str, Plan], dead: set[str], messages: int, limit: float
) -> dict[str, list[Life]]:
    """Send so many messages to each address, and return what became of them, by the name of the address.

    `dead` are the queues that dead letters come to. Raises AssertionError if some have not ended after `limit` seconds.
    """
    run = _Run(broker, plans, dead, messages, limit)
    Container(run).run()
    if run.error:
        raise AssertionError(run.error)
    return run.lives


class _Run(MessagingHandler):
    def __init__(self, broker: Broker, plans: Mapping[str, Plan], dead: set[str], messages: int, limit: float) -> None:
        # a window of one stalls with proton, and none may wait behind another of its address
        super().__init__(prefetch=2 * messages + 8, auto_accept=False, auto_settle=False)
        self.lives = {address: [Life() for _ in range(messages)] for address in plans}
        self.error = ""
        self._broker, self._plans, self._dead = broker, plans, dead
        self._messages, self._limit = messages, limit
        self._open = {(address, number) for address in plans for number in range(messages)}

    def on_start(self, event: Any) -> None:
        self._container = event.container
        self._connection = event.container.connect(
            f"amqp://{self._broker.host}:{self._broker.port}",
            user=self._broker.user,
            password=self._broker.password,
            allowed_mechs="PLAIN",
            reconnect=False,
        )
        for queue in {*self._plans, *self._dead}:
            self._container.create_receiver(self._connection, queue, name=f"from {queue}", options=_Queue())
        self._senders = {
            address: self._container.create_sender(self._connection, address, name=f"to {address}", options=_Queue())
            for address in self._plans
        }
        numbered = itertools.product(range(self._messages), self._senders)
        for place, (number, address) in enumerate(numbered):
            send = functools.partial(self._send, address, number)
            self._container.schedule(APART * place, _Then(send))
        self._timer = self._container.schedule(self._limit, _Then(self._give_up))

    def _send(self, address: str, number: int) -> None:
        self._senders[address].send(proton.Message(body=number, durable=True, properties={"sent_to": address}))

    def on_message(self, event: Any) -> None:
        came_to, address, number = event.link.source.address, event.message.properties["sent_to"], event.message.body
        life, plan = self.lives[address][number], self._plans[address]
        if came_to in self._dead:
            life.dead_in = came_to
        else:
            life.arrives(event.message.delivery_count + 1)
        if life.dead_in or life.deliveries == plan.accept:
            event.delivery.update(proton.Delivery.ACCEPTED)
            event.delivery.settle()
            life.handled = not life.dead_in
        else:
            self._fail(event.delivery, life)
        if life.dead_in or life.deliveries in (plan.accept, plan.forget):
            self._open.discard((address, number))
        if not self._open:
            self._end()

    def _fail(self, delivery: Any, life: Life) -> None:
        # `modified` with this flag is the one outcome that Artemis counts
        life.fails()
        delivery.local.failed = True
        delivery.update(proton.Delivery.MODIFIED)
        delivery.settle()

    def _give_up(self) -> None:
        self.error = f"after {self._limit:g} s still without an end: {sorted(self._open)}"
        self._end()

    def _end(self) -> None:
        self._timer.cancel()
        self._connection.close()

    def on_transport_error(self, event: Any) -> None:
        self.error = str(event.transport.condition)

    def on_link_error(self, event: Any) -> None:
        self.error = str(event.link.remote_condition)
        self._end()


class _Then:
    """Calls a function when its timer is due."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def on_timer_task(self, _event: Any) -> None:
        self._call()


class _Queue(SenderOption, ReceiverOption):
    """Makes a queue ANYCAST, also where the address is not there yet."""

    def apply(self, link: Any) -> None:
        (link.target if link.is_sender else link.source).capabilities.put_object(proton.symbol("queue"))

    def test(self, _link: Any) -> bool:
        return True
