# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds the smallest wrapper: of a consumer of the memory broker, whose messages can be acked and nacked.

Time is moved by hand.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from redeliver_mw.adapter.capabilities import Capabilities, Settlement
from redeliver_mw.adapter.protocol import OnAnswer, OnTransferred, Subscription
from redeliver_mw.dropin import (
    ACK,
    CallbackRun,
    CallbackRunner,
    CopyPublisher,
    DropinLimbo,
    DropinOptions,
    IsAlive,
    Requeued,
    SettlementScope,
    because_of,
)
from redeliver_mw.errors import RedeliverError, Reject
from redeliver_mw.memory.reader import MemoryReader
from redeliver_mw.message import Delivery, Destination, Outgoing
from redeliver_mw.testing import Faults, ManualClock, MemoryAdapter, MemoryBroker, register_broker

SOURCE = Destination("orders")
_numbers = itertools.count(1)


class Message:
    """Is the message that a callback is given."""

    def __init__(self, run: CallbackRun) -> None:
        self._run = run
        self.text, self.count = run.delivery.text, run.delivery.delivery_count

    def ack(self) -> None:
        self._run.listener.code_settled(self._run, ACK)

    def nack(self, requeue: bool = True) -> None:
        self._run.listener.code_settled(
            self._run, because_of(Requeued("nack") if requeue else Reject("nack"), self._run.before)
        )

    def close(self) -> None:
        """Close the consumer of this message."""
        self._run.scope.closing()
        self._run.scope.abandon_all()


class MemoryScope(SettlementScope):
    """Settles the deliveries of one consumer, through its reconnects.

    The driver's own delivery is the native message.
    """

    def __init__(self, adapter: MemoryAdapter) -> None:
        super().__init__()
        self._adapter = adapter

    @property
    def is_open(self) -> bool:
        return True  # a lost generation is abandoned at once

    def write(self, delivery: Delivery, settlement: Settlement) -> None:
        self._adapter.settle(((delivery.native, settlement),))


class NativeReader:
    """Lets the native message read itself."""

    def __getattr__(self, name: str) -> Callable[[Delivery], Any]:
        if not hasattr(MemoryReader, name):
            raise AttributeError(name)
        return lambda native: getattr(native.reader, name)(native.native)

    def unsendable(self, out: Outgoing, /) -> str:
        return ""


class MemoryPublisher(CopyPublisher):
    def __init__(self, adapter: MemoryAdapter) -> None:
        self._adapter = adapter

    def store(self, out: Outgoing, after: float, answer: OnAnswer, alive: IsAlive) -> None:
        self._adapter.publish(out, answer, after=after)

    def move(self, delivery: Delivery, outs: Sequence[tuple[Outgoing, float]], answer: OnTransferred) -> None:
        self._adapter.move(delivery.native, outs, answer)


class MemoryRunner(CallbackRunner):
    callback: Callable[[Message], object]

    def invoke(self, run: CallbackRun) -> object:
        return self.callback(Message(run))


class Consumer:
    """Consumes from a memory broker as a driver would: everything runs on the clock's thread."""

    is_open = True

    def __init__(
        self,
        callback: Callable[[Message], object],
        personality: str = "rabbitmq",
        publisher: CopyPublisher | None = None,
        limbo: str | None = None,
        prefetch: int = 20,
        scope: type[MemoryScope] = MemoryScope,
        **options: Any,
    ) -> None:
        self.clock, self.faults = ManualClock(), Faults()
        self.memory = MemoryBroker(personality, clock=self.clock, faults=self.faults)
        self.memory.declare(SOURCE)
        self.memory.declare(f"DLQ.{SOURCE.name}")
        self._adapter = MemoryAdapter(self.memory)
        self.broker = self.ledger_scope = self._adapter.broker
        self.publisher = publisher or MemoryPublisher(self._adapter)
        self.scope = scope(self._adapter)
        place = f"memory://dropin-{next(_numbers)}"
        register_broker(place.removeprefix("memory://"), self.memory)
        can, terms = self._adapter.capabilities, DropinOptions(publisher=place, limbo=limbo, **options).on(callback)
        if limbo is not None:
            terms.limbo = DropinLimbo(limbo, place, terms.app_name, clock=self.clock, driven=True)
        self.runner = MemoryRunner(terms, self, self.publisher, can, self.clock)
        self.runner.callback = callback
        self._adapter.start(self)
        self._adapter.subscribe(Subscription(source=SOURCE, prefetch=prefetch))
        self.clock.run_until_idle()

    def put(self, *bodies: str) -> None:
        for body in bodies:
            self.memory.send(SOURCE, body.encode(), message_id=body)
        self.clock.run_until_idle()

    def dead(self) -> list[tuple[str, str]]:
        """Return body and reason of each dead letter."""
        letters = self.memory.peek(f"DLQ.{SOURCE.name}")
        return [(letter.body.decode(), str(letter.headers["redeliver_reason"])) for letter in letters]

    def left(self) -> int:
        """Close the consumer, and return how many messages the broker still has of the source, unsettled ones too."""
        self._adapter.close()
        self.clock.run_until_idle()
        return self.memory.depth(SOURCE)

    def later(self, seconds: float, fn: Callable[[], None]) -> None:
        self._adapter.call_later(seconds, fn)

    def hop(self, fn: Callable[[], None]) -> None:
        self.later(0, fn)

    # -- the driver ---------------------------------------------------------------------------------

    def arrived(self, batch: Sequence[Delivery], /) -> None:
        for native in batch:
            generation = self.runner.generation(self.scope, native.generation, native.destination)
            reader: Any = NativeReader()
            tag = (native.generation, native.tag)
            delivery = Delivery(native.destination, generation, tag, native.redelivered, native, reader)
            self.runner.arrived(
                CallbackRun(
                    delivery, self.scope, self.runner, returning_settles=self.runner.terms.returning_settles(True)
                )
            )

    def lost(self, generation: int, error: BaseException | None, /) -> None:
        self.scope.abandon(generation)

    def connected(self, capabilities: Capabilities, /) -> None: ...
    def ready(self, source: Destination, generation: int, /) -> None: ...

    def failed(self, error: RedeliverError, source: Destination | None, /) -> None:
        raise error
