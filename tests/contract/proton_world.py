# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a real Artemis as the contract uses it: a raw blocking connection, a proxy in front, the broker's management."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Mapping
from typing import Any

import proton
import proton.reactor

from redeliver_mw.adapter.capabilities import Capabilities
from redeliver_mw.testing.contract import Raw
from redeliver_proton.brokers.artemis.capabilities import DUPLICATE_ID, capabilities
from tests.brokers import Broker
from tests.brokers._amqp10 import plain_connection
from tests.contract.broker_world import BrokerWorld
from tests.faults.proxy import Proxy

FULL = 3  # messages that a refusing queue holds
REFUSING = "contract-full"  # addresses whose names begin so fail when they hold that many
FIELDS = {
    "message_id": "id",
    "correlation_id": "correlation_id",
    "content_type": "content_type",
    "content_encoding": "content_encoding",
    "reply_to": "reply_to",
    "type": "subject",
    "priority": "priority",
    "group_id": "group_id",
}


class Witness:
    """Uses the broker as a plain client: its own connection, the driver's own messages, the broker's management."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._connection: Any = None

    def ask(self, resource: str, operation: str, *arguments: Any) -> Any:
        """Call a management operation. Raises RuntimeError with what the broker says when the operation fails."""
        names = {"_AMQ_ResourceName": resource, "_AMQ_OperationName": operation}
        self._open()
        reply_to = self._replies.link.remote_source.address
        question = proton.Message(body=json.dumps(arguments), reply_to=reply_to, properties=names)
        self._questions.send(question)
        reply = self._replies.receive(timeout=20)
        self._replies.accept()
        value = json.loads(reply.body) if reply.body else [None]
        if not reply.properties.get("_AMQ_OperationSucceeded"):
            raise RuntimeError(f"{resource} {operation}{arguments}: {value}")
        return value[0] if value else None

    def send(self, address: str, message: proton.Message, capability: str = "queue") -> None:
        """Send a durable message, and wait until the broker has accepted it."""
        sender = self._open().create_sender(address, name=uuid.uuid4().hex, options=_Capability(capability))
        message.durable = True
        try:
            sender.send(message, timeout=10)
        finally:
            sender.close()

    def take(self, address: str, count: int, capability: str = "queue") -> list[proton.Message]:
        """Remove so many messages, and return them."""
        found = self.take_some(address, count, 10, capability)
        assert len(found) == count, f"{len(found)} of {count} came"
        return found

    def take_some(self, address: str, count: int, patience: float, capability: str = "queue") -> list[proton.Message]:
        """Remove and return at most so many messages; fewer when none came for `patience` seconds."""
        options = _Source(capability)
        receiver = self._open().create_receiver(address, name=uuid.uuid4().hex, credit=count, options=options)
        try:
            found = []
            with contextlib.suppress(proton.Timeout):
                while len(found) < count:
                    found.append(receiver.receive(timeout=patience))
                    receiver.accept()
            return found
        finally:
            receiver.close()

    def queues(self, field: str, value: str) -> list[dict[str, Any]]:
        wanted = json.dumps({"field": field, "operation": "EQUALS", "value": value})
        rows: list[dict[str, Any]] = json.loads(self.ask("broker", "listQueues", wanted, 1, 1000))["data"]
        return rows

    def create(self, queue: str, address: str = "", routing: str = "ANYCAST", **more: Any) -> None:
        wanted = {"name": queue, "address": address or queue, "routing-type": routing, "durable": True} | more
        self.ask("broker", "createQueue", json.dumps({"auto-delete": False} | wanted), True)

    def depth(self, queue: str) -> int:
        """Return how many messages wait in a queue; those in flight and those scheduled do not count."""
        (row,) = self.queues("name", queue)
        return int(row["messageCount"]) - int(row["deliveringCount"]) - int(row["scheduledCount"])

    def settings(self, match: str, **settings: Any) -> None:
        self.ask("broker", "addAddressSettings", match, json.dumps(settings))

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):  # the broker was killed under it
                connection.close()

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
            self._replies = self._connection.create_receiver(None, dynamic=True, credit=100)
            self._questions = self._connection.create_sender("activemq.management")
        return self._connection


class _Capability(proton.reactor.SenderOption):
    def __init__(self, name: str) -> None:
        self._name = name

    def apply(self, sender: Any) -> None:
        sender.target.capabilities.put_object(proton.symbol(self._name))


class _Source(proton.reactor.ReceiverOption):
    def __init__(self, name: str) -> None:
        self._name = name

    def apply(self, receiver: Any) -> None:
        receiver.source.capabilities.put_object(proton.symbol(self._name))


class ProtonWorld(BrokerWorld):
    """Serves one test on one broker."""

    abilities = frozenset({"threads", "network", "credentials", "alarm"})
    marks = frozenset()  # a cut counts for all or for none, by chance; a kill never

    def __init__(self, broker: Broker, proxy: Proxy) -> None:
        super().__init__(broker, proxy)
        self.raw = Witness(broker)
        self.user = broker.user
        self.raw.settings(f"{REFUSING}.#", maxSizeMessages=FULL, addressFullMessagePolicy="FAIL")
        self._made: list[str] = []
        self._blocked: list[str] = []
        if broker.can_restart:
            self.abilities = self.abilities | {"kill"}

    @property
    def capabilities(self) -> Capabilities:
        return capabilities(self.broker.version)

    @property
    def foreign_headers(self) -> Mapping[str, Any]:
        return foreign()

    # -- queues and messages ---------------------------------------------------------------------------------

    def new_queue(self, *, refusing: bool = False, lasting: bool = False, declare: bool = True) -> str:
        name = f"{REFUSING}.{self.new_name()}" if refusing else self.new_name()
        if declare:
            self.declare(name)
        for n in range(FULL if refusing else 0):
            self.send(name, b"filler %d" % n)
        return name

    def declare(self, queue: str) -> None:
        self.raw.create(queue)
        self._made.append(queue)

    def send(
        self,
        queue: str,
        body: bytes,
        headers: Mapping[str, Any] | None = None,
        *,
        lifetime: float | None = None,
        **properties: Any,
    ) -> None:
        # The broker's own id of a send, not the message's: sent twice, the second would be swallowed.
        own = {name: value for name, value in (headers or {}).items() if name != DUPLICATE_ID}
        message = proton.Message(body=body, properties=own, inferred=True)
        if (us := properties.pop("timestamp_us", None)) is not None:
            message.creation_time = us / 1e6
        if lifetime is not None:
            message.ttl, message.creation_time = lifetime, time.time()
        if (user := properties.pop("user_id", None)) is not None:
            message.user_id = user.encode()
        for name, value in properties.items():
            setattr(message, FIELDS[name], value)
        self.raw.send(queue, message)

    def take_all(self, queue: str) -> list[Raw]:
        found: list[proton.Message] = []
        in_vain = 0
        while (depth := self.depth(queue)) and in_vain < 10:
            # what was just accepted is still counted for a moment, and never comes
            more = self.raw.take_some(queue, depth, 1)
            found += more
            in_vain += not more
        assert not depth, f"{depth} do not come"
        return [raw_of(message, message.delivery_count > 0) for message in found]

    def depth(self, queue: str) -> int:
        return self.raw.depth(queue)

    def exists(self, queue: str) -> bool:
        return bool(self.raw.queues("name", queue))

    def delete(self, queue: str) -> None:
        self.raw.ask("broker", "destroyQueue", queue, True, True)

    def relent(self, queue: str) -> None:
        # No more than those: the copy that waits for room may come in behind the first that leaves.
        assert [bytes(message.body)[:6] for message in self.raw.take(queue, FULL)] == [b"filler"] * FULL

    # -- faults ----------------------------------------------------------------------------------------------

    def raise_alarm(self) -> None:
        """Fill and block each of our addresses that nobody consumes: Artemis runs out of room by the address."""
        self._blocked = [name for name in self._made if self.raw.queues("name", name)[0]["consumerCount"] == "0"]
        for name in self._blocked:
            self.send(name, b"filler")
            self.raw.settings(name, maxSizeMessages=1, addressFullMessagePolicy="BLOCK")

    def lift_alarm(self) -> None:
        for name in self._blocked:
            self.raw.ask("broker", "removeAddressSettings", name)
            assert [bytes(message.body) for message in self.raw.take(name, 1)] == [b"filler"]

    def _shorten(self, adapter: Any, patience: float) -> None:
        super()._shorten(adapter, patience)
        adapter._transaction_runner._patience = patience

    def _drop(self) -> None:
        self.raw.close()


def foreign() -> dict[str, Any]:
    """Return an application property of each type."""
    return {
        "text": "grüße",
        "empty": "",
        "small": proton.byte(-3),
        "whole": 2**40,
        "int": proton.int32(7),
        "unsigned": proton.ulong(2**63),
        "uint": proton.uint(5),
        "short": proton.short(-300),
        "fraction": 1.75,
        "half": proton.float32(0.5),
        "yes": True,
        "no": False,
        "nothing": None,
        "bytes": bytes(range(256)),
        "time": proton.timestamp(1_767_323_045_000),
        "uuid": uuid.UUID(int=7),
        "symbol": proton.symbol("s"),
        "char": proton.char("c"),
    }


def raw_of(message: proton.Message, redelivered: bool) -> Raw:
    """Return what a plain client sees of a message."""
    headers = {name: _plain(value) for name, value in (message.properties or {}).items()}
    props = {name: _plain(getattr(message, field)) for name, field in FIELDS.items()}
    props |= {"user_id": bytes(message.user_id or b""), "expiration": message.ttl, "expires_at_us": message.expiry_time}
    given = {name: value for name, value in props.items() if value and value != "None"}
    body = message.body.encode() if isinstance(message.body, str) else bytes(message.body or b"")
    return Raw(body, headers, given, redelivered)


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value
