# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Watches dead-letter queues for messages that a replay has sent back and that come there again.

A queue shows only their number: by the replay's id if the broker can be browsed, otherwise by the queue's growth,
whatever the cause.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from ...adapter.protocol import Adapter
from ...errors import DestinationMissing
from ...message import Destination
from .sync_connection import SyncConnection

LOOKED_INTO: Final = 10_000  # letters of a queue that are browsed; a longer queue is only counted


@dataclass(frozen=True, slots=True)
class CanarySeen:
    """Counts since the last `mark`: letters dead-lettered again, and those with a known end (None: not recorded)."""

    died: int
    decided: int | None


class QueueWatch:
    """Watches the dead-letter queues that the letters came from, over a connection of its own."""

    def __init__(self, adapter: Adapter, queues: Collection[Destination], replay_id: str) -> None:
        self._queues, self._replay_id = queues, replay_id
        self._line = SyncConnection(adapter).open()
        self._marked: dict[Destination, int] = {}
        self._most = 0

    @property
    def names(self) -> frozenset[str] | None:
        return None

    def mark(self) -> None:
        self._marked, self._most = {queue: self._count(queue) for queue in self._queues}, 0

    def look(self) -> CanarySeen:
        grown = sum(max(0, self._count(queue) - self._marked.get(queue, 0)) for queue in self._queues)
        self._most = max(self._most, grown)  # a program that removes letters meanwhile must not reduce the number
        return CanarySeen(self._most, None)

    def close(self) -> None:
        self._line.close()

    def _count(self, queue: Destination) -> int:
        """Return the number of letters of this replay, as far as it is known."""
        try:
            if self._line.adapter.capabilities.browse == "copy":
                found = self._line.browse(queue, LOOKED_INTO)
                if len(found) < LOOKED_INTO:
                    return sum(one.headers.get("redeliver_replay_id") == self._replay_id for one in found)
            return self._line.depth(queue)
        except DestinationMissing:
            return 0  # the queue does not exist before its first letter
