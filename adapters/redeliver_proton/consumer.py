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
from redeliver_proton.loop import ProtonLoop, StartedTimer
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
QUIET = 0.05  # seconds without a message, after which a pause drains a link that keeps back
FIRST_WAIT, LONGEST_WAIT = 0.1, 30.0  # seconds before a paused link asks for what is kept back: twice the last wait


class Consumer(proton.Handler):
    """Consumes a subscription through its generations; each link is one.

    The first link has credit for the whole window at once. Each later one begins with credit for one delivery and
    doubles it with each that arrives: if it is a message that makes the broker end the connection, as RabbitMQ 4.3.6
    does for one with a null annotation, the loss does not count for others that the connection would have held.

    `keeps_back`: the broker may have taken messages for a link at the moment in which it reports the link as drained.
    It sends them with the next credit only (see docs/artemis.md). So a paused link gives one credit after a wait, and
    another one for each message that comes, at most as many as the broker had returned; it releases what has come. It
    does so again after a longer wait, until all of that credit was used.
    """

    def __init__(
        self,
        subscription: Subscription,
        loop: ProtonLoop,
        deliver: Callable[[Destination, int, int, bytes], Delivery],
        *,
        keeps_back: bool,
        arrived: Callable[[Sequence[Delivery]], None],
        ready: Callable[[Consumer], None],
        gone: Callable[[Consumer, BaseException], None],
    ) -> None:
        self.subscription = subscription
        self.generation = 0
        self.was_ready = False
        self._deliver, self._keeps_back = deliver, keeps_back
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
        self._kept_back = 0  # at most so many messages are kept back at the broker for this link, which is paused
        self._half = False  # the beginning of a message is here, and its end is not
        self._half_drained = False  # in the middle of a message, whose end is still to come
        self._asking = False  # for what is kept back: all that comes is released
        self._wait = FIRST_WAIT  # before the next question, in seconds
        self._timer: StartedTimer | None = None  # to the drain, or to the next question

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
        self._batch, self._open, self._decided, self._half = [], {}, [], False
        self._ask_no_more()
        self._at_rest()
        if link is not None and link.state & proton.Endpoint.LOCAL_ACTIVE:
            link.close()

    def rest(self, rested: Callable[[], None]) -> None:
        """Take back the credit, keep what is unsettled; `rested` when nothing more comes."""
        self._resting, self._rested = True, rested
        link = self._link
        if link is None or not self.was_ready or not link.credit:
            self._at_rest()
        elif self._keeps_back:
            self._drain_when_quiet()
        else:
            link.drain(0)

    def _drain_when_quiet(self) -> None:
        """Drain once nothing has come for a moment, because a drain between messages makes the broker keep some back.

        Until then messages still come, at most as many as there is credit.
        """
        before = self._tag

        def drain() -> None:
            link = self._link
            self._timer = None
            if self._half or self._tag != before:
                self._drain_when_quiet()
            elif self._rested is not None:
                link.drained()  # what an earlier pause got back does not count
                link.drain(0)

        self._start(QUIET, drain)

    def _start(self, wait: float, then: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = self._loop.call_later(wait, then)

    def _stop_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def go_on(self) -> None:
        """Give credit again."""
        link = self._link
        at_rest = self._resting and not self._asking and self._rested is None
        # After half a message the driver counts one credit that the broker does not.
        out = 0 if link is None or at_rest else link.credit
        self._resting = False
        self._ask_no_more()
        self._at_rest()
        self._hand_over()  # what a question has brought
        if link is not None and link.state & proton.Endpoint.REMOTE_ACTIVE:
            self._owed = 0
            link.drain_mode = False
            link.flow(max(0, self._window - len(self._open) - out))

    def _drained(self, returned: int) -> None:
        """Note that no credit is left, of which so much was returned, and ask later for what may be kept back."""
        self._kept_back = returned
        if self._asking:
            self._asking = False
            batch, self._batch = self._batch, []
            for delivery in batch:
                self.decide(delivery.tag, "released")
            self.write()
        self._at_rest()
        if returned and self._keeps_back:
            self._start(self._wait, self._ask)
            self._wait = min(2 * self._wait, LONGEST_WAIT)

    def _at_rest(self) -> None:
        rested, self._rested = self._rested, None
        if rested is not None:
            self._hand_over()
            rested()

    def _ask(self) -> None:
        """Give one credit, and the next when it was used: more at once could be drained in the middle of the answer."""
        self._timer, self._asking = None, True
        self._link.drain(1)

    def _ask_no_more(self) -> None:
        self._stop_timer()
        self._kept_back, self._half_drained, self._asking, self._wait = 0, False, False, FIRST_WAIT

    # -- the driver's events ----------------------------------------------------------------------

    def on_link_remote_open(self, event: Any) -> None:
        if event.link == self._link and event.link.remote_source.address:
            self._window = 1 if self.was_ready else self.subscription.prefetch
            self.was_ready = True
            if not self._resting:
                self._link.flow(self._window)
            self._ready(self)

    def on_link_flow(self, event: Any) -> None:
        """Note that the broker has used up the credit, or returned what was left of it."""
        link = self._link
        if event.link != link or not self._resting:
            return
        if link.credit > self._half:  # half a message has its credit yet
            return
        returned = link.drained()
        if self._half:  # Artemis keeps back the end of a large message as well, which a credit without a drain brings
            self._half_drained, self._kept_back, link.drain_mode = True, returned, False
            link.flow(1)
        else:
            self._drained(returned)

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
        if link is None or event.link != link or not delivery.readable:
            return
        self._half = delivery.partial
        if self._half:
            return
        if delivery.aborted:  # the broker took it back half-way
            delivery.settle()
            self.replenish(1)
            return
        raw = link.recv(delivery.pending)
        link.advance()
        self._keep(delivery, bytes(raw or b""))
        if self._half_drained:
            self._half_drained = False
            self._ask()
        elif self._asking and self._kept_back > 1:
            self._kept_back -= 1
            link.drain(1)
        elif self._asking or (self._resting and not link.credit):  # no flow comes when all of the credit was used
            self._drained(0)

    def _keep(self, delivery: proton.Delivery, message: bytes) -> None:
        self._tag = tag = self._tag + 1
        self._open[tag] = delivery
        batch = self._batch
        batch.append(self._deliver(self.subscription.source, self.generation, tag, message))
        if len(batch) == 1:  # one wake-up for all that this read brings
            self._loop.call(self._hand_over)
        self._widen()

    def _widen(self) -> None:
        """Double the window after a delivery, up to the subscription's."""
        more = min(self._window, self.subscription.prefetch - self._window)
        self._window += more
        if more and not self._resting:
            self._link.flow(more)

    def _hand_over(self) -> None:
        if self._batch and not self._asking:
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
