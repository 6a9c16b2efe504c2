# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Connects to a broker through proton: one thread, two connections, a link for each source and each target.

The thread runs proton's engine and nothing else: it reads frames, hands batches over, writes settles, publishes and
transactions, runs timers. Every public method may be called from any thread and returns at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import proton

from redeliver_mw.adapter import Cancel, ConnectionReport, OnAnswer, OnTransferred, Sink, Subscription
from redeliver_mw.adapter.capabilities import BrokerLimit, Capabilities, Settlement
from redeliver_mw.adapter.inspection import Inspection, InspectionRequest
from redeliver_mw.adapter.kit.settlements import SettlementQueue
from redeliver_mw.adapter.kit.sources import SourceTable
from redeliver_mw.adapter.registry import BrokerUrl
from redeliver_mw.errors import BrokerError, BrokerUnavailable, RedeliverError
from redeliver_mw.message import Delivery, Destination, MessageReader, Outgoing
from redeliver_mw.timers import cancellable
from redeliver_proton.amqp.codec import NotEncodable
from redeliver_proton.broker_dialect import BrokerDialect
from redeliver_proton.brokers.artemis.dialect import ARTEMIS
from redeliver_proton.browse import Browses
from redeliver_proton.connection import ProtonConnection
from redeliver_proton.consumer import Consumer, ConsumerSettlement, DelayedRelease, why_refused
from redeliver_proton.duplicate_ids import DuplicateIdSalts
from redeliver_proton.loop import ProtonLoop
from redeliver_proton.messages import READER
from redeliver_proton.publisher import Publisher
from redeliver_proton.questions import LoopQuestions
from redeliver_proton.route import Route
from redeliver_proton.sender_link import SentCopy
from redeliver_proton.transactions import TransactionRunner, TransferJob
from redeliver_proton.wire import Refused

log = logging.getLogger("redeliver_mw.proton")


class ProtonAdapter:
    """Is the `Adapter` of `artemis+proton` and, where it postpones, of `rabbitmq+proton`."""

    def __init__(self, url: BrokerUrl, dialect: BrokerDialect = ARTEMIS) -> None:
        self._url, self._dialect = url, dialect
        self._loop = ProtonLoop("redeliver-proton", self._fault)
        self._connection = ProtonConnection(
            self._loop, url, dialect, "consume", up=self._up, down=self._down, failed=self._failed
        )
        self._topology = dialect.topology()
        self._publisher = Publisher(self._loop, url, dialect, self._topology, closed=self._ended)
        self._transaction_runner = TransactionRunner(self._loop, self._topology, self._connection.abort)
        self._salts = DuplicateIdSalts()
        self._capabilities = dialect.capabilities("0")
        self._ledger_scope = dialect.ledger_scope(url, "")  # until a cluster has given its name
        self._sink: Sink
        self._sources: SourceTable[Consumer] = SourceTable(
            log, call_later=self._loop.call_later, subscribe=self._prepare, over=self._over_with
        )
        self._browses = Browses(self._loop, self._connection, self._topology, dialect.delivery)
        self._settlements: SettlementQueue[ConsumerSettlement] = SettlementQueue(
            self._decide, lambda: self._loop.call(self._settlements.write)
        )
        self._closed = threading.Event()

    @property
    def reader(self) -> MessageReader:
        return READER

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    @property
    def broker(self) -> str:
        return self._dialect.where(self._url)

    @property
    def ledger_scope(self) -> str:
        return self._ledger_scope

    # -- the public verbs, from any thread ---------------------------------------------------------

    def start(self, sink: Sink, /) -> None:
        self._sink = sink
        self._sources.start(sink)
        self._loop.call(self._connection.open)
        self._loop.start()

    def connection_reports(self) -> Sequence[ConnectionReport]:
        return [self._connection.state.report(), self._publisher.state.report()]

    def source_trouble(self, source: Destination, /) -> str:
        return self._sources.trouble(source)

    def subscribe(self, subscription: Subscription, /) -> None:
        self._loop.call(lambda: self._subscribe(subscription))

    def settle(
        self, settlements: Sequence[tuple[Delivery, Settlement]], /, *, written: Callable[[], None] | None = None
    ) -> None:
        self._settlements.add(settlements, written)

    def postpone(
        self, delivery: Delivery, marks: Mapping[str, str], after: float, /, *, written: Callable[[], None]
    ) -> None:
        self._settlements.add(((delivery, DelayedRelease(marks, time.time() + after if after > 0 else None)),), written)

    def publish(self, out: Outgoing, answer: OnAnswer, /, *, after: float = 0.0) -> None:
        self._loop.call(lambda: self._publish(out, answer, after))

    def move(self, delivery: Delivery, outs: Sequence[tuple[Outgoing, float]], answer: OnTransferred, /) -> None:
        self._loop.call(lambda: self._move(delivery, outs, answer))

    def check(self, target: Destination, answer: OnAnswer, /, *, declare: bool) -> None:
        def known(found: Route | RedeliverError) -> None:
            if isinstance(found, RedeliverError):
                answer("silent" if isinstance(found, BrokerUnavailable) else "refused", found.message)
            elif found.filter and found.only_from is None:
                answer("refused", f"it takes only what matches {found.filter}, and the rest is lost")
            else:
                answer("ok", "")

        self._loop.call(lambda: self._topology.route(target, known, declare=declare))

    def rest(self, source: Destination, rested: Callable[[], None], /) -> None:
        self._loop.call(lambda: self._sources[source].rest(rested))

    def go_on(self, source: Destination, /) -> None:
        self._loop.call(lambda: self._sources[source].go_on())

    def depth(self, source: Destination, answer: Callable[[int | RedeliverError], None]) -> None:
        self._loop.call(lambda: self._topology.depth(source, answer))

    def capabilities_at(
        self, source: Destination, answer: Callable[[Capabilities | RedeliverError], None], /, *, declare: bool
    ) -> None:
        self._loop.call(lambda: self._topology.capabilities_at(source, self._capabilities, answer, declare=declare))

    def limit_at(self, source: Destination, answer: Callable[[BrokerLimit], None], /) -> None:
        self._loop.call(lambda: self._topology.limit_at(source, answer))

    def inspect(self, request: InspectionRequest, /) -> Inspection:
        connection = self._connection.connection
        if connection is None:
            raise BrokerUnavailable("there is no connection just now", where=self.broker, code="connection-lost")
        return self._dialect.inspect(LoopQuestions(self._loop, connection), request)

    def browse(
        self, source: Destination, limit: int, answer: Callable[[Sequence[Delivery] | RedeliverError], None], /
    ) -> None:
        self._loop.call(lambda: self._browses.look(source, limit, answer, copying=self._capabilities.browse == "copy"))

    def call_later(self, seconds: float, fn: Callable[[], None], /) -> Cancel:
        due, cancel = cancellable(fn)
        due_at = time.monotonic() + seconds
        self._loop.call(lambda: self._loop.call_later(due_at - time.monotonic(), due))
        return cancel

    def close(self, timeout: float = 10.0, /) -> None:
        if not self._loop.thread.is_alive():
            return
        self._loop.call(self._close)
        self._closed.wait(timeout)
        self._loop.stop(timeout)

    # -- the thread -------------------------------------------------------------------------------

    def _fault(self, error: BaseException) -> None:
        self._connection.abort(RuntimeError(f"a fault on the connection's thread: {error!r}"))

    def _close(self) -> None:
        self._settlements.write()
        self._publisher.close()
        self._sources.all_lost(None)
        self._connection.close()
        self._ended()

    def _ended(self) -> None:
        """Note that both connections are closed, as we wanted."""
        if self._connection.closing and self._connection.is_down and self._publisher.is_closed:
            self._closed.set()

    # -- the consuming connection -----------------------------------------------------------------

    def _failed(self, error: RedeliverError) -> None:
        self._sink.failed(error, None)

    def _up(self, connection: proton.Connection) -> None:
        self._capabilities = self._dialect.capabilities(self._connection.version)
        self._ledger_scope = self._dialect.ledger_scope(self._url, self._connection.cluster_name)
        self._topology.connected(self._loop, connection)
        self._transaction_runner.up(self._connection.session)
        if not self._publisher.started:
            self._publisher.open()
        self._sink.connected(self._capabilities)
        for source in self._sources:
            self._prepare(source)

    def _down(self, error: BaseException) -> None:
        self._transaction_runner.down(error)  # before its questions are answered: what is abandoned was not refused
        self._topology.disconnected(error)
        for source in self._sources if isinstance(error, Refused) and error.forbids else ():
            if not source.was_ready:  # it is what ended the session, and would end each one after it
                self._sink.failed(why_refused(source.subscription, error), source.subscription.source)
        self._sources.all_lost(error)
        self._browses.lost(error)
        self._ended()

    def _subscribe(self, subscription: Subscription) -> None:
        source = Consumer(
            subscription,
            self._loop,
            self._dialect.delivery,
            keeps_back=self._dialect.keeps_back,
            arrived=lambda batch: self._sink.arrived(batch),
            ready=self._sources.ready,
            gone=self._gone,
        )
        self._sources.add(source)
        self._prepare(source)

    def _prepare(self, source: Consumer) -> None:
        """Look it up, then attach; nothing while the connection is not open.

        Attached to a missing name, a link would get a queue of its own, for itself alone.
        """
        if not self._connection.is_open:
            return
        wanted = source.subscription
        connection = self._connection.connection

        def routed(route: Route | RedeliverError) -> None:
            if not self._connection.is_open:
                return
            if isinstance(route, RedeliverError):
                self._sources.refused(source, route)
            elif wanted.postpones and not route.postpones:
                what = f"{wanted.source} gives nothing back with a delay any more"
                self._sources.refused(source, BrokerError(what, code="delay-not-possible"))
            elif connection is self._connection.connection and source.generation not in self._sources.live:
                source.open(self._connection.session, route)

        # A topic's subscription is a helper of ours, its queue.
        declare = wanted.declare or (wanted.helpers and wanted.source.kind == "topic")
        self._topology.route(wanted.source, routed, declare=declare, consuming=True)

    def _gone(self, source: Consumer, error: BaseException) -> None:
        """Note that the broker refused or closed the source's link."""
        self._sources.lost(source, error)
        source.abandon()  # also a link that was refused before it was ready
        if not self._connection.is_open or self._connection.closing:
            return
        if source.was_ready:
            self._sources.closed(source, error)
        else:
            self._sources.refused(source, why_refused(source.subscription, error))

    def _over_with(self, source: Consumer) -> None:
        """Give up its generation, with the copies that are not written yet."""
        self._publisher.forget(source.generation)
        self._salts.lost(source.generation)
        source.abandon()

    # -- settling and publishing ------------------------------------------------------------------

    def _decide(self, delivery: Delivery, settlement: ConsumerSettlement) -> Consumer | None:
        source = self._sources.live.get(delivery.generation)
        if source is not None:
            source.decide(delivery.tag, settlement)
            if delivery.known:
                self._salts.settled(delivery)
        return source

    def _publish(self, out: Outgoing, answer: OnAnswer, after: float) -> None:
        try:
            data, seen = self._dialect.encode(out, after, self._salts)
        except NotEncodable as error:
            return answer("unfit", f"it cannot be encoded: {error}")
        return self._publisher.publish(out.target, SentCopy(data, answer, out.generation, seen))

    def _move(self, delivery: Delivery, outs: Sequence[tuple[Outgoing, float]], answer: OnTransferred) -> None:
        source = self._sources.live.get(delivery.generation)
        if source is None:
            return answer("lost", "its generation is over")
        try:
            encoded = [(out.target, *self._dialect.encode(out, after, self._salts)) for out, after in outs]
        except NotEncodable as error:
            return answer("refused", f"it cannot be encoded: {error}")

        def moved(verdict: Any, why: str) -> None:
            if verdict == "ok":
                self._salts.settled(delivery)
            answer(verdict, why)

        return self._transaction_runner.move(TransferJob(source, delivery, encoded, moved))


def adapter_from_url(url: BrokerUrl) -> ProtonAdapter:
    """Return the adapter for a URL of `artemis+proton`, as its entry point."""
    return ProtonAdapter(url, ARTEMIS)
