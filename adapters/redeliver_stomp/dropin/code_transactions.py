# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Follows the STOMP transactions that the code itself begins, commits and aborts on a wrapped connection.

The code's frames go out when the code says so, on its own thread. An ACK in a transaction promises its message to the
transaction: until the outcome is known, nothing else settles the message.

- The RECEIPT of the COMMIT is success. A COMMIT that gets an ERROR, or no answer, is neither success nor failure.
- After an ABORT the code has the messages in hand again.
- Each ACK carries a receipt of ours: on ActiveMQ a refused ACK does not stop the COMMIT, and nothing else names it
  (observed on 5.18.3 and 6.3.1). A message whose ACK was refused is back in the code's hands.
- What the code sends with `delivery.send` goes into the transaction right before its COMMIT. Where the broker refuses
  such a SEND and takes the COMMIT, the message is sent again until the broker takes it.
- A callback that raises leaves a transaction that it has begun itself and not committed: it is aborted, and the
  exception counts. Any other transaction that has the ACK already decides for itself: its COMMIT is success; after an
  ABORT or a lost connection the exception counts.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from redeliver_mw.dropin import CallbackRun, RefusedHere
from redeliver_mw.message import Delivery
from redeliver_mw.redelivery.outbox import CLOSED, QueuedSend, close_outbox, reopen_outbox
from redeliver_stomp.dropin.claims import Claims, CodeTransaction, HandedFrame
from redeliver_stomp.dropin.connection import StompUserConnection
from redeliver_stomp.dropin.copies import ConnectionCopyPublisher
from redeliver_stomp.messages import NotSendable, send_frame

log = logging.getLogger("redeliver_mw.stomp")

REMEMBERED = 1000  # names of transactions that were aborted here


class TransactionScope(Protocol):
    """Is the scope of a connection's deliveries, as its transactions need it: they settle runs through it."""

    def running(self) -> CallbackRun | None: ...
    def ack_frame(self, delivery: Delivery, /, *, receipt: str = "", transaction: str = "") -> bytes: ...
    def tried(self, delivery: Delivery, error: str, /) -> bool: ...
    def settled_by_broker(self, run: CallbackRun, /) -> None: ...
    def tell(self, run: CallbackRun, /) -> None: ...


class CodeTransactions:
    """Takes over `begin`, `commit` and `abort` of one connection object, and keeps its open transactions.

    Thread-safe: the code calls from any thread; answers come on ours.
    """

    def __init__(
        self,
        connection: Any,
        scope: TransactionScope,
        user_connection: StompUserConnection,
        publisher: ConnectionCopyPublisher,
        claims: Claims,
    ) -> None:
        self._scope, self._user_connection, self._publisher, self._lock = scope, user_connection, publisher, claims.lock
        self._open: dict[str, CodeTransaction] = {}
        self._aborted_here: dict[str, None] = {}  # because their callback raised; the oldest first
        self._begin, self._commit, self._abort = connection.begin, connection.commit, connection.abort
        connection.begin, connection.commit, connection.abort = self._beginning, self._committing, self._aborting

    # -- what the code calls ----------------------------------------------------------------------

    def _beginning(self, transaction: Any = None, headers: Any = None, **more: Any) -> Any:
        name = self._begin(transaction, headers, **more)
        run = self._scope.running()
        with self._lock:
            self._aborted_here.pop(str(name), None)
            self._open[str(name)] = CodeTransaction(str(name), run.order if run is not None else None)
        return name

    def join(self, runs: Sequence[CallbackRun], name: str, receipt: str) -> None:
        """Write the ACKs of runs that are claimed; the code's own receipt goes with the last one."""
        with self._lock:
            found = self._open.get(name)
            if found is None:
                found = self._open[name] = CodeTransaction(name)
            for run in runs:
                self._handed(run).transaction, run.promised = found, True
                found.runs.append(run)
        transaction = found

        def answered(run: CallbackRun) -> Callable[[str], None]:
            return lambda error: self._acked(transaction, run, error)

        frames = []
        for run in runs:
            shown = receipt if run is runs[-1] else ""
            named = self._user_connection.expect(answered(run), shown=shown)
            frames.append(self._scope.ack_frame(run.delivery, receipt=named, transaction=name))
        self._user_connection.write(b"".join(frames))

    def _committing(self, transaction: Any = None, headers: Any = None, **more: Any) -> None:
        with self._lock:
            found = self._open.pop(str(transaction), None)
            if found is not None:
                found.asked = True
        self._refuse_aborted(str(transaction))
        if found is None or not found.runs:
            self._commit(transaction, headers, **more)
            return
        given = {**(headers or {}), **more}
        self._send_outboxes(found)
        shown = str(given.get("receipt") or "")
        given["receipt"] = self._user_connection.expect(lambda error: self._answered(found, error), shown=shown)
        self._commit(transaction, given)

    def _refuse_aborted(self, name: str) -> None:
        if name in self._aborted_here:
            raise RefusedHere(
                f"the transaction {name} was aborted when the callback that had begun it raised",
                where=self._user_connection.broker,
                cure="Begin a new transaction; the message comes again as its policy says",
            )

    def _aborting(self, transaction: Any = None, headers: Any = None, **more: Any) -> None:
        name = str(transaction)
        with self._lock:
            found = self._open.pop(name, None)
        if name in self._aborted_here:
            shown = {**(headers or {}), **more}.get("receipt")
            if shown:
                self._user_connection.show_receipt(str(shown))
            return
        self._abort(transaction, headers, **more)
        if found is not None:
            self._give_back(found, found.runs)

    @contextlib.contextmanager
    def beside(self) -> Iterator[bool]:
        """Tell whether a COMMIT of ours would do harm now. No ACK joins a transaction before the block is left.

        ActiveMQ forgets with any COMMIT of a connection all messages that were acked in any transaction of it: after
        an ABORT of theirs they could not be acked again (observed on 5.18.3 and 6.3.1).
        """
        with self._lock:
            yield any(each.runs for each in self._open.values())

    # -- what becomes of it -----------------------------------------------------------------------

    def withdraw(self, run: CallbackRun) -> bool:
        """Abort the transaction that the callback of this run has begun, because the callback raised.

        Return False where the transaction decides. Called on our thread.
        """
        with self._lock:
            found = self._handed(run).transaction
            if found is None:  # it was given back meanwhile, and another thread may have settled it
                free = not self._handed(run).claimed
                run.promised, self._handed(run).claimed = False, True
                return free
            if found.asked or found.begun_by != run.order:
                return False
            self._open.pop(found.name, None)
            self._aborted_here[found.name] = None
            if len(self._aborted_here) > REMEMBERED:
                del self._aborted_here[next(iter(self._aborted_here))]
            run.promised, self._handed(run).transaction = False, None
        if self._user_connection.is_open:
            with contextlib.suppress(Exception):  # stomp.py's own: the connection is lost
                self._abort(found.name)
        self._give_back(found, [each for each in found.runs if each is not run])
        return True

    def lost(self, open_runs: Sequence[CallbackRun]) -> None:
        """Count, after a lost connection, what the callbacks of its unsettled runs have raised. On our thread."""
        with self._lock:
            self._open.clear()
            self._aborted_here.clear()
        for run in open_runs:
            raised = self._handed(run).raised
            if run.promised and run.in_hand and raised is not None:
                run.promised = False
                run.listener.code_settled(run, _as_failure(raised))

    def _acked(self, transaction: CodeTransaction, run: CallbackRun, error: str) -> None:
        self._scope.tried(run.delivery, error)
        if not error:
            transaction.taken.add(run)
            return self._finish(transaction, run)
        with self._lock:
            joined = run in transaction.runs
            if joined:
                transaction.runs.remove(run)
        if joined and self._handed(run).transaction is transaction:
            text = "%s: the broker refused an ACK in the transaction %s, which does not cover its message: %s"
            log.error(text, run.delivery.destination, transaction.name, error)
            self._give_back(transaction, [run])

    def _answered(self, transaction: CodeTransaction, error: str) -> None:
        """Take the answer to the COMMIT. On our thread."""
        if error:
            sources = ", ".join(sorted({str(run.delivery.destination) for run in transaction.runs}))
            text = "%s: the COMMIT of the transaction %s was refused, and nothing of it counts as settled: %s"
            log.error(text, sources, transaction.name, error)
            return self._give_back(transaction, transaction.runs)
        transaction.committed = True
        for run in list(transaction.runs):
            self._finish(transaction, run)

    def _finish(self, transaction: CodeTransaction, run: CallbackRun) -> None:
        """Count a success once both the ACK and the COMMIT are answered well."""
        if not transaction.committed or run not in transaction.taken or not run.promised:
            return
        run.promised = False
        if (sends := transaction.sends.get(run)) is not None:
            reopen_outbox(run.delivery, [each for each in sends if each not in transaction.sent])
        self._scope.settled_by_broker(run)

    def _give_back(self, transaction: CodeTransaction, runs: Sequence[CallbackRun]) -> None:
        """Give the deliveries back into the code's hand; one whose callback has raised has failed by that."""
        for run in list(runs):
            handed = self._handed(run)
            with self._lock:
                if handed.transaction is not transaction or not run.promised:
                    continue
                run.promised, handed.transaction = False, None
                raised, handed.raised = handed.raised, None
                handed.claimed = raised is not None
                if raised is not None:
                    handed.pending = _as_failure(raised)
            if raised is not None:
                self._scope.tell(run)
            elif (sends := transaction.sends.get(run)) is not None:
                reopen_outbox(run.delivery, sends)

    # -- what our own `delivery.send` has kept ------------------------------------------------------

    def _send_outboxes(self, transaction: CodeTransaction) -> None:
        """Write what the code has sent, as part of the transaction."""
        for run in transaction.runs:
            sends = close_outbox(run.delivery) if run.delivery.outbox is not CLOSED else ()
            if sends:
                transaction.sends[run] = sends
            for sending in sends:
                if not sending.parked and not self._publisher.why_not([sending.out]):
                    self._send(transaction, sending)

    def _send(self, transaction: CodeTransaction, sending: QueuedSend) -> None:
        def answered(error: str) -> None:
            if not error:
                transaction.sent.add(sending)

        name, receipt = transaction.name, self._user_connection.expect(answered)
        with contextlib.suppress(NotSendable):  # it is tried again, and refused, once the COMMIT is answered
            self._user_connection.write(send_frame(sending.out, receipt, transaction=name, after=sending.after))

    @staticmethod
    def _handed(run: CallbackRun) -> HandedFrame:
        handed: HandedFrame = run.given
        return handed


def _as_failure(raised: BaseException) -> Exception:
    """Return what the core takes for the failure of a run whose callback is over."""
    if isinstance(raised, Exception):
        return raised
    failure = RuntimeError(f"the callback was ended by {type(raised).__name__}")
    failure.__cause__ = raised
    return failure
