# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Finds out how an Artemis and some of its queues are set up, for `redeliver doctor`. Blocks, on the caller's thread.

Settings come from the management address. Permissions are tried by attaching links without credit to queues that
exist, so that no message moves and nothing is made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import proton

from redeliver_mw.adapter.capabilities import BrokerLimit, Trust
from redeliver_mw.adapter.inspection import (
    BrokerFact,
    BrokerFactName,
    ClockReading,
    Inspection,
    InspectionRequest,
    LengthLimit,
    OwnDeadLetters,
    Permission,
    QueueFacts,
    Setting,
)
from redeliver_mw.errors import BrokerError, BrokerUnavailable, DestinationMissing
from redeliver_mw.message import Destination
from redeliver_proton.broker_limits import artemis_limit
from redeliver_proton.brokers.artemis.capabilities import (
    ORIGINAL_ADDRESS,
    address_and_queue,
    filter_takes,
    link_address,
)
from redeliver_proton.brokers.artemis.management import ADDRESS, ArtemisManagement, ManagementReply
from redeliver_proton.brokers.artemis.topology import UNLIMITED, route_to
from redeliver_proton.questions import LoopQuestions
from redeliver_proton.route import RouteQueue, RouteTarget

PATIENCE = 5.0  # seconds for an answer of the management
STEPS = 50  # addresses that are followed at most along the broker's own dead-lettering
ALLOW_MANAGE = f"Give a role of this user the permission manage for {ADDRESS} in broker.xml"
OVERFLOWS = {"DROP": "drops", "FAIL": "refuses", "BLOCK": "blocks"}


class ArtemisInspector:
    """Inspects one broker, once."""

    def __init__(self, questions: LoopQuestions, request: InspectionRequest) -> None:
        self._questions, self._request = questions, request
        before = request.clock.now().wall
        self._management: ArtemisManagement = questions.wait(
            lambda answer: answer(ArtemisManagement(questions.loop, questions.connection))
        )
        self._denied = ""
        self._rows: dict[str, Sequence[Mapping[str, Any]]] = {}  # by address
        self._settings: dict[str, Mapping[str, Any]] = {}  # by address
        self._skew = self._clock(before)

    def inspect(self) -> Inspection:
        """Return all that this user can see."""
        wanted = dict.fromkeys((*self._request.sources, *self._request.targets))
        queues = {one: self._facts(one) for one in wanted if one.kind == "queue" or one.subscription}
        return Inspection(
            queues=queues,
            facts=tuple(self._broker_facts()),
            permissions=tuple(self._permissions(queues)),
            clock=self._skew,
            clock_why=self._denied,
            sends_with=(proton.Sender.stream,),
        )

    # -- the management ---------------------------------------------------------------------------

    def _ask(self, operation: str, *arguments: Any) -> Any:
        """Return the answer of an operation of the broker; None if it was refused, which is noted."""
        return self._result(partial(self._management.ask, "broker", operation, *arguments))

    def _attribute(self, name: str) -> Any:
        return self._result(partial(self._management.attribute, "broker", name))

    def _result(self, ask: Callable[..., None]) -> Any:
        if self._denied:
            return None
        try:
            found = self._questions.wait(lambda answer: ask(answer=answer), PATIENCE)
        except BrokerUnavailable as unavailable:  # as for a user whose questions the broker drops (observed on 2.44.0)
            found = unavailable
        if isinstance(found, BrokerError):
            if not isinstance(found, ManagementReply):  # which is an answer: there is no such thing
                self._denied = self._denied or found.what
            return None
        return found

    def _clock(self, before: float) -> ClockReading | None:
        """Return the reading of the newest session's creation: that of this inspection, or one that began since."""
        text = self._ask("listAllSessionsAsJSON")
        after = self._request.clock.now().wall
        times = [int(one["creationTime"]) for one in json.loads(text or "[]") if "creationTime" in one]
        if not times:
            return None
        return ClockReading(max(times) / 1000 - (before + after) / 2, (after - before) / 2 + 0.001)

    def _rows_of(self, address: str) -> Sequence[Mapping[str, Any]]:
        if address not in self._rows:
            wanted = {"field": "address", "operation": "EQUALS", "value": address}
            text = self._ask("listQueues", json.dumps(wanted), 1, UNLIMITED)
            self._rows[address] = [
                row for row in json.loads(text or '{"data": []}')["data"] if row["address"] == address
            ]
        return self._rows[address]

    def _settings_of(self, address: str) -> Mapping[str, Any]:
        if address not in self._settings:
            self._settings[address] = json.loads(self._ask("getAddressSettingsAsJSON", address) or "{}")
        return self._settings[address]

    # -- the broker -------------------------------------------------------------------------------

    def _broker_facts(self) -> list[BrokerFact]:
        facts = [BrokerFact("scheduler", True, "every Artemis delays copies")]
        if self._denied:
            names: tuple[BrokerFactName, ...] = ("alarm", "persistence", "journal-sync")
            return [*facts, *(BrokerFact(name, None, self._denied, ALLOW_MANAGE) for name in names)]
        used, most = float(self._attribute("diskStoreUsage") or 0), float(self._attribute("maxDiskUsage") or 100)
        facts.append(
            BrokerFact(
                "alarm",
                used * 100 < most,
                f"the broker's disk is {used:.0%} full, and from {most:.0f}% on the broker takes no copy",
                "Free disk space, or raise max-disk-usage in broker.xml",
            )
        )
        kept = self._attribute("persistenceEnabled")
        facts.append(
            BrokerFact(
                "persistence",
                bool(kept),
                "messages are kept on disk" if kept else "all messages are gone after a restart of the broker",
                "Set persistence-enabled to true in broker.xml",
            )
        )
        names_of = {"journalSyncNonTransactional": "non-transactional", "journalSyncTransactional": "transactional"}
        loose = [f"journal-sync-{what}" for name, what in names_of.items() if self._attribute(name) is False]
        facts.append(
            BrokerFact(
                "journal-sync",
                not loose,
                f"the broker confirms a copy that is not on the disk yet ({' and '.join(loose)} false)"
                if loose
                else "a confirmed copy is on the disk",
                f"Set {' and '.join(loose)} to true in broker.xml",
            )
        )
        return facts

    # -- queues -----------------------------------------------------------------------------------

    def _facts(self, destination: Destination) -> QueueFacts:
        address, name = address_and_queue(destination)
        rows, settings = self._rows_of(address), self._settings_of(address)
        if self._denied:
            limit = BrokerLimit(trust=Trust.UNKNOWN, why=self._denied)
            why, cure = self._denied, ALLOW_MANAGE
            return QueueFacts(destination=destination, exists=None, why=why, why_cure=cure, limit=limit)
        route = route_to(destination, RouteTarget(address, tuple(map(_queue, rows))))
        mine = [row for row in rows if row["name"] == name] or (list(rows) if name == address else [])
        if not mine or isinstance(route, DestinationMissing):
            return QueueFacts(destination=destination, exists=False)
        row, at = mine[0], f"in the address-setting that matches {address!r} (broker.xml)"
        dead, kept = self._dead_letters(address)
        facts = QueueFacts(
            destination=destination,
            type=row["routingType"].lower(),
            misses=self._misses(destination, route, row),
            durable=None
            if row["durable"] == "true"
            else Setting(0.0, "durable false", f"Make {row['name']!r} anew, durable"),
            vanishes=_vanishing(row),
            length=_length(row, settings, at),
            own_dead_letters=dead,
            limit=artemis_limit(settings, kept=kept),
            limit_change=f"Change max-delivery-attempts {at}; -1 is none",
            returned_after=_positive(settings, "redeliveryDelay", "redelivery-delay", at),
        )
        ttl = min(
            filter(None, (_positive(settings, f"{n}Delay", f"{s}-delay", at) for n, s in _EXPIRIES)),
            key=lambda one: one.value,
            default=None,
        )
        expiry = str(settings.get("expiryAddress") or "")
        kept_there = [row for row in self._rows_of(expiry) if expiry] if ttl is not None else []
        return replace(
            facts, ttl=ttl, expires_to=f"expiry-address {expiry}" if kept_there else "", onward=self._onward(address)
        )

    def _misses(self, destination: Destination, route: object, row: Mapping[str, Any]) -> Setting | None:
        """Return why a copy that is sent there is not kept.

        A dead letter carries the address of its source, and all copies carry the headers of their original: a filter
        on those may be meant, as long as the queue is consumed.
        """
        source, name = destination in self._request.sources, row["name"]
        if row.get("enabled") == "false":
            return Setting(0.0, "the queue is disabled", f"Enable it (operation enable of queue.{name})")
        if row.get("filter"):
            origins = [] if source else [address_and_queue(one)[0] for one in self._request.sources]
            taken = [filter_takes(row["filter"], origin) for origin in origins]
            if all(taken) if taken else source and ORIGINAL_ADDRESS not in row["filter"]:
                return None
            return Setting(0.0, f"it takes only what matches {row['filter']}", f"Make {name!r} anew, without a filter")
        return Setting(0.0, route.what, route.cure) if isinstance(route, BrokerError) else None

    def _dead_letters(self, address: str) -> tuple[OwnDeadLetters | None, bool]:
        """Return where the broker puts dead letters of an address, and whether they are kept there."""
        settings = self._settings_of(address)
        to = settings.get("deadLetterAddress")
        if not to:
            return None, False
        change = f"Make a queue of {to!r} without a filter, or change dead-letter-address for {address!r} in broker.xml"
        if settings.get("autoCreateDeadLetterResources"):
            return OwnDeadLetters(f"dead-letter-address {to}", "", change), True
        rows = self._rows_of(to)
        if any(filter_takes(row.get("filter") or "", address) for row in rows):
            return OwnDeadLetters(f"dead-letter-address {to}", "", change), True
        lost = f"the address {to!r} has no queue"
        if rows:
            lost = f"the queue {rows[0]['name']!r} takes only what matches {rows[0]['filter']}"
        return OwnDeadLetters(f"dead-letter-address {to}", lost, change), False

    def _onward(self, start: str) -> tuple[str, ...]:
        """Return the queues that expiry and dead-lettering lead to; not that an address dead-letters to itself.

        `artemis create` lets the address DLQ do that, which does no harm as long as nobody rejects a message there.
        """
        found: dict[str, None] = {}
        waiting, seen = [start], {start}
        while waiting and len(seen) < STEPS:
            address = waiting.pop(0)
            settings = self._settings_of(address)
            ways = [settings.get("deadLetterAddress")]
            if any(settings.get(f"{name}Delay", -1) > 0 for name, _ in _EXPIRIES):
                ways.append(settings.get("expiryAddress"))
            for way in filter(None, ways):
                if way != address:
                    found.update(dict.fromkeys(row["name"] for row in self._rows_of(way)))
                if way not in seen:
                    seen.add(way)
                    waiting.append(way)
        return tuple(found)

    # -- permissions ------------------------------------------------------------------------------

    def _permissions(self, queues: Mapping[Destination, QueueFacts]) -> list[Permission]:
        found = [Permission("manage", ADDRESS, not self._denied, self._denied, ALLOW_MANAGE)]
        for destination, facts in queues.items():
            source = destination in self._request.sources
            if source:
                found.append(self._tried("consume", "receiver", destination, facts))
            found.append(self._tried("publish", "sender", destination, facts))
        return found

    def _tried(self, verb: Any, role: Any, destination: Destination, facts: QueueFacts) -> Permission:
        where = f"{'to' if verb == 'publish' else 'from'} {destination}"
        if not self._request.probe:
            return Permission(verb, where, None, "--no-probe")
        if not facts.exists:
            return Permission(verb, where, None, "not tried: a link to a queue that does not exist would make it")
        capability = "topic" if destination.kind == "topic" else "queue"
        answer = self._questions.refused(role, link_address(destination), capability)
        if answer and "permission" not in answer and "unauthorized" not in answer:
            return Permission(verb, where, None, answer)
        address, _ = address_and_queue(destination)
        kind = "send" if verb == "publish" else "consume"
        change = f"Give a role of this user the permission {kind} for {address!r} in broker.xml"
        return Permission(verb, where, not answer, answer, change if answer else "")


_EXPIRIES = (("expiry", "expiry"), ("maxExpiry", "max-expiry"))


def _queue(row: Mapping[str, Any]) -> RouteQueue:
    return RouteQueue(row["name"], row["address"], row["routingType"], row.get("filter") or "")


def _vanishing(row: Mapping[str, Any]) -> Setting | None:
    """Return why the messages in it are deleted by themselves; auto-delete is only of a queue without messages."""
    for mark, name in (("temporary", "temporary"), ("purgeOnNoConsumers", "purge-on-no-consumers")):
        if row.get(mark) == "true":
            return Setting(0.0, f"{name} true", f"Make {row['name']!r} anew, without {name}")
    return None


def _length(row: Mapping[str, Any], settings: Mapping[str, Any], at: str) -> LengthLimit | None:
    ring = int(row.get("ringSize") or -1)
    if ring > 0:
        return LengthLimit("drops", f"ring-size {ring}", f"Make {row['name']!r} anew, without ring-size")
    policy = settings.get("addressFullMessagePolicy", "PAGE")
    if policy not in OVERFLOWS:
        return None
    sizes = (("maxSizeBytes", "max-size-bytes"), ("maxSizeMessages", "max-size-messages"))
    limits = [f"{name} {settings[key]}" for key, name in sizes if settings.get(key, -1) > 0]
    spelled = ", ".join((*limits, f"address-full-policy {policy}"))
    overflow: Any = OVERFLOWS[policy]
    return LengthLimit(overflow, spelled, f"Set address-full-policy to PAGE {at}")


def _positive(settings: Mapping[str, Any], key: str, name: str, at: str) -> Setting | None:
    value = settings.get(key, 0)
    return Setting(value / 1000, f"{name} {value}", f"Change {name} {at}") if value > 0 else None


def inspect(questions: LoopQuestions, request: InspectionRequest) -> Inspection:
    """Return what this Artemis shows. Blocks."""
    return ArtemisInspector(questions, request).inspect()
