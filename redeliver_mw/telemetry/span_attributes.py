# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Names spans and their attributes as OpenTelemetry's conventions for messaging do. Pure; needs no package.

What the conventions have no name for is named `redeliver.…`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ..errors import RetryAfter, Undecodable, leaves_of
from ..message import Delivery, Destination, Outgoing, text_of
from ..redaction import label, safe
from ..redelivery.commands import RecordAttempt
from .state import ConsumerDescription

SCHEMA: Final = "https://opentelemetry.io/schemas/1.44.0"
SYSTEMS: Final = {"artemis": "activemq"}  # brokers that have no name of their own in the conventions
SETTLEMENTS: Final = {"accepted": "ack", "released": "nack", "returned": "nack", "rejected": "reject"}
MOST_ROUTES: Final = 256  # routes of one source whose attributes are kept
NO_ERRORS: Final = ("breaker", "ignored")  # reasons of attempts that raised an exception and did not fail
DESCRIPTION: Final = 200  # characters of a status

Value = str | int | float | bool
Attributes = dict[str, Value]

_PLACE = re.compile(r"(?:\w+://)?(\[[^\]]+\]|[^\s:/@,]+)(?::(\d{1,5}))?(?:/.*)?")


class SourceAttributes:
    """Holds the attributes that the spans of one source begin with."""

    def __init__(self, source: Destination, consumer: ConsumerDescription | None) -> None:
        self.name = f"process {source.name}"
        self._source = source
        self._common = consumer_attributes(consumer) | {
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
        }
        if source.subscription:
            self._common["messaging.destination.subscription.name"] = source.subscription
        self._plain = self._common | {"messaging.destination.name": source.name}
        self._routed = consumer is not None and consumer.broker_kind == "rabbitmq"
        self._by_route: dict[tuple[str, str], Attributes] = {}

    def of(self, delivery: Delivery) -> Attributes:
        """Return the attributes for one delivery; the caller does not change them."""
        if not self._routed:
            return self._plain
        route = delivery.reader.route(delivery.native)
        key = (route.get("exchange", ""), route.get("routing_key", ""))
        found = self._by_route.get(key)
        if found is None:
            found = self._of_route(*key)
            if len(self._by_route) < MOST_ROUTES:
                self._by_route[key] = found
        return found

    def _of_route(self, exchange: str, routing_key: str) -> Attributes:
        """Return the attributes of a message that RabbitMQ has routed.

        The destination is `{exchange}:{routing key}:{queue}` without what is empty, and with the queue once if the
        routing key is equal to it.
        """
        queue = self._source.subscription or self._source.name
        parts = [part for part in (exchange, routing_key if routing_key != queue else "", queue) if part]
        found = self._common | {"messaging.destination.name": ":".join(parts)}
        if routing_key != queue:
            found["messaging.rabbitmq.destination.routing_key"] = routing_key
        return found


def consumer_attributes(consumer: ConsumerDescription | None) -> Attributes:
    """Return the attributes of all spans of one App or drop-in wrapper."""
    if consumer is None:
        return {"messaging.system": "unknown"}
    kind = consumer.broker_kind
    found: Attributes = {"messaging.system": SYSTEMS.get(kind, kind)}
    if kind in SYSTEMS or consumer.dialect.startswith("memory"):
        found["redeliver.dialect"] = consumer.dialect  # what the system does not say
    place = _PLACE.fullmatch(consumer.broker)
    if place is not None and not consumer.dialect.startswith("memory"):
        found["server.address"] = place[1].strip("[]")
        if place[2]:
            found["server.port"] = int(place[2])
    return found


def message_attributes(delivery: Delivery) -> Attributes:
    """Return the attributes of one message and one attempt."""
    found: Attributes = {"redeliver.attempt": delivery.failures + 1}
    if (message_id := delivery.message_id) is not None:
        found["messaging.message.id"] = message_id
    if (correlation_id := delivery.correlation_id) is not None:
        found["messaging.message.conversation_id"] = correlation_id
    if delivery.known:
        past = delivery.past
        if past.lineage:
            found["redeliver.lineage"] = past.lineage
        if past.generation:
            found["redeliver.generation"] = past.generation
        if past.replay_id:
            found["redeliver.replay_id"] = past.replay_id
    return found


def outcome_attributes(attempt: RecordAttempt | None) -> Attributes:
    """Return what became of a message; None: it was handled at its first attempt."""
    if attempt is None:
        return {"redeliver.outcome": "accepted"}
    found: Attributes = {"redeliver.outcome": attempt.outcome, "redeliver.lineage": attempt.key}
    if attempt.reason:
        found["redeliver.reason"] = attempt.reason
    if attempt.mechanism is not None:
        found["redeliver.mechanism"] = attempt.mechanism
    if attempt.delay is not None:
        found["redeliver.delay"] = attempt.delay
    if attempt.failure is not None:
        found["redeliver.fingerprint"] = attempt.failure.fingerprint
    return found


def copy_attributes(consumer: Mapping[str, Value], copy: Outgoing, operation: str) -> Attributes:
    """Return the attributes of sending one copy, or of parking it."""
    found = {**consumer, "messaging.operation.name": operation, "messaging.destination.name": copy.target.full_name}
    if operation == "send":
        found["messaging.operation.type"] = "send"
    if (message_id := text_of(copy.properties.message_id)) is not None:
        found["messaging.message.id"] = message_id
    for name, header in (
        ("redeliver.copy_id", "redeliver_copy_id"),
        ("redeliver.lineage", "redeliver_lineage"),
        ("redeliver.reason", "redeliver_reason"),
    ):
        if (value := copy.headers.get(header)) is not None:
            found[name] = str(value)
    return found


def raised(error: BaseException | None) -> BaseException | None:
    """Return the handler's own exception, of one that a run has ended with."""
    if isinstance(error, Undecodable):
        return error.error
    return error


def is_failure(error: BaseException | None) -> bool:
    """Return whether a run that ended with `error` has failed: a handler that asks for another time has not."""
    return error is not None and not all(isinstance(one, RetryAfter) for one in leaves_of(error))


def error_type(error: BaseException) -> str:
    """Return the full name of an exception's class; without a module for one of Python's own."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return label(name)


def description(kind: str, message: str) -> str:
    """Return the description of a span's status, without secrets."""
    text = safe(message)
    return f"{kind}: {text}"[:DESCRIPTION] if text else kind
