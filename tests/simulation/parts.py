# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds the world's parts: the memory broker, its adapter, the clock and the worker pool, each with points in it.

A point is a place where the plan may let something go wrong. Whatever is no such place is the real code.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from redeliver_mw.adapter.capabilities import Settlement
from redeliver_mw.adapter.protocol import OnAnswer, OnTransferred
from redeliver_mw.errors import BrokerUnavailable
from redeliver_mw.memory import ManualClock, MemoryAdapter, MemoryBroker, MemoryLink
from redeliver_mw.memory.clock import ClockLoop
from redeliver_mw.memory.publisher import Publisher
from redeliver_mw.memory.transactions import MemoryTransactions
from redeliver_mw.message import Delivery, Destination, Outgoing, Properties
from redeliver_mw.runtime.handler import HandlerSpec
from redeliver_mw.runtime.workers import PoolListener, WorkerPool

if TYPE_CHECKING:
    from .life import Life
    from .world import World

PUBLISH_TIMEOUT = 2.0  # seconds


class Died(BaseException):
    """Says that the process is dead: whatever its code still does on the way out has no effect."""


class SteppedClock(ManualClock):
    """Makes a point of every callback."""

    world: World

    def step(self) -> bool:
        if not self.is_due():
            return False
        self.world.point("callback")
        return super().step()

    def sleep_until(self, when: float) -> None:
        self._mono = max(self._mono, when)

    @property
    def next_instant(self) -> float | None:
        return self._mono if self._agenda.ready else self._agenda.next_instant()

    def forget(self, loop: ClockLoop) -> None:
        """Forget a loop: nothing of it happens any more."""
        loop._finished = True
        ready = [entry for entry in self._agenda.ready if entry[0] is not loop]
        self._agenda.ready.clear()
        self._agenda.ready.extend(ready)


class WatchedLink(MemoryLink):
    """Looks at what is settled on the link."""

    world: World

    def accept(self, tag: Any, *, multiple: bool = False) -> None:
        world = self.world
        world.point("settle")
        if not self.is_open:
            return super().accept(tag)
        going = [held for number, held in self._held.items() if number == tag]
        if multiple and going:
            going += [self._held[number] for number in self._before(tag) if number != tag]
        if not going:
            world.book.wrong(f"a settle with tag {tag} hits nothing: settled twice, or in another generation")
        super().accept(tag, multiple=multiple)
        for held in going:
            world.book.accepted(held.message.body.decode(), held.queue.destination.name)
        world.point("settled")

    def _give_back(self, tag: Any, way: Any) -> None:
        self.world.point("give back")
        super()._give_back(tag, way)

    def nack(self, tag: Any, *, requeue: bool = True) -> None:
        self.world.point("give back")
        super().nack(tag, requeue=requeue)


class WatchedBroker(MemoryBroker):
    world: World

    def connect(self, protocol: str | None = None, closed: Callable[[BaseException], None] | None = None) -> MemoryLink:
        link = super().connect(protocol, closed)
        link.__class__ = WatchedLink
        link.world = self.world
        return link

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
        self.world.point("publish")
        why = super().store(target, body, headers, properties, durable=durable, after=after)
        if not why:
            self.world.book.stored(body.decode(), target, headers)
        self.world.point("published")
        return why


class WatchedPublisher(Publisher):
    """Lets a copy get stuck on its link: the copy arrives if the link lives long enough."""

    world: World
    link_number = 0

    def lost(self, why: str) -> None:
        self.link_number += 1
        super().lost(why)

    def _send(self, out: Outgoing, answer: OnAnswer, after: float) -> None:
        fault = self.world.weather.take_of_publish()
        if fault is None or self._link is None or not self._link.is_open:
            return super()._send(out, answer, after)
        if fault.kind == "repeat":
            super()._send(out, answer, after)
            for key in range(1, 50):  # what is not open any more must not mind
                if key not in self._unanswered:
                    self._answer(key, "ok", "")
            return
        self.world.book.stalled.add(answer)
        key = next(self._keys)
        self._unanswered[key] = answer
        self._loop.call_later(self._timeout, functools.partial(self._give_up, key))
        self._loop.call_later(fault.arg, functools.partial(self._arrive, key, self.link_number, out, after))

    def _arrive(self, key: int, link_number: int, out: Outgoing, after: float) -> None:
        if link_number != self.link_number:
            return  # it went down with its link
        try:
            why = self._broker.store(out.target, out.body, out.headers, out.properties, after=after)
        except BrokerUnavailable:
            return
        self._answer(key, "refused" if why else "ok", why)


class WatchedMover(MemoryTransactions):
    """Lets the broker commit at one stroke: nothing comes in between."""

    world: World

    def move(self, memory_generation: Any, delivery: Delivery, outs: Any, answer: OnTransferred) -> None:
        self.world.point("transaction")
        with self.world.at_one_stroke():
            super().move(memory_generation, delivery, outs, answer)
        self.world.point("transaction over")

    def _commit(self, memory_generation: Any, delivery: Delivery, outs: Any) -> None:
        with self.world.at_one_stroke():
            super()._commit(memory_generation, delivery, outs)


class WatchedAdapter(MemoryAdapter):
    def __init__(self, world: World) -> None:
        super().__init__(world.broker, publish_timeout=PUBLISH_TIMEOUT)
        self._open_copies: set[str] = set()
        self.world = world
        publisher = self._publisher
        publisher.__class__ = WatchedPublisher
        publisher.world = world
        self._transactions.__class__ = WatchedMover
        self._transactions.world = world

    @property
    def loop(self) -> ClockLoop:
        return self._loop

    def publish(self, out: Outgoing, answer: OnAnswer, /, *, after: float = 0.0) -> None:
        body, book = out.body.decode(), self.world.book
        if out.copy_id in self._open_copies:
            book.wrong(f"a copy of {body} is sent again before its answer")
        self._open_copies.add(out.copy_id)
        book.open_publish(body)

        def answered(verdict: Any, why: str) -> None:
            self._open_copies.discard(out.copy_id)
            book.answered(body, verdict, nowhere=answered in book.stalled)
            self.world.note(f"the copy of {body} for {out.target}: {verdict}")
            answer(verdict, why)

        super().publish(out, answered, after=after)

    def move(self, delivery: Delivery, outs: Sequence[tuple[Outgoing, float]], answer: OnTransferred, /) -> None:
        body, book = delivery.body.decode(), self.world.book
        book.open_publish(body)

        def answered(verdict: Any, why: str) -> None:
            book.answered(body, "silent" if verdict in ("abandoned", "lost") else verdict)
            self.world.note(f"the transaction of {body}: {verdict}")
            answer(verdict, why)

        super().move(delivery, outs, answered)

    def settle(
        self, settlements: Sequence[tuple[Delivery, Settlement]], /, *, written: Callable[[], None] | None = None
    ) -> None:
        self.world.point("word")
        super().settle(settlements, written=written)

    def _cut(self) -> None:
        self.world.book.connection_lost()
        super()._cut()

    def has(self, delivery: Delivery) -> bool:
        """Return whether the broker still thinks that we have the delivery."""
        memory_generation = self._consumers.get(delivery.generation)
        return memory_generation is not None and memory_generation.link.is_open

    def vanish(self) -> None:
        """Lose the connections, as the broker sees a process that died."""
        if self._closed:
            return
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None
        self._closed = True
        self._consumers._sink = None  # nobody is there to be told
        self._consumers.drop()
        if self._main is not None:
            self._main.drop()

    def drop_channel(self) -> None:
        for memory_generation in list(self._consumers)[:1]:
            memory_generation.link.drop()


class SteppedPool(WorkerPool):
    """Lets a handler begin, take its time, and end; `workers` of them at once. In between anything may happen."""

    def __init__(self, spec: HandlerSpec, listener: PoolListener) -> None:
        super().__init__(spec, listener)
        self._life: Life = spec.fn.__self__
        self._free = spec.workers
        self._coming = False

    def put(self, batch: Sequence[Delivery], *, first: bool = False) -> None:
        for delivery in batch:
            self._life.world.book.handed(delivery)
        super().put(batch, first=first)

    def _wake(self, n: int) -> None:
        if not self._coming:
            self._coming = True
            self._life.adapter.call_later(0.0, self._look)

    def _look(self) -> None:
        self._coming = False
        while self._free and self._queue and not self.paused and not self.stopping:
            delivery = self._queue.popleft()
            if self._listener.begin(delivery):
                self._free -= 1
                self.spec.fn(delivery, functools.partial(self._over, delivery))

    def _over(self, delivery: Delivery, error: BaseException | None) -> None:
        self._free += 1
        self._listener.ended(delivery, error)
        self._wake(1)
