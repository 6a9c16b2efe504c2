# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds what a memory broker stores: queues, topics with their subscriptions, scheduled copies.

The broker's lock guards all of this.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ..clock import Clock
from ..message import Destination, Properties
from .clock import ClockLoop
from .personality import Personality, StoredMessage
from .queue import Duplicates, MemoryQueue, encoding_problem

_RETRY_DUE = 1.0  # seconds until a scheduled copy that its queue refused is tried again


class ScheduledMessage(NamedTuple):
    """Is a message that waits until it is due, and for how many seconds it waits altogether."""

    target: Destination
    message: StoredMessage
    due: float  # monotonic
    waited: float


class BrokerContents:
    """Holds every message that is not in flight."""

    def __init__(self, ways: Personality, clock: Clock, loop: ClockLoop, *, makes_queues: bool) -> None:
        self.queues: dict[Destination, MemoryQueue] = {}
        self.scheduled: dict[int, ScheduledMessage] = {}
        self.destroyed = 0  # messages that were discarded without anybody having accepted them
        self.down = False
        self.ids = itertools.count(1)
        self._topics: dict[str, dict[str, MemoryQueue]] = {}
        self._ways, self._clock, self._loop = ways, clock, loop
        self._makes_queues = makes_queues
        self._duplicates: dict[Destination, Duplicates] = {}

    # -- queues and topics -----------------------------------------------------------------------------------

    def find(self, source: Destination) -> MemoryQueue | None:
        if source.kind == "topic":
            return self._topics.get(source.name, {}).get(source.subscription)
        return self.queues.get(source)

    def bound(self, target: Destination) -> list[MemoryQueue]:
        """Return the queues that a message for `target` goes to."""
        if target.kind == "topic" and not target.subscription:
            return list(self._topics.get(target.name, {}).values())
        found = self.find(target)
        return [found] if found is not None else []

    def declare(
        self,
        wanted: Destination,
        subscription: str = "",
        *,
        max_length: int | None = None,
        refuse: bool = False,
        dead_letter: str | None = None,
        limit: int | None = None,
    ) -> Destination:
        if wanted.kind == "topic":
            subscriptions = self._topics.setdefault(wanted.name, {})
            subscription = subscription or wanted.subscription
            if not subscription:
                return wanted
            wanted = Destination(f"{wanted.name}::{subscription}")
        if wanted not in self.queues:
            graveyard = self._ways.dead_letters if dead_letter is None else dead_letter
            now = self._clock.now().mono
            self.queues[wanted] = MemoryQueue(wanted, max_length, refuse, graveyard, limit, declared=now)
            if subscription:
                subscriptions[subscription] = self.queues[wanted]
        return wanted

    # -- keeping ---------------------------------------------------------------------------------------------

    def problem(self, target: Destination, headers: Mapping[str, Any], after: float = 0.0) -> str:
        """Return why a copy would be refused, or an empty text if it would be stored.

        Makes a queue that may be made.
        """
        if why := encoding_problem(headers, self._ways.header_bytes):
            return why
        if self._ways.delay(0.0, after, headers) is None:
            return f"{self._ways.name} cannot delay a copy by {after:g} s"
        if self._makes_queues:
            self.declare(target)
            if target.kind == "topic" and not target.subscription:
                return ""  # stored for subscribers, lost if there are none
        queues = self.bound(target)
        if not queues:
            return f"NO_ROUTE: nothing would keep a message for {target}"
        full = after <= 0 and any(queue.full and queue.refuse for queue in queues)
        return f"{target} is full" if full else ""

    def keep(
        self,
        target: Destination,
        body: bytes,
        headers: Mapping[str, Any],
        properties: Properties,
        durable: bool,
        after: float,
    ) -> None:
        """Store a message. Called when `problem` has found none."""
        if self._swallowed(target, headers):
            self.destroyed += 1
            return
        for queue in self.bound(target):
            message = StoredMessage(next(self.ids), body, dict(headers), properties, durable)
            now = self._clock.now().mono
            delay = self._ways.delay(now, after, headers)
            if not delay:
                self.put(queue, message)
                continue
            if self._ways.name == "activemq":  # its scheduler postpones the expiry by the delay
                message.properties = _expiry_shifted(properties, delay)
            self.scheduled[message.id] = ScheduledMessage(queue.destination, message, now + delay, delay)
            self._loop.call_later(delay, functools.partial(self._due, message.id))

    def put(self, queue: MemoryQueue, message: StoredMessage) -> None:
        if queue.full and len(queue):
            self.destroyed += 1
            queue.take()
        queue.put(message)
        queue.pump()

    # -- taking ----------------------------------------------------------------------------------------------

    def next_message(self, queue: MemoryQueue) -> StoredMessage | None:
        """Take the first message off a queue and return it, or None."""
        self.expire_head(queue)
        return queue.take() if len(queue) else None

    def expire_head(self, queue: MemoryQueue) -> None:
        """Dead-letter expired messages at the head of the queue."""
        while len(queue):
            expiry = queue.head().properties.expires_at_us
            if expiry is None or expiry > self._clock.now().us:
                return
            self.dead_letter(queue, queue.take(), "expired")

    def dead_letter(self, queue: MemoryQueue, message: StoredMessage, why: str) -> None:
        """Dead-letter a message as the broker itself does, or discard it where the broker has no dead-letter queue."""
        graveyard = (self._ways.expired if why == "expired" else "") or queue.dead_letter
        here = queue.destination.name == graveyard
        if not graveyard or (self._ways.name == "activemq" and (here or not message.durable)):
            self.destroyed += 1
            return
        self._ways.dead_letter(message, queue.destination, why)
        message.properties = replace(message.properties, expires_at_us=None)
        self.put(self.queues[self.declare(Destination(graveyard))], message)

    # -- when the broker dies --------------------------------------------------------------------------------

    def crash(self, young: float) -> None:
        """Lose what is not durable, and what the broker did not write to disk."""
        now = self._clock.now().mono
        for queue in self.queues.values():
            if self._ways.name == "rabbitmq" and now - queue.declared < young:
                self.destroyed += queue.drop_if(lambda _: True)
            self.destroyed += queue.drop_if(lambda message: not message.durable)
            self._ways.restarted(queue.messages())
        for key in [key for key, entry in self.scheduled.items() if not entry.message.durable]:
            del self.scheduled[key]
            self.destroyed += 1

    def catch_up(self) -> None:
        """Deliver what fell due while the broker was down."""
        now = self._clock.now().mono
        for key in [key for key, entry in self.scheduled.items() if entry.due <= now]:
            self._due(key)

    def placed(self) -> Iterator[tuple[str, Destination, StoredMessage]]:
        for queue in self.queues.values():
            yield from (("queued", queue.destination, message) for message in queue.messages())
        yield from (("scheduled", entry.target, entry.message) for entry in self.scheduled.values())

    # -- inside ----------------------------------------------------------------------------------------------

    def _due(self, key: int) -> None:
        entry = self.scheduled.get(key)
        if entry is None or self.down:
            return
        queue = self.queues[entry.target]
        if queue.full and queue.refuse:  # at-least-once: the copy is stored and tried again
            self._loop.call_later(_RETRY_DUE, functools.partial(self._due, key))
            return
        del self.scheduled[key]
        self._ways.due(entry.message, entry.target, entry.waited, self._clock.now().wall)
        self.put(queue, entry.message)

    def _swallowed(self, target: Destination, headers: Mapping[str, Any]) -> bool:
        """Return whether Artemis confirms and discards the copy, because it has seen its `_AMQ_DUPL_ID` before."""
        duplicate = headers.get("_AMQ_DUPL_ID") if self._ways.name == "artemis" else None
        return duplicate is not None and self._duplicates.setdefault(target, Duplicates()).seen(duplicate)


def _expiry_shifted(properties: Properties, seconds: float) -> Properties:
    expiry = properties.expires_at_us
    return properties if expiry is None else replace(properties, expires_at_us=expiry + round(seconds * 1e6))
