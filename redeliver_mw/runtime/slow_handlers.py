# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Warns about handlers that take so long that the broker may take their message back."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping

from ..adapter.protocol import Adapter
from ..clock import Clock, Moment
from ..message import Delivery, Destination
from .runner import Runner

log = logging.getLogger("redeliver_mw")


def watch_handlers(runner: Runner, adapter: Adapter, clock: Clock, ack_timeouts: Mapping[Destination, float]) -> None:
    """Warn once about a handler that has run for half of its source's ack timeout, in seconds."""
    every = min(ack_timeouts.values()) / 8
    seen: dict[Delivery, Moment] = {}
    warned: set[Delivery] = set()

    def look() -> None:
        now = clock.now()
        running = set(runner.running)
        for delivery in [d for d in seen if d not in running]:
            del seen[delivery]
        for delivery in running:
            since, half = seen.setdefault(delivery, now), ack_timeouts.get(delivery.destination, math.inf) / 2
            if now.mono - since.mono >= half - every and delivery not in warned:
                warned.add(delivery)
                log.warning(
                    "a handler has had %r for %.0f s, half of the broker's ack timeout: it stays unsettled, and "
                    "a redelivery of it here waits for this run",
                    delivery,
                    half,
                )
        warned.intersection_update(running)
        if not runner.stopping:
            adapter.call_later(every, look)

    adapter.call_later(every, look)
