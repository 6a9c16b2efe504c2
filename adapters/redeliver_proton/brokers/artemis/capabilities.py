# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Describes Artemis behind proton: what it can do, how it names things, and what it writes on messages itself."""

from __future__ import annotations

import re

from redeliver_mw.adapter.capabilities import Capabilities, ScheduleRange
from redeliver_mw.message import Destination
from redeliver_proton.brokers.artemis.verbs import TRIED, UNTRIED, verbs

DUPLICATE_ID = "_AMQ_DUPL_ID"
ORIGINAL_ADDRESS, ORIGINAL_QUEUE = "_AMQ_ORIG_ADDRESS", "_AMQ_ORIG_QUEUE"
X_ADDRESS, X_QUEUE = "x-opt-ORIG-ADDRESS", "x-opt-ORIG-QUEUE"
ACTUAL_EXPIRY, X_ACTUAL_EXPIRY = "_AMQ_ACTUAL_EXPIRY", "x-opt-ACTUAL-EXPIRY"
DELIVERY_TIME = "x-opt-delivery-time"
# Annotations that are about one delivery, not about the message: a copy has its own.
BROKERS_ANNOTATIONS = ("x-opt-ORIG-", "x-opt-delivery-", X_ACTUAL_EXPIRY, "x-opt-jms-dest", "x-opt-ingress-time")
# All application properties together: 300 kB were taken and 600 kB refused on 2.44, whatever the body.
HEADER_BYTES, VALUE_BYTES = 128_000, 32_000
_FILTER = re.compile(rf"\s*{ORIGINAL_ADDRESS}\s*=\s*'((?:[^']|'')*)'\s*")


def capabilities(version: str, *, dialect: str = "artemis+proton") -> Capabilities:
    """Return the record of one broker version."""
    return Capabilities(
        dialect=dialect,
        broker_kind="artemis",
        broker_version=version,
        honours=frozenset({"accepted", "released", "returned"}),
        released_uncounted=True,
        atomic_move=True,
        atomic_schedule=True,
        schedule=ScheduleRange(smallest=0.001),
        header_bytes=HEADER_BYTES,
        value_bytes=VALUE_BYTES,
        browse="copy",
        depth=True,
        count="count",
        marks_returns=False,  # a delivery that was cut off counts by chance, a released one never
        selectors=True,
        shares_subscriptions=True,
        keeps_order_on_release=True,
        strip=frozenset({DUPLICATE_ID, "JMSXDeliveryCount", ACTUAL_EXPIRY, "_AMQ_SCHED_DELIVERY", "_AMQ_ROUTING_TYPE"}),
        strip_prefixes=("_AMQ_ORIG_", "AMQ_SCHEDULED_", "JMS_AMQP_MA_x-opt-", "__AMQ_"),
        queue_address="{name}",
        topic_address="{name}",
        death_marks={ORIGINAL_ADDRESS: "{name}"},
        verbs=verbs(version),
    )


def records() -> tuple[Capabilities, ...]:
    """Return the record of each version that was tried, and one of all others; for the table of verbs."""
    return tuple(capabilities(version) for version in (*TRIED, *UNTRIED))


def address_and_queue(destination: Destination) -> tuple[str, str]:
    """Return the address a destination belongs to, and its queue; the queue is empty for a whole topic.

    `orders` is the queue of that name on the address of that name, `orders::eu` the queue *eu* on the address
    *orders*, and `topic:prices::audit` the queue *audit* on the address *prices*.
    """
    if destination.kind == "topic":
        return destination.name, destination.subscription
    address, colons, queue = destination.name.partition("::")
    return (address, queue) if colons else (address, address)


def link_address(destination: Destination) -> str:
    """Return what a link is attached to: the address, or the fully qualified name of one of its queues."""
    return destination.full_name


def filter_takes(text: str, address: str) -> bool | None:
    """Return whether a queue with this filter takes a dead letter from `address`; None for another form of filter."""
    if not text.strip():
        return True
    found = _FILTER.fullmatch(text)
    return found[1].replace("''", "'") == address if found else None
