# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""A user's channel while deliveries of ours are on it: what its acks mean, and who may write one.

The callback keeps its own channel object. Four methods of that one object are taken over: `basic_ack`,
`basic_nack`, `basic_reject` and `close`. So a callback's word is captured whichever way it reaches the channel:
the argument, an attribute of the user's, `add_callback_threadsafe`. Deliveries that are none of ours (another
consumer's, `basic_get`) pass through. On the thread of the connection's loop.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from redeliver_mw.capabilities import Settlement
from redeliver_mw.context import current_delivery
from redeliver_mw.errors import Reject, RetryAfter
from redeliver_mw.message import Delivery, Destination
from redeliver_pika._source import next_generation

log = logging.getLogger("redeliver_mw.pika")


class Requeued(RetryAfter):
    """The callback gave the message back for another try: a failure, whatever the policy says of exceptions."""

    def __init__(self, verb: str) -> None:
        super().__init__(0.0)
        self.args = (f"given back by the callback ({verb})",)


class Acked(Exception):
    """Not raised: the word of a callback that acked."""


ACK = Acked()


class Keeper(Protocol):
    """Who hears what becomes of a turn."""

    def word(self, turn: Turn, word: Exception, /) -> None: ...
    def closing(self, turn: Turn, /) -> None: ...
    def lost(self, generation: int, turns: list[Turn], /) -> None: ...


@dataclass(slots=True, eq=False)
class Turn:
    """One delivery, from its arrival until it is settled."""

    delivery: Delivery
    seat: Seat
    keeper: Keeper
    bound: tuple[Any, ...] = ()  # what a method's callback is called with first
    in_hand: bool = False  # the callback has it, or has had it and its word is still to come
    inside: bool = False  # within the call, or the coroutine
    word: Exception | None = None
    before: BaseException | None = None  # what was being handled when the callback was called
    since: float = 0.0


class Seat:
    """One channel object, through its generations: one for each consumer on it."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.raw: Any = getattr(channel, "_impl", channel)
        self._open: dict[int, Turn] = {}
        self._live: dict[str, int] = {}  # consumer tag -> generation
        self._keepers: dict[int, Keeper] = {}
        self.sources: dict[str, Destination] = {}  # by consumer tag, once it is known
        self._attached = False
        self._top = 0  # the highest tag of ours
        self._mixed = False  # there are tags that are none of ours
        # Written through the channel inside a BlockingChannel: a method of the latter would poll, nested.
        self._write_ack: Callable[..., Any] = self.raw.basic_ack
        self._write_nack: Callable[..., Any] = self.raw.basic_nack
        self._ack, self._nack, self._reject = channel.basic_ack, channel.basic_nack, channel.basic_reject
        self._close = channel.close
        channel.basic_ack, channel.basic_nack = self._acked, self._nacked
        channel.basic_reject, channel.close = self._rejected, self._closing

    @classmethod
    def of(cls, channel: Any) -> Seat:
        """The one of this channel object; it is kept on it, and goes with it."""
        found: Seat | None = vars(channel).get("_redeliver_seat")
        if found is None:
            found = channel._redeliver_seat = cls(channel)
        return found

    # -- generations ------------------------------------------------------------------------------

    def generation(self, consumer_tag: str, keeper: Keeper) -> int:
        """Of this consumer on this channel as it is open now."""
        found = self._live.get(consumer_tag)
        if found is None:
            if not self._attached:
                self._attached, self._open, self._top, self._mixed = True, {}, 0, False
                self.raw.add_on_close_callback(self._closed)
                self.raw.add_on_cancel_callback(lambda frame: self.abandon(frame.method.consumer_tag))
            found = self._live[consumer_tag] = next_generation()
            self._keepers[found] = keeper
        return found

    def lives(self, generation: int) -> bool:
        """Whether what is settled in it would reach the delivery that is meant (rule 2)."""
        return generation in self._keepers and bool(self.raw.is_open)

    def abandon(self, consumer_tag: str) -> None:
        """The consumer was cancelled, by the broker or for good: what it was given is not settled any more."""
        self.sources.pop(consumer_tag, None)
        generation = self._live.pop(consumer_tag, None)
        if generation is not None:
            keeper = self._keepers.pop(generation)
            keeper.lost(generation, [t for t in self._open.values() if t.delivery.generation == generation])

    def _closed(self, _channel: Any, _reason: BaseException) -> None:
        self._attached = False
        for consumer_tag in list(self._live):
            self.abandon(consumer_tag)

    # -- turns ------------------------------------------------------------------------------------

    def take(self, turn: Turn) -> None:
        tag = turn.delivery.tag
        self._mixed = self._mixed or tag != self._top + 1
        self._top = max(tag, self._top)
        self._open[tag] = turn

    def turn(self, delivery: Delivery) -> Turn | None:
        found = self._open.get(delivery.tag)
        return found if found is not None and found.delivery is delivery else None

    def settle(self, delivery: Delivery, word: Settlement) -> bool:
        """Write it. False, and nothing written, when the generation is over or it was settled before."""
        if not self.lives(delivery.generation) or self.turn(delivery) is None:
            log.debug("%r is of a lost generation, or settled: not settled", delivery)
            return False
        del self._open[delivery.tag]
        if word == "accepted":
            self._write_ack(delivery.tag)
        else:
            self._write_nack(delivery.tag, requeue=True)
        return True

    # -- what the callback says -------------------------------------------------------------------

    def _acked(self, delivery_tag: int = 0, multiple: bool = False) -> None:
        self._said(delivery_tag, multiple, lambda: ACK, lambda: self._ack(delivery_tag, multiple))

    def _nacked(self, delivery_tag: int = 0, multiple: bool = False, requeue: bool = True) -> None:
        def word() -> Exception:
            return Requeued("basic_nack") if requeue else Reject("rejected by the callback (basic_nack)")

        self._said(delivery_tag, multiple, word, lambda: self._nack(delivery_tag, multiple, requeue))

    def _rejected(self, delivery_tag: int = 0, requeue: bool = True) -> None:
        def word() -> Exception:
            return Requeued("basic_reject") if requeue else Reject("rejected by the callback (basic_reject)")

        self._said(delivery_tag, False, word, lambda: self._reject(delivery_tag, requeue))

    def _said(self, tag: int, multiple: bool, word: Callable[[], Exception], pass_on: Callable[[], object]) -> None:
        """To whom it is for: ours are told, others pass on, what is settled or lost is dropped."""
        if multiple:
            mine = [t for at, t in sorted(self._open.items()) if (at <= tag or tag == 0) and t.in_hand]
        else:
            mine = [self._open[tag]] if tag in self._open else []
        ours = tag in self._open or (0 < tag <= self._top and not self._mixed) or (tag == 0 and not self._mixed)
        for turn in mine:
            turn.keeper.word(turn, word())
        if ours:
            if not mine:
                log.debug("tag %s was settled before, or its message is held: the callback's word is dropped", tag)
        elif multiple and any(at <= tag or tag == 0 for at in self._open):
            log.error("a cumulative word up to tag %s would cover messages that are held here: dropped", tag)
        else:
            pass_on()

    def _closing(self, *args: Any, **kwargs: Any) -> Any:
        """A callback that closes its channel right after a message gets that one settled first."""
        try:
            delivery = current_delivery()
        except LookupError:
            turn = None
        else:
            turn = self.turn(delivery) if isinstance(delivery, Delivery) else None
        if turn is not None and turn.inside and turn.word is None and sys.exc_info()[1] is turn.before:
            turn.keeper.closing(turn)
        return self._close(*args, **kwargs)
