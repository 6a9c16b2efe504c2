# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Describes what a dialect can do, as frozen data. The contract tests compare each record with the real broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from ..message import Destination

Settlement = Literal["accepted", "released", "returned", "rejected"]
Mechanism = Literal["hold", "nack", "schedule", "park"]
# What becomes of a message; the tests of the adapters compare only this.
SettlementOutcome = Literal[
    "gone",
    "gone, and all before it",
    "destroyed",
    "dead-letter queue",
    "nothing happens",
    "back",
    "back, marked",
    "back, counted",
    "back, counted by chance",
    "back, to others only",
    "after its delay",
    "at once",
    "behind longer ones",
    "both or neither",
    "half of it",
    "not tried",
]


class Trust(StrEnum):
    """Names how we know a capability that we rely on (only-honoured-verbs)."""

    PROVED = "proved"  # the contract tests show it on the real broker
    PROBED = "probed"  # tested on this very broker at start
    DECLARED = "declared"  # declared by the user
    UNKNOWN = "unknown"  # logs one warning, with the rule that it weakens
    IMPOSSIBLE = "impossible"  # refused at start, with the cure


@dataclass(frozen=True, slots=True)
class ScheduleRange:
    """Describes the broker's own delay for a copy.

    `rungs` are the delays that the broker offers, in seconds, ascending; an empty tuple means any delay from `smallest`
    on. A longer delay takes several hops. `lateness`: a copy may arrive up to this much late, so the requested delay is
    shorter by this much, and a copy that arrives early is held for the remaining time.
    """

    rungs: tuple[float, ...] = ()
    smallest: float = 0.001
    lateness: float = 0.0

    def hop(self, delay: float) -> float:
        """Return the longest delay not above `delay` that one copy can wait, in seconds; 0 if `delay` is too short."""
        if self.rungs:
            return max((rung for rung in self.rungs if rung <= delay), default=0.0)
        return delay - self.lateness if delay - self.lateness >= self.smallest else 0.0


@dataclass(frozen=True, slots=True)
class VerbRecord:
    """Says what a verb of the protocol does on this broker, and what we do instead, in Markdown for docs/verbs.md.

    `outcome` is what becomes of the message; if the `basis` of the verb is proved or probed, each adapter's tests
    compare it with the real broker. *back* means back in its queue at once: unmarked, with the broker's redelivered
    mark, or with its count raised. `note` holds everything else. `kind`: the type of queue, if the broker has several
    types that differ.
    """

    name: str
    outcome: SettlementOutcome
    instead: str
    note: str = ""
    kind: str = ""
    basis: Trust = Trust.PROVED


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLimit:
    """Describes what the broker does with messages that return too often or are kept too long (broker-limits).

    `returns`: no message survives the counted return of this number (>= 1); None: there is no such limit.
    `dead_letter_to`: where the broker puts the message then; empty: nowhere, the message is deleted. `spelled`: the
    limit as it is set at the broker. `ack_timeout`: seconds after which an unsettled delivery is taken back; None: not
    reported. An unknown limit explains `why`. `returned_after`: seconds for which the broker itself delays a returned
    message; None: not known.
    """

    returns: int | None = None
    dead_letter_to: str = ""
    spelled: str = ""
    ack_timeout: float | None = None
    returned_after: float | None = 0.0
    trust: Trust = Trust.PROBED
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Describes one broker behind one driver. Sizes are in bytes, times in seconds."""

    dialect: str  # "rabbitmq+pika"
    broker_kind: str  # "rabbitmq"
    broker_version: str = ""
    honours: frozenset[Settlement] = frozenset({"accepted"})  # the verbs with which the broker does what we mean
    released_uncounted: bool = False  # `released` never counts towards a limit of the broker
    cumulative: bool = False  # one settlement may cover several accepted deliveries
    atomic_move: bool = False  # send copies and accept the original in one transaction
    atomic_schedule: bool = False  # the same with copies that the broker delays
    schedule: ScheduleRange | None = None
    delayed_release: ScheduleRange | None = (
        None  # a released message returns after this time, with headers of ours on it
    )
    by_source: bool = False  # differs from source to source: see `Adapter.capabilities_at`
    counted_header: str = ""  # holds a message's counted returns: from two on, a queue's own delay of returns is longer
    passing_prefix: str = ""  # of a queue that the broker named and that disappears by itself: it gets no helper queues
    delay_cure: str = ""  # what to do about a delay that is not available here, in this broker's terms
    exact_headers: bool = True  # foreign header values keep type and value in a copy
    header_bytes: int = 64_000  # of all headers of one message together
    value_bytes: int = 8_000  # of one header value
    ack_timeout: float | None = None  # the broker takes an unsettled delivery back after this long
    browse: Literal["none", "requeue", "copy"] = "none"  # requeue: browsing marks the message as redelivered
    depth: bool = False
    count: Literal["none", "flag", "count"] = "flag"  # the broker's hint of earlier deliveries
    marks_returns: bool = True  # a returned message always has that hint, whatever the reason
    keeps_order_on_release: bool = False
    shows_group: bool = True  # a consumer sees the message group that a producer set
    selectors: bool = False  # a consumer may ask for a selection of the messages
    shares_subscriptions: bool = False  # several consumers at a time may share one durable subscription
    strip: frozenset[str] = frozenset()  # headers that a copy must not carry
    strip_prefixes: tuple[str, ...] = ()
    queue_address: str = "{name}"  # how a plain client of this broker names a queue
    topic_address: str = "{name}"
    subscription_address: str = "{name}::{subscription}"  # reaches one subscription to a topic alone
    # Maps a header to the template of its value in a dead letter: {name} {address} {kind} {mark} {cause}
    death_marks: Mapping[str, str] = field(default_factory=dict)
    death_reasons: Mapping[str, str] = field(default_factory=dict)  # maps our reason to the broker's word, for {mark}
    trust: Mapping[str, Trust] = field(default_factory=dict)  # maps a capability to how we know it; proved if absent
    verbs: tuple[VerbRecord, ...] = ()  # for people: `python -m redeliver_mw.adapter.verb_table`

    def address(self, destination: Destination) -> str:
        """Return the destination in the form in which a plain client of this broker would send to it."""
        template = self.queue_address if destination.kind == "queue" else self.topic_address
        template = self.subscription_address if destination.subscription else template
        return template.format(name=destination.name, subscription=destination.subscription)


@dataclass(frozen=True, slots=True)
class SourceCapabilities:
    """Describes one source. `ack_timeout`: seconds until an unsettled delivery is taken back; None: never."""

    capabilities: Capabilities
    limit: BrokerLimit
    ack_timeout: float | None
