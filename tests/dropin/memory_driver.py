# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The smallest wrapper: a consumer of the memory broker, whose messages can be acked and nacked. Time by hand."""

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
    """What a callback is given."""

    def __init__(self, turn: CallbackRun) -> None:
        self._turn = turn
        self.text, self.count = turn.delivery.text, turn.delivery.delivery_count

    def ack(self) -> None:
        self._turn.keeper.word(self._turn, ACK)

    def nack(self, requeue: bool = True) -> None:
        self._turn.keeper.word(
            self._turn, because_of(Requeued("nack") if requeue else Reject("nack"), self._turn.before)
        )

    def close(self) -> None:
        """The consumer's."""
        self._turn.seat.closing()
        self._turn.seat.abandon_all()


class MemorySeat(SettlementScope):
    """One consumer, through its reconnects. The driver's own delivery is the native message."""

    def __init__(self, adapter: MemoryAdapter) -> None:
        super().__init__()
        self._adapter = adapter

    @property
    def is_open(self) -> bool:
        return True  # a lost generation is abandoned at once

    def write(self, delivery: Delivery, word: Settlement) -> None:
        self._adapter.settle(((delivery.native, word),))


class NativeReader:
    """The native message reads itself."""

    def __getattr__(self, name: str) -> Callable[[Delivery], Any]:
        if not hasattr(MemoryReader, name):
            raise AttributeError(name)
        return lambda native: getattr(native.reader, name)(native.native)

    def unsendable(self, out: Outgoing, /) -> str:
        return ""


class MemoryPost(CopyPublisher):
    def __init__(self, adapter: MemoryAdapter) -> None:
        self._adapter = adapter

    def store(self, out: Outgoing, after: float, answer: OnAnswer, alive: IsAlive) -> None:
        self._adapter.publish(out, answer, after=after)

    def move(self, delivery: Delivery, outs: Sequence[tuple[Outgoing, float]], answer: OnTransferred) -> None:
        self._adapter.move(delivery.native, outs, answer)


class MemoryCaller(CallbackRunner):
    callback: Callable[[Message], object]

    def invoke(self, turn: CallbackRun) -> object:
        return self.callback(Message(turn))


class Consumer:
    """Ground, and the driver's side: everything runs on the clock's thread."""

    is_open = True

    def __init__(
        self,
        callback: Callable[[Message], object],
        personality: str = "rabbitmq",
        post: CopyPublisher | None = None,
        limbo: str | None = None,
        prefetch: int = 20,
        seat: type[MemorySeat] = MemorySeat,
        **options: Any,
    ) -> None:
        self.clock, self.faults = ManualClock(), Faults()
        self.memory = MemoryBroker(personality, clock=self.clock, faults=self.faults)
        self.memory.declare(SOURCE)
        self.memory.declare(f"DLQ.{SOURCE.name}")
        self._adapter = MemoryAdapter(self.memory)
        self.broker = self.ledger_scope = self._adapter.broker
        self.post = post or MemoryPost(self._adapter)
        self.seat = seat(self._adapter)
        place = f"memory://dropin-{next(_numbers)}"
        register_broker(place.removeprefix("memory://"), self.memory)
        can, terms = self._adapter.capabilities, DropinOptions(publisher=place, limbo=limbo, **options).on(callback)
        if limbo is not None:
            terms.limbo = DropinLimbo(limbo, place, terms.app_name, clock=self.clock, driven=True)
        self.hands = MemoryCaller(terms, self, self.post, can, self.clock)
        self.hands.callback = callback
        self._adapter.start(self)
        self._adapter.subscribe(Subscription(source=SOURCE, prefetch=prefetch))
        self.clock.run_until_idle()

    def put(self, *bodies: str) -> None:
        for body in bodies:
            self.memory.send(SOURCE, body.encode(), message_id=body)
        self.clock.run_until_idle()

    def dead(self) -> list[tuple[str, str]]:
        """Body and reason of each dead letter."""
        letters = self.memory.peek(f"DLQ.{SOURCE.name}")
        return [(letter.body.decode(), str(letter.headers["redeliver_reason"])) for letter in letters]

    def left(self) -> int:
        """Messages that the broker still has of the source, unsettled ones too, once the consumer is gone."""
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
            generation = self.hands.generation(self.seat, native.generation, native.destination)
            reader: Any = NativeReader()
            tag = (native.generation, native.tag)
            delivery = Delivery(native.destination, generation, tag, native.redelivered, native, reader)
            self.hands.arrived(
                CallbackRun(delivery, self.seat, self.hands, returning_settles=self.hands.terms.returning_settles(True))
            )

    def lost(self, generation: int, error: BaseException | None, /) -> None:
        self.seat.abandon(generation)

    def connected(self, capabilities: Capabilities, /) -> None: ...
    def ready(self, source: Destination, generation: int, /) -> None: ...

    def failed(self, error: RedeliverError, source: Destination | None, /) -> None:
        raise error
