# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs transactions on a consuming connection: copies sent and their original acked, all or nothing.

BEGIN, each SEND and each ACK go out in one write and are answered one by one; only when all of them were is
there a COMMIT, because ActiveMQ commits what is left of a transaction of which a part was refused (seen: the
ACK without the SEND, a lost message). Moves that wait together share a transaction; one that is refused is
aborted, after which the originals are unsettled and ours, and each is tried alone. Silence closes the
connection: then the broker has all of it again. On the loop's thread.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from redeliver_mw.adapter import OnTransferred, TransferVerdict
from redeliver_mw.adapter.kit.timer_heap import LoopTimer
from redeliver_mw.message import Delivery, Outgoing
from redeliver_stomp.consumer import Consumer
from redeliver_stomp.frames import ack, encode
from redeliver_stomp.loop import StompLoop
from redeliver_stomp.messages import NotSendable, send_frame
from redeliver_stomp.receipts import OnReceipt
from redeliver_stomp.unackable import odd

log = logging.getLogger("redeliver_mw.stomp")

TOGETHER = 50  # moves at most in one transaction
_numbers = itertools.count(1)


class TransactedConnection(Protocol):
    """Is the consuming connection of a transaction: it writes frames, expects receipts, and can be closed."""

    loop: StompLoop

    def expect(self, answer: OnReceipt, /) -> str: ...
    def write(self, data: bytes, /) -> None: ...
    def abort(self, error: BaseException, /) -> None: ...


@dataclass(slots=True, eq=False)
class _Transfer:
    source: Consumer
    delivery: Delivery
    outs: Sequence[Outgoing]
    answer: OnTransferred
    alone: bool = False


class TransactionRunner:
    """Runs the transactions of one connection, one after the other."""

    def __init__(self, connection: TransactedConnection, patience: Callable[[], float]) -> None:
        self._connection, self._patience = connection, patience
        self._queue: deque[_Transfer] = deque()
        self._moves: list[_Transfer] = []  # in the transaction that is open
        self._name = ""
        self._open = 0  # frames that are not answered
        self._refusal = ""
        self._timer: LoopTimer | None = None
        self._silent = False

    @property
    def idle(self) -> bool:
        return not self._queue and not self._moves

    def move(
        self, source: Consumer, delivery: Delivery, outs: Sequence[tuple[Outgoing, float]], answer: OnTransferred
    ) -> None:
        """Move a delivery in a transaction. One answer comes: `refused` leaves the delivery unsettled and ours."""
        if not source.has(delivery):
            answer("abandoned", "its generation is over, or it is settled")
        elif any(after > 0 for _, after in outs):
            answer("refused", "a delayed copy cannot be part of a transaction here")
        elif odd(delivery.native.raw(b"message-id")):
            answer("refused", "its id is none of the broker's: its ack may end the connection")
        else:
            self._queue.append(_Transfer(source, delivery, [out for out, _ in outs], answer))
            self._connection.loop.at_end_of_turn(self._begin)

    def lost(self) -> None:
        """Answer what was not committed: the connection is lost, and the transactions with it."""
        begun, self._moves = self._moves, []
        queued, self._queue = self._queue, deque()
        self._end_timer()
        for move in begun:
            verdict: TransferVerdict = "abandoned" if self._silent else "lost"
            move.answer(verdict, "the connection was lost before the commit was answered")
        for move in queued:
            move.answer("lost", "the connection was lost before its transaction began")
        self._silent = False

    # -- one transaction --------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._moves or not self._queue:
            return
        chosen = [self._queue.popleft()]
        while self._queue and not (chosen[0].alone or self._queue[0].alone) and len(chosen) < TOGETHER:
            chosen.append(self._queue.popleft())
        self._name, self._refusal, self._open = f"redeliver-{next(_numbers)}", "", 0
        frames = [encode("BEGIN", [("transaction", self._name), ("receipt", self._expect())])]
        for move in chosen:
            if not move.source.has(move.delivery):
                move.answer("abandoned", "it was settled or lost meanwhile")
                continue
            try:
                parts = [send_frame(out, self._expect(), transaction=self._name) for out in move.outs]
            except NotSendable as error:
                move.answer("refused", str(error))
                continue
            parts.append(ack(move.delivery.tag, self._name.encode(), self._expect().encode()))
            move.source.take(move.delivery.tag)
            self._moves.append(move)
            frames += parts
        if not self._moves:
            self._open = 0
            return self._next()
        self._open = sum(len(move.outs) + 1 for move in self._moves) + 1
        self._connection.write(b"".join(frames))
        self._timer = self._connection.loop.call_later(self._patience(), self._too_late)

    def _expect(self) -> str:
        name = self._name
        return self._connection.expect(lambda error: self._answered(name, error))

    def _answered(self, name: str, error: str) -> None:
        if name != self._name or not self._moves:
            return
        self._refusal = self._refusal or error
        self._open -= 1
        if self._open:
            return
        verb, then = ("ABORT", self._aborted) if self._refusal else ("COMMIT", self._committed)
        receipt = self._connection.expect(then)
        self._connection.write(encode(verb, [("transaction", name), ("receipt", receipt)]))

    def _committed(self, error: str) -> None:
        if error:  # what it means for the parts nobody knows: they are the broker's
            self._connection.abort(ConnectionAbortedError(f"a commit failed: {error}"))
            return
        moves = self._over()
        for move in moves:
            move.answer("ok", "")
        self._next()

    def _aborted(self, error: str) -> None:
        if error:
            self._connection.abort(ConnectionAbortedError(f"an abort failed: {error}"))
            return
        refusal, moves = self._refusal, self._over()
        for move in moves:
            move.source.give_back(move.delivery.tag)
        if len(moves) == 1:
            moves[0].answer("refused", refusal)
        else:
            for move in reversed(moves):
                move.alone = True
                self._queue.appendleft(move)
        self._next()

    def _over(self) -> list[_Transfer]:
        moves, self._moves, self._name = self._moves, [], ""
        self._end_timer()
        return moves

    def _next(self) -> None:
        if self._queue:
            self._connection.loop.at_end_of_turn(self._begin)

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_late(self) -> None:
        why = f"a transaction was not answered within {self._patience():g} s"
        log.warning("%s: the consuming connection is closed and opened again", why)
        self._silent = True
        self._connection.abort(TimeoutError(why))
