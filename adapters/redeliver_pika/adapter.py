# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Connects to RabbitMQ through pika: one thread, two connections, a channel for each source.

The thread runs pika's I/O loop and nothing else: it reads frames, hands batches over, writes settles and
publishes, runs timers. Every public method may be called from any thread and returns at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pika.adapters.select_connection import IOLoop

from redeliver_mw.adapter import Cancel, ConnectionReport, OnAnswer, OnTransferred, Sink, Subscription
from redeliver_mw.adapter.capabilities import BrokerLimit, Capabilities, ScheduleRange, Settlement
from redeliver_mw.adapter.kit.pending_copies import PendingCopies
from redeliver_mw.adapter.kit.settlements import SettlementQueue
from redeliver_mw.adapter.kit.sources import AGAIN_AFTER, SourceTable
from redeliver_mw.adapter.registry import BrokerUrl
from redeliver_mw.errors import BrokerError, BrokerUnavailable, RedeliverError
from redeliver_mw.message import Delivery, Destination, MessageReader, Outgoing
from redeliver_mw.timers import cancellable
from redeliver_pika.browse import browse
from redeliver_pika.capabilities import CLASSIC, RUNGS, capabilities, queue_of, rung_queue, rungs_for
from redeliver_pika.connection import OpenConnection, PikaConnection, delayed_retry, ledger_scope, parameters
from redeliver_pika.consumer import Consumer
from redeliver_pika.messages import READER, route_to
from redeliver_pika.publisher import Publisher
from redeliver_pika.queues import OnQueue, Queues
from redeliver_pika.retry_ladder import LOOK_AGAIN, RetryLadder

if TYPE_CHECKING:
    from redeliver_mw.adapter.inspection import Inspection, InspectionRequest
    from redeliver_pika.management import Management

log = logging.getLogger("redeliver_mw.pika")

LADDER_PATIENCE = 5.0  # seconds after which a source is consumed although its ladder is not made yet


class PikaAdapter:
    """Is the `Adapter` of `rabbitmq+pika`."""

    def __init__(self, url: BrokerUrl) -> None:
        self._url = url
        address = url.options.get("management")
        self._management = _management(address, url) if address else None
        self._retry = delayed_retry(url)
        parameters(url, "consume")  # a mistake in the URL is reported before there are sockets that nobody would close
        self._ioloop = IOLoop()
        self._link = PikaConnection(self._ioloop, url, "consume", up=self._up, down=self._down, failed=self._failed)
        self._publisher = Publisher.at(self._ioloop, url, self._ended)
        self._topology = Queues()
        self._ladder = RetryLadder(self._topology, self._publisher.publish, self._ioloop.call_later)
        self._ledger_scope = self.broker  # until the cluster has given its name
        self._pending = PendingCopies()  # they wait for a young ladder
        self._capabilities = capabilities("0", 131072, exact_headers=OpenConnection.exact_headers)
        self._sink: Sink
        self._thread = threading.Thread(target=self._run, name="redeliver-pika", daemon=True)
        self._sources: SourceTable[Consumer] = SourceTable(
            log, call_later=self._ioloop.call_later, subscribe=self._prepare, over=self._over_with
        )
        self._settlements: SettlementQueue[Settlement] = SettlementQueue(
            self._decide, lambda: self._call(self._settlements.write)
        )
        self._closed = threading.Event()
        self._calling = threading.Lock()
        self._over = False

    @property
    def reader(self) -> MessageReader:
        return READER

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    @property
    def broker(self) -> str:
        host, port = self._url.hosts[0]
        return f"{host}:{port or 5672}/{(self._url.path or '/').lstrip('/')}"

    @property
    def ledger_scope(self) -> str:
        return self._ledger_scope

    # -- the public verbs, from any thread ---------------------------------------------------------

    def connection_reports(self) -> Sequence[ConnectionReport]:
        states = (self._link.state, self._publisher.state)
        return [state.report() for state in states if state is not None]

    def source_trouble(self, source: Destination, /) -> str:
        return self._sources.trouble(source)

    def start(self, sink: Sink, /) -> None:
        self._sink = sink
        self._sources.start(sink)
        self._thread.start()
        self._call(self._link.open)

    def subscribe(self, subscription: Subscription, /) -> None:
        self._call(lambda: self._subscribe(subscription))

    def settle(
        self, settlements: Sequence[tuple[Delivery, Settlement]], /, *, written: Callable[[], None] | None = None
    ) -> None:
        self._settlements.add(settlements, written)

    def publish(self, out: Outgoing, answer: OnAnswer, /, *, after: float = 0.0) -> None:
        self._call(lambda: self._publish(out, answer, after))

    def move(self, delivery: Delivery, outs: Sequence[tuple[Outgoing, float]], answer: OnTransferred, /) -> None:
        raise NotImplementedError("RabbitMQ has no transaction that covers a publish and an ack")

    def check(self, target: Destination, answer: OnAnswer, /, *, declare: bool) -> None:
        if target.kind == "topic":
            self._call(lambda: answer("ok", ""))
            return

        known, topology = partial(_answer, answer), self._topology
        ask = partial(topology.ensure, target.name, CLASSIC) if declare else partial(topology.look_up, target.name)
        self._call(partial(ask, known))

    def prolong(self, source: Destination, seconds: float, answer: OnAnswer, /) -> None:
        def made(found: int | RedeliverError) -> None:
            consumed = self._sources[source]
            if not isinstance(found, RedeliverError):  # each reconnect looks after them from now on
                consumed.subscription = replace(consumed.subscription, ladder=seconds)
            _answer(answer, found)

        self._call(lambda: self._ladder.ensure(source, rungs_for(seconds), made))

    def schedule_wait(self, source: Destination, seconds: float, /) -> float:
        rung = rung_queue(source, seconds)
        return self._ladder.wait(rung) if self._ladder.knows(rung) else LOOK_AGAIN

    def rest(self, source: Destination, rested: Callable[[], None], /) -> None:
        self._call(lambda: self._sources[source].rest(rested))

    def go_on(self, source: Destination, /) -> None:
        self._call(lambda: self._sources[source].go_on())

    def depth(self, source: Destination, answer: Callable[[int | RedeliverError], None], /) -> None:
        self._call(lambda: self._topology.look_up(queue_of(source), answer))

    def limit_at(self, source: Destination, answer: Callable[[BrokerLimit], None], /) -> None:
        def read(found: BrokerLimit) -> None:
            answer(replace(found, returned_after=self._retry) if found.returned_after is None else found)

        version = self._capabilities.broker_version
        if self._management is None:
            self._call(lambda: self._topology.limit_of(queue_of(source), version, read))
        else:
            self._management.limit_of(queue_of(source), version, read)

    def inspect(self, request: InspectionRequest, /) -> Inspection:
        from redeliver_pika.inspection import inspect  # it brings HTTP along, for few

        return inspect(self._url, self._management, self._capabilities.broker_version, request)

    def browse(
        self, source: Destination, limit: int, answer: Callable[[Sequence[Delivery] | RedeliverError], None], /
    ) -> None:
        self._call(lambda: browse(self._link.connection, source, limit, answer))

    def call_later(self, seconds: float, fn: Callable[[], None], /) -> Cancel:
        due, cancel = cancellable(fn)
        if threading.current_thread() is self._thread:
            self._ioloop.call_later(max(0.0, seconds), due)
        else:
            self._call(lambda: self._ioloop.call_later(max(0.0, seconds), due))
        return cancel

    def close(self, timeout: float = 10.0, /) -> None:
        if not self._thread.is_alive():
            return
        self._call(self._close)
        self._closed.wait(timeout)
        self._call(self._ioloop.stop)
        self._thread.join(timeout)
        with self._calling:
            if not self._over and not self._thread.is_alive():
                self._over = True
                self._ioloop.close()  # its wake-up sockets

    # -- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self._ioloop.start()
                break
            except Exception:  # a fault of ours or of the driver: what is unsettled stays the broker's
                log.exception("the connection's thread met a fault; the connection is opened again")
                self._link.abort(RuntimeError("a fault on the connection's thread"))
        self._ioloop.close()

    def _call(self, fn: Callable[[], Any]) -> None:
        """Call `fn` on the adapter's thread; never once the adapter has ended."""
        with self._calling:
            if not self._over:
                self._ioloop.add_callback_threadsafe(fn)

    def _close(self) -> None:
        self._settlements.write()
        self._pending.close("we are closing")
        self._publisher.close()
        self._sources.all_lost(None)
        self._link.close()
        self._ended()

    def _ended(self) -> None:
        """Note that both connections are closed, as we wanted."""
        if self._link.closing and self._link.connection is None and self._publisher.is_closed:
            self._closed.set()

    # -- the consuming connection -----------------------------------------------------------------

    def _failed(self, error: RedeliverError) -> None:
        self._sink.failed(error, None)

    def _up(self, connection: OpenConnection) -> None:
        version = str((connection.server_properties or {}).get("version", "0"))
        self._capabilities = capabilities(
            version, connection.params.frame_max or 131072, exact_headers=connection.exact_headers
        )
        self._ledger_scope = ledger_scope(connection, self.broker)
        self._topology.connected(connection)
        if not self._publisher.started:
            self._publisher.open()
        self._sink.connected(self._capabilities)
        for source in self._sources:
            self._prepare(source)

    def _down(self, error: BaseException) -> None:
        self._topology.disconnected(error)
        self._sources.all_lost(error)
        self._ended()

    def _subscribe(self, subscription: Subscription) -> None:
        source = Consumer(
            subscription,
            self._ioloop,
            arrived=lambda batch: self._sink.arrived(batch),
            ready=self._sources.ready,
            gone=self._gone,
            count_consumers=self._topology.consumers_of,
        )
        self._sources.add(source)
        self._prepare(source)

    def _prepare(self, source: Consumer) -> None:
        """See to all that is needed to consume it, then subscribe; nothing while the connection is not open."""
        if not self._link.is_open:
            return

        def prepared(found: int | RedeliverError) -> None:
            if not self._link.is_open:
                return
            if isinstance(found, RedeliverError):
                self._sources.refused(source, found)
            elif source.generation not in self._sources.live:
                source.open(self._link.connection)

        def there(found: int | RedeliverError) -> None:
            if isinstance(found, RedeliverError):
                prepared(found)
            else:
                self._make_ladder(source, prepared)

        self._topology.prepare(source.subscription, there)

    def _make_ladder(self, source: Consumer, prepared: OnQueue) -> None:
        """Make sure of its rungs. It is consumed without them where the broker takes no marker just now."""
        answered = False

        def answer(found: int | RedeliverError) -> None:
            nonlocal answered
            late, answered = answered, True
            if not late:
                prepared(found)
            elif isinstance(found, RedeliverError) and self._link.is_open:
                log.warning(
                    "%s: its retry queues are not there yet: %s; trying again", source.subscription.source, found
                )
                self._ioloop.call_later(AGAIN_AFTER, ask)

        def ask() -> None:
            if self._link.is_open:
                self._ladder.ensure(source.subscription.source, rungs, answer, anew=True)

        wanted = source.subscription
        rungs = rungs_for(wanted.ladder) if self._capabilities.schedule is not None and wanted.helpers else ()
        if not rungs:
            return prepared(0)
        self._ioloop.call_later(LADDER_PATIENCE, lambda: None if answered else answer(0))
        return ask()

    def _gone(self, source: Consumer, error: BaseException) -> None:
        """Note that the source's channel is closed, or that the broker cancelled its consumer."""
        self._sources.lost(source, error)
        if not self._link.is_open or self._link.closing:
            return
        if source.was_ready:
            self._sources.closed(source, error)
        else:
            what = f"{source.subscription.source} cannot be consumed: {error}"
            self._sources.refused(source, BrokerError(what, code="queue-refused"))

    def _over_with(self, source: Consumer) -> None:
        """Give up its generation, with the copies that are not written yet."""
        self._pending.forget(source.generation)
        self._publisher.forget(source.generation)
        source.abandon(by_nack=self._capabilities.keeps_order_on_release)

    # -- settling and publishing ------------------------------------------------------------------

    def _decide(self, delivery: Delivery, settlement: Settlement) -> Consumer | None:
        source = self._sources.live.get(delivery.generation)
        if source is not None:
            source.decide(delivery.tag, settlement)
        return source

    def _publish(self, out: Outgoing, answer: OnAnswer, after: float) -> None:
        exchange, key = route_to(out.target)
        if after > 0:
            exchange, key = "", rung_queue(out.target, after)
        if (young := self._ladder.wait(key)) > 0:
            # It waits here, in our memory and unsettled, until its queue can be trusted; then for the rest only.
            if out.generation is not None and out.generation not in self._sources.live:
                return answer("unsent", "the original was lost meanwhile")
            rest, number = ScheduleRange(RUNGS).hop(after - young), self._pending.add(out, answer)

            def rested() -> None:
                if self._pending.take(number):
                    self._publish(out, answer, rest)

            self._ioloop.call_later(young, rested)
            return None
        return self._publisher.publish(out, exchange, key, answer)


def _management(address: str, url: BrokerUrl) -> Management:
    from redeliver_pika.management import Management  # it brings HTTP along, for few

    return Management(address, url)


def _answer(answer: OnAnswer, found: int | RedeliverError) -> None:
    if not isinstance(found, RedeliverError):
        return answer("ok", "")
    answer("silent" if isinstance(found, BrokerUnavailable) else "refused", found.what)


def adapter_from_url(url: BrokerUrl) -> PikaAdapter:
    """Return the adapter for a URL of `rabbitmq+pika`, as its entry point."""
    return PikaAdapter(url)
