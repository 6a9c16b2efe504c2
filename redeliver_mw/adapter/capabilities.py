# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What a dialect can do, as frozen data. The contract tests hold each record against the real broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from ..message import Destination

Settlement = Literal["accepted", "released", "returned", "rejected"]
Mechanism = Literal["hold", "nack", "schedule", "park"]
# What becomes of a message; the tests of the adapters see nothing else.
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
    """How we know what we rely on (only-honoured-verbs)."""

    PROVED = "proved"  # the contract shows it on the real broker
    PROBED = "probed"  # tried on this very broker at start
    DECLARED = "declared"  # the user says so
    UNKNOWN = "unknown"  # one warning, naming the rule it weakens
    IMPOSSIBLE = "impossible"  # refused at start, with the cure


@dataclass(frozen=True, slots=True)
class ScheduleRange:
    """The broker's own delay for a copy.

    `rungs` are the delays it offers, in seconds, ascending; none means any delay from `smallest` on. A longer
    rest takes several hops. `lateness`: it comes up to this much after its time, so that much less is asked for,
    and what comes early is held for the last bit.
    """

    rungs: tuple[float, ...] = ()
    smallest: float = 0.001
    lateness: float = 0.0

    def hop(self, rest: float) -> float:
        """The longest delay not above `rest` that one copy can wait, in seconds; 0 when `rest` is too short."""
        if self.rungs:
            return max((rung for rung in self.rungs if rung <= rest), default=0.0)
        return rest - self.lateness if rest - self.lateness >= self.smallest else 0.0


@dataclass(frozen=True, slots=True)
class VerbRecord:
    """Says what a verb of the protocol does on this broker, and what we do instead, in Markdown for docs/verbs.md.

    `outcome` is what becomes of the message: of a verb whose `basis` is proved or probed, each adapter's tests try it
    on the real broker and compare. *back* means back in its queue at once: with nothing to show for it, with the
    broker's redelivered mark, or with its count raised. `note` says the rest. `kind`: the type of queue, where the
    broker has several and they differ.
    """

    name: str
    outcome: SettlementOutcome
    instead: str
    note: str = ""
    kind: str = ""
    basis: Trust = Trust.PROVED


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLimit:
    """Describes what the broker does with messages that come back too often or are kept too long (broker-limits).

    `returns`: none survives the counted return of this number (>= 1); None: there is no such limit. `buried`: where
    the broker puts it then; empty: nowhere, it is deleted. `spelled`: the limit as it is set at the broker.
    `ack_timeout`: seconds after which an unsettled delivery is taken back; None: not told. An unknown limit says `why`.
    `returned_after`: seconds for which the broker itself keeps back what is given back; None: not known.
    """

    returns: int | None = None
    buried: str = ""
    spelled: str = ""
    ack_timeout: float | None = None
    returned_after: float | None = 0.0
    trust: Trust = Trust.PROBED
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """One broker behind one driver. Sizes in bytes, times in seconds."""

    dialect: str  # "rabbitmq+pika"
    broker_kind: str  # "rabbitmq"
    broker_version: str = ""
    honours: frozenset[Settlement] = frozenset({"accepted"})  # the verbs that mean what we mean by them
    released_uncounted: bool = False  # `released` never moves the broker towards a limit of its own
    cumulative: bool = False  # one settle may cover several accepted deliveries
    atomic_move: bool = False  # {send copies, accept the original} as one transaction
    atomic_schedule: bool = False  # the same with copies that the broker delays
    schedule: ScheduleRange | None = None
    delayed_release: ScheduleRange | None = (
        None  # what is given back comes again after so long, with marks of ours on it
    )
    by_source: bool = False  # not at every source alike: `Adapter.capabilities_at` tells
    counted_header: str = ""  # of a message's counted returns: from two on, a queue's own delay of returns is longer
    passing_prefix: str = ""  # of a queue that the broker named and that goes away by itself: it gets no helper queues
    delay_cure: str = ""  # what to do about a delay that cannot be had here, in words of this broker
    exact_headers: bool = True  # foreign header values survive a copy in type and value
    header_bytes: int = 64_000  # all headers of one message together
    value_bytes: int = 8_000  # one header value
    ack_timeout: float | None = None  # the broker takes an unsettled delivery back after this long
    browse: Literal["none", "requeue", "copy"] = "none"  # requeue: looking marks the message as redelivered
    depth: bool = False
    count: Literal["none", "flag", "count"] = "flag"  # the broker's hint of earlier deliveries
    marks_returns: bool = True  # what comes back, for whatever reason, has that hint
    keeps_order_on_release: bool = False
    shows_group: bool = True  # a consumer sees the group that a producer put a message into
    selectors: bool = False  # a consumer may ask for some of the messages
    shares_subscriptions: bool = False  # several consumers at a time may have one durable subscription
    strip: frozenset[str] = frozenset()  # headers that a copy must not carry
    strip_prefixes: tuple[str, ...] = ()
    queue_address: str = "{name}"  # how a plain client of this broker names a queue
    topic_address: str = "{name}"
    subscription_address: str = "{name}::{subscription}"  # what reaches one subscription to a topic alone
    # header -> template of what a dead letter carries in it: {name} {address} {kind} {mark} {cause}
    death_marks: Mapping[str, str] = field(default_factory=dict)
    death_reasons: Mapping[str, str] = field(default_factory=dict)  # our reason -> the broker's word, for {mark}
    trust: Mapping[str, Trust] = field(default_factory=dict)  # capability -> how we know; proved when absent
    verbs: tuple[VerbRecord, ...] = ()  # for people: `python -m redeliver_mw.adapter.verb_table`

    def address(self, destination: Destination) -> str:
        """The destination in the form in which a plain client of this broker would send to it."""
        template = self.queue_address if destination.kind == "queue" else self.topic_address
        template = self.subscription_address if destination.subscription else template
        return template.format(name=destination.name, subscription=destination.subscription)


@dataclass(frozen=True, slots=True)
class SourceCapabilities:
    """What can be done at one source. `ack_timeout`: seconds until an unsettled delivery is taken back; None: never."""

    capabilities: Capabilities
    limit: BrokerLimit
    ack_timeout: float | None
