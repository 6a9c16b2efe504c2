# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Publishes a drop-in's copies on links of our own, in sessions of our own, on the user's connection.

On the container's thread. A copy counts as sent when the broker accepted it (confirm-before-settle); a link without
credit stops the clock. Silence closes the user's connection before it is reported (failed-target).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, Protocol

import proton

from redeliver_mw.adapter import OnAnswer, OnTransferred
from redeliver_mw.adapter.kit.pending_copies import PendingCopies
from redeliver_mw.dropin import CopyPublisher, IsAlive
from redeliver_mw.errors import RedeliverError
from redeliver_mw.message import Delivery, Destination, Outgoing
from redeliver_proton.amqp.codec import NotEncodable
from redeliver_proton.brokers.artemis.dialect import encoded
from redeliver_proton.brokers.artemis.topology import ArtemisTopology
from redeliver_proton.duplicate_ids import DuplicateIdSalts
from redeliver_proton.loop import CallLoop
from redeliver_proton.route import Route
from redeliver_proton.sender_link import SenderLinks, SentCopy
from redeliver_proton.transactions import TransactionRunner, TransferJob, TransferOrigin

log = logging.getLogger("redeliver_mw.proton")

PATIENCE = 30.0  # seconds in which an outcome has to come
CHECK_EVERY = 0.25


class CopyConnection(CallLoop, Protocol):
    """Is the user's connection as the copies on it need it: sessions, timers, and where the originals are unsettled."""

    connection: proton.Connection
    is_open: bool

    def cut(self, error: BaseException, /) -> None: ...
    def scope_of(self, generation: int, /) -> TransferOrigin | None: ...  # None: the generation is over


class _Quiet(proton.Handler):
    """Handles the events of our own sessions, for which the user's handler would close the connection."""

    def __init__(self, user_connection: CopyConnection) -> None:
        self._user_connection = user_connection

    def on_session_remote_close(self, event: Any) -> None:
        if event.session.state & proton.Endpoint.LOCAL_ACTIVE:
            self._user_connection.cut(
                ConnectionError(f"the broker ended the session for copies: {event.session.remote_condition}")
            )


class LinkCopyPublisher(CopyPublisher):
    """Publishes the copies of one connection; begins anew after each loss, when there is a copy to send."""

    def __init__(self, user_connection: CopyConnection, *, patience: float = PATIENCE) -> None:
        self._user_connection, self._patience = user_connection, patience
        self.salts = DuplicateIdSalts()
        self._topology = ArtemisTopology()
        self._sender_links = SenderLinks(self._topology)
        self._transaction_runner = TransactionRunner(
            user_connection, self._topology, user_connection.cut, patience=patience
        )
        self._sessions: list[Any] = []
        self._known: set[Destination] = set()  # targets that are there
        self._pending = PendingCopies()  # their targets are looked up
        self._checking, self._last_check = False, 0.0

    # -- the connection ---------------------------------------------------------------------------

    def _up(self) -> None:
        if self._sessions:
            return
        session = self._session()
        session.handler = _Quiet(self._user_connection)
        session.open()
        lender: Any = SimpleNamespace(session=self._session)
        self._topology.connected(self._user_connection, lender)
        self._sender_links.up(session)
        self._transaction_runner.up(session)

    def _session(self) -> Any:
        session = self._user_connection.connection.session()
        self._sessions.append(session)
        return session

    def down(self, error: BaseException) -> None:
        """Free our sessions after a lost connection: the driver would open them again with the next one."""
        self._checking = False
        self._known.clear()
        self._topology.disconnected(error)
        self._sender_links.down(f"the connection was lost: {error}")
        self._transaction_runner.down(error)
        sessions, self._sessions = self._sessions, []
        for session in sessions:
            session.handler = proton.Handler()  # deaf: what still comes of it is not for the user's handler
            session.close()
            session.free()

    # -- copies -----------------------------------------------------------------------------------

    def store(self, out: Outgoing, after: float, answer: OnAnswer, alive: IsAlive) -> None:
        if not self._user_connection.is_open:
            return answer("unsent", "there is no connection just now")
        try:
            data, seen = encoded(out, after, self.salts)
        except NotEncodable as error:
            return answer("unfit", f"it cannot be encoded: {error}")

        number = self._pending.add(out, answer)

        def found(why: str) -> None:
            if not self._pending.take(number):
                return None
            if why or not alive():
                return answer("refused" if why else "unsent", why or "the original was lost meanwhile")
            self._sender_links.to(out.target).offer(SentCopy(data, answered, out.generation, seen))
            return self._watch()

        def answered(verdict: Any, why: str) -> None:
            if verdict != "ok":
                self._known.discard(out.target)
            answer(verdict, why)

        self._up()
        self._find([out.target], found)

    def move(self, delivery: Delivery, outs: Sequence[tuple[Outgoing, float]], answer: OnTransferred) -> None:
        origin = self._user_connection.scope_of(delivery.generation)
        if origin is None:
            return answer("lost", "its generation is over")
        try:
            sends = [(out.target, *encoded(out, after, self.salts)) for out, after in outs]
        except NotEncodable as error:
            return answer("refused", f"it cannot be encoded: {error}")

        def found(why: str) -> None:
            if why:
                answer("refused", why)
            else:
                self._transaction_runner.move(TransferJob(origin, delivery, sends, moved))

        def moved(verdict: Any, why: str) -> None:
            if verdict == "ok":
                self.salts.settled(delivery)
            else:
                self._known.difference_update(target for target, _, _ in sends)
            answer(verdict, why)

        self._up()
        self._find([target for target, _, _ in sends], found)

    def forget(self, generation: int) -> None:
        """Answer the copies of a lost generation that are not written yet, wherever they wait."""
        self.salts.lost(generation)
        self._pending.forget(generation)
        for sent in self._sender_links.forget(generation):
            sent.answer("unsent", "the original was lost meanwhile")

    def _find(self, targets: list[Destination], then: Callable[[str], None]) -> None:
        """Make sure that they are there, a missing one is made; `then` hears why one cannot be had, or nothing."""
        missing = next((target for target in targets if target not in self._known), None)
        if missing is None:
            return then("")

        def routed(route: Route | RedeliverError) -> None:
            if isinstance(route, RedeliverError):
                return then(str(route))
            self._known.add(missing)
            return self._find(targets, then)

        return self._topology.route(missing, routed, declare=True)

    # -- patience ---------------------------------------------------------------------------------

    def _watch(self) -> None:
        if not self._checking and self._user_connection.is_open:
            self._checking, self._last_check = True, self._user_connection.time()
            self._user_connection.call_later(CHECK_EVERY, self._check)

    def _check(self) -> None:
        now = self._user_connection.time()
        passed = now - self._last_check
        self._checking = False
        if all(outlet.idle for outlet in self._sender_links):
            return
        self._watch()
        if self._sender_links.waits_longer_than(self._patience, passed):
            self._user_connection.cut(ConnectionError(f"no outcome of a copy within {self._patience:g} s"))
