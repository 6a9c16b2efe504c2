# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps what an adapter consumes: its sources, which of their generations live, and what follows when one ends.

A *generation* is one stay of a source at the broker: a channel, a link, a subscription of one connection. Deliveries
belong to the generation that they came in, and are settled in no other (settle-once)::

    ready(consumer)              -> the sink is notified; deliveries may follow
    lost(consumer, error)        -> the broker has its deliveries again; the sink is notified once
    closed(consumer, error)      -> it was ready before: it is subscribed to again in a second
    refused(consumer, error)     -> the first time the sink is notified that it cannot be consumed; later the same
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from ...errors import RedeliverError
from ...message import Destination
from ..protocol import Sink, Subscription

AGAIN_AFTER = 1.0  # seconds before a source that was refused, or closed by the broker, is subscribed to again
_generations = itertools.count(1)


def next_generation() -> int:
    """Return a number that no other generation of this process has. Thread-safe."""
    return next(_generations)


class SourceConsumer(Protocol):
    """Consumes one source, through all its generations."""

    @property
    def subscription(self) -> Subscription: ...
    @property
    def generation(self) -> int: ...  # the latest one
    @property
    def was_ready(self) -> bool: ...  # in any generation


AnyConsumer = TypeVar("AnyConsumer", bound=SourceConsumer)


class SourceTable(Generic[AnyConsumer]):
    """Keeps the consumers of one adapter.

    `subscribe(consumer)` subscribes once more, if the connection is open by then; `over(consumer)` gives up what
    belongs to a generation that has just ended, before the sink is notified. All methods and callbacks run on the
    adapter's I/O thread, `trouble` on any.
    """

    def __init__(
        self,
        log: logging.Logger,
        *,
        call_later: Callable[[float, Callable[[], None]], object],
        subscribe: Callable[[AnyConsumer], None],
        over: Callable[[AnyConsumer], None],
    ) -> None:
        self.live: dict[int, AnyConsumer] = {}  # by generation
        self._log, self._call_later, self._subscribe, self._over = log, call_later, subscribe, over
        self._consumers: dict[Destination, AnyConsumer] = {}
        self._troubles: dict[Destination, str] = {}  # why a source is not consumed
        self._sink: Sink

    def start(self, sink: Sink) -> None:
        """Tell this sink from now on. Called once, before anything is consumed."""
        self._sink = sink

    def __iter__(self) -> Iterator[AnyConsumer]:
        return iter(list(self._consumers.values()))

    def __getitem__(self, source: Destination) -> AnyConsumer:
        return self._consumers[source]

    def trouble(self, source: Destination) -> str:
        """Return why a source is not consumed although its connection is open; empty if nothing is known."""
        return self._troubles.get(source, "")

    def add(self, consumer: AnyConsumer) -> None:
        """Keep a consumer; the caller subscribes."""
        self._consumers[consumer.subscription.source] = consumer

    def ready(self, consumer: AnyConsumer) -> None:
        """Note that its generation has begun, and tell the sink."""
        source = consumer.subscription.source
        self.live[consumer.generation] = consumer
        self._troubles.pop(source, None)
        self._sink.ready(source, consumer.generation)

    def lost(self, consumer: AnyConsumer, error: BaseException | None) -> None:
        """Note that its generation is over, and tell the sink once; nothing if it had not begun. None: we closed it."""
        if self.live.pop(consumer.generation, None) is not None:
            self._over(consumer)
            self._sink.lost(consumer.generation, error)

    def all_lost(self, error: BaseException | None) -> None:
        """Note that every generation is over, as when the connection is."""
        for consumer in list(self.live.values()):
            self.lost(consumer, error)

    def closed(self, consumer: AnyConsumer, error: BaseException) -> None:
        """Subscribe again in a while: the broker has ended a generation, and its connection is open."""
        source = consumer.subscription.source
        self._troubles[source] = f"closed by the broker: {error}"
        self._log.warning("%s was closed by the broker (%s); subscribing again", source, error)
        self._again(consumer)

    def refused(self, consumer: AnyConsumer, error: RedeliverError) -> None:
        """Tell the sink that the broker does not let it be consumed; try again if it did before."""
        source = consumer.subscription.source
        self._troubles[source] = str(error)
        if not consumer.was_ready:
            self._sink.failed(error, source)
            return
        self._log.warning("%s: %s; trying again", source, error)
        self._again(consumer)

    def _again(self, consumer: AnyConsumer) -> None:
        self._call_later(AGAIN_AFTER, lambda: self._subscribe(consumer))
