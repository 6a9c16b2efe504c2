# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds what the fault tests ask of each broker: queues with messages, how many are left, and what they are.

Nothing here goes through an adapter of ours.
"""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import pika
import proton
from proton.utils import BlockingConnection

from tests.adapters.proton.dropins import connect
from tests.adapters.stomp.plain import Plain, Seen
from tests.brokers import Broker, _amqp10
from tests.brokers.rabbitmq import RabbitMQ
from tests.faults.load import channel_on

OLD_ENOUGH = 11.0  # seconds: a quorum queue that is killed younger than that comes back empty (facts)
PATIENCE = 10.0  # seconds for a message that the broker counts, but may still have to take back from a dead consumer


class Letter(NamedTuple):
    """Holds a message as the witness read it."""

    body: str
    headers: dict[str, Any]


class Site(ABC):
    """Stands for one broker, as a plain client uses it."""

    kinds: ClassVar[Sequence[str]] = ("",)  # of queues

    def __init__(self, broker: Broker, kind: str = "") -> None:
        self.broker, self.kind = broker, kind

    @abstractmethod
    def prepare(self, queue: str, bodies: Sequence[str], *, mature: bool = False) -> None:
        """Prepare `queue` with these durable messages and an empty `DLQ.<queue>`.

        With `mature`, both queues are fit to survive a kill.
        """

    @abstractmethod
    def count(self, queue: str) -> int:
        """Return how many messages are in a queue, or -1 while the broker is down.

        Messages in flight are included where the broker tells.
        """

    def settled(self, queue: str) -> bool:
        """Return whether nothing is in a queue and nothing in flight.

        A kill of the queue's consumer brings nothing back then.
        """
        return self.count(queue) == 0

    @abstractmethod
    def drain(self, queue: str) -> list[Letter]:
        """Take what lies in a queue, and return it. The queue's consumers must be gone."""

    def address(self, queue: str) -> str:
        """Return the address that a plain client of this broker sends to."""
        return queue


class RabbitMQSite(Site):
    kinds = ("classic", "quorum")

    def prepare(self, queue: str, bodies: Sequence[str], *, mature: bool = False) -> None:
        with channel_on(self.broker) as channel:
            for name in (queue, f"DLQ.{queue}"):
                channel.queue_delete(name)
                channel.queue_declare(name, durable=True, arguments={"x-queue-type": self.kind})
            if self.kind == "quorum" and mature:
                channel.connection.sleep(OLD_ENOUGH)
            channel.confirm_delivery()
            for body in bodies:
                durable = pika.BasicProperties(delivery_mode=2, message_id=body)
                channel.basic_publish("", queue, body.encode(), durable, mandatory=True)

    def count(self, queue: str) -> int:
        try:
            with channel_on(self.broker) as channel:
                found: int = channel.queue_declare(queue, passive=True).method.message_count
                return found
        except pika.exceptions.AMQPError:
            return -1

    def settled(self, queue: str) -> bool:
        """Return whether a queue is settled, as the node says if it is ours.

        A declaration counts only what no consumer has.
        """
        if not isinstance(self.broker, RabbitMQ):
            return super().settled(queue)
        return self.broker.depths().get(queue) == 0

    def drain(self, queue: str) -> list[Letter]:
        found: list[Letter] = []
        with channel_on(self.broker) as channel:
            while True:
                got: Any = channel.basic_get(queue, auto_ack=True)
                if got[0] is None:
                    return found
                found.append(Letter(got[2].decode(), got[1].headers))


class ActiveMQSite(Site):
    """Works over a plain socket; a browser counts what is in flight, too."""

    def prepare(self, queue: str, bodies: Sequence[str], *, mature: bool = False) -> None:
        for name in (queue, f"DLQ.{queue}"):
            self.drain(name)  # a subscription makes a queue that is not there
        with self._client() as client:
            for body in bodies:
                assert client.send(self.address(queue), body.encode()) == ""

    def count(self, queue: str) -> int:
        try:
            with self._client() as client:
                client.say("SUBSCRIBE", self._subscription(queue, browser="true", ack="auto"))
                return sum(1 for _ in _to_the_end(client))
        except (OSError, AssertionError):
            return -1

    def drain(self, queue: str) -> list[Letter]:
        found = []
        with self._client() as client:
            client.say("SUBSCRIBE", self._subscription(queue, ack="client-individual"))
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline and (client.frames or self.count(queue)):
                while (frame := client.wait(0.1)) is not None:
                    found.append(Letter(frame.body.decode(), dict(frame.headers)))
                    client.say("ACK", {"id": frame.headers["ack"]})
        return found

    def address(self, queue: str) -> str:
        return f"/queue/{queue}"

    def _client(self) -> contextlib.closing[Plain]:
        return contextlib.closing(Plain(self.broker))

    def _subscription(self, queue: str, **more: str) -> dict[str, str]:
        return {"id": "witness", "destination": self.address(queue), **more}


def _to_the_end(client: Plain) -> Iterator[Seen]:
    while (frame := client.wait(PATIENCE)) is not None:
        if frame.headers.get("browser") == "end":
            return
        yield frame
    raise ConnectionError("the browser came to no end")


class ArtemisSite(Site):
    """Works over proton's blocking client; management counts what is in flight or scheduled, too."""

    def prepare(self, queue: str, bodies: Sequence[str], *, mature: bool = False) -> None:
        for name in (queue, f"DLQ.{queue}"):
            with self._client() as client:
                _amqp10.Management(client).make_queue(name)
            self.drain(name)
        with self._client() as client:
            sender = client.create_sender(queue)
            for body in bodies:
                sender.send(proton.Message(body=body, id=body, durable=True))

    def count(self, queue: str) -> int:
        b = self.broker
        try:
            return int(_amqp10.manage(b.host, b.port, b.user, b.password, f"queue.{queue}", "messageCount"))
        except (ConnectionError, proton.ProtonException):
            return -1

    def drain(self, queue: str) -> list[Letter]:
        found = []
        with self._client() as client:
            receiver = client.create_receiver(queue, credit=100)
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline and self.count(queue):
                with contextlib.suppress(proton.Timeout):
                    while True:
                        message: Any = receiver.receive(timeout=0.1)
                        receiver.accept()
                        body = message.body if isinstance(message.body, str) else bytes(message.body).decode()
                        found.append(Letter(body, dict(message.properties or {})))
        return found

    def _client(self) -> contextlib.closing[BlockingConnection]:
        return contextlib.closing(connect(self.broker))


SITES: dict[str, type[Site]] = {"rabbitmq": RabbitMQSite, "activemq": ActiveMQSite, "artemis": ArtemisSite}


def site_of(broker: Broker, kind: str = "") -> Site:
    return SITES[broker.kind](broker, kind)
