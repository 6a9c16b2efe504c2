# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Looks up what is behind a name at the broker, and whether it keeps a copy. On the loop's thread.

Artemis accepts, and loses, what goes to an address without a queue, to a queue whose filter does not match, and to
a full address whose policy is DROP: so each target is looked up before a link to it is opened.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import proton

from redeliver_mw.adapter.capabilities import BrokerLimit, Capabilities
from redeliver_mw.errors import BrokerError, BrokerUnavailable, DestinationMissing, RedeliverError
from redeliver_mw.message import Destination
from redeliver_proton.broker_limits import artemis_limit, unread
from redeliver_proton.brokers.artemis.capabilities import (
    ORIGINAL_ADDRESS,
    address_and_queue,
    filter_takes,
    link_address,
)
from redeliver_proton.brokers.artemis.management import ArtemisManagement, ManagementDenied
from redeliver_proton.loop import CallLoop
from redeliver_proton.route import OnRoute, OnRouteTarget, Route, RouteQueue, RouteTarget

log = logging.getLogger("redeliver_mw.proton")

ANYCAST, MULTICAST = "ANYCAST", "MULTICAST"
UNLIMITED = 1000  # queues of one address that are looked at


class ArtemisTopology:
    """Asks the management of whatever connection is up."""

    def __init__(self) -> None:
        self._management: ArtemisManagement | None = None
        self._warned = False

    def connected(self, loop: CallLoop, connection: proton.Connection) -> None:
        self._management = ArtemisManagement(loop, connection)

    def disconnected(self, error: BaseException) -> None:
        management, self._management = self._management, None
        if management is not None:
            management.lost(error)

    # -- looking ----------------------------------------------------------------------------------

    def look_up(self, address: str, answer: OnRouteTarget) -> None:
        """Return the address with its queues; an unknown place if this user may not ask, which is logged once."""
        management = self._management
        if management is None:
            return answer(BrokerUnavailable("there is no connection just now", code="connection-lost"))

        def listed(found: Any) -> None:
            if isinstance(found, BrokerError):
                return answer(self._unknown(address, found))
            queues = tuple(_queue(row) for row in json.loads(found)["data"])
            management.ask("broker", "getAddressSettingsAsJSON", address, answer=lambda f: settled(queues, f))

        def settled(queues: tuple[RouteQueue, ...], found: Any) -> None:
            if isinstance(found, BrokerError):
                return answer(self._unknown(address, found))
            policy = json.loads(found).get("addressFullMessagePolicy", "PAGE")
            answer(RouteTarget(address, tuple(q for q in queues if q.address == address), policy))

        wanted = {"field": "address", "operation": "EQUALS", "value": address}
        management.ask("broker", "listQueues", json.dumps(wanted), 1, UNLIMITED, answer=listed)

    def _unknown(self, address: str, error: BrokerError) -> RouteTarget | RedeliverError:
        if not isinstance(error, ManagementDenied):
            return error
        if not self._warned:
            self._warned = True
            log.warning(
                "this user may not ask the broker's management (%s): whether %s and others keep what is sent to them "
                "is unknown; give it the permission `manage`",
                error.what,
                address,
            )
        return RouteTarget(address, known=False)

    def depth(self, source: Destination, answer: Callable[[int | RedeliverError], None]) -> None:
        """Answer how many messages wait in the queue: neither in flight nor scheduled."""
        _, queue = address_and_queue(source)
        management = self._management
        if management is None:
            return answer(BrokerUnavailable("there is no connection just now", code="connection-lost"))

        def found(rows: Any) -> None:
            if isinstance(rows, BrokerError):
                return answer(rows)
            for row in json.loads(rows)["data"]:
                if row["name"] == queue:
                    return answer(_waiting(row))
            answer(DestinationMissing(f"{source} is not there", cure="Declare it, or check its name"))

        wanted = {"field": "name", "operation": "EQUALS", "value": queue}
        management.ask("broker", "listQueues", json.dumps(wanted), 1, UNLIMITED, answer=found)

    def capabilities_at(
        self,
        source: Destination,
        general: Capabilities,
        answer: Callable[[Capabilities | RedeliverError], None],
        *,
        declare: bool,
    ) -> None:
        """Answer the general capabilities, which are the same at every source."""
        answer(general)

    def limit_at(self, source: Destination, answer: Callable[[BrokerLimit], None]) -> None:
        """Answer the limit of the source's address, and whether its dead-letter address keeps messages."""
        address, _ = address_and_queue(source)
        management = self._management
        if management is None:
            return answer(unread("there is no connection just now"))

        def settings_found(found: Any) -> None:
            if isinstance(found, BrokerError):
                return answer(unread(found.what))
            settings = json.loads(found)
            dead = settings.get("deadLetterAddress")
            if not dead or settings.get("autoCreateDeadLetterResources"):
                return answer(artemis_limit(settings, kept=bool(dead)))
            wanted = {"field": "address", "operation": "EQUALS", "value": dead}
            return management.ask(
                "broker",
                "listQueues",
                json.dumps(wanted),
                1,
                UNLIMITED,
                answer=lambda rows: listed(settings, dead, rows),
            )

        def listed(settings: Any, dead: str, rows: Any) -> None:
            queues = [] if isinstance(rows, BrokerError) else [_queue(row) for row in json.loads(rows)["data"]]
            kept = any(q.address == dead and filter_takes(q.filter, address) for q in queues)
            answer(artemis_limit(settings, kept=kept))

        return management.ask("broker", "getAddressSettingsAsJSON", address, answer=settings_found)

    # -- routes -----------------------------------------------------------------------------------

    def route(self, target: Destination, answer: OnRoute, *, declare: bool = False, consuming: bool = False) -> None:
        """Answer how a copy to `target` must go so that a queue keeps it. A missing target is made with `declare`.

        `consuming`: how it is consumed; what a copy to it would meet is only warned of.
        """
        address, _ = address_and_queue(target)

        def looked(place: RouteTarget | RedeliverError) -> None:
            if isinstance(place, RedeliverError):
                return answer(place)
            found = consumed(target, place) if consuming else route_to(target, place)
            missing = isinstance(found, DestinationMissing)
            if missing and declare and not (target.kind == "topic" and not target.subscription):
                self._make(target, lambda made: self._after_making(target, made, answer, consuming))
            else:
                answer(found)

        self.look_up(address, looked)

    def _after_making(self, target: Destination, made: Any, answer: OnRoute, consuming: bool) -> None:
        if isinstance(made, BrokerUnavailable):
            answer(made)
        elif isinstance(made, BrokerError):
            answer(
                DestinationMissing(
                    f"{target} cannot be made: {made.what}", cure="Declare it yourself", code="destination-not-made"
                )
            )
        else:
            self.route(
                target, answer, consuming=consuming
            )  # "exists already" is also the answer when it is another address's

    def _make(self, target: Destination, answer: Callable[[Any], None]) -> None:
        address, queue = address_and_queue(target)
        routing = ANYCAST if target.kind == "queue" else MULTICAST
        wanted = {
            "name": queue,
            "address": address,
            "routing-type": routing,
            "durable": True,
            "auto-delete": False,
            "auto-create-address": True,
        }
        if self._management is None:
            return answer(BrokerUnavailable("there is no connection just now", code="connection-lost"))
        self._management.ask("broker", "createQueue", json.dumps(wanted), True, answer=answer)


def consumed(source: Destination, place: RouteTarget) -> Route | RedeliverError:
    """Return how a source is consumed: any queue of it will do."""
    found = route_to(source, place)
    address, queue = address_and_queue(source)
    if isinstance(found, BrokerError) and any(q.name == queue or queue == address for q in place.queues):
        if isinstance(found, DestinationMissing) or all(
            q.routing == MULTICAST for q in place.queues if queue == address
        ):
            return found
        log.warning("%s is consumed, but copies cannot be sent back to it: %s", source, found)
        return Route(link_address(source), "topic" if source.kind == "topic" else "queue")
    if isinstance(found, Route) and found.filter:
        log.warning(
            "%s takes only what matches %s: a retry copy is kept where that looks at the message's own headers, and at "
            "nothing else",
            source,
            found.filter,
        )
    return found


def route_to(target: Destination, place: RouteTarget) -> Route | RedeliverError:
    """Return how `target` keeps a copy; DestinationMissing if it is missing, BrokerError if it would lose the copy."""
    address, queue = address_and_queue(target)
    capability = "topic" if target.kind == "topic" else "queue"
    if not place.known:
        return Route(link_address(target), capability)
    if place.full_policy == "DROP":
        return BrokerError(
            f"{address} drops what is sent to it when it is full, and says that it took it",
            cure="Set its address-full-policy to PAGE, BLOCK or FAIL",
            code="target-loses-messages",
        )
    if target.kind == "topic" and not queue:
        if any(filter_takes(q.filter, address) for q in place.queues):
            return Route(address, "topic")
        return DestinationMissing(
            f"the topic {address} has no queue that keeps what is sent to it",
            cure=_TOPIC_CURE,
            code="target-loses-messages",
        )
    if queue != address or target.kind == "topic":
        return _to_one(target, place, queue)
    return _to_queue(address, place)


_TOPIC_CURE = "Subscribe a durable consumer first"


def _to_one(target: Destination, place: RouteTarget, name: str) -> Route | RedeliverError:
    """Return the route to a queue by its fully qualified name; its filter holds there too."""
    found = next((q for q in place.queues if q.name == name), None)
    if found is None:
        return DestinationMissing(f"{target} is not there", cure="Declare it, or check its name")
    capability = "topic" if found.routing == MULTICAST else "queue"
    return Route(link_address(target), capability, _only_from(found.filter), found.filter)


def _to_queue(address: str, place: RouteTarget) -> Route | RedeliverError:
    anycast = [q for q in place.queues if q.routing == ANYCAST]
    if any(not q.filter for q in anycast):
        return Route(address, "queue")
    if anycast or any(q.filter for q in place.queues):
        one = (anycast or [q for q in place.queues if q.filter])[0]
        return BrokerError(
            f"its queue {one.name} takes only what matches {one.filter}, and the rest is lost",
            cure=f"Name that queue, {address}::{one.name}, or make one without a filter",
            code="target-loses-messages",
        )
    if place.queues:
        return BrokerError(
            f"{address} is a topic (MULTICAST), no queue",
            cure=f"Write topic:{address}, or name one of its queues",
            code="destination-kind",
        )
    return DestinationMissing(f"{address} is not there, or has no queue", cure="Declare it, or check its name")


def _only_from(text: str) -> str | None:
    """Return the address in a filter on `_AMQ_ORIG_ADDRESS`; None if there is no such filter."""
    if text and ORIGINAL_ADDRESS in text:
        name = text.partition("'")[2].rpartition("'")[0]
        return name.replace("''", "'")
    return None


def _queue(row: dict[str, Any]) -> RouteQueue:
    return RouteQueue(
        row["name"], row["address"], row["routingType"], row.get("filter") or "", row.get("durable") == "true"
    )


def _waiting(row: dict[str, Any]) -> int:
    counted = int(row["messageCount"]) - int(row["deliveringCount"]) - int(row["scheduledCount"])
    return max(0, counted)
