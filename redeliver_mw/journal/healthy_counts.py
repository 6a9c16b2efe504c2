# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Counts first deliveries that were handled instead of writing them one by one: `journal_healthy="counts"`."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from ..message import Delivery
from ..redelivery import identity
from ..redelivery.copies import Provenance
from ..redelivery.plan import NO_PAST, SourcePlan
from .consumer_info import ConsumerInfo
from .records import HealthyCount

# microseconds after which a journal that has not taken the counts is asked again: it may have had no room
AGAIN_US = 1_000_000


@dataclass(slots=True)
class _Sum:
    signature: Provenance
    since_us: int
    ts_us: int = 0
    messages: int = 0
    handler_us: int = 0
    payload_bytes: int = 0


class HealthyCounter:
    """Counts for one consumer, by source, policy and arm."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sums: dict[int, _Sum] = {}  # by the identity of their signatures, which the sums keep alive
        self._asked_us = 0
        self._consumer_info: ConsumerInfo | None = None

    def add(self, delivery: Delivery, consumer_info: ConsumerInfo, plan: SourcePlan, at_us: int, ran_us: int) -> bool:
        """Count one delivery. Return True if `take` should be called soon. Thread-safe."""
        if plan.policy.arms:
            key = identity.own_key(delivery) or identity.digest(delivery).hex()[-32:]
            plan = plan.for_message(delivery, NO_PAST, key)
        signature, size = plan.signature, len(delivery.body)
        with self._lock:
            first = not self._sums or at_us - self._asked_us > AGAIN_US
            if first:
                self._asked_us, self._consumer_info = at_us, consumer_info
            found = self._sums.get(id(signature))
            if found is None:
                found = self._sums[id(signature)] = _Sum(signature, at_us)
            found.ts_us = at_us
            found.messages += 1
            found.handler_us += ran_us
            found.payload_bytes += size
        return first

    def take(self) -> list[HealthyCount]:
        """Return what was counted since the last call. Thread-safe."""
        with self._lock:
            sums, self._sums = self._sums, {}
            consumer_info = self._consumer_info
        return [] if consumer_info is None else [_record(consumer_info, one) for one in sums.values()]


def _record(consumer_info: ConsumerInfo, one: _Sum) -> HealthyCount:
    signature = one.signature
    return HealthyCount(
        ts_us=one.ts_us,
        since_us=one.since_us,
        app=consumer_info.app,
        host=consumer_info.host,
        broker=consumer_info.broker,
        broker_kind=consumer_info.broker_kind,
        destination=signature.source.name,
        destination_kind=signature.source.kind,
        policy=signature.policy_text,
        policy_version=signature.policy_version,
        policy_arm=signature.arm,
        propensity=signature.propensity,
        messages=one.messages,
        handler_us=one.handler_us,
        payload_bytes=one.payload_bytes,
    )
