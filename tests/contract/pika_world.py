# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a real RabbitMQ as the contract uses it: a raw blocking connection, a proxy in front, the broker's own tools."""

from __future__ import annotations

import contextlib
import struct
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from math import inf
from typing import Any
from unittest import mock

import pika
import pika.data
import pika.exceptions
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

from redeliver_mw.adapter.capabilities import Capabilities
from redeliver_mw.testing.contract import Raw
from redeliver_pika.capabilities import capabilities
from redeliver_pika.connection import OpenConnection
from tests.brokers import Broker
from tests.contract.broker_world import BrokerWorld
from tests.faults.proxy import Proxy

FULL = 3  # messages that a refusing queue holds
SETTLEMENTS = (b"\x00\x3c\x00\x50", b"\x00\x3c\x00\x78")  # the frames basic.ack and basic.nack begin so
SEASON = 12.5  # seconds: a quorum queue survives a kill of its broker after 10, and its marker is gone after 12
PROPERTIES = (
    "content_type",
    "content_encoding",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "timestamp",
    "type",
    "user_id",
    "app_id",
)


class Pool:
    """Holds queues of one broker that are made early, because only old quorum queues can be trusted.

    One pool serves a whole session.
    """

    def __init__(self, broker: Broker, quorum: int) -> None:
        self.proxy = Proxy(broker.host, broker.port, roles=("(publish)", "(consume)"))
        world = PikaWorld(broker, self, kind="quorum")
        self.laddered = world.new_name()
        self.quorum = [world.new_name() for _ in range(quorum)]
        for name in (self.laddered, *self.quorum):
            world.declare(name)
        policy = f"1:1500; 3:move(queue:{world.new_name()})"
        consumer = world.consume(self.laddered, policy=policy, delay="schedule")
        consumer.stop()  # its retry queues stay
        world.close()
        self._born = time.monotonic()

    def close(self) -> None:
        self.proxy.close()

    def season(self) -> None:
        """Wait until the queues are old enough."""
        time.sleep(max(0.0, self._born + SEASON - time.monotonic()))


class PikaWorld(BrokerWorld):
    """Serves one test on one broker; `kind` is the type of its queues."""

    abilities = frozenset({"threads", "network", "credentials"})
    user = "guest"

    def __init__(self, broker: Broker, pool: Pool, kind: str = "classic") -> None:
        super().__init__(broker, pool.proxy)
        self._pool, self._kind = pool, kind
        self._raw: BlockingConnection | None = None
        self._open: BlockingChannel | None = None
        self._silent = False
        if broker.can_restart:
            self.abilities = self.abilities | {"kill", "alarm"}

    @property
    def capabilities(self) -> Capabilities:
        return capabilities(self.broker.version, 131072, exact_headers=OpenConnection.exact_headers)

    @property
    def foreign_headers(self) -> Mapping[str, Any]:
        return {
            "text": "grüße",
            "empty": "",
            "small": 3,
            "whole": 2**40,
            "minus": -7,
            "fraction": 1.75,
            "yes": True,
            "no": False,
            "nothing": None,
            "bytes": bytes(range(256)),
            "decimal": Decimal("3.14"),
            "time": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
            "list": [1, "two", [3.5]],
            "table": {"a": {"b": None}},
        }

    # -- queues and messages ---------------------------------------------------------------------------------

    def new_queue(self, *, refusing: bool = False, lasting: bool = False, declare: bool = True) -> str:
        if lasting and self._kind == "quorum":
            self._pool.season()
            return self._pool.quorum.pop()
        name = self.new_name()
        if declare:
            # A quorum queue takes some more than its limit before it refuses: a classic one is exact.
            limit = {"x-queue-type": "classic", "x-max-length": FULL, "x-overflow": "reject-publish"}
            self.declare(name, limit if refusing else {})
            for n in range(FULL if refusing else 0):
                self.send(name, b"filler %d" % n)
        if lasting and self.broker.version.startswith("3."):
            self.broker.sync()  # newer ones see to that themselves
        return name

    def declare(self, queue: str, arguments: Mapping[str, Any] | None = None) -> None:
        with self._channel() as channel:
            channel.queue_declare(queue, durable=True, arguments={"x-queue-type": self._kind, **(arguments or {})})

    def send(
        self,
        queue: str,
        body: bytes,
        headers: Mapping[str, Any] | None = None,
        *,
        lifetime: float | None = None,
        **properties: Any,
    ) -> None:
        if (us := properties.pop("timestamp_us", None)) is not None:
            properties["timestamp"] = us // 1_000_000
        if lifetime is not None:
            properties |= {"expiration": str(round(lifetime * 1000)), "timestamp": int(time.time())}
        with self._channel() as channel:
            given = pika.BasicProperties(headers=dict(headers or {}), delivery_mode=2, **properties)
            channel.basic_publish("", queue, body, given, mandatory=True)

    def publish(self, exchange: str, key: str, body: bytes) -> None:
        with self._channel() as channel:
            channel.basic_publish(exchange, key, body, mandatory=True)

    def take_all(self, queue: str, most: float = inf) -> list[Raw]:
        found: list[Raw] = []
        with self._channel() as channel:
            while len(found) < most:
                method, properties, body = channel.basic_get(queue, auto_ack=True)
                if method is None or properties is None or body is None:
                    return found
                props = {n: v for n in PROPERTIES if (v := getattr(properties, n)) is not None}
                found.append(Raw(body, properties.headers or {}, props, method.redelivered))
        return found

    def depth(self, queue: str) -> int:
        with self._channel() as channel:
            return int(channel.queue_declare(queue, passive=True).method.message_count)

    def exists(self, queue: str) -> bool:
        try:
            self.depth(queue)
        except pika.exceptions.ChannelClosedByBroker:
            return False
        return True

    def delete(self, queue: str) -> None:
        with self._channel() as channel:
            channel.queue_delete(queue)

    def relent(self, queue: str) -> None:
        # No more than those: the copy that waits for room may come in behind the first that leaves.
        assert [raw.body[:6] for raw in self.take_all(queue, FULL)] == [b"filler"] * FULL

    def seasoned_queue(self, longest: float) -> str:
        assert longest <= 1.5, "the pool's ladder is not longer"
        self._pool.season()
        return self._pool.laddered

    # -- faults ----------------------------------------------------------------------------------------------

    def lose_next_settle(self) -> None:
        # The same connection also asks for the queue's consumers, and says that it is alive.
        self._proxy.swallow_next("(consume)", SETTLEMENTS)

    def raise_alarm(self) -> None:
        self.broker.raise_memory_alarm()

    def lift_alarm(self) -> None:
        self.broker.lift_memory_alarm()

    # -- the raw connection ----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _channel(self) -> Iterator[BlockingChannel]:
        """Yield the channel that is kept, or a new one after the broker has closed that."""
        if self._raw is None or not self._raw.is_open:
            credentials = pika.PlainCredentials(self.broker.user, self.broker.password)
            self._raw = BlockingConnection(
                pika.ConnectionParameters(self.broker.host, self.broker.port, credentials=credentials, heartbeat=0)
            )
            self._open = None
        if self._open is None or not self._open.is_open:
            self._open = self._raw.channel()
            self._open.confirm_delivery()
        with (
            mock.patch.object(pika.data, "decode_value", _exact_value),
            mock.patch.object(pika.data, "encode_value", _exact_encoded),
        ):
            yield self._open

    def _drop(self) -> None:
        raw, self._raw = self._raw, None
        if raw is not None and raw.is_open:
            with contextlib.suppress(pika.exceptions.AMQPError):
                raw.close()


_decode, _encode = pika.data.decode_value, pika.data.encode_value


def _exact_value(encoded: bytes, offset: int) -> tuple[Any, int]:
    """Decode a value exactly, as a witness must: pika cuts fractions, and has an integer type of its own."""
    formats = {b"d": ">d", b"f": ">f", b"l": ">q", b"L": ">q"}
    if (found := formats.get(encoded[offset : offset + 1])) is not None:
        return struct.unpack_from(found, encoded, offset + 1)[0], offset + 1 + struct.calcsize(found)
    return _decode(encoded, offset)


def _exact_encoded(pieces: list[bytes], value: object) -> int:
    """Encode a value exactly: pika cannot write fractions at all."""
    if isinstance(value, float):
        pieces.append(struct.pack(">cd", b"d", value))
        return 9
    return int(_encode(pieces, value))
