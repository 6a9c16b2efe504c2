# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Looks up, makes and binds RabbitMQ's queues by their addresses. On the loop's thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import proton

from redeliver_mw.adapter.capabilities import BrokerLimit, Capabilities
from redeliver_mw.errors import BrokerError, DestinationMissing, RedeliverError
from redeliver_mw.message import Destination
from redeliver_proton.broker_limits import rabbit_limit, unread
from redeliver_proton.brokers.rabbitmq.capabilities import CLASSIC, SOURCE, TOPICS, YOUNG, queue_of
from redeliver_proton.brokers.rabbitmq.management import RabbitManagement
from redeliver_proton.loop import CallLoop
from redeliver_proton.route import OnRoute, OnRouteTarget, Route, RouteTarget

OnQueue = Callable[[Mapping[str, Any] | RedeliverError], None]  # the queue as the broker describes it


class RabbitTopology:
    """Asks the management of whatever connection is up."""

    def __init__(self) -> None:
        self._management: RabbitManagement | None = None
        self._made: dict[str, float] = {}  # quorum queues of ours, and when: too young to be trusted with a copy yet

    def connected(self, loop: CallLoop, connection: proton.Connection) -> None:
        self._management = RabbitManagement(loop, connection)

    def disconnected(self, error: BaseException) -> None:
        management, self._management = self._management, None
        if management is not None:
            management.lost(error)

    # -- looking ----------------------------------------------------------------------------------

    def look_up(self, address: str, answer: OnRouteTarget) -> None:
        """Answer that nothing is known: RabbitMQ does not say why there is no credit, and the credit is waited for."""
        answer(RouteTarget(address, known=False))

    def depth(self, source: Destination, answer: Callable[[int | RedeliverError], None]) -> None:
        """Answer how many messages are ready: neither in flight nor given back for later."""

        def found(queue: Mapping[str, Any] | RedeliverError) -> None:
            answer(queue if isinstance(queue, RedeliverError) else int(queue["message_count"]))

        self._find(source, found)

    def capabilities_at(
        self,
        source: Destination,
        general: Capabilities,
        answer: Callable[[Capabilities | RedeliverError], None],
        *,
        declare: bool,
    ) -> None:
        """Answer the capabilities of a source: only a quorum queue keeps a message back, and we make quorum queues."""

        def found(queue: Mapping[str, Any] | RedeliverError) -> None:
            if isinstance(queue, DestinationMissing) and (declare or source.kind == "topic"):
                answer(general)
            elif isinstance(queue, RedeliverError):
                answer(queue)
            elif queue.get("type") == "quorum":
                answer(general)
            else:
                cure = (
                    f"make {queue_of(source)} a quorum queue: a {queue.get('type')} one gives nothing back with a delay"
                )
                answer(replace(general, delayed_release=None, delay_cure=general.delay_cure or cure))

        self._find(source, found)

    def limit_at(self, source: Destination, answer: Callable[[BrokerLimit], None]) -> None:
        """Answer the limit of a source; a missing queue is ours to make, without a limit."""

        def found(queue: Mapping[str, Any] | RedeliverError) -> None:
            if isinstance(queue, DestinationMissing):
                answer(BrokerLimit())
            else:
                answer(unread(queue.what) if isinstance(queue, RedeliverError) else rabbit_limit(queue))

        self._find(source, found)

    def _find(self, source: Destination, answer: OnQueue) -> None:
        def answered(status: int, body: Any) -> None:
            if status == 200:
                answer(body)
            elif status == 404:
                answer(DestinationMissing(f"{source} is not there", cure="Declare it, or check its name"))
            else:
                answer(_refused(source, status, body))

        self._ask("GET", f"/queues/{_coded(queue_of(source))}", answered)

    def _ask(self, method: str, path: str, answer: Callable[[int, Any], None], body: Any = None) -> None:
        if self._management is None:
            return answer(0, BrokerError("there is no connection just now", code="connection-lost"))
        return self._management.ask(method, path, answer, body)

    # -- routes -----------------------------------------------------------------------------------

    def route(self, target: Destination, answer: OnRoute, *, declare: bool = False, consuming: bool = False) -> None:
        """Answer how a copy to `target` must go so that a queue keeps it. A missing queue is made with `declare`."""
        if target.kind == "topic" and not target.subscription:
            return answer(Route(f"/exchanges/{_coded(TOPICS)}/{_coded(target.name)}"))  # without a queue: given back

        def found(queue: Mapping[str, Any] | RedeliverError) -> None:
            if isinstance(queue, DestinationMissing) and declare:
                self._make(target, made, SOURCE if consuming else CLASSIC)
            else:
                made(queue)

        def made(queue: Mapping[str, Any] | RedeliverError) -> None:
            if isinstance(queue, RedeliverError):
                answer(queue)
            elif not consuming and (left := self._too_young(queue)) > 0:
                answer(
                    BrokerError(
                        f"{target} was made just now: not to be trusted for {left:.0f} s yet",
                        code="destination-too-new",
                    )
                )
            elif consuming and declare and target.kind == "topic":
                self._bind(target, lambda refused: answer(refused or _route(queue)))
            else:
                answer(_route(queue))

        return self._find(target, found)

    def _too_young(self, queue: Mapping[str, Any]) -> float:
        since = self._made.get(queue["name"])
        return since + YOUNG - time.monotonic() if since is not None and queue.get("type") == "quorum" else 0.0

    def _make(self, target: Destination, answer: OnQueue, arguments: Mapping[str, Any]) -> None:
        def answered(status: int, body: Any) -> None:
            if status in (200, 201):
                self._made[queue_of(target)] = time.monotonic()
                answer(body)
            else:
                why = _refused(target, status, body)
                answer(
                    DestinationMissing(
                        f"{target} cannot be made: {why.what}", cure="Declare it yourself", code="destination-not-made"
                    )
                )

        wanted = {"durable": True, "arguments": dict(arguments)}
        self._ask("PUT", f"/queues/{_coded(queue_of(target))}", answered, wanted)

    def _bind(self, target: Destination, answer: Callable[[RedeliverError | None], None]) -> None:
        """Let the subscription's queue have what is published to the topic; nothing to do the second time."""

        def answered(status: int, body: Any) -> None:
            answer(None if status in (200, 201, 204) else _refused(target, status, body))

        wanted = {
            "source": TOPICS,
            "destination_queue": queue_of(target),
            "binding_key": target.name,
            "arguments": {},
        }
        self._ask("POST", "/bindings", answered, wanted)


def _route(queue: Mapping[str, Any]) -> Route:
    return Route(f"/queues/{_coded(queue['name'])}", postpones=queue.get("type") == "quorum")


def _coded(name: str) -> str:
    return quote(name, safe="")


def _refused(target: Destination, status: int, body: Any) -> BrokerError:
    if isinstance(body, BrokerError):
        return body
    return BrokerError(f"{target}: {body} ({status})", cure="Check this user's permissions", code="queue-refused")
