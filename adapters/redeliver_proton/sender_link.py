# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps sending links, one for each target, and what becomes of each message on them. On the loop's thread.

Nothing is handed to the driver without credit: it would keep it in a buffer from which nothing can be taken back,
and which a commit overtakes.
"""

from __future__ import annotations

import itertools
import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import proton

from redeliver_mw.adapter import OnAnswer, Verdict
from redeliver_mw.errors import BrokerUnavailable, RedeliverError
from redeliver_mw.message import Destination, Outgoing
from redeliver_proton.broker_dialect import BrokerTopology
from redeliver_proton.brokers.artemis.capabilities import address_and_queue
from redeliver_proton.route import Route, RouteTarget

log = logging.getLogger("redeliver_mw.proton")

MOST = 64  # links that are kept open
STARVED = 1.0  # seconds without credit after which is asked whether the address is full
RENEWED = 5.0  # and after which the link is opened anew: a raised limit alone brings no credit to an old one (seen)
RETURNS = "\0"  # no address can be called so
TRANSACTIONAL = 0x34  # the delivery state of what happens within a transaction
_ACCEPTED = 0x24
# What Artemis rejects a copy with if one of its texts is no UTF-8, although it took the original (observed on 2.44).
UNPARSABLE = "Cannot parse String"
_numbers = itertools.count(1)


@dataclass(slots=True, eq=False)
class SentCopy:
    """Holds one message on its way."""

    data: bytes
    answer: OnAnswer
    generation: int | None = None  # of its original
    seen_as: str = ""  # by a filter: see `seen_as`
    transaction: bytes = b""
    waited: float = 0.0


class SenderLink(proton.Handler):
    """Sends on one link to one target; `failed` says why there is none. A failed link is not used again."""

    def __init__(self, target: Destination, changed: Callable[[], None]) -> None:
        self.target = target
        self.state: Literal["looking", "attaching", "open", "closed"] = "looking"
        self.failed = ""
        self.starved = 0.0  # seconds that something has waited for credit
        self.short = False  # of credit, for a second or more: also while the link is opened anew
        self.wait_logged = False
        self.queue: deque[SentCopy] = deque()
        self._changed = changed
        self._sent: dict[str, SentCopy] = {}
        self._link: Any = None
        self._route: Route | None = None
        self._unwritten: Verdict = "unsent"  # what is answered to what was not written when it failed

    def attach(self, session: proton.Session, route: Route) -> None:
        self.state, self._route = "attaching", route
        link = self._link = session.sender(f"redeliver-to-{next(_numbers)}-{id(self):x}")
        link.target.address = route.address
        if route.capability:
            link.target.capabilities.put_object(proton.symbol(route.capability))
        link.handler = self
        link.open()

    @property
    def credit(self) -> int:
        return max(0, self._link.credit) if self.state == "open" else 0

    @property
    def idle(self) -> bool:
        return not self.queue and not self._sent

    @property
    def unanswered(self) -> list[SentCopy]:
        return list(self._sent.values())

    def offer(self, sent: SentCopy) -> None:
        """Send it when there is credit; a link that has failed answers at once."""
        if self.state == "closed":
            return sent.answer(self._unwritten, self.failed)
        self.queue.append(sent)
        return self.flush()

    def flush(self) -> None:
        while self.queue and self.credit > 0:
            self.short = False
            self.write(self.queue.popleft())
        if not self.queue:
            self.starved, self.short = 0.0, False

    def write(self, sent: SentCopy) -> None:
        """Hand it to the driver; only with credit."""
        if (why := self.unfit(sent)) is not None:
            return sent.answer("refused", why)
        # RabbitMQ 4.3.6 ends the whole session for a message above the size announced when the link was attached.
        if 0 < (most := self._link.remote_max_message_size) < len(sent.data):
            return sent.answer("unfit", f"it has {len(sent.data)} bytes, the broker takes {most}")
        tag = str(next(_numbers))
        self._sent[tag] = sent
        delivery = self._link.delivery(tag)
        self._link.stream(sent.data)
        self._link.advance()
        if sent.transaction:
            delivery.local.data = [sent.transaction]
            delivery.update(TRANSACTIONAL)
        return None

    def unfit(self, sent: SentCopy) -> str | None:
        """Return why the target's queue would confirm this copy and drop it, or None.

        A queue does so if its filter does not match the copy.
        """
        route = self._route
        if route is None or not route.filter or sent.seen_as == (route.only_from or RETURNS):
            return None
        if route.only_from is not None:
            return f"the queue of {self.target} takes dead letters from {route.only_from} only"
        return f"the queue of {self.target} takes only what matches {route.filter}, and the rest is lost"

    def detach(self) -> None:
        """Give up the link and keep what waits, for another one."""
        self.close()
        self.state, self.starved = "looking", 0.0

    def close(self) -> None:
        self.state = "closed"
        if self._link is not None and self._link.state & proton.Endpoint.LOCAL_ACTIVE:
            self._link.close()

    def fail(self, why: str, unwritten: Verdict = "refused") -> None:
        """Give the link up, after the broker's refusal: copies not yet written are refused, others stay unconfirmed."""
        self.close()
        self.failed, self._unwritten = why, unwritten
        waiting, self.queue = list(self.queue), deque()
        written, self._sent = self.unanswered, {}
        for sent in waiting:
            sent.answer(unwritten, why)
        for sent in written:
            sent.answer("silent", why)
        self._changed()

    # -- the driver's events ----------------------------------------------------------------------

    def on_link_remote_open(self, event: Any) -> None:
        if self.state == "attaching" and event.link == self._link and event.link.remote_target.address:
            self.state = "open"
            self.flush()
            self._changed()

    def on_link_flow(self, event: Any) -> None:
        self.flush()
        self._changed()

    def on_link_remote_close(self, event: Any) -> None:
        condition = event.link.remote_condition
        if self.state != "closed" and event.link == self._link:
            self.fail(f"{condition.name}: {condition.description}" if condition else "the broker closed the link")

    on_link_remote_detach = on_link_remote_close

    def on_delivery(self, event: Any) -> None:
        delivery = event.delivery
        state, settled = delivery.remote_state, delivery.settled
        if not settled and (not state or state == proton.Delivery.RECEIVED):
            return
        sent = self._sent.pop(delivery.tag, None)
        if sent is None:
            return
        verdict, why = outcome(delivery, state)
        delivery.settle()
        sent.answer(verdict, why)


def seen_as(out: Outgoing) -> str:
    """Return what a queue's filter sees: a dead letter's original address; RETURNS for a copy that goes back.

    What goes back to where it was consumed was let in before, by headers that it still has.
    """
    if "redeliver_reason" in out.headers:
        return address_and_queue(out.origin.destination)[0] if out.origin is not None else ""
    return RETURNS if out.headers.get("redeliver_original_destination") == out.target.name else ""


def outcome(delivery: proton.Delivery, state: int) -> tuple[Verdict, str]:
    """Return the broker's outcome of one message. In a transaction it is provisional, within the state."""
    if state == proton.Delivery.ACCEPTED:
        return "ok", ""
    if state == TRANSACTIONAL:
        data = delivery.remote.data or []
        descriptor = getattr(data[1], "descriptor", None) if len(data) > 1 else None
        if descriptor in (_ACCEPTED, "amqp:accepted:list"):
            return "ok", ""
        return "refused", f"the broker refused it in the transaction ({data[1:]})"
    if state == proton.Delivery.REJECTED:
        condition = delivery.remote.condition
        if condition and condition.description == UNPARSABLE:
            return "unfit", f"a text in it is no UTF-8, and the broker refuses that ({condition.description})"
        return "refused", f"{condition.name}: {condition.description}" if condition else "the broker rejected it"
    if not state:
        return "silent", "the broker settled it without an outcome"
    return "refused", f"the broker gave it back ({getattr(state, 'name', state)})"


class SenderLinks:
    """Keeps the links of one connection: looked up before each is opened, anew after each reconnect."""

    def __init__(self, topology: BrokerTopology, changed: Callable[[], None] = lambda: None) -> None:
        self._topology, self._changed = topology, changed
        self._session: proton.Session | None = None
        self._shut = 0.0  # seconds for which the broker's window has been shut
        self._all: OrderedDict[Destination, SenderLink] = OrderedDict()

    def __iter__(self) -> Any:
        return iter(list(self._all.values()))

    def up(self, session: proton.Session) -> None:
        self._session = session

    def down(self, why: str) -> None:
        """Give all links up: the connection is lost."""
        self._session = None
        outlets, self._all = list(self._all.values()), OrderedDict()
        for outlet in outlets:
            outlet.fail(why, "unsent")

    def to(self, target: Destination) -> SenderLink:
        """Return the link to a target, and open it if there is none; only while connected."""
        outlet = self._all.get(target)
        if outlet is not None and outlet.state != "closed":
            self._all.move_to_end(target)
            return outlet
        outlet = self._all[target] = SenderLink(target, self._changed)
        self._topology.route(target, partial(self._routed, outlet))
        self._trim()
        return outlet

    def _routed(self, outlet: SenderLink, route: Route | RedeliverError) -> None:
        if outlet.state != "looking":
            return
        if isinstance(route, RedeliverError):
            outlet.fail(str(route), "unsent" if isinstance(route, BrokerUnavailable) else "refused")
        elif self._session is not None:
            outlet.attach(self._session, route)

    def _trim(self) -> None:
        for target in list(self._all):
            if len(self._all) <= MOST:
                return
            if self._all[target].idle:
                self._all.pop(target).close()

    def waits_longer_than(self, patience: float, passed: float) -> bool:
        """Return whether any copy is unanswered for too long, after `passed` more seconds.

        A copy that waits for credit does not count as unanswered.
        """
        if self._session is not None and self._session.outgoing_bytes > 0:
            self._shut += passed
            return False  # the broker's window is shut, as in a memory alarm: the driver has it yet
        self._shut = 0.0
        self._look_at_starved(passed)
        silent = False
        for outlet in self:
            unopened = list(outlet.queue) if outlet.state != "open" else []
            for sent in outlet.unanswered + unopened:
                sent.waited += passed
                silent = silent or sent.waited > patience
        return silent

    @property
    def blocked(self) -> str:
        """Return why copies wait although the connection is open; empty if none has waited for a second."""
        if self._session is not None and self._session.outgoing_bytes > 0 and self._shut >= STARVED:
            return "the broker takes nothing on this connection"
        waiting = [str(outlet.target) for outlet in self if outlet.short and outlet.queue]
        return f"the broker gives no credit for {', '.join(sorted(waiting))}" if waiting else ""

    def forget(self, generation: int) -> list[SentCopy]:
        """Return the copies that are not written yet, for deliveries of a lost generation, and drop them."""
        gone: list[SentCopy] = []
        for outlet in self:
            gone += [sent for sent in outlet.queue if sent.generation == generation]
            outlet.queue = deque(sent for sent in outlet.queue if sent.generation != generation)
        return gone

    def _look_at_starved(self, passed: float) -> None:
        """Look at the links whose sends wait for credit.

        An address that is full and fails refuses the sends; other addresses are waited for.
        """
        for outlet in self:
            if not outlet.queue or outlet.state != "open" or outlet.credit:
                continue
            before, outlet.starved = outlet.starved, outlet.starved + passed
            if before < STARVED <= outlet.starved:
                outlet.short = True
                self._topology.look_up(_address(outlet.target), partial(self._judge, outlet))
            elif outlet.starved >= RENEWED and not outlet.unanswered:
                outlet.detach()
                self._topology.route(outlet.target, partial(self._routed, outlet))

    def _judge(self, outlet: SenderLink, place: RouteTarget | RedeliverError) -> None:
        if isinstance(place, RedeliverError) or not outlet.queue or outlet.credit:
            outlet.starved = 0.0
        elif place.known and place.full_policy == "FAIL":
            outlet.fail(f"{place.address} is full, and refuses more")
        elif not outlet.wait_logged:
            outlet.wait_logged = True
            log.warning("%s takes no message just now (%s): copies to it wait", outlet.target, place.full_policy)


def _address(target: Destination) -> str:
    return target.name.partition("::")[0]
