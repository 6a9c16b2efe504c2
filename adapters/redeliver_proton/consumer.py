# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Consumes one source on one receiving link: generation, credit, batches, settlements. On the loop's thread."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import proton

from redeliver_mw.adapter import Subscription
from redeliver_mw.adapter.capabilities import Settlement
from redeliver_mw.adapter.kit.sources import next_generation
from redeliver_mw.errors import BrokerError, ConfigError, DestinationMissing, RedeliverError
from redeliver_mw.message import Delivery, Destination
from redeliver_proton.brokers.artemis.capabilities import DELIVERY_TIME
from redeliver_proton.loop import ProtonLoop
from redeliver_proton.route import Route

log = logging.getLogger("redeliver_mw.proton")
_STATES = {
    "accepted": proton.Delivery.ACCEPTED,
    "released": proton.Delivery.RELEASED,
    "returned": proton.Delivery.MODIFIED,
}


@dataclass(frozen=True, slots=True)
class DelayedRelease:
    """Is a settlement: released, to come back at a time (seconds since 1970; None: at once) with these headers."""

    marks: Mapping[str, str]
    at: float | None


ConsumerSettlement = Settlement | DelayedRelease
MARK = "x-opt-"  # what an annotation's name has to begin with


class Consumer(proton.Handler):
    """Consumes a subscription through its generations; each link is one.

    The first link has credit for the whole window at once. Each later one begins with credit for one delivery and
    doubles it with each that arrives: if it is a message that makes the broker end the connection, as RabbitMQ 4.3.6
    does for one with a null annotation, the loss does not count for others that the connection would have held.
    """

    def __init__(
        self,
        subscription: Subscription,
        loop: ProtonLoop,
        deliver: Callable[[Destination, int, int, bytes], Delivery],
        *,
        arrived: Callable[[Sequence[Delivery]], None],
        ready: Callable[[Consumer], None],
        gone: Callable[[Consumer, BaseException], None],
    ) -> None:
        self.subscription = subscription
        self.generation = 0
        self.was_ready = False
        self._deliver = deliver
        self._loop, self._arrived, self._ready, self._gone = loop, arrived, ready, gone
        self._link: Any = None
        self._batch: list[Delivery] = []
        self._open: dict[int, proton.Delivery] = {}  # unsettled, by tag
        self._tag = 0  # counts through all generations: a late one never means another delivery
        self._owed = 0  # credit that settled deliveries have set free
        self._window = subscription.prefetch  # deliveries that may be unsettled now
        self._decided: list[tuple[proton.Delivery, ConsumerSettlement]] = []
        self._resting = False
        self._rested: Callable[[], None] | None = None  # called when the drain is over

    def open(self, session: proton.Session, route: Route) -> None:
        """Open a new link, and with it a new generation."""
        self.abandon()
        self.generation = next_generation()
        self._batch, self._open, self._decided, self._owed = [], {}, [], 0
        link = self._link = session.receiver(f"redeliver-{self.generation}-{id(self):x}")
        link.source.address = route.address
        if route.capability:
            link.source.capabilities.put_object(proton.symbol(route.capability))
        if self.subscription.selector:
            apply_selector(link, self.subscription.selector)
        link.handler = self
        link.open()

    def abandon(self) -> None:
        """End the generation: nothing more is settled or handed over.

        Detaching gives back what is unsettled, uncounted: prefetched deliveries never count then (seen).
        """
        link, self._link = self._link, None
        self._batch, self._open, self._decided = [], {}, []
        self._at_rest()
        if link is not None and link.state & proton.Endpoint.LOCAL_ACTIVE:
            link.close()

    def rest(self, rested: Callable[[], None]) -> None:
        """Take back the credit, keep what is unsettled; `rested` when nothing more comes."""
        self._resting, self._rested = True, rested
        link = self._link
        if link is None or not self.was_ready or not link.credit:
            self._at_rest()
        else:
            link.drain(0)

    def go_on(self) -> None:
        """Give credit again."""
        self._resting = False
        self._at_rest()
        link = self._link
        if link is not None and link.state & proton.Endpoint.REMOTE_ACTIVE:
            self._owed = 0
            link.drain_mode = False
            link.flow(max(0, self._window - len(self._open) - link.credit))

    def _at_rest(self) -> None:
        rested, self._rested = self._rested, None
        if rested is not None:
            self._hand_over()
            rested()

    # -- the driver's events ----------------------------------------------------------------------

    def on_link_remote_open(self, event: Any) -> None:
        if event.link == self._link and event.link.remote_source.address:
            self._window = 1 if self.was_ready else self.subscription.prefetch
            self.was_ready = True
            if not self._resting:
                self._link.flow(self._window)
            self._ready(self)

    def on_link_flow(self, event: Any) -> None:
        """Note that the broker has used up the credit, or given back what was left of it."""
        if event.link == self._link and self._resting and not self._link.credit:
            self._link.drained()
            self._at_rest()

    def on_link_remote_close(self, event: Any) -> None:
        """End a consumer that was refused, lost its queue, or was thrown out: the broker has its deliveries again."""
        if event.link == self._link:
            condition = event.link.remote_condition
            why = f"{condition.name}: {condition.description}" if condition else "the broker closed the link"
            self._gone(self, ConnectionError(why))

    on_link_remote_detach = on_link_remote_close

    def on_delivery(self, event: Any) -> None:
        delivery = event.delivery
        link = self._link
        if link is None or event.link != link or delivery.partial or not delivery.readable:
            return
        if delivery.aborted:  # the broker took it back half-way
            delivery.settle()
            self.replenish(1)
            return
        raw = link.recv(delivery.pending)
        link.advance()
        self._tag = tag = self._tag + 1
        self._open[tag] = delivery
        batch = self._batch
        batch.append(self._deliver(self.subscription.source, self.generation, tag, bytes(raw or b"")))
        if len(batch) == 1:  # one wake-up for all that this read brings
            self._loop.call(self._hand_over)
        self._widen()
        if self._resting and not link.credit:  # no flow comes when all of the credit was used
            self._at_rest()

    def _widen(self) -> None:
        """Double the window after a delivery, up to the subscription's."""
        more = min(self._window, self.subscription.prefetch - self._window)
        self._window += more
        if more and not self._resting:
            self._link.flow(more)

    def _hand_over(self) -> None:
        if self._batch:
            batch, self._batch = self._batch, []
            self._arrived(batch)

    # -- settling ---------------------------------------------------------------------------------

    def driver_delivery(self, tag: int) -> Any:
        """Return the driver's own delivery; None for one that is settled, or being settled, already."""
        return self._open.get(tag)

    def decide(self, tag: int, settlement: ConsumerSettlement) -> None:
        """Settle with the next `write`; a second settlement of the same delivery is dropped."""
        delivery = self._open.pop(tag, None)
        if delivery is None:
            log.debug("%s tag %s is settled already: not again", self.subscription.source, tag)
        else:
            self._decided.append((delivery, settlement))

    def write(self) -> None:
        """Settle what was decided, in order of arrival within a run of equal settlements, and give credit again."""
        decided, self._decided = self._decided, []
        for delivery, settlement in decided:
            if settlement == "returned":
                delivery.local.failed = True
            if isinstance(settlement, DelayedRelease):
                delivery.local.annotations = _annotations(settlement)
                delivery.update(proton.Delivery.MODIFIED)
            else:
                delivery.update(_STATES.get(settlement, proton.Delivery.RELEASED))
            delivery.settle()
        self.replenish(len(decided))

    def done(self, tag: int) -> None:
        """Note that a transaction has settled a delivery."""
        if self._open.pop(tag, None) is not None:
            self.replenish(1)

    def replenish(self, freed: int) -> None:
        """Give credit in batches of a quarter of the window, or at once when little is left."""
        self._owed += freed
        link, window = self._link, self._window
        if (
            link is not None
            and not self._resting
            and self._owed
            and (self._owed * 4 >= window or link.credit * 4 <= window)
        ):
            link.flow(self._owed)
            self._owed = 0


def _annotations(settlement: DelayedRelease) -> dict[Any, Any]:
    """Return the annotations of a delayed release, with never a null among them.

    The broker ends each connection that it hands a message with a null to (seen on 4.3).
    """
    found: dict[Any, Any] = {proton.symbol(MARK + name): value for name, value in settlement.marks.items()}
    if settlement.at is not None:
        found[proton.symbol(DELIVERY_TIME)] = proton.ulong(math.ceil(settlement.at * 1000))
    return found


def apply_selector(link: Any, selector: str) -> None:
    """Set the broker's own filter on a receiving link."""
    described = proton.Described(proton.symbol("apache.org:selector-filter:string"), selector)
    link.source.filter.put_dict({proton.symbol("selector"): described})


def why_refused(wanted: Subscription, error: BaseException) -> RedeliverError:
    """Return the error that explains why the broker refused to let a source be consumed."""
    if wanted.selector and "filter" in str(error).lower():
        return ConfigError(
            f"its selector {wanted.selector!r} is refused ({error})",
            where=str(wanted.source),
            cure="Write it in the broker's language; names with a dash stand in double quotes",
            code="selector-refused",
        )
    if "not-found" in str(error):
        return DestinationMissing(f"{wanted.source} is not there ({error})", cure="Declare it, or check its name")
    return BrokerError(
        f"{wanted.source} cannot be consumed: {error}", cure="Check this user's permissions", code="queue-refused"
    )
