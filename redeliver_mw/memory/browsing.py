# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds what a connection may ask of the memory broker beside consuming and sending."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..adapter.capabilities import BrokerLimit
from ..adapter.protocol import Verdict
from ..errors import BrokerUnavailable, DestinationMissing, RedeliverError
from ..message import Destination
from .broker import MemoryBroker
from .link import HeldDelivery


class QueueBrowsing:
    """Answers questions about queues on the adapter's loop; `connected` returns whether its connection is open."""

    def __init__(self, broker: MemoryBroker, connected: Callable[[], bool]) -> None:
        self._broker, self._connected = broker, connected

    def absent(self, source: Destination) -> RedeliverError | None:
        """Return why nothing can be asked about this queue, or None."""
        if not self._connected():
            return BrokerUnavailable("not connected", where=self._broker.id, code="connection-lost")
        if self._broker.queue(source) is None:
            return DestinationMissing(f"no queue {source.name}", where=self._broker.id)
        return None

    def check(self, target: Destination, *, declare: bool) -> tuple[Verdict, str]:
        if not self._connected():
            return "silent", "not connected"
        if fault := self._broker.faults.take(target, "missing"):
            return "refused", fault.text
        if declare:
            self._broker.declare(target)
        missing = self.absent(target) if target.kind == "queue" else None
        return ("ok", "") if missing is None else ("refused", missing.what)

    def limit(self, source: Destination) -> BrokerLimit:
        queue = self._broker.queue(source)
        if queue is None or queue.limit is None:
            return BrokerLimit()
        returns = queue.limit + (not self._broker.ways.limit_is_last)
        return BrokerLimit(returns=returns, dead_letter_to=queue.dead_letter, spelled=f"limit={queue.limit}")

    def depth(self, source: Destination) -> int | RedeliverError:
        return self.absent(source) or self._broker.depth(source)

    def browse(self, source: Destination, limit: int) -> Sequence[HeldDelivery] | RedeliverError:
        return self.absent(source) or self._broker.look(source, limit)
