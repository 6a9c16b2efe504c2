# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps what `basic_qos` sets on a channel: how many deliveries each of its consumers may have unsettled. No I/O."""

from __future__ import annotations

UNLIMITED = 65535


class PrefetchCounts:
    """Keeps the prefetch of each consumer, and the one that the whole channel shares.

    RabbitMQ gives each consumer the count that holds when it is started (`global_qos=False`); a count for the channel
    (`global_qos=True`) limits all of its consumers together. Zero is no limit.
    """

    def __init__(self) -> None:
        self._next: int | None = None  # what a consumer that is started now gets; None: no basic_qos was seen
        self._shared: int | None = None
        self._of: dict[str, int | None] = {}  # by consumer tag

    def note_qos(self, count: int, shared: bool) -> None:
        """Note a `basic_qos`."""
        if shared:
            self._shared = count
        else:
            self._next = count

    def started(self, consumer: str) -> None:
        """Note that a consumer is started."""
        self._of[consumer] = self._next

    def ended(self, consumer: str) -> None:
        """Note that a consumer is cancelled."""
        self._of.pop(consumer, None)

    def window(self, consumer: str) -> int | None:
        """Return how many deliveries the consumer may have unsettled; None if `basic_qos` was not seen."""
        counts = (self._of.get(consumer), self._shared)
        if counts == (None, None):
            return None
        return min((count for count in counts if count), default=UNLIMITED)
