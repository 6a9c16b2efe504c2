# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Provides `MemoryLink`: one connection with one channel, and the verbs that a driver of that broker has.

These verbs do the same damage as the real ones. A delivery tag of an old RabbitMQ channel settles *another* message on
a new one; an ActiveMQ NACK dead-letters; an Artemis STOMP NACK discards. Nothing here prevents this.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from threading import RLock
from typing import NamedTuple, Protocol

from ..errors import BrokerUnavailable, DestinationMissing
from ..message import Destination
from .contents import BrokerContents
from .faults import Faults
from .personality import LossWay, Personality, StoredMessage
from .queue import MemoryQueue

Tag = int | str


class HeldDelivery(NamedTuple):
    """Holds one delivery, as it was when it was handed over."""

    tag: Tag
    message: StoredMessage
    queue: MemoryQueue
    redelivered: bool
    failed: int  # failures by this broker's count
    acquired: int

    @classmethod
    def of(cls, tag: Tag, message: StoredMessage, queue: MemoryQueue) -> HeldDelivery:
        """Return the message as it is now."""
        return cls(tag, message, queue, message.redelivered, message.count, message.acquired)


class LinkOwner(Protocol):
    """Is the part of the broker that a link reads and changes, under the broker's lock."""

    id: str
    lock: RLock
    ways: Personality
    stock: BrokerContents
    faults: Faults

    def queue(self, source: Destination) -> MemoryQueue | None: ...
    def forget(self, link: MemoryLink, /) -> None: ...


class MemoryLink:
    """Is a connection made by `MemoryBroker.connect()`. All methods raise BrokerUnavailable once the link is closed."""

    def __init__(
        self,
        broker: LinkOwner,
        number: int,
        protocol: str,
        closed: Callable[[BaseException], None] | None,
    ) -> None:
        self.number, self.protocol = number, protocol
        self.is_open = True
        self.exclusive = False  # whether this is the only consumer of its queue
        self.error = ""  # the last error that the broker reported
        self._broker = broker
        self._closed = closed
        self._held: dict[Tag, HeldDelivery] = {}
        # messages that ActiveMQ redelivers to this link only
        self._again: deque[tuple[MemoryQueue, StoredMessage]] = deque()
        self._tags = 0
        self._queue: MemoryQueue | None = None
        self._prefetch = 0
        self._wake: Callable[[], None] | None = None
        self._woken = False
        self._resting = False

    # -- taking ----------------------------------------------------------------------------------------------

    def get(self, source: str | Destination) -> HeldDelivery | None:
        """Return one message, or None if there is none. Raises DestinationMissing if the queue does not exist."""
        with self._broker.lock:
            self._check_open()
            queue = self._broker.queue(Destination.parse(source))
            if queue is None:
                raise DestinationMissing(f"no queue {source}", where=self._broker.id)
            return self._take_one(queue)

    def consume(self, queue: MemoryQueue, prefetch: int, wake: Callable[[], None], *, exclusive: bool = False) -> None:
        """Call `wake`, once, when there is something to `fetch()`. At most `prefetch` messages may be unsettled."""
        with self._broker.lock:
            self._check_open()
            self._queue, self._prefetch, self._wake = queue, prefetch, wake
            self.exclusive = exclusive
            queue.consumers.append(self)
            queue.pump()

    def rest(self) -> None:
        """Stop taking messages, and keep unsettled ones, until `go_on()`."""
        with self._broker.lock:
            if self.is_open and self._queue is not None and not self._resting:
                self._resting = True
                self._queue.consumers.remove(self)
                self._queue.pump()

    def go_on(self) -> None:
        with self._broker.lock:
            if self.is_open and self._queue is not None and self._resting:
                self._resting = False
                self._queue.consumers.append(self)
                self._queue.pump()

    def fetch(self) -> list[HeldDelivery]:
        """Return a fair share of the waiting messages, as far as there is room."""
        with self._broker.lock:
            self._woken = False
            queue = self._queue
            if queue is None or not self.is_open or self._resting:
                return []
            rivals = len(queue.consumers)
            wanted = min(self._room, len(self._again) + -(-len(queue) // rivals))
            batch: list[HeldDelivery] = []
            while len(batch) < wanted and (held := self._take_one(queue)) is not None:
                batch.append(held)
            if batch and queue.consumers[0] is self:  # next time another consumer comes first
                queue.consumers.rotate(-1)
            queue.pump()
            return batch

    def nudge(self) -> None:
        """Wake the consumer. Called by the broker when a message may wait."""
        if self._wake is not None and not self._woken and self._room > 0:
            self._woken = True
            self._wake()

    # -- settling --------------------------------------------------------------------------------------------

    def accept(self, tag: Tag, *, multiple: bool = False) -> None:
        """Accept a delivery; with `multiple`, also all unsettled ones that came before it on this link."""
        with self._broker.lock:
            if (held := self._settled(tag)) is None:
                return
            if multiple:
                for earlier in list(self._before(tag)):
                    del self._held[earlier]
            self._refill(held.queue)

    def nack(self, tag: Tag, *, requeue: bool = True) -> None:
        """Nack. RabbitMQ: back at once, or dead-lettered.

        ActiveMQ: dead-lettered or discarded. Artemis (STOMP): discarded.
        """
        with self._broker.lock:
            if (held := self._settled(tag)) is None:
                return
            if self._broker.ways.name.startswith("rabbitmq") and requeue:
                self._return([held], "nack")
            elif self._broker.ways.name == "artemis":
                self._broker.stock.destroyed += 1
            else:
                self._broker.stock.dead_letter(held.queue, held.message, "rejected")
            self._refill(held.queue)

    def reject(self, tag: Tag, *, requeue: bool = False) -> None:
        """Reject: dead-lettered, or discarded without a dead-letter queue.

        With `requeue`, on RabbitMQ: back, counted.
        """
        with self._broker.lock:
            if (held := self._settled(tag)) is None:
                return
            if self._broker.ways.name.startswith("rabbitmq") and requeue:
                self._return([held], "reject")
            else:
                self._broker.stock.dead_letter(held.queue, held.message, "rejected")
            self._refill(held.queue)

    def release(self, tag: Tag) -> None:
        """Settle with AMQP 1.0 `released`."""
        self._give_back(tag, "released")

    def modified(self, tag: Tag, *, failed: bool = False) -> None:
        """Settle with AMQP 1.0 `modified`, with or without delivery-failed."""
        self._give_back(tag, "failed" if failed else "modified")

    def close(self) -> None:
        """Close the link; unsettled messages return to their queue."""
        self._end("closed")

    def drop(self) -> None:
        """Lose the connection from this side; `closed` is called."""
        self.lose("cut", BrokerUnavailable("the connection was cut", where=self._broker.id, code="connection-lost"))

    def lose(self, way: LossWay, error: BaseException) -> None:
        """End the link. Called by the broker when this link is lost."""
        if self._end(way) and self._closed is not None:
            self._closed(error)

    def kept(self) -> Iterator[tuple[MemoryQueue, StoredMessage]]:
        """Yield the messages in flight on this link."""
        yield from ((held.queue, held.message) for held in self._held.values())
        yield from self._again

    # -- inside ----------------------------------------------------------------------------------------------

    @property
    def _room(self) -> int:
        return self._prefetch - len(self._held)

    def _take_one(self, queue: MemoryQueue) -> HeldDelivery | None:
        if self._again:
            queue, message = self._again.popleft()
        elif (found := self._broker.stock.next_message(queue)) is not None:
            message = found
        else:
            return None
        self._tags += 1
        ways = self._broker.ways
        tag: Tag = self._tags if ways.int_tags else f"{ways.name}-{self.number}:{self._tags}"
        held = self._held[tag] = HeldDelivery.of(tag, message, queue)
        return held

    def _settled(self, tag: Tag) -> HeldDelivery | None:
        """Return the delivery of this tag, no longer held.

        If there is none, do what this broker does then and return None.
        """
        self._check_open()
        held = self._held.pop(tag, None)
        if held is None:
            stale = self._broker.ways.stale(self.protocol)
            if stale != "ignore":
                self.error = f"unknown delivery tag {tag}"
            if stale == "close":
                self.lose("closed", BrokerUnavailable(self.error, where=self._broker.id, code="connection-lost"))
        return held

    def _before(self, tag: Tag) -> Iterator[Tag]:
        for earlier in self._held:  # dicts keep the order of delivery
            if isinstance(earlier, int) and isinstance(tag, int) and earlier > tag:
                return
            yield earlier

    def _give_back(self, tag: Tag, way: LossWay) -> None:
        with self._broker.lock:
            if (held := self._settled(tag)) is None:
                return
            if self._broker.ways.name == "activemq":
                self._again.append((held.queue, held.message))
                self.nudge()
            else:
                self._return([held], way)
            self._refill(held.queue)

    def _return(self, batch: list[HeldDelivery], way: LossWay) -> None:
        ways, broker = self._broker.ways, self._broker
        ways.take_back([held.message for held in batch], way, self.protocol, broker.faults)
        for held in batch:
            if ways.exhausted(held.message, held.queue.limit):
                broker.stock.dead_letter(held.queue, held.message, "delivery_limit")
            else:
                held.queue.put_back(held.message)

    def _refill(self, queue: MemoryQueue) -> None:
        if self._again:
            self.nudge()
        queue.pump()

    def _end(self, way: LossWay) -> bool:
        with self._broker.lock:
            if not self.is_open:
                return False
            self.is_open = False
            self._broker.forget(self)
            batch = list(self._held.values())
            batch += [HeldDelivery.of("", message, queue) for queue, message in self._again]
            self._held.clear()
            self._again.clear()
            self._return(batch, way)
            queues = {id(held.queue): held.queue for held in batch}
            if self._queue is not None:
                if not self._resting:
                    self._queue.consumers.remove(self)
                queues[id(self._queue)] = self._queue
            if way != "killed":
                for queue in queues.values():
                    queue.pump()
            return True

    def _check_open(self) -> None:
        if not self.is_open:
            raise BrokerUnavailable("this link is closed", where=self._broker.id, code="connection-lost")
