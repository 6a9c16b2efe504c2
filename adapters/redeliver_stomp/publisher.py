# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Publishes copies, each with a RECEIPT, and no second copy while the first may still be answered.

On the loop's thread. A copy counts as sent on the RECEIPT of its COMMIT (confirm-before-settle); an ERROR that names
its SEND is a refusal. Silence closes the link before it is reported (failed-target). A transaction for each
copy, because ActiveMQ keeps a SEND for which a full queue has no room until there is some, and puts it there then,
whether its connection is still open or not (seen on 6.3: six tries of one copy, six copies); the end of a transaction
ends that. Delayed copies do without: within a transaction their job would be stored after the commit.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from redeliver_mw.adapter import OnAnswer, Verdict
from redeliver_mw.adapter.kit.publish_queue import PublishQueue
from redeliver_mw.adapter.registry import BrokerUrl
from redeliver_mw.message import Outgoing
from redeliver_stomp.capabilities import NOT_SCHEDULED, problem
from redeliver_stomp.connection import StompConnection
from redeliver_stomp.frames import RawFrame, encode
from redeliver_stomp.loop import StompLoop
from redeliver_stomp.messages import NotSendable, send_frame
from redeliver_stomp.receipts import Receipts, error_text

log = logging.getLogger("redeliver_mw.stomp")

PATIENCE = 30.0  # seconds in which a receipt has to come


@dataclass(slots=True, eq=False)
class _UnansweredCopy:
    out: Outgoing
    after: float
    answer: OnAnswer
    since: float = 0.0
    waited: float = 0.0

    @property
    def generation(self) -> int | None:
        return self.out.generation


class Publisher:
    """Publishes on a connection of its own. One answer comes for each `publish`."""

    def __init__(
        self, loop: StompLoop, url: BrokerUrl, *, patience: float = PATIENCE, closed: Callable[[], None] = lambda: None
    ) -> None:
        self._patience, self._closed = patience, closed
        self._link = StompConnection(loop, url, "publish", up=self._up, down=self._down, frames=self._frames)
        self.state = self._link.state
        self.started = False
        self._receipts = Receipts()
        self._numbers = itertools.count(1)
        self._copies: PublishQueue[_UnansweredCopy] = PublishQueue(
            call_later=loop.call_later, patience=lambda: self._patience, silent=self._give_up
        )

    def open(self) -> None:
        self.started = True
        self._link.open()

    def close(self) -> None:
        self._link.close()
        self._copies.close("we are closing")

    @property
    def is_closed(self) -> bool:
        return self._link.is_closed

    @property
    def idle(self) -> bool:
        return self._copies.idle

    def publish(self, out: Outgoing, answer: OnAnswer, after: float = 0.0) -> None:
        """Publish a copy, but not before the link is up. `after` is the broker's own delay in seconds."""
        if why := problem(out.target):
            answer("refused", why)
            return
        try:
            send_frame(out, "r", after=after)
        except NotSendable as error:
            answer("unfit", str(error))
            return
        sent = _UnansweredCopy(out, after, answer)
        if self._link.is_open:
            self._write(sent)
        else:
            self._copies.add(sent)

    def forget(self, generation: int) -> None:
        """Drop copies that are not written yet, for deliveries of a lost generation."""
        self._copies.forget(generation)

    def _write(self, sent: _UnansweredCopy) -> None:
        number = next(self._numbers)
        self._copies.written(number, sent)
        if sent.after > 0 or NOT_SCHEDULED in sent.out.headers:
            receipt = self._receipts.expect(lambda error: self._answered(number, error))
            self._link.write(send_frame(sent.out, receipt, after=sent.after))
            return
        begin = encode("BEGIN", [("transaction", f"redeliver-copy-{number}")])
        receipt = self._receipts.expect(lambda error: self._taken(number, error))
        self._link.write(begin + send_frame(sent.out, receipt, transaction=f"redeliver-copy-{number}"))

    def _taken(self, number: int, error: str) -> None:
        """Commit the transaction of a SEND that was answered, or abort it after an error."""
        transaction = ("transaction", f"redeliver-copy-{number}")
        if number not in self._copies.unanswered:  # we are closing
            return
        if error:
            self._link.write(encode("ABORT", [transaction]))
            self._answered(number, error)
            return
        receipt = self._receipts.expect(lambda error: self._committed(number, error))
        self._link.write(encode("COMMIT", [transaction, ("receipt", receipt)]))

    def _committed(self, number: int, error: str) -> None:
        if error:  # whether it is there nobody knows
            self._link.abort(ConnectionAbortedError(f"a commit failed: {error}"))
        else:
            self._answered(number, "")

    # -- the link ---------------------------------------------------------------------------------

    def _up(self, _headers: Mapping[str, str]) -> None:
        while self._copies.unwritten:
            self._write(self._copies.unwritten.popleft())

    def _down(self, error: BaseException) -> None:
        self._receipts.forget()
        self._copies.answer_unanswered(f"the publishing link was lost: {error}")
        self._closed()

    def _frames(self, frames: list[RawFrame]) -> None:
        for frame in frames:
            if not self._receipts.take(frame) and frame.head.startswith(b"ERROR"):
                log.warning("the broker says on the publishing link: %s", error_text(frame))

    def _answered(self, number: int, error: str) -> None:
        if (sent := self._copies.unanswered.pop(number, None)) is not None:
            verdict: Verdict = "refused" if error else "ok"
            sent.answer(verdict, error)

    def _give_up(self) -> None:
        """Close first, tell afterwards: `_down` answers what was written, once nothing can confirm it any more."""
        why = f"no receipt within {self._patience:g} s, as from a queue that is full"
        log.warning("%s: the publishing link is closed and opened again", why)
        self._link.abort(TimeoutError(why))
