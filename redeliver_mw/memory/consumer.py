# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Is the consuming side of a `MemoryAdapter`.

Each subscription has a channel of its own, and each channel is a generation.
"""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence

from ..adapter.capabilities import Settlement
from ..adapter.protocol import Sink, Subscription
from ..errors import BrokerError, BrokerUnavailable, DestinationMissing, RedeliverError
from ..message import Delivery, Destination, MessageReader
from .broker import MemoryBroker
from .clock import ClockLoop
from .generation import MemoryGeneration
from .link import HeldDelivery
from .queue import MemoryQueue

logger = logging.getLogger("redeliver_mw.memory")


class MemoryConsumers:
    """Consumes subscriptions. Belongs to the adapter's loop.

    `connected` returns whether the adapter's connection is open. A generation that is not in the table is over.
    """

    def __init__(
        self,
        broker: MemoryBroker,
        loop: ClockLoop,
        reader: MessageReader,
        connected: Callable[[], bool],
        again_after: float,
    ) -> None:
        self._broker, self._loop, self._reader = broker, loop, reader
        self._connected, self._again_after = connected, again_after
        self._sink: Sink | None = None  # None: closed
        self._subscriptions: list[Subscription] = []
        self._at_rest: set[Destination] = set()
        self._generations: dict[int, MemoryGeneration] = {}  # by generation
        self._numbers = itertools.count(1)

    def get(self, generation: int) -> MemoryGeneration | None:
        return self._generations.get(generation)

    def __iter__(self) -> Iterator[MemoryGeneration]:
        return iter(list(self._generations.values()))

    # -- from connection to connection --------------------------------------------------------------------------

    def connected(self, sink: Sink) -> None:
        self._sink = sink
        for subscription in self._subscriptions:
            self._open(subscription)

    def close(self) -> None:
        """Close each channel; make no more calls to the sink."""
        self._sink = None
        for memory_generation in self:
            memory_generation.link.close()
        self._generations.clear()

    def drop(self) -> None:
        """Lose all channels without closing them."""
        for memory_generation in self:
            memory_generation.link.drop()

    # -- consuming ----------------------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription) -> None:
        self._subscriptions.append(subscription)
        self._open(subscription)

    def rest(self, source: Destination) -> None:
        self._at_rest.add(source)
        for memory_generation in self._of(source):
            memory_generation.link.rest()

    def go_on(self, source: Destination) -> None:
        self._at_rest.discard(source)
        for memory_generation in self._of(source):
            memory_generation.link.go_on()

    def delivery(self, source: Destination, generation: int, held: HeldDelivery) -> Delivery:
        return Delivery(source, generation, held.tag, held.redelivered, held, self._reader)

    def _of(self, source: Destination) -> list[MemoryGeneration]:
        return [memory_generation for memory_generation in self if memory_generation.source == source]

    def _open(self, subscription: Subscription) -> None:
        source, sink = subscription.source, self._sink
        if sink is None or not self._connected():
            return
        if any(memory_generation.subscription is subscription for memory_generation in self):
            return  # two causes may ask to open it again
        try:
            queue = self._queue(subscription)
        except RedeliverError as error:
            return sink.failed(error, source)
        generation = next(self._numbers)
        lost = functools.partial(self._lost, generation)
        try:
            link = self._broker.connect(closed=lambda error: self._loop.call_soon(functools.partial(lost, error)))
            memory_generation = self._generations[generation] = MemoryGeneration(link, subscription, generation)
            sink.ready(source, generation)
            wake = functools.partial(self._loop.call_soon, functools.partial(self._pull, memory_generation))
            link.consume(queue, subscription.prefetch, wake, exclusive=subscription.exclusive)
            if source in self._at_rest:
                link.rest()
        except BrokerUnavailable:
            return  # the link is gone meanwhile; the report of the lost connection follows

    def _queue(self, subscription: Subscription) -> MemoryQueue:
        source = subscription.source
        made = self._broker.ways.auto_create or (self._broker.makes_queues and subscription.helpers)
        if subscription.declare or made or source.kind == "topic":
            self._broker.declare(source)
        queue = self._broker.queue(source)
        if queue is None:
            cure = "Declare it, or let `declare=` make it"
            raise DestinationMissing(f"no queue {source.name}", where=self._broker.id, cure=cure)
        if queue.taken(subscription.exclusive):
            raise BrokerError(f"{source} has another consumer already", where=self._broker.id, code="source-in-use")
        return queue

    def _pull(self, memory_generation: MemoryGeneration) -> None:
        if self._sink is None or memory_generation.generation not in self._generations:
            return
        batch = [
            self.delivery(memory_generation.source, memory_generation.generation, held)
            for held in memory_generation.fetch()
        ]
        if batch:
            self._sink.arrived(batch)

    def _lost(self, generation: int, error: BaseException) -> None:
        memory_generation = self._generations.pop(generation, None)
        if memory_generation is None or self._sink is None:
            return
        self._sink.lost(generation, error)
        if self._connected():  # only this channel was lost: subscribe again
            self._loop.call_later(self._again_after, functools.partial(self._open, memory_generation.subscription))

    # -- settling -----------------------------------------------------------------------------------------------

    def settle(self, settlements: Sequence[tuple[Delivery, Settlement]], written: Callable[[], None] | None) -> None:
        live: dict[int, list[tuple[Delivery, Settlement]]] = {}
        for delivery, settlement in settlements:
            if delivery.generation in self._generations:
                live.setdefault(delivery.generation, []).append((delivery, settlement))
            else:
                logger.debug("%r: its generation is over, %s is dropped", delivery, settlement)
        try:
            for generation, its_settlements in live.items():
                self._generations[generation].settle(its_settlements, self._broker.capabilities.cumulative)
        except BrokerUnavailable as error:
            logger.debug("settle not written: %s", error)  # the call of `_lost` follows
            return
        if live and written is not None:
            written()
