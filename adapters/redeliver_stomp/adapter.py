# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Connects to ActiveMQ Classic through stomp.py: one thread of ours, a connection to consume, one to publish.

The thread writes, times and decides; stomp.py's receiver threads only turn bytes into frames for it. A durable
subscription has a consuming connection of its own, because its client id may be used by one only. Every public
method may be called from any thread and returns at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from redeliver_mw.adapter import Cancel, ConnectionReport, OnAnswer, OnTransferred, Sink, Subscription
from redeliver_mw.adapter.capabilities import BrokerLimit, Capabilities, Settlement
from redeliver_mw.adapter.kit.ledger_scope import scope_of_hosts
from redeliver_mw.adapter.kit.settlements import SettlementQueue
from redeliver_mw.adapter.kit.sources import SourceTable
from redeliver_mw.adapter.registry import BrokerUrl
from redeliver_mw.errors import BrokerError, RedeliverError
from redeliver_mw.message import Delivery, Destination, MessageReader, Outgoing
from redeliver_stomp.browse import Browser
from redeliver_stomp.capabilities import capabilities, client_id, problem, version_of
from redeliver_stomp.connection import PORT
from redeliver_stomp.consumer import Consumer, check_source, why_refused
from redeliver_stomp.consumer_connection import ConsumerConnection
from redeliver_stomp.frames import RawFrame
from redeliver_stomp.loop import StompLoop
from redeliver_stomp.messages import READER, delivery_of
from redeliver_stomp.publisher import Publisher
from redeliver_stomp.scheduler_probe import probe_scheduler

if TYPE_CHECKING:
    from redeliver_mw.adapter.inspection import Inspection, InspectionRequest

log = logging.getLogger("redeliver_mw.stomp")

BROWSED = -1  # the generation of what was only looked at: it cannot be settled


class StompAdapter:
    """Is the `Adapter` of `activemq+stomp`."""

    def __init__(self, url: BrokerUrl) -> None:
        self._url = url
        self._loop = StompLoop("redeliver-stomp", self._fault)
        self._publisher = Publisher(self._loop, url, closed=self._ended)
        self._main = self._make_connection("consume", lambda error: self._sink.failed(error, None), self._up)
        self._durable_connections: dict[Destination, ConsumerConnection] = {}  # of durable subscriptions
        self._capabilities = capabilities("", scheduler=True)
        self._sink: Sink
        self._sources: SourceTable[Consumer] = SourceTable(
            log, call_later=self._loop.call_later, subscribe=self._subscribe_again, over=self._over_with
        )
        self._browsers: set[Browser] = set()
        self._settlements: SettlementQueue[Settlement] = SettlementQueue(
            self._decide, lambda: self._loop.call(self._settlements.write)
        )
        self._probed = False  # on the connection that there is now
        self._closing = False
        self._closed = threading.Event()

    def _make_connection(
        self,
        role: str,
        failed: Callable[[RedeliverError], None],
        up: Callable[[ConsumerConnection, Mapping[str, str]], None],
        client: str = "",
    ) -> ConsumerConnection:
        def patience() -> float:
            return self._publisher._patience  # one number for both

        return ConsumerConnection(
            self._loop, self._url, role, up=up, down=self._down, failed=failed, patience=patience, client_id=client
        )

    @property
    def reader(self) -> MessageReader:
        return READER

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    @property
    def broker(self) -> str:
        host, port = self._url.hosts[0]
        return f"{host}:{port or PORT}"

    @property
    def ledger_scope(self) -> str:
        return scope_of_hosts((host, port or PORT) for host, port in self._url.hosts)

    # -- the public verbs, from any thread ---------------------------------------------------------

    def start(self, sink: Sink, /) -> None:
        self._sink = sink
        self._sources.start(sink)
        self._loop.start()
        self._loop.call(self._main.link.open)

    def connection_reports(self) -> Sequence[ConnectionReport]:
        connections = [self._main, *list(self._durable_connections.values())]
        return [*(connection.link.state.report() for connection in connections), self._publisher.state.report()]

    def source_trouble(self, source: Destination, /) -> str:
        return self._sources.trouble(source)

    def subscribe(self, subscription: Subscription, /) -> None:
        check_source(subscription)
        self._loop.call(lambda: self._subscribe(subscription))

    def settle(
        self, settlements: Sequence[tuple[Delivery, Settlement]], /, *, written: Callable[[], None] | None = None
    ) -> None:
        self._settlements.add(settlements, written)

    def publish(self, out: Outgoing, answer: OnAnswer, /, *, after: float = 0.0) -> None:
        self._loop.call(lambda: self._publisher.publish(out, answer, after))

    def move(self, delivery: Delivery, outs: Sequence[tuple[Outgoing, float]], answer: OnTransferred, /) -> None:
        self._loop.call(lambda: self._move(delivery, outs, answer))

    def check(self, target: Destination, answer: OnAnswer, /, *, declare: bool) -> None:
        """Check a target: ActiveMQ makes a queue at its first use, so only a name that cannot be one is refused."""
        why = problem(target)
        if not why and target.kind == "topic" and not target.subscription:
            log.warning(
                "whether anybody keeps what is sent to %s cannot be seen: without a durable subscriber it is "
                "lost. Name a queue, or see to it that there is one",
                target,
            )
        self._loop.call(lambda: answer("refused" if why else "ok", why))

    def depth(self, source: Destination, answer: Callable[[int | RedeliverError], None], /) -> None:
        """Answer how many messages a browser sees: those that other consumers have in flight count, too."""
        count = 0

        def seen(_frame: RawFrame) -> bool:
            nonlocal count
            count += 1
            return False

        self._loop.call(lambda: self._look(source, seen, lambda error: answer(error or count)))

    def limit_at(self, source: Destination, answer: Callable[[BrokerLimit], None], /) -> None:
        """Answer that there is no limit: ActiveMQ ends a message for nothing but a NACK, which is never sent."""
        answer(BrokerLimit())

    def inspect(self, request: InspectionRequest, /) -> Inspection:
        from redeliver_stomp.inspection import inspect  # for few

        return inspect(self._loop, self._url, schedules=self._capabilities.schedule is not None, request=request)

    def browse(
        self, source: Destination, limit: int, answer: Callable[[Sequence[Delivery] | RedeliverError], None], /
    ) -> None:
        found: list[Delivery] = []

        def seen(frame: RawFrame) -> bool:
            found.append(delivery_of(source, BROWSED, frame))
            return len(found) >= limit

        if limit <= 0:
            self._loop.call(lambda: answer(found))
        else:
            self._loop.call(lambda: self._look(source, seen, lambda error: answer(error or found)))

    def call_later(self, seconds: float, fn: Callable[[], None], /) -> Cancel:
        return self._loop.call_later(seconds, fn).cancel

    def close(self, timeout: float = 10.0, /) -> None:
        if not self._loop.thread.is_alive():
            return
        self._loop.call(self._close)
        self._closed.wait(timeout)
        self._loop.stop()
        self._loop.thread.join(timeout)

    # -- the thread -------------------------------------------------------------------------------

    def _fault(self, error: BaseException) -> None:
        """Open every consuming connection again after a fault of ours, so that nothing hangs half done."""
        for connection in (self._main, *self._durable_connections.values()):
            connection.link.abort(RuntimeError(f"a fault on the connection's thread: {error!r}"))

    def _close(self) -> None:
        self._closing = True
        self._settlements.write()
        self._publisher.close()
        for browser in list(self._browsers):
            browser.close()
        self._sources.all_lost(None)
        for connection in (self._main, *self._durable_connections.values()):
            connection.link.close()
        self._ended()

    def _ended(self) -> None:
        """Note that all connections are closed, as we wanted."""
        connections = (self._main, *self._durable_connections.values())
        if self._closing and self._publisher.is_closed and all(connection.link.is_closed for connection in connections):
            self._closed.set()

    # -- consuming connections --------------------------------------------------------------------

    def _up(self, connection: ConsumerConnection, headers: Mapping[str, str]) -> None:
        version = version_of(headers)
        if not self._publisher.started:
            self._publisher.open()

        def probed(on: bool) -> None:
            self._probed = True
            self._capabilities = capabilities(version, scheduler=on)
            self._sink.connected(self._capabilities)
            self._open_all(connection)

        probe_scheduler(connection, probed)

    def _open_all(self, connection: ConsumerConnection) -> None:
        for source in connection.sources:
            self._open(source, connection)

    def _open(self, source: Consumer, connection: ConsumerConnection) -> None:
        ready = connection is not self._main or self._probed
        if connection.link.is_open and ready and source.generation not in self._sources.live:
            source.open(connection)

    def _down(self, connection: ConsumerConnection, error: BaseException) -> None:
        if connection is self._main:
            self._probed = False
        for source in connection.sources:
            self._sources.lost(source, None if self._closing else error)
            source.abandon()  # also a subscription that was not ready yet
        self._ended()

    def _subscribe(self, subscription: Subscription) -> None:
        wanted = subscription.source
        source = Consumer(
            subscription,
            self.broker,
            arrived=lambda batch: self._sink.arrived(batch),
            ready=self._sources.ready,
            gone=self._gone,
        )
        self._sources.add(source)
        if wanted.kind == "queue":
            self._main.sources.append(source)
            self._open(source, self._main)
            return
        connection = self._durable_connections[wanted] = self._make_connection(
            f"consume {wanted.full_name}",
            lambda error: self._sink.failed(error, wanted),
            lambda connection, _: self._open_all(connection),
            client_id(wanted),
        )
        connection.sources.append(source)
        connection.link.open()

    def _connection_of(self, source: Consumer) -> ConsumerConnection:
        return self._durable_connections.get(source.subscription.source, self._main)

    def _gone(self, source: Consumer, error: str) -> None:
        """Note that the broker refused the source's SUBSCRIBE."""
        if source.was_ready:
            self._sources.refused(source, BrokerError(f"it cannot be consumed: {error}", code="queue-refused"))
        else:
            self._sources.refused(source, why_refused(source.subscription, error, self.broker))

    def _subscribe_again(self, source: Consumer) -> None:
        connection = self._connection_of(source)
        if connection is self._main:
            self._open(source, connection)
        else:  # half of a durable subscription may be there: it begins with a new connection
            connection.link.abort(ConnectionAbortedError(f"{source.subscription.source} was refused"))

    def _over_with(self, source: Consumer) -> None:
        """Give up its generation, with the copies that are not written yet."""
        source.abandon()
        self._publisher.forget(source.generation)

    # -- settling, moving, looking ----------------------------------------------------------------

    def _decide(self, delivery: Delivery, settlement: Settlement) -> Consumer | None:
        source = self._sources.live.get(delivery.generation)
        if source is not None:
            source.decide(delivery, settlement)
        return source

    def _move(self, delivery: Delivery, outs: Sequence[tuple[Outgoing, float]], answer: OnTransferred) -> None:
        source = self._sources.live.get(delivery.generation)
        if source is None:
            answer("lost", "its generation is over")
        elif why := next((why for out, _ in outs if (why := problem(out.target))), ""):
            answer("refused", why)
        else:
            self._connection_of(source).mover.move(source, delivery, outs, answer)

    def _look(
        self, source: Destination, seen: Callable[[RawFrame], bool], end: Callable[[RedeliverError | None], None]
    ) -> None:
        def ended(error: RedeliverError | None) -> None:
            self._browsers.discard(browser)
            end(error)

        browser = Browser(self._loop, self._url, source, seen, ended)
        self._browsers.add(browser)
        browser.open()


def adapter_from_url(url: BrokerUrl) -> StompAdapter:
    """Return the adapter for a URL of `activemq+stomp`, as its entry point."""
    return StompAdapter(url)
