# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Watches a user's channel with deliveries of ours: what its acks mean, and who may write one.

The callback keeps its own channel object. Four methods of that one object are taken over: `basic_ack`,
`basic_nack`, `basic_reject` and `close`. So a callback's settlement is captured whichever way it reaches the channel:
the argument, an attribute of the user's, `add_callback_threadsafe`. Deliveries that are none of ours (another
consumer's, `basic_get`) pass through. On the thread of the connection's loop.

A channel that is wrapped itself has more methods taken over (`wrapped_channel`), and knows more: `by_hand`, `prefetch`,
`transaction`.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Hashable
from types import MethodType
from typing import Any

from redeliver_mw.adapter.capabilities import Settlement
from redeliver_mw.dropin import (
    ACK,
    BoundedLog,
    CallbackRun,
    RefusedHere,
    Requeued,
    RunListener,
    SettlementScope,
    because_of,
)
from redeliver_mw.errors import Reject
from redeliver_mw.message import Delivery, Destination
from redeliver_pika.dropin.prefetch import PrefetchCounts
from redeliver_pika.dropin.transactions import ChannelTransaction

log = logging.getLogger("redeliver_mw.pika")
LATE = "its message is settled already, held for a retry, or lost"
PassOn = Callable[[int, bool], object]  # a settlement of the code's for a delivery that is none of ours
_told_targets: set[Destination] = set()  # sources of which it was logged where rejected messages go


def is_wrapped(callback: Any) -> bool:
    """Return whether a callback is wrapped, itself or below a partial or a method."""
    while isinstance(callback, functools.partial | MethodType):
        callback = callback.func if isinstance(callback, functools.partial) else callback.__func__
    return bool(getattr(callback, "wraps_for_redelivery", False))


class ChannelScope(SettlementScope):
    """Follows one channel object through its generations: one for each consumer on it."""

    learns_window = True  # a callback does not see basic_qos

    def __init__(self, channel: Any) -> None:
        super().__init__()
        self.channel = channel
        self.raw: Any = getattr(channel, "_impl", channel)
        self.sources: dict[str, Destination] = {}  # by consumer tag, once it is known
        self.by_hand: set[int] | None = None  # of a wrapped channel: unsettled tags of basic_get
        self.prefetch: PrefetchCounts | None = None  # of a wrapped channel
        self.transaction: ChannelTransaction | None = None  # of a wrapped channel in tx mode
        self.own_dead_letters: dict[str, bool] = {}  # queue -> whether it was declared with a dead-letter exchange
        self._attached = False
        self._late = BoundedLog(log)
        self._first = self._top = 0  # the lowest and the highest tag of ours
        self._mixed = False  # there are tags that are none of ours
        self._stalled = False  # it was logged that only a commit lets further messages come
        # Written through the channel inside a BlockingChannel: a method of the latter would poll, nested.
        self._write_ack: Callable[..., Any] = self.raw.basic_ack
        self._write_nack: Callable[..., Any] = self.raw.basic_nack
        self._ack, self._nack, self._reject = channel.basic_ack, channel.basic_nack, channel.basic_reject
        self._close = channel.close
        channel.basic_ack, channel.basic_nack = self._acked, self._nacked
        channel.basic_reject, channel.close = self._rejected, self._closing

    @classmethod
    def of(cls, channel: Any) -> ChannelScope:
        """Return the scope of this channel object. The channel keeps its scope, and takes it along."""
        found: ChannelScope | None = vars(channel).get("_redeliver_scope")
        if found is None:
            found = channel._redeliver_scope = cls(channel)
        return found

    @property
    def is_open(self) -> bool:
        return bool(self.raw.is_open)

    def write(self, delivery: Delivery, settlement: Settlement) -> None:
        if self.transaction is None:
            self.write_tag(delivery.tag, settlement)
        else:
            self.transaction.settle(delivery.tag, settlement)
            self._warn_of_a_stall(delivery)

    def write_tag(self, tag: int, settlement: Settlement) -> None:
        """Write a settlement to the broker, whatever transaction there is."""
        if settlement == "accepted":
            self._write_ack(tag)
        else:
            self._write_nack(tag, requeue=True)

    def window(self, consumer: Hashable) -> int | None:
        return None if self.prefetch is None else self.prefetch.window(str(consumer))

    # -- generations ------------------------------------------------------------------------------

    def generation(self, consumer: Hashable, listener: RunListener) -> int:
        """Return the generation of this consumer tag on this channel as it is open now."""
        if not self._attached:
            self._attached, self._first, self._top, self._mixed = True, 0, 0, False
            self.clear()
            if self.by_hand is None:
                self.channel.tx_commit = self.channel.tx_rollback = self._refuse_transaction
            self.raw.add_on_close_callback(self._closed)
            self.raw.add_on_cancel_callback(lambda frame: self.abandon(frame.method.consumer_tag))
        return super().generation(consumer, listener)

    def abandon(self, consumer: Hashable) -> None:
        self.sources.pop(str(consumer), None)
        super().abandon(consumer)

    def retire(self, consumer: Hashable) -> None:
        self.sources.pop(str(consumer), None)
        super().retire(consumer)

    def recovered(self) -> None:
        """Give up every unsettled message of the channel: the broker sends each again under another tag."""
        self.abandon_all()
        self._open = {tag: run for tag, run in self._open.items() if run.inside}
        if self.by_hand is not None:
            self.by_hand.clear()
        if self.transaction is not None:
            self.transaction.end()

    def _closed(self, _channel: Any, _reason: BaseException) -> None:
        self._attached = False
        if self.transaction is not None:
            self.transaction.end()
        self.abandon_all()

    def take(self, run: CallbackRun) -> None:
        tag = run.delivery.tag
        self._mixed = self._mixed or tag != self._top + 1
        self._first, self._top = self._first or tag, max(tag, self._top)
        super().take(run)

    # -- what the callback settles -----------------------------------------------------------------

    def _acked(self, delivery_tag: int = 0, multiple: bool = False) -> None:
        self._settled_by_code(delivery_tag, multiple, lambda: ACK, self._ack)

    def _nacked(self, delivery_tag: int = 0, multiple: bool = False, requeue: bool = True) -> None:
        def settlement() -> Exception:
            return Requeued("basic_nack") if requeue else Reject("rejected by the callback (basic_nack)")

        self._settled_by_code(
            delivery_tag, multiple, settlement, lambda tag, all_before: self._nack(tag, all_before, requeue)
        )

    def _rejected(self, delivery_tag: int = 0, requeue: bool = True) -> None:
        def settlement() -> Exception:
            return Requeued("basic_reject") if requeue else Reject("rejected by the callback (basic_reject)")

        self._settled_by_code(delivery_tag, False, settlement, lambda tag, _: self._reject(tag, requeue))

    def _settled_by_code(self, tag: int, multiple: bool, settlement: Callable[[], Exception], pass_on: PassOn) -> None:
        """Tell the core of settlements of ours, pass others on, and drop what is settled or lost."""
        if multiple:
            self._settled_all(tag, settlement, pass_on)
        elif (run := self._open.get(tag)) is not None:
            self._tell(run, settlement())
        elif self._was_ours(tag):
            self._too_late(tag)
        else:
            self._pass_on(tag, pass_on)
        self._flush()

    def _settled_all(self, tag: int, settlement: Callable[[], Exception], pass_on: PassOn) -> None:
        """Settle what the code has in hand up to this tag, of ours and of what it took by basic_get.

        Where callbacks alone are wrapped, it is not known which other deliveries such a settlement would cover.
        """
        runs = [t for at, t in sorted(self._open.items()) if (at <= tag or tag == 0) and t.in_hand and not t.promised]
        ours = tag in self._open or self._was_ours(tag) or (tag == 0 and not self._mixed)
        if self.by_hand is not None:
            by_hand = sorted(at for at in self.by_hand if at <= tag or tag == 0)
            known = bool(runs or by_hand) or ours
        else:
            by_hand = []
            known = ours and not (self._mixed and self._has_bare_consumers())
        if known:
            for run in runs:
                self._tell(run, settlement())
            for at in by_hand:
                self._pass_on(at, pass_on)
            if not runs and not by_hand:
                self._too_late(tag)
        elif any(at <= tag or tag == 0 for at in self._open):
            log.error(
                "a cumulative settlement up to delivery tag %s would cover messages of wrapped and of other consumers "
                "of its channel: it is dropped, and nothing is settled. Wrap the channel, or settle each message",
                tag,
            )
        else:
            pass_on(tag, True)

    def _tell(self, run: CallbackRun, settlement: Exception) -> None:
        settlement = because_of(settlement, run.before)
        if isinstance(settlement, Reject):
            self._tell_of_the_target(run)
        if self.transaction is None:
            run.listener.code_settled(run, settlement)
        elif run.promised:
            self._late.error(
                "%r: a second settlement in one transaction of the code's is dropped: the first one counts",
                run.delivery,
            )
        elif run.in_hand and run.settlement is None:
            self.transaction.promise(run, settlement)
        else:
            run.listener.code_settled(run, settlement)

    def _pass_on(self, tag: int, pass_on: PassOn) -> None:
        pass_on(tag, False)
        if self.by_hand is not None and tag in self.by_hand:
            self.by_hand.discard(tag)
            if self.transaction is not None:
                self.transaction.by_hand(tag)

    def _was_ours(self, tag: int) -> bool:
        """Return whether a tag that is not open was one of ours."""
        if self.by_hand is None:
            return 0 < tag <= self._top and not self._mixed
        return 0 < self._first <= tag <= self._top and tag not in self.by_hand

    def _too_late(self, tag: int) -> None:
        self._late.error("a settlement of delivery tag %s came too late and is dropped: %s", tag, LATE)

    def _has_bare_consumers(self) -> bool:
        """Return whether a consumer without a wrapper shares the channel, whose tags are none of ours."""
        infos = getattr(self.channel, "_consumer_infos", {})
        for consumer, called in self.raw._consumers.items():
            if consumer in self._live or consumer in self.raw._consumers_with_noack:
                continue
            if not is_wrapped(getattr(infos.get(consumer), "on_message_callback", called)):
                return True
        return False

    def _flush(self) -> None:
        """Let an ack go out now, from the code's own stack, as the driver's own `basic_ack` does.

        A BlockingChannel writes only when it is polled. The poll dispatches nothing.
        """
        if self.raw is not self.channel and self.transaction is None and self.raw.is_open:
            self.channel._flush_output()

    def withdraw(self, run: CallbackRun) -> bool:
        return super().withdraw(run) if self.transaction is None else self.transaction.withdraw(run)

    def _refuse_transaction(self, *_: Any, **__: Any) -> None:
        """Raise: acks of ours on this channel would be part of a transaction whose end we cannot see."""
        raise RefusedHere(
            "a wrapped callback knows nothing of the transactions of its channel, so its acks cannot be part of them",
            where=repr(self.channel),
            cure="Wrap the channel before tx_select: channel = redelivering(channel, policy=...)",
        )

    def _closing(self, *args: Any, **kwargs: Any) -> Any:
        """Settle the message in hand first, for a callback that closes its channel right after it."""
        self.closing()
        return self._close(*args, **kwargs)

    # -- what is logged once ------------------------------------------------------------------------

    def _tell_of_the_target(self, run: CallbackRun) -> None:
        """Log at the first reject of a source that the queue's own dead-letter exchange is not used."""
        source = run.delivery.destination
        declared = self.own_dead_letters.get(source.name)
        if source in _told_targets or declared is False:
            return
        _told_targets.add(source)
        log.warning(
            "%s: a message that the code rejects goes to the dead-letter target of its policy. %s",
            source,
            "The dead-letter exchange that the queue was declared with is not used"
            if declared
            else "If the queue has a dead-letter exchange of its own, that is not used",
        )

    def _warn_of_a_stall(self, delivery: Delivery) -> None:
        """Log once that acks of ours fill the window, and only a commit of the code's lets further messages come."""
        assert self.transaction is not None
        window = self.window_of(delivery.generation)
        if window is not None and self.transaction.waiting >= window and not self._stalled:
            self._stalled = True
            log.warning(
                "%s: %d messages that were retried as copies or dead-lettered stay unsettled until the code's next "
                "tx_commit, and fill its prefetch window of %d: no other message comes before. Commit after a failure, "
                "too, or take a larger prefetch_count",
                delivery.destination,
                self.transaction.waiting,
                window,
            )
