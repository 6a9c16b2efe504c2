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
from collections.abc import Callable, Hashable
from typing import Any

from redeliver_mw.adapter.capabilities import Settlement
from redeliver_mw.dropin import ACK, BoundedLog, CallbackRun, Requeued, RunListener, SettlementScope, because_of
from redeliver_mw.errors import Reject
from redeliver_mw.message import Delivery, Destination

log = logging.getLogger("redeliver_mw.pika")
LATE = "its message is settled already, held for a retry, or lost"


class ChannelScope(SettlementScope):
    """One channel object, through its generations: one for each consumer on it."""

    learns_window = True  # a callback is not told of basic_qos

    def __init__(self, channel: Any) -> None:
        super().__init__()
        self.channel = channel
        self.raw: Any = getattr(channel, "_impl", channel)
        self.sources: dict[str, Destination] = {}  # by consumer tag, once it is known
        self._attached = False
        self._late = BoundedLog(log)
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
    def of(cls, channel: Any) -> ChannelScope:
        """The one of this channel object; it is kept on it, and goes with it."""
        found: ChannelScope | None = vars(channel).get("_redeliver_seat")
        if found is None:
            found = channel._redeliver_seat = cls(channel)
        return found

    @property
    def is_open(self) -> bool:
        return bool(self.raw.is_open)

    def write(self, delivery: Delivery, word: Settlement) -> None:
        if word == "accepted":
            self._write_ack(delivery.tag)
        else:
            self._write_nack(delivery.tag, requeue=True)

    # -- generations ------------------------------------------------------------------------------

    def generation(self, consumer: Hashable, keeper: RunListener) -> int:
        """Of this consumer tag on this channel as it is open now."""
        if not self._attached:
            self._attached, self._top, self._mixed = True, 0, False
            self.clear()
            self.raw.add_on_close_callback(self._closed)
            self.raw.add_on_cancel_callback(lambda frame: self.abandon(frame.method.consumer_tag))
        return super().generation(consumer, keeper)

    def abandon(self, consumer: Hashable) -> None:
        self.sources.pop(str(consumer), None)
        super().abandon(consumer)

    def _closed(self, _channel: Any, _reason: BaseException) -> None:
        self._attached = False
        self.abandon_all()

    def take(self, turn: CallbackRun) -> None:
        tag = turn.delivery.tag
        self._mixed = self._mixed or tag != self._top + 1
        self._top = max(tag, self._top)
        super().take(turn)

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
            turn.keeper.word(turn, because_of(word(), turn.before))
        if ours:
            if not mine:
                self._late.error("a settlement of delivery tag %s came too late and is dropped: %s", tag, LATE)
        elif multiple and any(at <= tag or tag == 0 for at in self._open):
            log.error("a cumulative word up to tag %s would cover messages that are held here: dropped", tag)
        else:
            pass_on()

    def _closing(self, *args: Any, **kwargs: Any) -> Any:
        """A callback that closes its channel right after a message gets that one settled first."""
        self.closing()
        return self._close(*args, **kwargs)
