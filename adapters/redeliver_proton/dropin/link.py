# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Settles deliveries on a receiving link of the user's, and captures the callback's own settlements."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable
from typing import Any, Protocol

import proton

from redeliver_mw.adapter.capabilities import Settlement
from redeliver_mw.dropin import ACK, BoundedLog, CallbackRun, RefusedHere, Requeued, SettlementScope, because_of
from redeliver_mw.errors import Reject
from redeliver_mw.message import Delivery, Destination
from redeliver_proton.dropin.code_transactions import (
    TRANSACTIONAL,
    CodeTransaction,
    clear_outcome,
    joined_as,
    write_accept,
)
from redeliver_proton.dropin.flow_control import CodeCredit

_late = BoundedLog(logging.getLogger("redeliver_mw.proton"))

_STATES = {"accepted": proton.Delivery.ACCEPTED, "returned": proton.Delivery.MODIFIED}


class LinkConnection(Protocol):
    """Is the user's connection as its links need it."""

    transactions: dict[bytes, CodeTransaction]  # of the code's own, by their ids

    @property
    def is_open(self) -> bool: ...
    def hop(self, fn: Callable[[], None], /) -> None: ...  # calls `fn` on the container's thread
    def settled(self, delivery: Delivery, /) -> None: ...  # copies of the delivery are not tried again


class LinkScope(SettlementScope):
    """Follows one link. It is a generation until it, or its connection, ends; after a reconnect it is the next one."""

    def __init__(
        self, user_connection: LinkConnection, link: Any, source: Destination, code_credit: CodeCredit | None
    ) -> None:
        super().__init__()
        self.code_credit = code_credit  # None: the handler's flow control gives credit
        self.link, self.session, self.source = link, link.session, source
        self.thread = threading.get_ident()
        self.user_connection = user_connection
        self._unsettled: dict[int, Any] = {}  # the driver's deliveries, by our tag: the broker's tags are not unique
        self._promised: dict[int, CodeTransaction] = {}  # by tag: what the code joined to a transaction of its own
        self._committed: set[int] = set()  # tags that a commit of the code's has settled at the broker
        self._tag = 0

    @property
    def is_open(self) -> bool:
        return self.user_connection.is_open

    def window(self, consumer: Hashable) -> int | None:
        """Return the most that the code has asked for at once.

        The driver's own flow control asks for as many as have arrived, whatever is settled: no window is ever full.
        """
        return None if self.code_credit is None else self.code_credit.window

    def keep(self, delivery: Any) -> int:
        """Number a delivery of the driver's, which has arrived."""
        if self.code_credit is not None:
            self.code_credit.arrived(len(self._unsettled) + 1)
        self._tag += 1
        self._unsettled[self._tag] = delivery
        return self._tag

    def settle(self, delivery: Delivery, settlement: Settlement) -> bool:
        written = super().settle(delivery, settlement)
        if written:
            self._left(delivery)
        if written and delivery.known:
            self.user_connection.settled(delivery)
        return written

    def gone(self, delivery: Delivery) -> None:
        super().gone(delivery)
        self._left(delivery)

    def _left(self, delivery: Delivery) -> None:
        if self.code_credit is not None:
            self.code_credit.left(delivery.tag)

    def write(self, delivery: Delivery, settlement: Settlement) -> None:
        """Write an outcome. The callback may have closed the link: the driver writes outcomes before it detaches."""
        found = self._unsettled.pop(delivery.tag)
        if delivery.tag in self._committed:
            self._committed.discard(delivery.tag)
            found.settle()
            return
        if settlement == "returned":
            found.local.failed, found.local.undeliverable = True, False
        found.update(_STATES.get(settlement, proton.Delivery.RELEASED))
        found.settle()

    def lost(self) -> None:
        self.abandon_all()
        self.clear()  # a late settlement finds its run without it
        self._unsettled, self._promised = {}, {}
        self._committed.clear()

    # -- transactions of the code's own -----------------------------------------------------------

    def promise(self, run: CallbackRun, transaction: CodeTransaction) -> None:
        """Join a delivery in the code's hands to a transaction, which decides what becomes of it.

        Raises RefusedHere if the delivery is in another transaction.
        """
        tag = run.delivery.tag
        if run.promised and self._promised.get(tag) is not transaction:
            raise RefusedHere(
                "a delivery cannot join two transactions; it stays in the first one",
                where=str(self.source),
                cure="Wait for the outcome of the first one",
            )
        if not run.promised:
            transaction.join(run)
            self._promised[tag] = transaction

    def is_promised(self, native: Any) -> bool:
        """Return whether the code has joined a delivery of the driver's to a transaction of its own."""
        return any(self._unsettled.get(tag) == native for tag in self._promised)

    def withdraw(self, run: CallbackRun) -> bool:
        """Take a delivery out of its transaction. Return False if the code has committed the transaction already."""
        transaction = self._promised.get(run.delivery.tag)
        if transaction is not None and not transaction.withdraw(run):
            return False
        self._promised.pop(run.delivery.tag, None)
        run.promised = False
        return True

    def join(self, delivery: Delivery, number: bytes) -> bool:
        """Write that a delivery is accepted in a transaction. Return False if it is not ours any more."""
        found = self._unsettled.get(delivery.tag)
        if found is None or self.run_of(delivery) is None:
            return False
        write_accept(found, number)
        return True

    def committed(self, delivery: Delivery) -> bool:
        """Note that a commit has settled a delivery. Return False if it is not ours any more."""
        self._promised.pop(delivery.tag, None)
        if not self.settleable(delivery):
            return False
        self._committed.add(delivery.tag)
        if self.code_credit is not None:
            self.code_credit.succeeded(delivery.tag)
        return True

    def left_transaction(self, delivery: Delivery) -> bool:
        """Note that a delivery's transaction was undone. Return False if the delivery is not ours any more."""
        self._promised.pop(delivery.tag, None)
        found = self._unsettled.get(delivery.tag)
        if found is None or not self.settleable(delivery):
            return False
        clear_outcome(found)
        return True

    # -- what a transaction asks ------------------------------------------------------------------

    def driver_delivery(self, tag: int) -> Any:
        return self._unsettled.get(tag)

    def done(self, tag: int) -> None:
        self._unsettled.pop(tag, None)


class DeliveryHandle(proton.Delivery):
    """Is the delivery as the callback gets it: its `update` and `settle` are captured, all else is the driver's."""

    def __init__(self, real: Any, run: CallbackRun) -> None:
        drivers: Any = super()  # which has no types
        drivers.__init__(real._impl)
        self.__dict__["_run"] = run  # past the driver, which keeps attributes with its own delivery

    def update(self, state: Any) -> None:
        """Take a terminal state as the settlement; the first one counts.

        Raises RefusedHere for what cannot be done in a transaction through the wrapper.
        """
        if state == proton.Delivery.ACCEPTED:
            self._capture(ACK)
        elif state == proton.Delivery.REJECTED:
            self._capture(Reject("rejected by the callback"))
        elif state in (proton.Delivery.RELEASED, proton.Delivery.MODIFIED):
            self._capture(Requeued("release"))
        elif state == TRANSACTIONAL:
            given = self.local.data
            clear_outcome(self)
            source = str(self.__dict__["_run"].delivery.destination)
            found = self._link_scope().user_connection.transactions.get(joined_as(given, source))
            if found is None:
                raise RefusedHere(
                    "a wrapped delivery can only join a transaction whose declaration was seen; it stays unsettled",
                    where=source,
                    cure="Wrap the handler before its container runs, and declare with Container.declare_transaction",
                )
            self.join(found)

    def join(self, transaction: CodeTransaction) -> None:
        """Accept the delivery in a transaction of the code's own. Raises RefusedHere where it cannot join."""
        run: CallbackRun = self.__dict__["_run"]
        self.__dict__["_updated"] = True
        if not run.in_hand or run.settlement is not None or not run.scope.settleable(run.delivery):
            self._late("it is settled, held for a retry, or lost")
        else:
            self._link_scope().promise(run, transaction)

    def settle(self) -> None:
        """Capture a settlement without a state, which is no success: the message is to be tried again.

        After a state, `settle` says nothing more.
        """
        if not self.__dict__.get("_updated"):
            self._capture(Requeued("settle without an outcome"))

    def _capture(self, settlement: Exception) -> None:
        self.__dict__["_updated"] = True
        run: CallbackRun = self.__dict__["_run"]
        if run.promised:
            return self._late("it has joined a transaction, whose outcome settles it")
        settlement = because_of(settlement, run.before)
        scope = self._link_scope()
        if threading.get_ident() == scope.thread:
            self._pass_on(run, settlement)
        else:
            scope.user_connection.hop(lambda: self._pass_on(run, settlement))
        return None

    def _pass_on(self, run: CallbackRun, settlement: Exception) -> None:
        if run.in_hand and not run.inside and not run.scope.settleable(run.delivery):
            self._late("its receiver or its connection was closed, and the broker has it again")
        else:
            run.listener.code_settled(run, settlement)

    def _late(self, why: str) -> None:
        delivery = self.__dict__["_run"].delivery
        _late.error("%r: a settlement by the code is dropped: %s", delivery, why)

    def _link_scope(self) -> LinkScope:
        scope = self.__dict__["_run"].scope
        assert isinstance(scope, LinkScope)
        return scope


class ShownDelivery(proton.Event):
    """Shows the callback the driver's event, with a message of its own that has our count.

    Callbacks that ask for the delivery get a `DeliveryHandle`.

    Raises what the driver raises for a message that it cannot decode: that is a failure like another.
    """

    def __init__(self, run: CallbackRun) -> None:
        delivery = run.delivery
        message: Any = proton.Message()
        message.decode(delivery.native.raw)
        message.properties = {**(message.properties or {}), "JMSXDeliveryCount": delivery.delivery_count}
        event, came = run.given  # the event may be that of a message that came with it
        vars(self).update(vars(event), _delivery=came, _context=came, message=message, _run=run, _handed=None)

    @property
    def delivery(self) -> DeliveryHandle:
        mine = vars(self)
        if mine["_handed"] is None:
            mine["_handed"] = DeliveryHandle(mine["_delivery"], mine["_run"])
        handed: DeliveryHandle = mine["_handed"]
        return handed

    @property
    def context(self) -> DeliveryHandle:
        return self.delivery
