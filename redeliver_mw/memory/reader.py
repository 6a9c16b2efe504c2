# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads deliveries of the memory broker. The native message is a `HeldDelivery`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..message import Death, Destination, Outgoing, Properties
from .link import HeldDelivery
from .personality import Personality
from .queue import encoding_problem, header_size


class MemoryReader:
    """Reads messages of one personality. Stateless."""

    def __init__(self, ways: Personality) -> None:
        self._ways = ways

    def body(self, native: HeldDelivery, /) -> bytes:
        return native.message.body

    def headers(self, native: HeldDelivery, /) -> dict[str, Any]:
        """Return the message's own headers, and on quorum queues the two counts that RabbitMQ 4.3 adds."""
        headers = dict(native.message.headers)
        if self._ways.name == "rabbitmq":
            if native.failed:
                headers["x-delivery-count"] = native.failed
            if native.acquired:
                headers["x-acquired-count"] = native.acquired
        return headers

    def headers_bytes(self, native: HeldDelivery, /) -> int:
        return sum(header_size(name, value) for name, value in native.message.headers.items())

    def properties(self, native: HeldDelivery, /) -> Properties:
        """Return the properties. ActiveMQ gives every message an id of its own and ignores the producer's."""
        properties = native.message.properties
        if self._ways.name != "activemq":
            return properties
        return replace(properties, message_id=f"ID:memory-{native.message.id}:1:-1:1:1")

    def route(self, native: HeldDelivery, /) -> Mapping[str, str]:
        topic, _, subscription = native.queue.destination.name.partition("::")
        if subscription:
            return {"topic": topic}
        if self._ways.name.startswith("rabbitmq"):
            return {"exchange": "", "routing_key": topic}
        return {}

    def marked(self, native: HeldDelivery, /) -> bool:
        return any(name.startswith("redeliver_") for name in native.message.headers)

    def death(self, native: HeldDelivery, /) -> Death | None:
        """Return what this broker writes on dead letters; RabbitMQ writes the same on retry copies."""
        headers, name = native.message.headers, self._ways.name
        if name.startswith("rabbitmq"):
            return _rabbitmq_death(headers)
        expired = "expired" if "_AMQ_ACTUAL_EXPIRY" in headers else ""
        if name == "artemis":
            queue = str(headers.get("_AMQ_ORIG_QUEUE", ""))
            return Death(_queue_or_subscription(queue), expired) if queue else None
        address = str(headers.get("original-destination", ""))
        if "originalExpiration" not in headers or not address:  # virtual topics write the address only
            return None
        queue = address.removeprefix("/queue/")
        cause = str(headers.get("dlqDeliveryFailureCause", ""))
        return Death(_queue_or_subscription(queue), "expired" if "Message Expired" in cause else cause)

    def unsendable(self, out: Outgoing, /) -> str:
        return encoding_problem(out.headers, self._ways.header_bytes)


def _rabbitmq_death(headers: Mapping[str, Any]) -> Death | None:
    deaths = headers.get("x-death")
    last = deaths[0] if isinstance(deaths, list) and deaths and isinstance(deaths[0], dict) else {}
    queue = str(last.get("queue") or headers.get("x-first-death-queue", ""))
    reason = str(last.get("reason") or headers.get("x-first-death-reason", ""))
    return Death(_queue_or_subscription(queue), reason) if queue else None


def _queue_or_subscription(queue: str) -> Destination:
    """Return the destination of a queue: a subscription's queue is named `topic::subscription` here."""
    topic, _, subscription = queue.partition("::")
    return Destination(topic, "topic", subscription) if subscription else Destination(queue)
