# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Consumes one source on one channel: generation, batches, acks. On the thread of the adapter's I/O loop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pika import spec
from pika.adapters.select_connection import IOLoop

from redeliver_mw.adapter import Subscription
from redeliver_mw.adapter.capabilities import Settlement
from redeliver_mw.adapter.kit.sources import next_generation
from redeliver_mw.errors import DestinationMissing, RedeliverError
from redeliver_mw.message import Delivery
from redeliver_pika.capabilities import queue_of
from redeliver_pika.messages import delivery_of
from redeliver_pika.queues import OnQueue

log = logging.getLogger("redeliver_mw.pika")

MOST_PREFETCHED = 65535  # AMQP 0-9-1 has two bytes for it
LOOK_EVERY = 5.0  # seconds between two looks at the broker's number of consumers, while nothing is delivered


class Consumer:
    """Consumes a subscription through its generations; each channel is one."""

    def __init__(
        self,
        subscription: Subscription,
        ioloop: IOLoop,
        *,
        arrived: Callable[[Sequence[Delivery]], None],
        ready: Callable[[Consumer], None],
        gone: Callable[[Consumer, BaseException], None],
        count_consumers: Callable[[str, OnQueue], None],
    ) -> None:
        self.subscription = subscription
        self.generation = 0
        self.was_ready = False
        self._reported = 0  # the generation that was reported as ready
        self._ioloop, self._arrived, self._ready, self._gone = ioloop, arrived, ready, gone
        self._count_consumers = count_consumers
        self._channel: Any = None
        self._consumer = ""
        self._batch: list[Delivery] = []
        self._window = AckWindow()
        self._resting = False
        self._quiet = True  # nothing was delivered since the last look
        self._counted = False  # the broker has counted a consumer in this generation
        self._uncounted = 0  # looks since then at which it counted none

    def open(self, connection: Any) -> None:
        """Open a new channel, and with it a new generation."""
        self.generation = next_generation()
        self._batch, self._window = [], AckWindow()
        self._channel, self._consumer = None, ""
        self._quiet, self._counted, self._uncounted = True, False, 0
        connection.channel(on_open_callback=partial(self._opened, self.generation))

    def abandon(self, *, by_nack: bool) -> None:
        """End the generation: nothing more is settled or handed over.

        From 4.3 on (`by_nack`) what is unsettled is given back with a nack before the channel is closed: closing alone
        counts each of them towards a quorum queue's limit, even those that were only prefetched; a nack does not
        (broker-limits). The consumer is ended first, or they would come back to it. Before 4.3 a nack counts as much,
        and a quorum queue without a limit puts what comes back by one at its end (observed on RabbitMQ 3.10.8): there
        the channel is closed, which gives everything back to the front, in order.
        """
        channel, self._channel, self._batch = self._channel, None, []
        if channel is not None and channel.is_open:
            if self._consumer and by_nack:
                channel.basic_cancel(self._consumer)
            if by_nack and (self._consumer or self._resting):
                channel.basic_nack(0, multiple=True, requeue=True)
            channel.close()

    def rest(self, rested: Callable[[], None]) -> None:
        """End the consumer, not the generation; `rested` when nothing more comes.

        Not by the driver's own cancel: that rejects what is still on its way, which counts towards a queue's limit
        and leaves holes in the tags.
        """
        self._resting = True
        channel, consumer, self._consumer = self._channel, self._consumer, ""
        if channel is None or not channel.is_open or not consumer:
            return rested()

        def ended(_: object) -> None:
            channel._cleanup_consumer_ref(consumer)
            self._hand_over()
            rested()

        frame: Any = spec.Basic.Cancel  # the driver's frames have no types
        channel._rpc(frame(consumer), ended, [(spec.Basic.CancelOk, {"consumer_tag": consumer})])

    def go_on(self) -> None:
        """Consume again, in the same generation if it lives."""
        self._resting = False
        channel = self._channel
        if channel is not None and channel.is_open and not self._consumer:
            self._consume(channel)

    def _opened(self, generation: int, channel: Any) -> None:
        if generation != self.generation:  # opened once more meanwhile: two channels would share one window
            channel.close()
            return
        self._channel = channel
        channel.add_on_close_callback(self._closed)
        channel.add_on_cancel_callback(lambda _: self._cancelled(channel))
        prefetch = min(self.subscription.prefetch, MOST_PREFETCHED)
        channel.basic_qos(prefetch_count=prefetch, callback=lambda _: self._begin(channel))

    def _begin(self, channel: Any) -> None:
        if self._resting:  # it is ready for what goes on later
            self._consuming(channel)
        else:
            self._consume(channel)

    def _consume(self, channel: Any) -> None:
        self._consumer = channel.basic_consume(
            queue_of(self.subscription.source),
            self._message,
            exclusive=self.subscription.exclusive,
            callback=lambda _: self._consuming(channel),
        )

    def _consuming(self, channel: Any) -> None:
        if channel is self._channel and self._reported != self.generation:
            self._reported = self.generation
            self.was_ready = True
            self._ready(self)
            self._look(channel)
        if channel is self._channel:
            self._hand_over()

    def _closed(self, channel: Any, reason: BaseException) -> None:
        if channel is self._channel:
            self._channel = None
            self._gone(self, reason)

    def _cancelled(self, channel: Any) -> None:
        """Note that the broker ended the consumer (queue deleted, ack timeout), and has its deliveries again."""
        if channel is self._channel:
            self._gone(self, ConnectionError("the broker cancelled the consumer"))

    def _look(self, channel: Any) -> None:
        """Ask from time to time whether the broker still knows the consumer, while it delivers nothing.

        When a quorum queue of a cluster is deleted, RabbitMQ 3.10 does not always cancel its consumers (observed in 7
        of 40 deletions on three nodes). Such a consumer would wait for ever, even when the queue is there again. A
        broker that has never counted the consumer, as for a stream, is not believed.
        """
        if channel is not self._channel or not channel.is_open:
            return
        if self._quiet and self._consumer:  # on another channel: nothing here waits for the answer
            self._count_consumers(queue_of(self.subscription.source), partial(self._told, channel))
        self._quiet = True
        self._ioloop.call_later(LOOK_EVERY, partial(self._look, channel))

    def _told(self, channel: Any, found: int | RedeliverError) -> None:
        if channel is not self._channel or not self._consumer:
            return
        if isinstance(found, RedeliverError):
            if isinstance(found, DestinationMissing):
                self._gone(self, found)
        elif found:
            self._counted, self._uncounted = True, 0
        elif self._counted and self._quiet:
            self._uncounted += 1
            if self._uncounted == 2:  # once may be a moment between two states of a cluster
                self._gone(self, ConnectionError("the broker does not know the consumer any more"))

    # -- deliveries -------------------------------------------------------------------------------

    def _message(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        if channel is not self._channel:
            return
        batch = self._batch
        batch.append(delivery_of(self.subscription.source, self.generation, (method, properties, body)))
        if len(batch) == 1:  # one wake-up for all that this read brings
            self._quiet = False
            self._ioloop.add_callback(self._hand_over)

    def _hand_over(self) -> None:
        if self._batch and self.was_ready:
            batch, self._batch = self._batch, []
            self._arrived(batch)

    # -- settling ---------------------------------------------------------------------------------

    def decide(self, tag: int, settlement: Settlement) -> None:
        if not self._window.decide(tag, settlement):
            log.debug("%s tag %s is settled already: not again", self.subscription.source, tag)

    def write(self) -> None:
        channel = self._channel
        if channel is None or not channel.is_open:
            return
        multiple, single, back = self._window.take()
        if multiple:
            channel.basic_ack(multiple, multiple=True)
        for tag in single:
            channel.basic_ack(tag)
        for tag in back:
            channel.basic_nack(tag, requeue=True)


class AckWindow:
    """Knows which tags of a channel are settled. Tags count up from 1 without gaps.

    A cumulative ack covers only tags that were decided as accepted (safe-cumulative-ack): it reaches from the lowest
    unsettled tag up to the first that is not accepted.
    """

    def __init__(self) -> None:
        self._first = 1  # the lowest tag that is not settled
        self._accepted: set[int] = set()  # decided, not written
        self._back: list[int] = []
        self._gone: set[int] = set()  # settled, above `_first`

    def decide(self, tag: int, settlement: Settlement) -> bool:
        """Note a settlement. Return False for a tag that is settled already."""
        if tag < self._first or tag in self._gone or tag in self._accepted or tag in self._back:
            return False
        if settlement == "accepted":
            self._accepted.add(tag)
        else:
            self._back.append(tag)
        return True

    def take(self) -> tuple[int, list[int], list[int]]:
        """Return what to write now: the top of a cumulative ack (0: none), single acks, and tags to give back."""
        top = 0
        first, accepted, gone = self._first, self._accepted, self._gone
        while True:
            if first in accepted:
                accepted.discard(first)
                top = first
            elif first in gone:
                gone.discard(first)
            else:
                break
            first += 1
        self._first = first
        single, self._accepted = sorted(accepted), set()
        back, self._back = self._back, []
        gone.update(single)
        gone.update(back)
        return top, single, back
