# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Describes what an adapter finds out about its broker and some of its queues, as frozen data for `redeliver doctor`.

An adapter reports facts in the broker's own words; whether a fact is right or wrong for a policy is judged in
`redeliver_mw.doctor`. What an adapter cannot see is reported as unknown, with the reason, and never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ..clock import Clock
from ..message import Destination
from .capabilities import BrokerLimit, Trust

PROBE_PREFIX = "redeliver.doctor."  # of the names of all queues that a probe makes

# What the broker does with a message for a queue that is full. `drops`: it confirms the message and deletes it, or
# another one; `refuses`: it says that it did not take the message; `blocks`: it lets the producer wait.
Overflow = Literal["drops", "refuses", "blocks"]

# The names of what an adapter may report of the whole broker; `redeliver_mw.doctor.broker` judges each of them.
BrokerFactName = Literal[
    "scheduler", "persistence", "journal-sync", "alarm", "copy-expiry", "copy-persistence", "frame-size"
]


class Setting(NamedTuple):
    """Describes a setting of the broker: its value, its spelling at the broker, and how to change it there."""

    value: float  # seconds for times, else a number
    spelled: str  # such as "x-message-ttl 60000"
    change: str  # a sentence in the imperative, without a full stop


class LengthLimit(NamedTuple):
    """Describes the most that a queue holds, and what becomes of a message beyond that."""

    overflow: Overflow
    spelled: str
    change: str


class OwnDeadLetters(NamedTuple):
    """Describes where the broker itself puts the dead letters of a queue.

    `lost`: why they are lost although a target is set; empty if they are not, or if that is not known. `known` is False
    if the way behind the target could not be followed. `unconfirmed`: a setting that asks the broker to wait for the
    target's confirm, and that the broker does not act on.
    """

    spelled: str
    lost: str
    change: str
    known: bool = True
    unconfirmed: Setting | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """Describes one queue. A setting is None if the queue does not have it, or if `why` says why it is not known.

    - `exists`: None if nobody can say without making the queue.
    - `why`: why the settings of a queue that exists are not known; empty: they are. `why_cure`: how to make them known.
    - `misses`: why a message that is sent to the queue is not kept; empty if it is kept.
    - `onward`: all queues that its messages can reach by the broker's own dead-lettering, step by step.
    - `returned_after`: the time for which the broker itself delays a returned message.
    - `idle_delay`: a setting that is meant to delay returned messages, and does not.
    """

    destination: Destination
    exists: bool | None = True
    why: str = ""
    why_cure: str = ""
    type: str = ""
    durable: Setting | None = None  # set only if the queue is not durable
    vanishes: Setting | None = None  # the queue is deleted by itself
    misses: Setting | None = None
    length: LengthLimit | None = None
    ttl: Setting | None = None
    expires_to: str = ""  # where the broker puts a message that has waited for longer; empty: nowhere
    own_dead_letters: OwnDeadLetters | None = None
    onward: tuple[str, ...] = ()
    limit: BrokerLimit = field(default_factory=lambda: BrokerLimit(trust=Trust.UNKNOWN))
    limit_change: str = ""
    ack_timeout: Setting | None = None
    ack_timeout_why: str = ""  # why the timeout is not known although the other settings are
    returned_after: Setting | None = None
    idle_delay: Setting | None = None


class BrokerFact(NamedTuple):
    """Reports one thing about the whole broker, and how to change it.

    `good`: whether it is as it must be; None: not known. `reason` says what was seen, or why nothing was seen.
    """

    name: BrokerFactName
    good: bool | None
    reason: str
    change: str = ""


class Permission(NamedTuple):
    """Reports whether this user may use a verb at a place. `allowed` is None if that was not seen; `said` says why.

    `loss`: what does not work without the permission, if that is not what the verb is usually needed for.
    """

    verb: Literal["consume", "publish", "declare", "manage"]
    where: str
    allowed: bool | None
    said: str = ""
    change: str = ""
    loss: str = ""


class ClockReading(NamedTuple):
    """Holds how far the broker's clock is ahead of ours, and how exact that is; both in seconds."""

    ahead: float
    within: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """Holds all that an adapter has found out."""

    queues: Mapping[Destination, QueueFacts] = field(default_factory=dict)
    facts: tuple[BrokerFact, ...] = ()
    permissions: tuple[Permission, ...] = ()
    clock: ClockReading | None = None
    clock_why: str = ""  # why the broker's clock is not known
    sends_with: tuple[Callable[..., object], ...] = ()  # the driver's functions that every copy goes through


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectionRequest:
    """Says what is to be inspected.

    `sources` are consumed, and copies are sent back to them; `targets` get dead letters. Without `probe` nothing is
    made or sent. `mark` is part of the name of every queue that a probe makes, and is used by nobody else. `delays`:
    copies will be delayed at the broker.
    """

    sources: tuple[Destination, ...] = ()
    targets: tuple[Destination, ...] = ()
    probe: bool = True
    mark: str
    clock: Clock
    delays: bool = True
