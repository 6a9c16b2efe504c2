# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Publishes a drop-in's copies on the user's own connection, with receipts of ours. On our thread."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from redeliver_mw.adapter import OnAnswer, OnTransferred
from redeliver_mw.dropin import CopyPublisher, IsAlive
from redeliver_mw.message import Delivery, Outgoing
from redeliver_stomp.capabilities import problem
from redeliver_stomp.dropin.connection import StompUserConnection
from redeliver_stomp.frames import encode
from redeliver_stomp.messages import NotSendable, send_frame
from redeliver_stomp.unackable import doubtful, odd

log = logging.getLogger("redeliver_mw.stomp")

PATIENCE = 30.0  # seconds in which an answer has to come
_numbers = itertools.count(1)


class AckingScope(Protocol):
    """Is the scope of the originals: it knows how one is acked, and whether a transaction of ours may be committed."""

    def is_settled(self, delivery: Delivery, /) -> bool: ...
    def ack_headers(self, tag: Any, /) -> list[tuple[str, str]]: ...
    def beside_transactions(self) -> AbstractContextManager[bool]: ...


class ConnectionCopyPublisher(CopyPublisher):
    """Writes SENDs with receipts, and transactions of SENDs and an ACK; reports what a lost link leaves unanswered."""

    patience = PATIENCE

    def __init__(self, user_connection: StompUserConnection, scope: AckingScope) -> None:
        self._user_connection, self._scope = user_connection, scope
        self._waiting: dict[int, Callable[[str], None]] = {}  # called when the connection is lost
        self._moves: set[int] = set()
        self._silent = False  # the connection is cut for that
        self._when_idle: list[Callable[[], Any]] = []

    def store(self, out: Outgoing, after: float, answer: OnAnswer, alive: IsAlive) -> None:
        if why := self.why_not([out]):
            return answer("refused", why)
        if not alive():
            return answer("unsent", "the original was lost meanwhile")
        number = self._begin(lambda why: answer("silent", why))

        def answered(refusal: str, error: str = "") -> None:
            if error and number in self._waiting:
                self._cut(f"a transaction did not end: {error}")
            elif self._over(number):
                answer("refused" if refusal else "ok", refusal)

        def alone() -> None:
            self._send(send_frame(out, self._user_connection.expect(answered), after=after))

        try:
            if after > 0:  # within a transaction its job would be stored after the commit
                alone()
            else:  # without one, what a full queue has no room for is put there later, however often it was sent
                self._transact([out], (), answered, alone)
        except NotSendable as error:
            answered(str(error))

    def move(self, delivery: Delivery, outs: Sequence[tuple[Outgoing, float]], answer: OnTransferred) -> None:
        """Send {BEGIN, SEND…}, then {ACK, COMMIT} once all are answered; an ERROR for one of them is an ABORT."""
        if why := self.why_not([out for out, _ in outs]):
            return answer("refused", why)
        if odd(delivery.native.raw(b"message-id")):
            return answer("refused", "its id is none of the broker's: its ack may end the connection")
        number = self._begin(lambda why: answer("abandoned" if self._silent else "lost", why))
        self._moves.add(number)

        def over(refusal: str, error: str = "") -> None:
            if error and number in self._waiting:  # what it means for the parts nobody knows
                self._cut(f"a transaction did not end: {error}")
            elif self._over(number):
                answer("refused" if refusal else "ok", refusal)
                self._idle()

        def copies_first() -> None:
            _CopiesThenAck(self._user_connection, over, self._send).begin([out for out, _ in outs], ack)

        ack = () if self._scope.is_settled(delivery) else self._scope.ack_headers(delivery.tag)
        try:
            self._transact([out for out, _ in outs], ack, over, copies_first, ack_first=doubtful(delivery.native))
        except NotSendable as error:
            over(str(error))

    def _transact(
        self,
        outs: Sequence[Outgoing],
        ack: Sequence[tuple[str, str]],
        over: Callable[[str, str], None],
        instead: Callable[[], None],
        *,
        ack_first: bool = False,
    ) -> None:
        """Send them in a transaction of ours, or call `instead` while the code has ACKs in one of its own."""
        beside = self._scope.beside_transactions
        with beside() as harmful:
            pass
        if harmful:
            instead()
        else:
            _Transaction(self._user_connection, over, self._send, beside, instead).begin(outs, ack, ack_first=ack_first)

    def why_not(self, outs: Sequence[Outgoing]) -> str:
        """Return why these cannot be sent now; empty if they can."""
        for out in outs:
            if why := problem(out.target):
                return why
            if self._user_connection.users.version == "1.1" and any(
                "\r" in str(value) for value in out.headers.values()
            ):
                return "a header holds a carriage return, which STOMP 1.1 cannot write"
        return "" if self._user_connection.is_open else "there is no connection"

    # -- answers that do not come -------------------------------------------------------------------

    def _begin(self, lost: Callable[[str], None]) -> int:
        number = next(_numbers)
        self._waiting[number] = lost

        def check() -> None:
            if number in self._waiting:
                self._silent = True
                self._cut(f"no answer within {self.patience:g} s")

        self._user_connection.later(self.patience, check)
        return number

    def _over(self, number: int) -> bool:
        self._moves.discard(number)
        return self._waiting.pop(number, None) is not None

    def _send(self, data: bytes) -> None:
        try:
            self._user_connection.write(data)
        except Exception as error:  # stomp.py's own and OSError: the connection is lost, `lost` tells of it
            log.debug("the connection is lost: %r", error)
            self._user_connection.cut()

    def _cut(self, why: str) -> None:
        """Close the connection before anything is reported: a late answer could make a second copy."""
        log.error("%s: the connection is closed, and the broker has its unsettled messages again", why)
        self._user_connection.cut()

    def lost(self) -> None:
        """Answer what waits, after every delivery of the connection has been abandoned."""
        waiting, self._waiting = self._waiting, {}
        self._moves.clear()
        for tell in waiting.values():
            tell("the connection was lost before the answer")
        self._silent = False
        self._idle()

    # -- before an UNSUBSCRIBE ----------------------------------------------------------------------

    def when_idle(self, fn: Callable[[], Any]) -> None:
        """Call it when no transaction is open."""
        self._when_idle.append(fn)
        self._idle()

    def _idle(self) -> None:
        while self._when_idle and not self._moves:
            self._when_idle.pop(0)()


class _Transaction:
    """Sends copies in a transaction, with the ACK of their original where it goes with them.

    The ACK is written together with the COMMIT, once the copies are answered. ActiveMQ forgets with any COMMIT of a
    connection what was acked in its other transactions: after an ABORT their messages could not be acked again
    (observed on 5.18.3 and 6.3.1). `over` gets why a copy was refused, and what went wrong in the transaction's end.
    """

    def __init__(
        self,
        user_connection: StompUserConnection,
        over: Callable[[str, str], None],
        send: Callable[[bytes], None],
        beside: Callable[[], AbstractContextManager[bool]],
        instead: Callable[[], None],
    ) -> None:
        self._user_connection, self._over, self._write = user_connection, over, send
        self._beside, self._instead = beside, instead
        self._name = f"redeliver-dropin-{next(_numbers)}"
        self._open, self._refusal = 0, ""
        self._ack: Sequence[tuple[str, str]] = ()

    def begin(self, outs: Sequence[Outgoing], ack: Sequence[tuple[str, str]] = (), *, ack_first: bool = False) -> None:
        """Raise NotSendable before anything is sent.

        `ack_first`: the broker may refuse this ACK for ever, and then there is to be no copy from here.
        """
        frames = [encode("BEGIN", [("transaction", self._name), ("receipt", self._expect())])]
        frames += [send_frame(out, self._expect(), transaction=self._name) for out in outs]
        if ack and ack_first:
            frames.append(encode("ACK", [*ack, ("transaction", self._name), ("receipt", self._expect())]))
        else:
            self._ack = ack
        self._open = len(frames)
        self._write(b"".join(frames))

    def _expect(self) -> str:
        return self._user_connection.expect(self._answered)

    def _answered(self, error: str) -> None:
        self._refusal = self._refusal or error
        self._open -= 1
        if self._open:
            return
        with self._beside() as harmful:
            if not self._refusal and not harmful:
                return self._commit()
            end = self._end() if self._refusal else []
            self._write(encode("ABORT", [("transaction", self._name), *end]))
        if not self._refusal:
            self._instead()

    def _commit(self) -> None:
        named = ("transaction", self._name)
        frames = [encode("COMMIT", [named, *self._end()])]
        if self._ack:
            frames.insert(0, encode("ACK", [*self._ack, named, ("receipt", self._user_connection.expect(_acked))]))
        self._write(b"".join(frames))

    def _end(self) -> list[tuple[str, str]]:
        """Return the header of the receipt that ends it."""
        return [("receipt", self._user_connection.expect(lambda error: self._over(self._refusal, error)))]


class _CopiesThenAck:
    """Sends copies without a transaction, and the ACK of their original once the broker has confirmed each copy.

    `over` gets why a copy was refused.
    """

    def __init__(
        self, user_connection: StompUserConnection, over: Callable[[str, str], None], send: Callable[[bytes], None]
    ) -> None:
        self._user_connection, self._over, self._write = user_connection, over, send
        self._open, self._refusal = 0, ""
        self._ack: Sequence[tuple[str, str]] = ()

    def begin(self, outs: Sequence[Outgoing], ack: Sequence[tuple[str, str]]) -> None:
        """Raise NotSendable before anything is sent."""
        self._open, self._ack = len(outs), ack
        self._write(b"".join([send_frame(out, self._user_connection.expect(self._answered)) for out in outs]))

    def _answered(self, error: str) -> None:
        self._refusal = self._refusal or error
        self._open -= 1
        if self._open:
            return
        if self._refusal or not self._ack:
            self._over(self._refusal, "")
        else:
            self._write(encode("ACK", [*self._ack, ("receipt", self._user_connection.expect(self._acked))]))

    def _acked(self, error: str) -> None:
        _acked(error)
        self._over("", "")


def _acked(error: str) -> None:
    if error:
        log.error("copies of a message are confirmed, and the ACK of their original was refused: %s", error)
