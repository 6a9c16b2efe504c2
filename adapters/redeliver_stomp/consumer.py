# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Consumes one source on one connection: its generation, its batches, its ACKs. On the loop's thread."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from redeliver_mw.adapter import Subscription
from redeliver_mw.adapter.capabilities import Settlement
from redeliver_mw.adapter.kit.sources import next_generation
from redeliver_mw.errors import BrokerError, ConfigError, RedeliverError
from redeliver_mw.message import Delivery
from redeliver_stomp.capabilities import LINE_BYTES, address, private_queue, problem
from redeliver_stomp.frames import RawFrame, ack, encode, escaped
from redeliver_stomp.loop import StompLoop
from redeliver_stomp.messages import delivery_of, was_not_scheduled
from redeliver_stomp.receipts import ERROR_CHARS, OnReceipt
from redeliver_stomp.unackable import Mark, UnackableMessages, doubtful, hit_nothing, mark_of, odd

log = logging.getLogger("redeliver_mw.stomp")
_ids = itertools.count(1)


def check_source(wanted: Subscription) -> None:
    """Raise ConfigError for what cannot be one source whose messages have a place to come back to."""
    source = wanted.source
    if len(f"selector:{escaped(wanted.selector)}".encode()) > LINE_BYTES:
        what = f"its selector takes more than the {LINE_BYTES} bytes that the broker allows"
        raise ConfigError(what, where=str(source), cure="Write a shorter one", code="selector-refused")
    if source.kind == "topic":
        if not source.subscription:
            cure = "Name one: handler(…, subscription=…), or topic:NAME::SUBSCRIPTION"
            raise ConfigError(
                "a topic is consumed as a durable subscription",
                where=str(source),
                cure=cure,
                code="subscription-missing",
            )
        if "," in source.name:
            raise ConfigError(
                "several topics cannot be one source",
                where=str(source),
                cure="Use a handler for each",
                code="source-not-possible",
            )
    if why := problem(source):
        raise ConfigError(why, where=str(source), cure="Name one queue, or one topic", code="source-not-possible")


def why_refused(wanted: Subscription, error: str, broker: str) -> RedeliverError:
    """Return the error that explains the ERROR to a SUBSCRIBE."""
    # The whole ERROR for a wrong selector is the selector (observed on 5.18 and 6.3).
    if wanted.selector and error == wanted.selector.strip()[:ERROR_CHARS]:
        what, cure = f"its selector {error!r} is none", "Write it in SQL, as in: colour = 'red' AND size > 3"
        return ConfigError(what, where=str(wanted.source), cure=cure, code="selector-refused")
    return BrokerError(
        f"{wanted.source} cannot be consumed: {error}",
        where=broker,
        cure="Is this user allowed to?",
        code="queue-refused",
    )


class SubscribingConnection(Protocol):
    """Is the connection that a consumer subscribes on: it routes messages, expects receipts, and writes."""

    loop: StompLoop

    def route(self, subscription: str, to: Callable[[RawFrame], None] | None, /) -> None: ...
    def expect(self, answer: OnReceipt, /) -> str: ...
    def write(self, data: bytes, /) -> None: ...


class Consumer:
    """Consumes a subscription through its generations; each connection is one.

    A durable subscription consumes two things as one source: the topic, and its private queue with the retries.
    """

    def __init__(
        self,
        subscription: Subscription,
        broker: str,
        *,
        arrived: Callable[[Sequence[Delivery]], None],
        ready: Callable[[Consumer], None],
        gone: Callable[[Consumer, str], None],
    ) -> None:
        self.subscription = subscription
        self.generation = 0
        self.was_ready = False
        self.live = False
        self.convicts = UnackableMessages(broker, subscription.source)
        self._arrived, self._ready, self._gone = arrived, ready, gone
        self._connection: SubscribingConnection | None = None
        self._batch: list[Delivery] = []
        self._open: set[bytes] = set()  # ack ids of what is unsettled
        self._acks: list[bytes] = []  # decided, not written
        self._trying: dict[bytes, Mark] = {}  # doubtful ones whose ACK was written and is not answered
        self._unanswered = 0
        self._said_unscheduled = False

    def open(self, connection: SubscribingConnection) -> None:
        """Subscribe, and with it begin a new generation."""
        self.generation, self._connection = next_generation(), connection
        self._batch, self._open, self._acks, self._trying = [], set(), [], {}
        wanted = self._subscriptions()
        self._unanswered = len(wanted)
        generation = self.generation
        for name, headers in wanted:
            connection.route(name, self._message)
            receipt = connection.expect(lambda error: self._subscribed(generation, error))
            connection.write(encode("SUBSCRIBE", [*headers, ("receipt", receipt)]))

    def _subscriptions(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """Return what to SUBSCRIBE to: ids and headers. Messages that can never be acked must not use up the window."""
        wanted, name = self.subscription, f"s{next(_ids)}"
        common = [
            ("ack", "client-individual"),
            ("activemq.prefetchSize", str(wanted.prefetch + len(self.convicts))),
        ]
        selector = [("selector", wanted.selector)] if wanted.selector else []
        source = wanted.source
        if source.kind == "queue":
            return [(name, [("id", name), ("destination", address(source)), *common, *selector])]
        durable = [("activemq.subscriptionName", source.subscription), *selector]
        retries = f"/queue/{private_queue(source)}"
        return [
            (name, [("id", name), ("destination", f"/topic/{source.name}"), *common, *durable]),
            (f"{name}.retry", [("id", f"{name}.retry"), ("destination", retries), *common]),
        ]

    def _subscribed(self, generation: int, error: str) -> None:
        if generation != self.generation or self._connection is None:
            return
        if error:
            self._connection = None
            self._gone(self, error)
            return
        self._unanswered -= 1
        if self._unanswered == 0:
            self.was_ready = self.live = True
            self._ready(self)
            self._hand_over()

    def abandon(self) -> None:
        """End the generation: nothing more is settled or handed over."""
        self._connection, self.live = None, False
        self._batch, self._open, self._acks, self._trying = [], set(), [], {}

    def convict(self) -> None:
        """Note that the broker closed the connection without an ERROR: for the ACKs that it could not process."""
        for mark in self._trying.values():
            if odd(mark[0]):
                self.convicts.add(mark)
        self._trying = {}

    # -- deliveries -------------------------------------------------------------------------------

    def _message(self, frame: RawFrame) -> None:
        if self._connection is None or frame in self.convicts:
            return
        if was_not_scheduled(frame) and not self._said_unscheduled:
            self._said_unscheduled = True
            log.error(
                "%s: a message that was to be delayed was not: the broker's scheduler is off. Set "
                'schedulerSupport="true"; what comes early is held here as far as it goes',
                self.subscription.source,
            )
        delivery = delivery_of(self.subscription.source, self.generation, frame)
        self._open.add(delivery.tag)
        self._batch.append(delivery)
        if len(self._batch) == 1:
            self._connection.loop.at_end_of_turn(self._hand_over)

    def _hand_over(self) -> None:
        if self._batch and self.live:
            batch, self._batch = self._batch, []
            self._arrived(batch)

    # -- settling ---------------------------------------------------------------------------------

    def has(self, delivery: Delivery) -> bool:
        """Return whether a delivery is unsettled, and of this generation."""
        return self.live and delivery.generation == self.generation and delivery.tag in self._open

    def take(self, tag: bytes) -> None:
        """Take a delivery out, which a transaction settles."""
        self._open.discard(tag)

    def give_back(self, tag: bytes) -> None:
        """Take a delivery back as unsettled, after its transaction was aborted."""
        if self.live:
            self._open.add(tag)

    def decide(self, delivery: Delivery, settlement: Settlement) -> None:
        """Note a settlement. Only `accepted` can be written here; other deliveries stay unsettled."""
        if settlement != "accepted":
            log.debug("%r: %s is not honoured by this broker: it stays unsettled", delivery, settlement)
        elif delivery.tag not in self._open:
            log.debug("%r is settled already: not again", delivery)
        elif doubtful(delivery.native):
            self._open.discard(delivery.tag)
            self._try(delivery)
        else:
            self._open.discard(delivery.tag)
            self._acks.append(ack(delivery.tag))

    def _try(self, delivery: Delivery) -> None:
        """Send an ACK for which the broker may close the connection."""
        mark = mark_of(delivery.native)
        if self.convicts.hopeless(mark):
            self.convicts.add(mark)
        elif self._connection is not None:
            self._trying[delivery.tag] = mark
            receipt = self._connection.expect(lambda error: self._tried(delivery.tag, error))
            self._acks.append(ack(delivery.tag, receipt=receipt.encode()))

    def _tried(self, tag: bytes, error: str) -> None:
        mark = self._trying.pop(tag, None)
        if mark is not None and hit_nothing(error):
            self.convicts.add(mark)

    def write(self) -> None:
        """Write all settlements that were decided, in one piece."""
        acks, self._acks = self._acks, []
        if acks and self._connection is not None:
            self._connection.write(b"".join(acks))
