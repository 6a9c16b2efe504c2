# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Stops the consumption of a source while its breaker or an operator wants that, and gives back what was not begun."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Protocol

from ..adapter.protocol import Adapter, SupportsPause
from ..message import Delivery, Destination
from ..redelivery.headers import read_history_headers


class WaitingPool(Protocol):
    """Holds the deliveries of a source that were not begun. Implemented by `runtime.workers.WorkerPool`."""

    def put(self, deliveries: Sequence[Delivery], /, *, first: bool = False) -> None: ...
    def take_waiting(self) -> list[Delivery]: ...


class PauseClient(Protocol):
    """Learns of deliveries that go back to the broker. Implemented by `runtime.runner.Runner`."""

    stopping: bool

    def cancelled(self, delivery: Delivery, /) -> None: ...
    def give_back(self, source: Destination, leaving: Sequence[Delivery], /) -> list[Delivery]: ...
    def is_ordered(self, source: Destination, /) -> bool: ...


class ConsumerPauses:
    """Stops and continues the consumption of sources. Thread-safe, and never waits.

    A source is consumed again when everybody who paused it has resumed it. Where the broker would count deliveries that
    are given back, or change their order, the source is consumed on, and its prefetch window fills.
    """

    def __init__(self, client: PauseClient, pools: Mapping[Destination, WaitingPool], adapter: Adapter) -> None:
        self._client, self._pools, self._adapter = client, pools, adapter
        self._pauses: dict[Destination, set[str]] = {}
        self._subscribed = False
        self._lock = threading.Lock()

    def subscribed(self) -> None:
        """Stop the consumption of sources that were paused before the adapter knew them."""
        with self._lock:
            self._subscribed = True
            for source, pauses in self._pauses.items():
                if pauses:
                    self._stop(source)

    def pause(self, source: Destination, by: str) -> None:
        """Stop the consumption of a source, and release the deliveries that were not begun."""
        with self._lock:
            self._pauses.setdefault(source, set()).add(by)
            if self._subscribed:
                self._stop(source)

    def resume(self, source: Destination, by: str) -> None:
        """Continue the consumption of a source, unless somebody else has paused it too."""
        with self._lock:
            pauses = self._pauses.get(source, set())
            if by not in pauses:
                return
            pauses.discard(by)
            if not pauses and self._subscribed and (adapter := self._pausing(source)) is not None:
                adapter.go_on(source)

    def _stop(self, source: Destination) -> None:
        if (adapter := self._pausing(source)) is not None:
            adapter.rest(source, lambda: self._give_back(source))

    def _pausing(self, source: Destination) -> SupportsPause | None:
        """Return the adapter if it can release deliveries uncounted and without losing their order, else None."""
        adapter, can = self._adapter, self._adapter.capabilities
        returns = "released" in can.honours and can.released_uncounted
        returns = returns and (can.keeps_order_on_release or not self._client.is_ordered(source))
        return adapter if returns and isinstance(adapter, SupportsPause) else None

    def _give_back(self, source: Destination) -> None:
        """Release deliveries that were not begun, for other consumers.

        Deliveries that would lose their count at the broker are kept.
        """
        pool, back, kept = self._pools[source], list[Delivery](), list[Delivery]()
        if not self._pauses.get(source) or self._client.stopping:
            return
        for delivery in pool.take_waiting():
            survives = not delivery.failures or read_history_headers(delivery).failures >= delivery.failures
            (back if survives else kept).append(delivery)
        pool.put(kept, first=True)
        back += self._client.give_back(source, back)
        for delivery in back:
            if delivery.known:
                self._client.cancelled(delivery)
        self._adapter.settle([(delivery, "released") for delivery in back])
