# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Describes each real broker that the memory broker can imitate.

Observed on RabbitMQ 4.3, ActiveMQ Classic 6.3, Artemis 2.44.

A message returns to its queue in one of these ways (`LossWay`), and each broker counts them differently.
In parentheses: the message does not return, but is dead-lettered (DLQ), or lost (destroys).

=============  ================  =================  ==========  =============================
way            rabbitmq          rabbitmq-classic   activemq    artemis
=============  ================  =================  ==========  =============================
nack           acquired          flag               (DLQ)       (destroys)
reject         acquired, count   flag               (DLQ)       (DLQ)
released       acquired          flag               same link   nothing
failed         acquired, count   flag               same link   count
closed         acquired, count   flag               flag        amqp: nothing; stomp: the first's count
cut            acquired, count   flag               flag        amqp: all or none; stomp: the first's, or all
killed         acquired, count   all: flag          no flags    counts above 1 become 1
=============  ================  =================  ==========  =============================
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ..adapter.capabilities import Capabilities, ScheduleRange
from ..errors import ConfigError
from ..message import Destination, Properties
from .faults import Faults

LossWay = Literal["nack", "reject", "released", "modified", "failed", "closed", "cut", "killed"]
Stale = Literal["close", "error", "ignore"]  # effect on the link of a settlement without a delivery

RUNGS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 3600.0)
TICK = 0.5  # seconds, of ActiveMQ's scheduler


@dataclass(slots=True)
class StoredMessage:
    """Holds one copy of a message, as the broker stores it."""

    id: int  # the broker's own, ascending
    body: bytes
    headers: dict[str, Any]
    properties: Properties
    durable: bool = True
    redelivered: bool = False
    count: int = 0  # failed deliveries, as this broker counts them
    acquired: int = 0  # on RabbitMQ 4.3, every return


@dataclass(frozen=True, slots=True, kw_only=True)
class Personality:
    """Describes one broker's behaviour."""

    name: str
    protocol: str  # spoken by its adapter
    capabilities: Capabilities
    int_tags: bool = False  # delivery tags start again at 1 on every channel
    auto_create: bool = True  # a queue is made when a message is sent to it
    dead_letters: str = ""  # the usual dead-letter queue; empty: none, so messages are discarded
    expired: str = ""  # queue of expired messages; empty: the one of dead letters
    counted: frozenset[LossWay] = frozenset()  # the ways of return that RabbitMQ counts towards its limit
    header_bytes: int = 131_072  # the broker refuses any single header larger than this
    limit_is_last: bool = False  # the failure that reaches the limit is the last one, not the one after it
    spoilers: frozenset[str] = frozenset()  # headers that make the broker ignore a copy's delay

    def stale(self, protocol: str) -> Stale:
        if self.name.startswith("rabbitmq"):
            return "close"
        if self.name == "activemq":
            return "error"
        return "close" if protocol == "stomp" else "ignore"

    def take_back(self, messages: Sequence[StoredMessage], way: LossWay, protocol: str, faults: Faults) -> None:
        """Mark and count `messages`, in the order of their delivery, when they return to their queue."""
        if self.name == "artemis":
            for message in self._artemis_counts(messages, way, protocol, faults):
                message.count += 1
            for message in messages:
                message.redelivered = message.count > 0
            return
        for message in messages:
            message.redelivered = True
            if self.name == "rabbitmq":
                message.acquired += 1
                message.count += way in self.counted

    def _artemis_counts(
        self, messages: Sequence[StoredMessage], way: LossWay, protocol: str, faults: Faults
    ) -> Iterable[StoredMessage]:
        if way == "failed":
            return messages
        if protocol == "stomp" and way == "closed":
            return messages[:1]
        if way == "cut":  # a race inside the broker: 10 of 67 cuts over STOMP, 6 of 17 over AMQP
            every = faults.toss(0.15 if protocol == "stomp" else 0.35)
            return messages if every else messages[: protocol == "stomp"]
        return ()

    def restarted(self, messages: Iterable[StoredMessage]) -> None:
        """Set the flags and counts of all queued messages to what they are after a kill of the broker."""
        for message in messages:
            if self.name == "rabbitmq-classic":
                message.redelivered = True  # all messages, also those never delivered
            elif self.name == "activemq":
                message.redelivered = False
            elif self.name == "artemis":
                message.count = min(message.count, 1)  # only the first return is stored
                message.redelivered = message.count > 0

    def exhausted(self, message: StoredMessage, limit: int | None) -> bool:
        """Return whether the message has reached the broker's own limit."""
        return limit is not None and message.count >= limit + (not self.limit_is_last)

    def delay(self, now: float, after: float, headers: Mapping[str, Any]) -> float | None:
        """Return how long a copy really waits, in seconds, or None if this broker cannot delay it."""
        if after <= 0 or not self.spoilers.isdisjoint(headers):
            return 0.0
        schedule = self.capabilities.schedule
        hop = replace(schedule, lateness=0.0).hop(after) if schedule is not None else 0.0
        if hop <= 0:
            return None
        if self.name == "activemq":  # it begins at the scheduler's next tick: never early, up to half a second late
            return (math.floor(now / TICK) + 1) * TICK - now + hop
        return hop

    def due(self, message: StoredMessage, target: Destination, waited: float, wall: float) -> None:
        """Write on a copy what this broker writes when the copy's delay is over."""
        if self.name.startswith("rabbitmq"):
            self._died(message, f"retry.{waited:g}", "expired", target.name)
        elif self.name == "activemq":
            message.headers["scheduledJobId"] = f"ID:memory-{message.id}"
        else:
            message.headers["_AMQ_SCHED_DELIVERY"] = str(round(wall * 1000))

    def dead_letter(self, message: StoredMessage, queue: Destination, why: str) -> None:
        """Write on a message what this broker writes when it dead-letters one.

        `why` is why it does: `rejected`, `expired` and the like.
        """
        name, expiry = queue.name, message.properties.expires_at_us
        if self.name.startswith("rabbitmq"):
            self._died(message, name, why, name)
            return
        if self.name == "activemq":
            message.headers["original-destination"] = self.capabilities.address(queue)
            message.headers["originalExpiration"] = str((expiry or 0) // 1000)
            if why == "expired":
                cause = f"java.lang.Throwable: Message Expired. Expiration:{(expiry or 0) // 1000}"
                message.headers["dlqDeliveryFailureCause"] = cause
        else:
            message.headers |= {"_AMQ_ORIG_ADDRESS": name, "_AMQ_ORIG_QUEUE": name}
            message.headers["_AMQ_ORIG_MESSAGE_ID"] = str(message.id)
            if why == "expired":
                message.headers["_AMQ_ACTUAL_EXPIRY"] = str((expiry or 0) // 1000)
        message.redelivered, message.count = False, 0

    def _died(self, message: StoredMessage, queue: str, reason: str, key: str) -> None:
        """Write RabbitMQ's `x-death`; the quorum queue's count is copied too."""
        death = {"count": 1, "reason": reason, "queue": queue, "exchange": "", "routing-keys": [key]}
        headers = message.headers
        headers.setdefault("x-first-death-queue", queue)
        headers.setdefault("x-first-death-reason", reason)
        headers.setdefault("x-first-death-exchange", "")
        headers |= {"x-last-death-queue": queue, "x-last-death-reason": reason, "x-last-death-exchange": ""}
        earlier = headers.get("x-death")
        headers["x-death"] = [death, *(earlier if isinstance(earlier, list) else ())]
        if self.name == "rabbitmq-classic":
            message.redelivered = False


_RABBITMQ = Personality(
    name="rabbitmq",
    protocol="amqp091",
    int_tags=True,
    auto_create=False,
    counted=frozenset({"reject", "failed", "closed", "cut", "killed"}),
    capabilities=Capabilities(
        dialect="memory+rabbitmq",
        broker_kind="rabbitmq",
        broker_version="4.3",
        honours=frozenset({"accepted", "released", "returned"}),
        released_uncounted=True,
        cumulative=True,
        schedule=ScheduleRange(rungs=RUNGS),
        ack_timeout=1800.0,
        browse="requeue",
        depth=True,
        count="count",
        keeps_order_on_release=True,
        shares_subscriptions=True,
        strip=frozenset({"x-death", "x-delivery-count", "x-acquired-count", "x-delay", "CC", "BCC"}),
        strip_prefixes=("x-first-death-", "x-last-death-", "x-opt-"),
        death_marks={"x-first-death-queue": "{name}", "x-first-death-reason": "{mark}"},
        death_reasons={"rejected": "rejected", "expired": "expired", "exhausted": "delivery_limit"},
    ),
)
_CLASSIC = replace(
    _RABBITMQ,
    name="rabbitmq-classic",
    counted=frozenset(),
    capabilities=replace(_RABBITMQ.capabilities, honours=frozenset({"accepted", "released"}), count="flag"),
)
_ACTIVEMQ = Personality(
    name="activemq",
    protocol="stomp",
    dead_letters="ActiveMQ.DLQ",
    header_bytes=10_239,
    spoilers=frozenset({"scheduledJobId"}),
    capabilities=Capabilities(
        dialect="memory+activemq",
        broker_kind="activemq",
        broker_version="6.3",
        honours=frozenset({"accepted"}),
        atomic_move=True,
        schedule=ScheduleRange(smallest=1.0, lateness=TICK),
        browse="copy",
        depth=True,
        count="flag",
        marks_returns=False,
        shows_group=False,
        strip=frozenset(
            {
                "scheduledJobId",
                "original-destination",
                "originalExpiration",
                "redelivered",
                "redeliveryDelay",
                "JMSXDeliveryCount",
                "JMSXUserID",
                "message-id",
                "ack",
            }
        ),
        strip_prefixes=("AMQ_SCHEDULED_",),
        queue_address="/queue/{name}",
        topic_address="/topic/{name}",
        death_marks={"dlqDeliveryFailureCause": "{cause}"},
    ),
)
_ARTEMIS = Personality(
    name="artemis",
    protocol="amqp",
    dead_letters="DLQ",
    expired="ExpiryQueue",
    limit_is_last=True,
    spoilers=frozenset({"_AMQ_SCHED_DELIVERY"}),
    capabilities=Capabilities(
        dialect="memory+artemis",
        broker_kind="artemis",
        broker_version="2.44",
        honours=frozenset({"accepted", "released", "returned"}),
        released_uncounted=True,
        atomic_move=True,
        atomic_schedule=True,
        schedule=ScheduleRange(),
        browse="copy",
        depth=True,
        count="count",
        marks_returns=False,
        keeps_order_on_release=True,
        shares_subscriptions=True,
        strip=frozenset(
            {
                "JMSXDeliveryCount",
                "_AMQ_SCHED_DELIVERY",
                "_AMQ_DUPL_ID",
                "_AMQ_ROUTING_TYPE",
                "_AMQ_VALIDATED_USER",
                "_AMQ_ACTUAL_EXPIRY",
                "__AMQ_CID",
                "message-id",
                "ack",
            }
        ),
        strip_prefixes=("AMQ_SCHEDULED_", "_AMQ_ORIG_", "x-opt-"),
        death_marks={"_AMQ_ORIG_ADDRESS": "{name}", "_AMQ_ORIG_QUEUE": "{name}"},
    ),
)

PERSONALITIES = {known.name: known for known in (_RABBITMQ, _CLASSIC, _ACTIVEMQ, _ARTEMIS)}


def personality(name: str) -> Personality:
    """Return the personality of that name. Raises ConfigError for an unknown name."""
    try:
        return PERSONALITIES[name]
    except KeyError:
        cure = f"Choose one of {', '.join(PERSONALITIES)}"
        raise ConfigError(
            f"{name!r} is no personality of the memory broker", cure=cure, code="broker-url-option"
        ) from None
