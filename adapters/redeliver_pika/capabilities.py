# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Describes RabbitMQ behind pika: what it can do by version, and the ladder of retry queues.

The ladder: one quorum queue for each rung and source, with a time to live and at-least-once dead-lettering
back to the source. A classic queue would lose its messages when the source is full or gone at that moment
(seen on 3.10 and 4.3); a queue for each delay would make thousands of them, because jitter makes each delay
a new one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from redeliver_mw.adapter.capabilities import Capabilities, ScheduleRange, Trust
from redeliver_mw.message import Destination
from redeliver_pika.broker_verbs import TRIED, UNTRIED, verbs

RUNGS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 3600.0)
YOUNG = 10.0  # seconds in which a new quorum queue must not be trusted with a copy (exact-copies)
HEADER_ROOM = 4096  # bytes of the header frame that are left to the standard properties
CLASSIC = {"x-queue-type": "classic"}  # how a dead-letter target that is missing is declared, durable
RETRIES_FROM = (4, 3)  # versions whose quorum queues may delay what comes back
ACK_TIMEOUT = 1800.0  # the broker's default; the real one is not to be read over AMQP


def capabilities(version: str, frame_max: int, *, exact_headers: bool, dialect: str = "rabbitmq+pika") -> Capabilities:
    """Return the record of one broker version, for a connection with this frame size."""
    number = version_of(version)
    at_least_once = number >= (3, 10)
    trust = {"released": Trust.UNKNOWN} if number < (4, 3) else {}
    return Capabilities(
        dialect=dialect,
        broker_kind="rabbitmq",
        broker_version=version,
        honours=frozenset({"accepted", "released"}),
        # Before 4.3 a nack counts towards a quorum queue's limit, which from 4.0 on is there unasked.
        released_uncounted=number >= (4, 3) or number < (4, 0),
        # Before 4.3 a quorum queue without a limit puts what a nack gives back at its end.
        keeps_order_on_release=number >= (4, 3),
        cumulative=True,
        schedule=ScheduleRange(RUNGS) if at_least_once else None,
        counted_header="x-delivery-count",
        passing_prefix="amq.gen-",
        exact_headers=exact_headers,
        header_bytes=frame_max - HEADER_ROOM,
        value_bytes=frame_max - HEADER_ROOM,
        ack_timeout=ACK_TIMEOUT,
        browse="requeue",
        shares_subscriptions=True,
        depth=True,
        count="flag",
        strip=frozenset({"x-death", "x-delivery-count", "x-acquired-count", "CC", "BCC", "JMSXDeliveryCount"}),
        # `x-opt-redeliver_` is what rabbitmq+proton wrote on a message that it gave back: out of date on a copy.
        strip_prefixes=(
            "x-first-death-",
            "x-last-death-",
            "x-opt-delivery-",
            "x-opt-redeliver_",
            "x-message-ttl",
            "x-dead-letter-",
        ),
        subscription_address="{subscription}",
        death_marks={"x-first-death-queue": "{address}", "x-first-death-reason": "{mark}"},
        death_reasons={
            "exhausted": "delivery_limit",
            "rejected": "rejected",
            "fatal": "rejected",
            "expired": "expired",
            "undecodable": "rejected",
            "crashed": "delivery_limit",
        },
        trust=trust,
        verbs=verbs(version, number),
    )


def records() -> tuple[Capabilities, ...]:
    """Return the record of each version that was tried, and of those that were not; for the table of verbs."""
    named = {version: version for version in TRIED} | UNTRIED
    return tuple(
        replace(capabilities(version, 131072, exact_headers=True), broker_version=name)
        for name, version in named.items()
    )


def version_of(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("+")[0].split("-")[0].split(".") if part.isdigit())


def unread_retry(version: str) -> float | None:
    """Return what is known of a queue's delayed retry that cannot be read: that a version has none."""
    return None if version_of(version) >= RETRIES_FROM else 0.0


def queue_of(source: Destination) -> str:
    """Return the queue to consume from: a subscription is the queue of its name, bound to the topic exchange."""
    return source.subscription or source.name


def rung_queue(source: Destination, rung: float) -> str:
    return f"redeliver.retry.{queue_of(source)}.{rung:g}s"


def rung_arguments(source: Destination, rung: float) -> dict[str, Any]:
    return {
        "x-queue-type": "quorum",
        "x-message-ttl": round(rung * 1000),
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": queue_of(source),
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }


def rungs_for(longest: float) -> tuple[float, ...]:
    """Return the rungs that a delay of `longest` seconds can make use of."""
    return tuple(rung for rung in RUNGS if rung <= longest)
