# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Describes RabbitMQ behind proton, AMQP 1.0: what it can do by version, and what it writes on messages itself."""

from __future__ import annotations

from dataclasses import replace

from redeliver_mw.adapter.capabilities import Capabilities, ScheduleRange
from redeliver_mw.message import Destination
from redeliver_proton.brokers.rabbitmq.verbs import TRIED, UNTRIED, verbs

TOPICS = "amq.topic"
YOUNG = 10.0  # seconds in which a new quorum queue must not be trusted with a copy (exact-copies)
CLASSIC = {"x-queue-type": "classic"}  # how a dead-letter target that is missing is declared, durable
SOURCE = {"x-queue-type": "quorum", "x-delivery-limit": -1}  # and a source; from 4.0 on that means: no limit
FIRST, DELAYING = (4, 0), (4, 3)  # versions with AMQP 1.0 and these addresses, and with delayed releases
ACK_TIMEOUT = 1800.0  # the broker's default; the real one is not to be read over AMQP
HEADER_BYTES, VALUE_BYTES = 128_000, 32_000  # 2 MB of application properties were taken on 4.3
# Annotations that are about one delivery or one death, not about the message; `x-cc` sends it to others as well.
BROKERS_ANNOTATIONS = (
    "x-opt-delivery-",
    "x-opt-deaths",
    "x-opt-redeliver_",
    "x-first-death-",
    "x-last-death-",
    "x-death",
    "x-delivery-count",
    "x-acquired-count",
    "x-exchange",
    "x-routing-key",
    "x-cc",
)


def capabilities(version: str) -> Capabilities:
    """Return the record of one broker version. Its delays are those of quorum queues: see `capabilities_at`."""
    number = version_of(version)
    delays = number >= DELAYING
    return Capabilities(
        dialect="rabbitmq+proton",
        broker_kind="rabbitmq",
        broker_version=version,
        honours=frozenset({"accepted", "released", "returned"}),
        released_uncounted=delays,
        delayed_release=ScheduleRange(smallest=0.001) if delays else None,
        by_source=True,
        delay_cure="" if delays else f"use rabbitmq+pika, or RabbitMQ 4.3 with quorum queues: this is {version}",
        header_bytes=HEADER_BYTES,
        value_bytes=VALUE_BYTES,
        ack_timeout=ACK_TIMEOUT,
        browse="requeue",
        shares_subscriptions=True,
        depth=True,
        count="flag",
        strip=frozenset({"x-death", "x-delivery-count", "x-acquired-count", "CC", "BCC", "JMSXDeliveryCount"}),
        strip_prefixes=("x-first-death-", "x-last-death-", "x-opt-delivery-", "x-message-ttl", "x-dead-letter-"),
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
        verbs=verbs(number),
    )


def records() -> tuple[Capabilities, ...]:
    """Return the record of each version that was tried, and of those that were not; for the table of verbs."""
    named = {version: version for version in TRIED} | UNTRIED
    return tuple(replace(capabilities(version), broker_version=name) for name, version in named.items())


def too_old(version: str) -> str:
    """Return why a version is too old; empty if it is not.

    Before 4.0 AMQP 1.0 was a plugin with other addresses, in which a `modified` ends the session (observed on 3.10).
    """
    if version_of(version) >= FIRST:
        return ""
    return f"this RabbitMQ is {version}, and speaks AMQP 1.0 in a way that loses messages; from 4.0 on it does not"


def version_of(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("+")[0].split("-")[0].split(".") if part.isdigit())


def queue_of(destination: Destination) -> str:
    """Return the queue of a destination: a subscription is the queue of its name, bound to the topic exchange."""
    return destination.subscription or destination.name
