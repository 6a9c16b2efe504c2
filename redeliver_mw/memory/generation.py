# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Follows one generation of a subscription: its link and its unsettled messages (settle-once, safe-cumulative-ack)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ..adapter.capabilities import Settlement
from ..adapter.protocol import Subscription
from ..message import Delivery, Destination
from .link import HeldDelivery, MemoryLink, Tag

logger = logging.getLogger("redeliver_mw.memory")


class MemoryGeneration:
    """Follows one generation. Belongs to the adapter's loop."""

    __slots__ = ("_first_open", "_last", "_unsettled", "generation", "link", "subscription")

    def __init__(self, link: MemoryLink, subscription: Subscription, generation: int) -> None:
        self.link, self.subscription, self.generation = link, subscription, generation
        self._unsettled: set[Tag] = set()
        self._first_open = 1  # all tags below this one are settled; only where tags are numbers
        self._last = 0

    @property
    def source(self) -> Destination:
        return self.subscription.source

    def fetch(self) -> list[HeldDelivery]:
        batch = self.link.fetch()
        for held in batch:
            self._unsettled.add(held.tag)
        self._last += len(batch)
        return batch

    def has(self, delivery: Delivery) -> bool:
        return delivery.tag in self._unsettled

    def settle(self, settlements: Sequence[tuple[Delivery, Settlement]], cumulative: bool) -> None:
        """Pass the settlements on, each delivery's once. Raises BrokerUnavailable if the link is closed."""
        accepted: list[Tag] = []
        for delivery, settlement in settlements:
            if delivery.tag not in self._unsettled:
                logger.debug("%r is settled already, %s is dropped", delivery, settlement)
                continue
            self._unsettled.discard(delivery.tag)
            if settlement == "accepted":
                accepted.append(delivery.tag)
            else:  # before any cumulative ack, which would cover the delivery
                self._say(delivery.tag, settlement)
        for tag in self._cumulated(accepted) if cumulative else accepted:
            self.link.accept(tag)

    def aborted(self, delivery: Delivery, returned: bool) -> None:
        """Record a failed transaction: the delivery is still unsettled here, or, on Artemis, returned and counted."""
        if returned:
            self._unsettled.discard(delivery.tag)
            self.link.modified(delivery.tag, failed=True)

    def _cumulated(self, accepted: list[Tag]) -> list[Tag]:
        """Ack at once everything below the first delivery that is still open; return the other tags."""
        while self._first_open <= self._last and self._first_open not in self._unsettled:
            self._first_open += 1
        below = [tag for tag in accepted if isinstance(tag, int) and tag < self._first_open]
        if below:
            self.link.accept(max(below), multiple=True)
        return [tag for tag in accepted if not (isinstance(tag, int) and tag < self._first_open)]

    def _say(self, tag: Tag, settlement: Settlement) -> None:
        """Send a settlement as this broker's verb; only settlements that its capabilities honour arrive here."""
        counted = settlement == "returned"
        if isinstance(tag, int):  # RabbitMQ: nack is uncounted, reject counts
            if counted:
                self.link.reject(tag, requeue=True)
            else:
                self.link.nack(tag, requeue=True)
        elif counted:
            self.link.modified(tag, failed=True)
        else:
            self.link.release(tag)
