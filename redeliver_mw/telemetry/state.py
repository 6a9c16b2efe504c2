# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines what an App, or a drop-in wrapper, reports of its present state, for values that are read and not counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ..message import Destination


@dataclass(frozen=True, slots=True)
class SourceState:
    """Holds the present state of one source.

    - `waiting`: deliveries that wait here for their handler, or are in it.
    - `held`: deliveries that wait here for their next attempt.
    - `hold_taken`: places of the hold budget that are taken: by held deliveries, and by messages that wait behind one
      of their key.
    - `hold_budget`: the size of the hold budget; 0: nothing may be held.
    - `paused`: why no message is handed to the handler; empty if messages are.
    - `breaker`: "closed", "open" or "half-open"; empty without a breaker.
    - `policy_version`: of the policy that holds now.
    """

    waiting: int
    held: int
    hold_taken: int
    hold_budget: int
    paused: str = ""
    breaker: str = ""
    policy_version: str = ""


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """Holds the present state of one App or drop-in wrapper.

    - `connections`: each connection by its role, such as "consume", with whether it is up.
    - `parked`: messages in the limbo of this application; None without a limbo, and while it cannot be read.
    - `parked_due`: when the first of them is due, in seconds since 1970; None if there is none.
    - `queues`: the depth of each dead-letter queue; a queue whose depth is unknown is left out.
    - `oldest`: when the oldest message of a dead-letter queue was dead-lettered, in seconds since 1970.
    - `stored`: how many dead letters of each source wait in the store of operations, and when the oldest of them was
      dead-lettered, in seconds since 1970; empty without a store, and while it cannot be read.
    """

    sources: Mapping[Destination, SourceState]
    connections: Mapping[str, bool] = field(default_factory=dict)
    parked: int | None = None
    parked_due: float | None = None
    queues: Mapping[Destination, int] = field(default_factory=dict)
    oldest: Mapping[Destination, float] = field(default_factory=dict)
    stored: Mapping[Destination, tuple[int, float | None]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConsumerDescription:
    """Holds what does not change while an App or a drop-in wrapper runs.

    - `dialect`: such as `rabbitmq+pika`.
    - `broker_kind`: such as `rabbitmq`.
    - `broker`: host, port and path of the broker, without secrets.
    - `batched`: the sources whose handler takes a batch.
    """

    dialect: str
    broker_kind: str
    broker: str
    batched: frozenset[Destination] = frozenset()


class ObservedConsumer(Protocol):
    """Is an App, or a drop-in wrapper, that is asked for its state."""

    def telemetry_description(self) -> ConsumerDescription:
        """Return what does not change while it runs. Thread-safe. No I/O."""

    def telemetry_state(self) -> ConsumerState:
        """Return the present state. Thread-safe. No I/O."""
