# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Provides `MemoryBroker`, a broker in this process with the semantics of a real one, for tests and demos."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..adapter.capabilities import Capabilities
from ..clock import Clock, SystemClock
from ..errors import BrokerUnavailable, DestinationMissing
from ..message import Destination, Properties
from .clock import ManualClock, loop_for
from .contents import BrokerContents
from .faults import Faults
from .link import HeldDelivery, MemoryLink
from .personality import LossWay, StoredMessage
from .personality import personality as personality_of
from .queue import MemoryQueue

_numbers = itertools.count(1)


class PlacedMessage(NamedTuple):
    """Holds the place of one stored copy: `where` is `queued`, `scheduled` or `in flight`."""

    where: str
    destination: Destination
    message: StoredMessage


class MemoryBroker:
    """Keeps queues and topics in memory, and settles, counts and loses messages as one real broker does.

    `personality`: `rabbitmq` (quorum queues on 4.3), `rabbitmq-classic`, `activemq`, `artemis`. With a `ManualClock`
    everything runs on the thread that advances it, in an order that is always the same; with any other clock every
    method is thread-safe. `makes_queues`: whether a missing queue is made by whoever sends to it or consumes from it;
    None: as the real broker does.
    """

    def __init__(
        self,
        personality: str = "rabbitmq",
        clock: Clock | None = None,
        faults: Faults | None = None,
        name: str = "default",
        *,
        makes_queues: bool | None = None,
    ) -> None:
        self.ways = personality_of(personality)
        self.clock: Clock = clock or SystemClock()
        self.faults = faults or Faults()
        self.name = name
        self.id = f"memory:{name}/{next(_numbers)}"  # unique among the brokers of a process
        self.lock = threading.RLock()
        self.makes_queues = self.ways.auto_create if makes_queues is None else makes_queues
        loop = loop_for(self.clock, self.id, self.lock)
        self.stock = BrokerContents(self.ways, self.clock, loop, makes_queues=self.makes_queues)
        self.blocked = False
        self._links: dict[int, MemoryLink] = {}
        self._watchers: list[Callable[[], None]] = []
        self.faults.attach(self)

    @property
    def capabilities(self) -> Capabilities:
        return self.ways.capabilities

    @property
    def down(self) -> bool:
        """Return whether the broker was killed and not restarted yet."""
        return self.stock.down

    @property
    def destroyed(self) -> int:
        """Return how many messages this broker discarded without anybody having accepted them."""
        return self.stock.destroyed

    # -- for tests and tools ---------------------------------------------------------------------------------

    def declare(
        self,
        destination: str | Destination,
        *,
        subscription: str = "",
        max_length: int | None = None,
        refuse: bool = False,
        dead_letter: str | None = None,
        limit: int | None = None,
    ) -> Destination:
        """Make a queue, or a topic with a named subscription; return the queue that now exists.

        Beyond `max_length` a message is refused, or the oldest pushed out. `dead_letter` is the queue for messages that
        the broker itself dead-letters: None means this broker's usual one, empty means none. `limit` is the broker's
        own limit of deliveries (`x-delivery-limit`, `max-delivery-attempts`). Declaring again changes nothing.
        """
        with self.lock:
            return self.stock.declare(
                Destination.parse(destination),
                subscription,
                max_length=max_length,
                refuse=refuse,
                dead_letter=dead_letter,
                limit=limit,
            )

    def send(
        self,
        destination: str | Destination,
        body: bytes,
        headers: Mapping[str, Any] | None = None,
        *,
        durable: bool = True,
        **properties: Any,
    ) -> None:
        """Send as a producer would; a missing queue is made. `properties` as in `Properties`.

        Raises BrokerUnavailable while the broker is down, DestinationMissing if the broker refuses the message.
        """
        target = self.declare(destination)
        why = self.store(target, body, headers or {}, Properties(**properties), durable=durable)
        if why:
            raise DestinationMissing(why, where=str(target))

    def depth(self, destination: str | Destination) -> int:
        """Return the number of messages waiting in a queue, without those in flight or scheduled.

        The number is 0 if there is no such queue.
        """
        with self.lock:
            queue = self.stock.find(Destination.parse(destination))
            if queue is None:
                return 0
            self.stock.expire_head(queue)
            return len(queue)

    def peek(self, destination: str | Destination) -> list[StoredMessage]:
        """Return the messages that wait in a queue, oldest first, without changing anything."""
        with self.lock:
            queue = self.stock.find(Destination.parse(destination))
            if queue is None:
                return []
            self.stock.expire_head(queue)
            return queue.messages()

    def everything(self) -> list[PlacedMessage]:
        """Return every copy that this broker stores, with its place."""
        with self.lock:
            places = list(itertools.starmap(PlacedMessage, self.stock.placed()))
            for link in self._links.values():
                places += [PlacedMessage("in flight", queue.destination, message) for queue, message in link.kept()]
            return places

    def connect(self, protocol: str | None = None, closed: Callable[[BaseException], None] | None = None) -> MemoryLink:
        """Return a connection with one channel, as a driver would have it.

        `closed` is called when the connection is lost.

        `protocol`: `amqp091`, `amqp` or `stomp`, for a broker whose counting depends on it. Raises BrokerUnavailable
        while the broker is down.
        """
        with self.lock:
            self._check_up()
            link = MemoryLink(self, next(self.stock.ids), protocol or self.ways.protocol, closed)
            self._links[link.number] = link
            return link

    def step(self) -> bool:
        """Run one callback that is due; return False if none is. Only with a `ManualClock`."""
        return self._by_hand().step()

    def run_until_idle(self) -> int:
        """Run everything that is due now; return the number of callbacks. Only with a `ManualClock`."""
        return self._by_hand().run_until_idle()

    # -- what goes wrong -------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Cut every connection."""
        self._lose("cut", BrokerUnavailable("the connection was cut", where=self.id, code="connection-lost"))

    def kill(self, young: float = 0.0) -> None:
        """Kill the broker until `restart()`: all connections are lost, and everything that is not durable.

        RabbitMQ's quorum queues that were declared less than `young` seconds ago come back empty (observed: up to 2 s).
        """
        with self.lock:
            self.stock.down = True
            self._lose("killed", BrokerUnavailable("the broker was killed", where=self.id, code="connection-lost"))
            self.stock.crash(young)

    def restart(self) -> None:
        """Restart with everything that survived. Scheduled copies that are overdue are delivered at once."""
        with self.lock:
            self.stock.down = False
            self.stock.catch_up()
        self._tell()

    def block(self) -> None:
        """Raise a memory alarm: publishes wait."""
        self.blocked = True

    def unblock(self) -> None:
        if self.blocked:
            self.blocked = False
            self._tell()

    # -- for adapters and links ------------------------------------------------------------------------------

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` after a restart and after an alarm, until the returned function is called."""
        self._watchers.append(changed)
        return functools.partial(self._watchers.remove, changed)

    def queue(self, source: Destination) -> MemoryQueue | None:
        with self.lock:
            return self.stock.find(source)

    def problem(self, target: Destination, headers: Mapping[str, Any], after: float = 0.0) -> str:
        """Return why a copy would be refused, or an empty text if it would be stored.

        Makes a queue that may be made.
        """
        with self.lock:
            return self.stock.problem(target, headers, after)

    def store(
        self,
        target: Destination,
        body: bytes,
        headers: Mapping[str, Any],
        properties: Properties,
        *,
        durable: bool = True,
        after: float = 0.0,
    ) -> str:
        """Store a message, hidden for `after` seconds; return why it is refused, or an empty text if it is stored.

        Raises BrokerUnavailable while the broker is down.
        """
        with self.lock:
            self._check_up()
            why = self.stock.problem(target, headers, after)
            if not why:
                self.stock.keep(target, bytes(body), headers, properties, durable, after)
            return why

    def look(self, source: Destination, limit: int) -> list[HeldDelivery]:
        """Return the first `limit` waiting messages. On RabbitMQ they are taken and returned, which marks them."""
        with self.lock:
            queue = self.stock.find(source)
            if queue is None:
                return []
            self.stock.expire_head(queue)
            seen = [HeldDelivery.of("", message, queue) for message in queue.messages()[:limit]]
            if self.capabilities.browse == "requeue":
                self.ways.take_back([held.message for held in seen], "nack", self.ways.protocol, self.faults)
            return seen

    def forget(self, link: MemoryLink) -> None:
        """Forget a link that has ended. Called by the link."""
        self._links.pop(link.number, None)

    # -- inside ----------------------------------------------------------------------------------------------

    def _check_up(self) -> None:
        if self.stock.down:
            raise BrokerUnavailable("the broker is down", where=self.id)

    def _lose(self, way: LossWay, error: BaseException) -> None:
        with self.lock:
            for link in list(self._links.values()):
                link.lose(way, error)

    def _tell(self) -> None:
        for changed in list(self._watchers):
            changed()

    def _by_hand(self) -> ManualClock:
        if not isinstance(self.clock, ManualClock):
            raise RuntimeError("only a broker with a ManualClock is driven by hand")
        return self.clock
