# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""A receiving link of the user's, where deliveries are settled; and the callback's own words, captured."""

from __future__ import annotations

import threading
from typing import Any

import proton

from redeliver_mw.adapter.capabilities import Settlement
from redeliver_mw.dropin import ACK, CallbackRun, RefusedHere, Requeued, SettlementScope, because_of
from redeliver_mw.errors import Reject
from redeliver_mw.message import Delivery, Destination
from redeliver_proton.dropin.connection import ProtonUserConnection

_STATES = {"accepted": proton.Delivery.ACCEPTED, "returned": proton.Delivery.MODIFIED}
_TRANSACTIONAL = 0x34


class LinkScope(SettlementScope):
    """One link. It is a generation until it is closed, or its connection is lost; after a reconnect the next one."""

    def __init__(self, ground: ProtonUserConnection, link: Any, source: Destination) -> None:
        super().__init__()
        self.link, self.session, self.source = link, link.session, source
        self.thread = threading.get_ident()
        self.ground = ground
        self._unsettled: dict[int, Any] = {}  # the driver's deliveries, by our tag: the broker's tags are not unique
        self._tag = 0

    @property
    def is_open(self) -> bool:
        return self.ground.is_open

    def keep(self, delivery: Any) -> int:
        """Number a delivery of the driver's."""
        self._tag += 1
        self._unsettled[self._tag] = delivery
        return self._tag

    def settle(self, delivery: Delivery, word: Settlement) -> bool:
        written = super().settle(delivery, word)
        if written and delivery.known:
            self.ground.post.salts.settled(delivery)
        return written

    def write(self, delivery: Delivery, word: Settlement) -> None:
        """The callback may have closed the link by now: the driver writes outcomes before it detaches."""
        found = self._unsettled.pop(delivery.tag)
        if word == "returned":
            found.local.failed, found.local.undeliverable = True, False
        found.update(_STATES.get(word, proton.Delivery.RELEASED))
        found.settle()

    def lost(self) -> None:
        self.abandon_all()
        self.clear()  # a late word finds its turn without it
        self._unsettled = {}

    # -- what a transaction asks ------------------------------------------------------------------

    def unsettled(self, tag: int) -> Any:
        return self._unsettled.get(tag)

    def done(self, tag: int) -> None:
        self._unsettled.pop(tag, None)


class DeliveryHandle(proton.Delivery):
    """The delivery as the callback gets it: its `update` and `settle` are words to us, all else is the driver's."""

    def __init__(self, real: Any, turn: CallbackRun) -> None:
        drivers: Any = super()  # which has no types
        drivers.__init__(real._impl)
        self.__dict__["_turn"] = turn  # past the driver, which keeps attributes with its own delivery

    def update(self, state: Any) -> None:
        """A terminal state is the word; the first one counts."""
        if state == proton.Delivery.ACCEPTED:
            self._say(ACK)
        elif state == proton.Delivery.REJECTED:
            self._say(Reject("rejected by the callback"))
        elif state in (proton.Delivery.RELEASED, proton.Delivery.MODIFIED):
            self._say(Requeued("release"))
        elif state == _TRANSACTIONAL:
            raise RefusedHere(
                "a wrapped delivery cannot join a transaction of the code's own; it stays unsettled",
                where=str(self.__dict__["_turn"].delivery.destination),
                cure="Consume it with a handler that is not wrapped, or leave the accepting to us",
            )

    def settle(self) -> None:
        """Without a state it is no success: to be tried again. After one it says nothing more."""
        if not self.__dict__.get("_updated"):
            self._say(Requeued("settle without an outcome"))

    def _say(self, word: Exception) -> None:
        self.__dict__["_updated"] = True
        turn: CallbackRun = self.__dict__["_turn"]
        word = because_of(word, turn.before)
        seat = turn.seat
        assert isinstance(seat, LinkScope)
        if threading.get_ident() == seat.thread:
            turn.keeper.word(turn, word)
        else:
            seat.ground.hop(lambda: turn.keeper.word(turn, word))


class ShownDelivery(proton.Event):
    """The driver's event anew, with a message of its own that shows our count, and the delivery in hand for callbacks
    that ask for it.

    Raises what the driver raises for a message that it cannot decode: that is a failure like another.
    """

    def __init__(self, turn: CallbackRun) -> None:
        delivery = turn.delivery
        message: Any = proton.Message()
        message.decode(delivery.native.raw)
        message.properties = {**(message.properties or {}), "JMSXDeliveryCount": delivery.delivery_count}
        event, came = turn.given  # the event may be that of a message that came with it
        vars(self).update(vars(event), _delivery=came, _context=came, message=message, _turn=turn, _handed=None)

    @property
    def delivery(self) -> DeliveryHandle:
        mine = vars(self)
        if mine["_handed"] is None:
            mine["_handed"] = DeliveryHandle(mine["_delivery"], mine["_turn"])
        handed: DeliveryHandle = mine["_handed"]
        return handed

    @property
    def context(self) -> DeliveryHandle:
        return self.delivery
