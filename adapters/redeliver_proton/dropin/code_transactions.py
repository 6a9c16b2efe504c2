# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Follows the transactions that the user's code declares, and the wrapped deliveries that the code joins to them.

`transaction.accept(delivery)` of a wrapped delivery is kept back until the code commits, and is written right before
the commit. So an abort leaves no trace of the delivery at the broker, and an exception out of the callback can still
take the delivery out of the transaction. What the code sends in its transaction is not touched.

What was observed on Artemis 2.44:

- A delivery that was never written into the transaction can be settled in any way after an abort.
- After a commit that the broker refused, the delivery comes back to its link some time after the answer: a settlement
  at once closes the connection, a second later it works.
- The driver appends to the data of an outcome and never clears them: a delivery that is joined a second time would name
  its first transaction, and the broker closes the connection. `clear_outcome` clears them.
- Released, modified and rejected in a transaction are ignored.

A timeline, with one delivery::

    code                       here                                broker
    transaction.accept(d)      d is promised to the transaction
    transaction.commit()       d's transactional accept      -->
                               the code's discharge          -->
                                                             <--   accepted
                               d has succeeded
    on_transaction_committed
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, cast

import cproton
import proton

from redeliver_mw.dropin import ACK, CallbackRun, RefusedHere, Requeued, SettlementScope, because_of
from redeliver_mw.message import Delivery
from redeliver_mw.redelivery.outbox import has_sends
from redeliver_proton.transaction_coordinator import TransactionCoordinator
from redeliver_proton.transactions import ROLLBACK

TRANSACTIONAL, _DECLARED = 0x34, 0x33
_ACCEPTED = proton.ulong(0x24)
_engine: Any = cproton  # has no types


class TransactionUndone(Requeued):
    """Reports an aborted transaction, or a refused commit: one failure of each delivery that had joined it."""

    def __init__(self, why: str) -> None:
        super().__init__("abort")
        self.args = (why,)


class TransactionOwner(Protocol):
    """Is the user's connection, with the transactions that are declared on it, and timers that end with it."""

    transactions: dict[bytes, CodeTransaction]  # by their ids

    def later(self, seconds: float, fn: Callable[[], object], /) -> None: ...


class JoinableScope(Protocol):
    """Is the link of a delivery that has joined a transaction: it writes the accept, and hears the outcome.

    Each method returns False if the delivery is not ours any more.
    """

    def join(self, delivery: Delivery, number: bytes, /) -> bool: ...
    def committed(self, delivery: Delivery, /) -> bool: ...
    def left_transaction(self, delivery: Delivery, /) -> bool: ...


class CodeTransaction:
    """Follows one transaction of the code's, from its declaration to its outcome. On the container's thread."""

    def __init__(self, drivers: Any, number: bytes, user_connection: TransactionOwner) -> None:
        """Take the place of `accept` and `discharge` of the driver's transaction: every discharge is seen."""
        self.number, self._user_connection = number, user_connection
        self._accept: Callable[[Any], None] = drivers.accept
        self._discharge: Callable[[bool], None] = drivers.discharge
        self._joined: list[CallbackRun] = []
        self._written: set[CallbackRun] = set()  # whose accept the broker has, or will have before the commit
        self._aborted: list[tuple[CallbackRun, Exception]] = []
        self.state = "open"  # then committing or aborting, then over
        drivers.accept, drivers.discharge = self.accept, self.discharge

    # -- what the code does -----------------------------------------------------------------------

    def accept(self, delivery: Any) -> None:
        """Keep the accept of a wrapped delivery back; any other delivery is the driver's."""
        join = getattr(type(delivery), "join", None)
        if join is None:
            self._accept(delivery)
        else:
            join(delivery, self)

    def join(self, run: CallbackRun) -> None:
        """Promise a delivery to this transaction. Raises RefusedHere if the transaction is discharged already."""
        if self.state != "open":
            raise RefusedHere(
                "a delivery cannot join a transaction that is discharged already; it stays unsettled",
                where=str(run.delivery.destination),
                cure="Accept it before commit() or abort()",
            )
        run.promised = True
        self._joined.append(run)

    def withdraw(self, run: CallbackRun) -> bool:
        """Take a delivery out again. Return False if its accept is written already."""
        if run in self._written:
            return False
        if run in self._joined:
            self._joined.remove(run)
        return True

    def discharge(self, failed: bool) -> None:
        """Write the accepts that were kept back, then the code's discharge.

        Raises RefusedHere if a callback has sent messages with `Delivery.send`: they cannot be part of the commit.
        """
        if self.state == "open" and failed:
            self.state = "aborting"
            undone = "the code aborted its transaction"
            self._aborted = [(run, because_of(TransactionUndone(undone), run.before)) for run in self._joined]
        elif self.state == "open":
            for run in self._joined:
                _refuse_sends(run)
            for run in self._joined:
                self._write(run)
            self.state = "committing"
        self._discharge(failed)

    def closing(self, scope: SettlementScope) -> None:
        """Write the accepts of a receiver that the code closes: they are part of a later commit nevertheless."""
        if self.state == "open":
            for run in self._joined:
                if run.scope is scope:
                    self._write(run)

    def _write(self, run: CallbackRun) -> None:
        if run not in self._written and _scope_of(run).join(run.delivery, self.number):
            self._written.add(run)

    # -- what the broker answers ------------------------------------------------------------------

    def answered(self, refusal: str) -> None:
        """Note the outcome of a commit, of which the code has not heard yet."""
        if self.state != "committing":
            return
        self.state = "over"
        if refusal:
            # Until the broker has undone it, nothing may be settled. The timer ends with the connection.
            self._user_connection.later(ROLLBACK, partial(self._refused, refusal))
            return
        for run in self._joined:
            run.promised = False
            if run in self._written and _scope_of(run).committed(run.delivery):
                run.listener.code_settled(run, ACK)

    def heard(self) -> None:
        """Note that the code has heard the outcome: after an abort each delivery has failed once."""
        if self.state == "aborting":
            self.state = "over"
            for run, failure in self._aborted:
                if run in self._joined and _scope_of(run).left_transaction(run.delivery):
                    _fail(run, failure)

    def _refused(self, refusal: str) -> None:
        for run in self._joined:
            if _scope_of(run).left_transaction(run.delivery):
                _fail(run, TransactionUndone(f"the broker refused to commit its transaction: {refusal}"))

    def lost(self) -> None:
        """Note that there will be no outcome, because the connection is lost: that is neither success nor failure."""
        self.state, self._joined = "over", []
        self._written.clear()


class TransactionWatch(proton.Handler):
    """Stands before and after the handler of the link on which the code's transactions are declared and discharged."""

    def __init__(self, drivers: Any, user_connection: TransactionOwner) -> None:
        self._user_connection = user_connection
        self.add(drivers)
        self.add(_Afterwards(user_connection))

    def on_delivery(self, event: Any) -> None:
        """Note what was declared, and what the broker answers to a commit."""
        delivery = event.delivery
        drivers = getattr(delivery, "transaction", None)
        if drivers is None or not (delivery.updated and delivery.settled):
            return
        known = _known(self._user_connection, drivers)
        if known is not None:
            known.answered(_why(delivery) if delivery.remote_state == proton.Delivery.REJECTED else "")
        elif delivery.remote_state == _DECLARED and delivery.remote.data:
            number = bytes(delivery.remote.data[0])
            self._user_connection.transactions[number] = CodeTransaction(drivers, number, self._user_connection)


class _Afterwards(proton.Handler):
    """Hears of an outcome when the code has heard of it."""

    def __init__(self, user_connection: TransactionOwner) -> None:
        self._user_connection = user_connection

    def on_delivery(self, event: Any) -> None:
        drivers = getattr(event.delivery, "transaction", None)
        known = _known(self._user_connection, drivers) if drivers is not None and event.delivery.settled else None
        if known is not None:
            known.heard()
            if known.state == "over":
                self._user_connection.transactions.pop(known.number, None)


def _known(user_connection: TransactionOwner, drivers: Any) -> CodeTransaction | None:
    """Return a transaction of the driver's as it is known here, if its declaration was answered."""
    return None if drivers.id is None else user_connection.transactions.get(bytes(drivers.id))


def is_coordinator(link: Any) -> bool:
    """Return whether the code's transactions are declared on this link, and nobody watches it yet."""
    return (
        link.is_sender
        and link.target.type == proton.Terminus.COORDINATOR
        and link.handler is not None
        and not isinstance(link.handler, TransactionWatch | TransactionCoordinator)
    )


def joined_as(data: Any, source: str) -> bytes:
    """Return the id of the transaction that the code wrote into an outcome.

    Raises RefusedHere for another outcome than accepted, which the broker would ignore.
    """
    if not isinstance(data, list) or len(data) != 2 or getattr(data[1], "descriptor", None) != _ACCEPTED:
        raise RefusedHere(
            "a delivery can only be accepted in a transaction: the broker ignores any other outcome there",
            where=source,
            cure="Release or reject it outside of the transaction, or raise an exception",
        )
    return b"" if data[0] is None else bytes(data[0])


def write_accept(delivery: Any, number: bytes) -> None:
    """Accept a delivery of the driver's in a transaction."""
    clear_outcome(delivery)
    delivery.local.data = [number, proton.Described(_ACCEPTED, [])]
    delivery.update(TRANSACTIONAL)


def clear_outcome(delivery: Any) -> None:
    """Forget the transaction that a delivery was in: the driver would name it in each later outcome."""
    delivery.local.data = None
    _engine.pn_data_clear(_engine.pn_disposition_data(delivery.local._impl))


def _refuse_sends(run: CallbackRun) -> None:
    if has_sends(run.delivery):
        raise RefusedHere(
            "what Delivery.send has sent cannot be part of a transaction of the code's own",
            where=str(run.delivery.destination),
            cure="Send it with transaction.send",
        )


def _scope_of(run: CallbackRun) -> JoinableScope:
    return cast(JoinableScope, run.scope)  # only deliveries of links join


def _fail(run: CallbackRun, failure: Exception) -> None:
    run.promised = False
    run.listener.code_settled(run, failure)


def _why(delivery: Any) -> str:
    condition = delivery.remote.condition
    return f"{condition.name}: {condition.description}" if condition else "without a reason"
