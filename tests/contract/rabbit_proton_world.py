# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a real RabbitMQ 4.3 as the contract uses it over AMQP 1.0: a plain client, a proxy, the broker's tools."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import proton
import proton.reactor

from redeliver_mw.adapter.capabilities import Capabilities
from redeliver_mw.app import App
from redeliver_mw.policy import RedeliveryPolicy
from redeliver_mw.testing.contract import Raw
from redeliver_proton.brokers.rabbitmq.capabilities import capabilities
from tests.brokers import Broker
from tests.brokers._amqp10 import plain_connection
from tests.contract.broker_world import BrokerWorld
from tests.contract.proton_world import FIELDS, foreign, raw_of
from tests.faults.proxy import Proxy

FULL = 3  # messages that a refusing queue holds
SEASON = 10.5  # seconds until a quorum queue survives a kill of its broker
NULL = b"\x00\x53\x77\x40"  # a body that is null: without any, the broker ends the session


class RabbitWitness:
    """Uses the broker as a plain client: its own connection, the driver's own messages, the broker's management."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._connection: Any = None
        self._sending: tuple[str, Any] | None = None

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Return the status and the body of the answer to one request to the management."""
        self._open()
        number = uuid.uuid4().hex[:16]
        question = proton.Message(id=number, subject=method, address=path, reply_to="$me", body=body)
        link = self._questions.link
        delivery = link.delivery(number)
        link.stream(question.encode() + (NULL if body is None else b""))
        link.advance()
        delivery.settle()
        reply = self._replies.receive(timeout=20)
        assert reply.correlation_id == number
        return int(reply.subject), reply.body

    def declare(self, queue: str, arguments: Mapping[str, Any]) -> None:
        status, body = self.ask("PUT", path(queue), {"durable": True, "arguments": dict(arguments)})
        assert status in (200, 201), body

    def queue(self, name: str) -> Any:
        """Return a queue as the broker describes it; None where it is not there."""
        status, body = self.ask("GET", path(name))
        return body if status == 200 else None

    def delete(self, queue: str) -> None:
        self.ask("DELETE", path(queue))

    def send(self, address: str, message: proton.Message) -> None:
        """Send a durable message, and wait until the broker has accepted it.

        The link is kept for the next message: some tests send hundreds to one queue.
        """
        message.durable = True
        connection = self.connection
        if self._sending is None or self._sending[0] != address:
            self._stop_sending()
            self._sending = (address, connection.create_sender(address, name=uuid.uuid4().hex))
        try:
            self._sending[1].send(message, timeout=10)
        except BaseException:
            self._stop_sending()
            raise

    def _stop_sending(self) -> None:
        sending, self._sending = self._sending, None
        if sending is not None:
            with contextlib.suppress(proton.ProtonException):  # its queue was deleted under it
                sending[1].close()

    def take(self, queue: str, count: int) -> list[proton.Message]:
        """Remove so many messages, and return them."""
        receiver = self.connection.create_receiver(path(queue), name=uuid.uuid4().hex, credit=count)
        try:
            found = []
            for _ in range(count):
                found.append(receiver.receive(timeout=10))
                receiver.accept()
            return found
        finally:
            receiver.close()

    def close(self) -> None:
        connection, self._connection, self._sending = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(Exception):  # the broker was killed under it
                connection.close()

    @property
    def connection(self) -> Any:
        return self._open()

    def _open(self) -> Any:
        if self._connection is None:
            broker = self._broker
            self._connection = plain_connection(
                f"amqp://{broker.host}:{broker.port}",
                timeout=20,
                user=broker.user,
                password=broker.password,
                allowed_mechs="PLAIN",
            )
            name = f"witness-{uuid.uuid4().hex}"
            self._questions = self._connection.create_sender("/management", name=name, options=_Paired(settled=True))
            self._replies = self._connection.create_receiver("/management", name=name, credit=100, options=_Paired())
        return self._connection


class _Paired(proton.reactor.LinkOption):
    """Makes a link one of the two that questions and answers go by."""

    def __init__(self, *, settled: bool = False) -> None:
        self._settled = settled

    def apply(self, link: Any) -> None:
        link.source.address = link.target.address = "/management"
        link.properties = {proton.symbol("paired"): True}
        if self._settled:
            link.snd_settle_mode = proton.Link.SND_SETTLED


def path(queue: str) -> str:
    """Return a queue's address, which is also its place in the management."""
    return f"/queues/{quote(queue, safe='')}"


class RabbitProtonWorld(BrokerWorld):
    """Serves one test on one broker; `kind` is the type of its queues."""

    abilities = frozenset({"threads", "network", "credentials"})
    user = "guest"

    def __init__(self, broker: Broker, proxy: Proxy, kind: str = "quorum", seasoned: list[str] | None = None) -> None:
        super().__init__(broker, proxy)
        self.raw = RabbitWitness(broker)
        self._kind, self._seasoned = kind, seasoned if seasoned is not None else []
        if broker.can_restart:
            self.abilities = self.abilities | {"kill", "alarm"}

    @property
    def capabilities(self) -> Capabilities:
        return capabilities(self.broker.version)

    @property
    def foreign_headers(self) -> Mapping[str, Any]:
        return foreign()

    def other_url(self, **given: Any) -> str:
        return super().other_url(**given).replace("rabbitmq://", "rabbitmq+proton://", 1)

    def app(self, **options: Any) -> App:
        """Return an App, with a policy of short delays for a classic queue, where the default policy is refused."""
        usual = {} if self._kind == "quorum" else {"policy": RedeliveryPolicy(7, 0.2)}
        return super().app(**(usual | options))

    # -- queues and messages ---------------------------------------------------------------------------------

    def new_queue(self, *, refusing: bool = False, lasting: bool = False, declare: bool = True) -> str:
        if lasting and self._kind == "quorum":
            return self._seasoned.pop()
        name = self.new_name()
        if declare:
            # A quorum queue takes some more than its limit before it refuses: a classic one is exact.
            limit = {"x-queue-type": "classic", "x-max-length": FULL, "x-overflow": "reject-publish"}
            self.declare(name, limit if refusing else {})
            for n in range(FULL if refusing else 0):
                self.send(name, b"filler %d" % n)
        return name

    def declare(self, queue: str, arguments: Mapping[str, Any] | None = None) -> None:
        self.raw.declare(queue, {"x-queue-type": self._kind, **(arguments or {})})

    def send(
        self,
        queue: str,
        body: bytes,
        headers: Mapping[str, Any] | None = None,
        *,
        lifetime: float | None = None,
        **properties: Any,
    ) -> None:
        message = proton.Message(body=body, properties=dict(headers or {}), inferred=True)
        if (us := properties.pop("timestamp_us", None)) is not None:
            message.creation_time = us / 1e6
        if lifetime is not None:
            message.ttl, message.creation_time = lifetime, time.time()
        if (user := properties.pop("user_id", None)) is not None:
            message.user_id = user.encode()
        for name, value in properties.items():
            setattr(message, FIELDS[name], value)
        self.raw.send(path(queue), message)

    def publish(self, exchange: str, key: str, body: bytes) -> None:
        self.raw.send(f"/exchanges/{exchange}/{key}", proton.Message(body=body, inferred=True))

    def take_all(self, queue: str) -> list[Raw]:
        found: list[Raw] = []
        while depth := self.depth(queue):
            found += [raw_of(message, not message.first_acquirer) for message in self.raw.take(queue, depth)]
        return found

    def depth(self, queue: str) -> int:
        return int(self.raw.queue(queue)["message_count"])

    def exists(self, queue: str) -> bool:
        return self.raw.queue(queue) is not None

    def delete(self, queue: str) -> None:
        self.raw.delete(queue)

    def relent(self, queue: str) -> None:
        # No more than those: the copy that waits for room may come in behind the first that leaves.
        assert [bytes(message.body)[:6] for message in self.raw.take(queue, FULL)] == [b"filler"] * FULL

    # -- faults ----------------------------------------------------------------------------------------------

    def raise_alarm(self) -> None:
        self.broker.raise_memory_alarm()

    def lift_alarm(self) -> None:
        self.broker.lift_memory_alarm()

    def _drop(self) -> None:
        self.raw.close()
