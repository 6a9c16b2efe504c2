# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements the `Adapter` protocol on a `MemoryBroker`, with the same precautions that the real adapters need.

All state belongs to the adapter's loop: every method only schedules its work on the loop, and every answer comes from
the loop.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence

from ..adapter.capabilities import BrokerLimit, Capabilities, Settlement
from ..adapter.kit.connection_state import ConnectionState
from ..adapter.protocol import ConnectionReport, OnAnswer, OnTransferred, Sink, Subscription
from ..errors import BrokerUnavailable, ConfigError, RedeliverError
from ..message import Delivery, Destination, MessageReader, Outgoing
from ..timers import Cancel
from .broker import MemoryBroker
from .browsing import QueueBrowsing
from .clock import loop_for
from .consumer import MemoryConsumers
from .link import MemoryLink
from .publisher import Publisher
from .reader import MemoryReader
from .transactions import MemoryTransactions

log = logging.getLogger("redeliver_mw.memory")


class MemoryAdapter:
    """Is one consumer's connection to a memory broker, with a separate publishing link.

    `publish_timeout`: seconds until a publish without an answer is given up; `reconnect_after`: seconds from a lost
    connection to the next attempt. Without a `ManualClock` there is one daemon thread, which makes all calls to the
    sink.
    """

    def __init__(self, broker: MemoryBroker, *, publish_timeout: float = 30.0, reconnect_after: float = 0.1) -> None:
        self._broker = broker
        self._reconnect_after = reconnect_after
        self._loop = loop_for(broker.clock, f"redeliver-{broker.id}")
        self._publisher = Publisher(broker, self._loop, publish_timeout)
        self._transactions = MemoryTransactions(broker, self._loop, publish_timeout, self._cut)
        self._reader = MemoryReader(broker.ways)
        self._consumers = MemoryConsumers(broker, self._loop, self._reader, self._is_open, reconnect_after)
        self._sink: Sink | None = None
        self._main: MemoryLink | None = None  # None: not connected
        self._unwatch: Callable[[], None] | None = None
        self._looks = QueueBrowsing(broker, self._is_open)
        self._closed = False
        wall, mono = (lambda: broker.clock.now().wall), (lambda: broker.clock.now().mono)
        self._state = ConnectionState(broker.id, "connection", log, monotonic=mono, wall=wall)

    @property
    def reader(self) -> MessageReader:
        return self._reader

    @property
    def capabilities(self) -> Capabilities:
        return self._broker.capabilities

    @property
    def broker(self) -> str:
        return self._broker.id

    # -- called from any thread ------------------------------------------------------------------------------

    def connection_reports(self) -> Sequence[ConnectionReport]:
        """Return the state of the one connection; it is blocked while the broker has a memory alarm."""
        found = self._state.report()
        return [found._replace(blocked="a memory alarm" if self._broker.blocked else "")]

    def source_trouble(self, source: Destination, /) -> str:
        """Return an empty text: the sink learns which sources cannot be subscribed to."""
        return ""

    def start(self, sink: Sink, /) -> None:
        """Connect, and report to `sink` from now on. While the broker is down, the adapter waits for it."""
        self._sink = sink
        self._unwatch = self._broker.watch(functools.partial(self._loop.call_soon, self._changed))
        self._loop.call_soon(self._connect)

    def subscribe(self, subscription: Subscription, /) -> None:
        """Subscribe.

        Raises ConfigError for a selector, which this broker does not support, and for a topic without a subscription.
        """
        if subscription.selector:
            raise ConfigError(
                "the memory broker knows no selectors", where=str(subscription.source), code="selector-refused"
            )
        if subscription.source.kind == "topic" and not subscription.source.subscription:
            raise ConfigError(
                "a topic needs a subscription with a name", where=str(subscription.source), code="subscription-missing"
            )
        self._loop.call_soon(functools.partial(self._consumers.subscribe, subscription))

    def settle(
        self, settlements: Sequence[tuple[Delivery, Settlement]], /, *, written: Callable[[], None] | None = None
    ) -> None:
        """Settle deliveries.

        Raises ValueError for a verb that this broker does not honour (only-honoured-verbs); nothing is settled then.

        Settlements for a generation that is over, and second settlements, are dropped. `written` is not called if the
        connection is lost before the settlements reach the broker, nor if all their generations are over.
        """
        honours = self.capabilities.honours
        for delivery, settlement in settlements:
            if settlement not in honours:
                raise ValueError(f"{self.capabilities.dialect} does not honour {settlement!r}: {delivery!r}")
        self._loop.call_soon(functools.partial(self._settle, tuple(settlements), written))

    def publish(self, out: Outgoing, answer: OnAnswer, /, *, after: float = 0.0) -> None:
        """Publish `out`, hidden for the longest delay of this broker that is not above `after` seconds."""
        self._loop.call_soon(functools.partial(self._publisher.publish, out, answer, after))

    def move(self, delivery: Delivery, outs: Sequence[tuple[Outgoing, float]], answer: OnTransferred, /) -> None:
        """Send all copies and accept the original as one transaction.

        Raises ConfigError if the broker has no transactions.
        """
        if not self.capabilities.atomic_move:
            raise ConfigError(f"{self.capabilities.dialect} has no transactions", code="transaction-not-possible")
        self._loop.call_soon(functools.partial(self._move, delivery, tuple(outs), answer))

    def check(self, target: Destination, answer: OnAnswer, /, *, declare: bool) -> None:
        """Check whether `target` exists, and make it if `declare` is True."""
        self._loop.call_soon(lambda: answer(*self._looks.check(target, declare=declare)))

    def prolong(self, source: Destination, seconds: float, answer: OnAnswer, /) -> None:
        """Do nothing: this broker supports all delays from the start."""
        self._loop.call_soon(lambda: answer("ok", "") if self._main is not None else answer("silent", "not connected"))

    def rest(self, source: Destination, rested: Callable[[], None], /) -> None:
        """Stop consuming `source`; unsettled deliveries stay with this consumer."""

        def stop() -> None:
            self._consumers.rest(source)
            rested()

        self._loop.call_soon(stop)

    def go_on(self, source: Destination, /) -> None:
        self._loop.call_soon(functools.partial(self._consumers.go_on, source))

    def limit_at(self, source: Destination, answer: Callable[[BrokerLimit], None], /) -> None:
        """Answer the limit with which the queue was declared; a queue that is made later has none."""
        self._loop.call_soon(lambda: answer(self._looks.limit(source)))

    def browse(
        self,
        source: Destination,
        limit: int,
        answer: Callable[[Sequence[Delivery] | RedeliverError], None],
        /,
    ) -> None:
        """Answer the first `limit` waiting messages; browsing marks them as `Capabilities.browse` describes."""

        def look() -> None:
            found = self._looks.browse(source, limit)
            if isinstance(found, RedeliverError):
                return answer(found)
            answer([self._consumers.delivery(source, 0, held) for held in found])

        self._loop.call_soon(look)

    def depth(self, source: Destination, answer: Callable[[int | RedeliverError], None], /) -> None:
        """Answer the number of waiting messages."""
        self._loop.call_soon(lambda: answer(self._looks.depth(source)))

    def call_later(self, seconds: float, fn: Callable[[], None], /) -> Cancel:
        """Call `fn` on the adapter's loop after `seconds`."""
        return self._loop.call_later(seconds, fn)

    def close(self, timeout: float = 10.0, /) -> None:
        """Write the settlements made so far, close, and make no more calls to the sink.

        Unsettled deliveries return to the queue.
        """
        if not self._closed:
            self._closed = True
            self._state.closed()
            self._loop.finish(self._goodbye, timeout)

    def _is_open(self) -> bool:
        return self._main is not None and self._main.is_open

    # -- from here on, on the loop ----------------------------------------------------------------------------

    def _connect(self) -> None:
        if self._closed or self._main is not None or self._sink is None:
            return
        self._state.connecting()
        if self._broker.down:
            return self._state.failed(BrokerUnavailable("the broker is down"))
        self._main = self._broker.connect(closed=self._disconnected_soon)
        self._publisher.open(self._main)
        self._state.connected()
        self._sink.connected(self.capabilities)
        self._consumers.connected(self._sink)
        return None

    def _changed(self) -> None:
        """React to the restart of the broker or to the end of its alarm."""
        self._connect()
        self._publisher.flush()

    def _disconnected_soon(self, error: BaseException) -> None:
        """Schedule the loss of the connection. Called by the broker, with its lock held, on any thread."""
        self._loop.call_soon(functools.partial(self._disconnected, error))

    def _disconnected(self, error: BaseException) -> None:
        self._main = None
        self._state.lost(error)
        self._publisher.lost(str(error))
        self._loop.call_later(self._reconnect_after, self._connect)

    def _cut(self) -> None:
        self._consumers.drop()
        if self._main is not None:
            self._main.drop()

    def _goodbye(self) -> None:
        if self._unwatch is not None:
            self._unwatch()
        self._consumers.close()
        self._publisher.close()
        if self._main is not None:
            self._main.close()
            self._main = None

    def _settle(self, settlements: Sequence[tuple[Delivery, Settlement]], written: Callable[[], None] | None) -> None:
        if not self._broker.faults.take(None, "drop_settle"):
            return self._consumers.settle(settlements, written)
        if written is not None:
            written()
        return self._cut()

    def _move(self, delivery: Delivery, outs: Sequence[tuple[Outgoing, float]], answer: OnTransferred) -> None:
        self._transactions.move(self._consumers.get(delivery.generation), delivery, outs, answer)
