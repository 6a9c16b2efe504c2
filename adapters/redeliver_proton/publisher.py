# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Publishes copies and takes their outcomes: no second copy while the first may still be answered.

On the loop's thread. A copy counts as sent when the broker accepted it, on a target that keeps it
(confirm-before-settle). Silence closes the connection before it is reported (failed-target); a link without
credit stops the clock.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

import proton

from redeliver_mw.adapter.registry import BrokerUrl
from redeliver_mw.message import Destination
from redeliver_proton.broker_dialect import BrokerDialect, BrokerTopology
from redeliver_proton.connection import ProtonConnection
from redeliver_proton.loop import ProtonLoop
from redeliver_proton.sender_link import SenderLinks, SentCopy

log = logging.getLogger("redeliver_mw.proton")

PATIENCE = 30.0  # seconds in which an outcome has to come
CHECK_EVERY = 0.25


class Publisher:
    """Publishes on a connection of its own."""

    def __init__(
        self,
        loop: ProtonLoop,
        url: BrokerUrl,
        dialect: BrokerDialect,
        topology: BrokerTopology,
        *,
        patience: float = PATIENCE,
        closed: Callable[[], None] = lambda: None,
    ) -> None:
        self._loop, self._closed, self._patience = loop, closed, patience
        self._connection = ProtonConnection(loop, url, dialect, "publish", up=self._up, down=self._down)
        self.state = self._connection.state
        self._sender_links = SenderLinks(topology)
        self._waiting: deque[tuple[Destination, SentCopy]] = deque()  # for the connection
        self._checking = self.started = False
        self._last_check = 0.0

    def open(self) -> None:
        self.started = True
        self._connection.open()

    def close(self) -> None:
        self._answer_waiting("we are closing")
        for outlet in self._sender_links:
            while outlet.queue:
                outlet.queue.popleft().answer("unsent", "we are closing")
        self._connection.close()

    @property
    def is_closed(self) -> bool:
        return self._connection.is_down

    @property
    def idle(self) -> bool:
        return not self._waiting and all(outlet.idle for outlet in self._sender_links)

    def publish(self, target: Destination, sent: SentCopy) -> None:
        """Publish a copy. One answer comes for each call."""
        if self._connection.closing:
            return sent.answer("unsent", "we are closing")
        if self._connection.is_open:
            self._sender_links.to(target).offer(sent)
        else:
            self._waiting.append((target, sent))
        self._watch()

    def forget(self, generation: int) -> None:
        """Drop copies that are not written yet, for deliveries of a lost generation."""
        gone = [sent for _, sent in self._waiting if sent.generation == generation]
        self._waiting = deque(pair for pair in self._waiting if pair[1].generation != generation)
        for sent in gone + self._sender_links.forget(generation):
            sent.answer("unsent", "the original was lost meanwhile")

    # -- the connection ---------------------------------------------------------------------------

    def _up(self, _connection: proton.Connection) -> None:
        self._sender_links.up(self._connection.session)
        waiting, self._waiting = self._waiting, deque()
        for target, sent in waiting:
            self._sender_links.to(target).offer(sent)

    def _down(self, error: BaseException) -> None:
        self._sender_links.down(f"the publishing connection was lost: {error}")
        self._closed()

    def _answer_waiting(self, why: str) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _, sent in waiting:
            sent.answer("unsent", why)

    # -- patience ---------------------------------------------------------------------------------

    def _watch(self) -> None:
        if not self._checking:
            self._checking, self._last_check = True, self._loop.time()
            self._loop.call_later(CHECK_EVERY, self._check)

    def _check(self) -> None:
        now = self._loop.time()
        passed, self._last_check = now - self._last_check, now
        self._checking = False
        if self.idle:
            return self.state.block("")
        self._watch()
        if self._sender_links.waits_longer_than(self._patience, passed):
            self._give_up()
        self.state.block(self._sender_links.blocked)
        self._give_up_waiting(passed)
        return None

    def _give_up(self) -> None:
        """Close first, tell afterwards: `_down` answers, once nothing can be confirmed any more."""
        why = f"no outcome within {self._patience:g} s"
        log.warning("%s: the publishing connection is closed and opened again", why)
        self._connection.abort(ConnectionError(why))

    def _give_up_waiting(self, passed: float) -> None:
        for _, sent in self._waiting:
            sent.waited += passed
        late = [sent for _, sent in self._waiting if sent.waited > self._patience]
        self._waiting = deque(pair for pair in self._waiting if pair[1].waited <= self._patience)
        for sent in late:
            sent.answer("unsent", f"no publishing connection within {self._patience:g} s")
