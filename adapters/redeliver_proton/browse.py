# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Looks into a queue by a link, drained, that copies, or else takes and gives back. On the loop's thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import proton

from redeliver_mw.errors import BrokerError, RedeliverError
from redeliver_mw.message import Delivery, Destination
from redeliver_proton.broker_dialect import BrokerTopology
from redeliver_proton.connection import ProtonConnection
from redeliver_proton.loop import ProtonLoop
from redeliver_proton.route import Route

TIMEOUT = 10.0  # seconds without anything
AT_ONCE = 500  # messages that one drain asks for
_Answer = Callable[[Sequence[Delivery] | RedeliverError], None]
_Deliver = Callable[[Destination, int, int, bytes], Delivery]


class Browses:
    """Keeps all looks of one connection; each ends with its answer, or with the connection."""

    def __init__(
        self, loop: ProtonLoop, connection: ProtonConnection, topology: BrokerTopology, deliver: _Deliver
    ) -> None:
        self._loop, self._connection, self._topology, self._deliver = loop, connection, topology, deliver
        self._open: set[Browse] = set()

    def look(self, source: Destination, limit: int, answer: _Answer, *, copying: bool) -> None:
        """Look for up to `limit` messages of `source`, which are not taken by this, or taken and given back."""

        def routed(route: Route | RedeliverError) -> None:
            if isinstance(route, RedeliverError) or self._connection.session is None:
                return answer(
                    route
                    if isinstance(route, RedeliverError)
                    else BrokerError("there is no connection", code="connection-lost")
                )

            def finished(found: Sequence[Delivery] | RedeliverError) -> None:
                self._open.discard(one)
                answer(found)

            session, deliver = self._connection.session, self._deliver
            one = Browse(self._loop, session, source, route, limit, finished, deliver, copying=copying)
            self._open.add(one)
            return None

        self._topology.route(source, routed, consuming=True)

    def lost(self, error: BaseException) -> None:
        """End all browsing: the connection is lost."""
        for one in list(self._open):
            one.lost(error)


class Browse(proton.Handler):
    """Collects up to `limit` messages, oldest first. Their generation is -1: none of them can be settled.

    The end of a drain is not the end of the queue (seen: 991 of 1500): only a drain that brings nothing is.
    """

    def __init__(
        self,
        loop: ProtonLoop,
        session: proton.Session,
        source: Destination,
        route: Route,
        limit: int,
        answer: _Answer,
        deliver: _Deliver,
        *,
        copying: bool,
    ) -> None:
        self._loop, self._source, self._limit, self._answer = loop, source, limit, answer
        self._deliver, self._copying = deliver, copying
        self._found: list[Delivery] = []
        self._taken: list[proton.Delivery] = []  # where a look takes them
        self._asked = 0  # of this drain, not come yet
        self._before = 0
        self._partial = False  # the beginning of a message is here, and its end is not
        self._over = False
        self._timer: Any = None
        link = self._link = session.receiver(f"redeliver-browse-{id(self):x}")
        link.source.address = route.address
        if route.capability:
            link.source.capabilities.put_object(proton.symbol(route.capability))
        if copying:
            link.source.distribution_mode = proton.Terminus.DIST_MODE_COPY
        link.handler = self
        link.open()
        self._patiently()

    def lost(self, error: BaseException) -> None:
        self._finish(BrokerError(f"{self._source} cannot be browsed: {error}", code="browse-failed"))

    def _drain(self) -> None:
        self._before = len(self._found)
        self._asked = min(AT_ONCE, self._limit - self._before)
        if self._asked <= 0:
            return self._finish(self._found)
        return self._link.drain(self._asked)

    def _finish(self, outcome: Sequence[Delivery] | RedeliverError) -> None:
        if self._over:
            return
        self._over = True
        self._timer.cancel()
        for delivery in self._taken if self._link.state & proton.Endpoint.LOCAL_ACTIVE else ():
            _give_back(delivery)
        if self._link.state & proton.Endpoint.LOCAL_ACTIVE:
            self._link.close()
        self._answer(outcome)

    def _patiently(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(TIMEOUT, lambda: self.lost(TimeoutError("no answer")))

    # -- the driver's events ----------------------------------------------------------------------

    def on_link_remote_open(self, event: Any) -> None:
        if event.link.remote_source.address:
            self._drain()

    def on_link_flow(self, event: Any) -> None:
        """Note that a drain is over: the broker gives back what credit is left."""
        if self._over or not self._asked or self._link.credit > self._partial:  # half a message has its credit yet
            return
        self._link.drained()
        self._asked = 0
        if self._partial:
            # Artemis keeps back the end of a message of several frames when its link's credit was drained in the middle
            # (observed on 2.44 with messages of 66 to 102 kB). It comes with the next credit.
            self._asked, self._link.drain_mode = 1, False
            self._link.flow(1)
        elif len(self._found) == self._before:
            self._finish(self._found)
        else:
            self._drain()

    def on_delivery(self, event: Any) -> None:
        delivery = event.delivery
        if self._over or not delivery.readable:
            return
        self._patiently()
        self._partial = delivery.partial
        if self._partial:
            return
        raw = self._link.recv(delivery.pending)
        self._link.advance()
        if self._copying:
            _give_back(delivery)
        else:  # all at once in the end, or the same would come again
            self._taken.append(delivery)
        self._found.append(self._deliver(self._source, -1, len(self._found) + 1, bytes(raw or b"")))
        self._asked -= 1
        if not self._asked:  # no flow event comes when all of the credit was used
            self._drain()

    def on_link_remote_close(self, event: Any) -> None:
        self.lost(ConnectionError(str(event.link.remote_condition)))

    on_link_remote_detach = on_link_remote_close


def _give_back(delivery: proton.Delivery) -> None:
    delivery.update(proton.Delivery.RELEASED)
    delivery.settle()
