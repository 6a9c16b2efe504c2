# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs whose delivery was lost meanwhile: the redelivery waits for the result, and inherits it."""

from __future__ import annotations

from ..message import Delivery
from .tracking import TrackedDelivery


class OrphanedRuns:
    """By ledger key: of one message at most one such run is known, and at most one redelivery waits for it."""

    def __init__(self) -> None:
        self._runs: dict[str, TrackedDelivery] = {}  # abandoned, and their handlers still run
        self._waiting: dict[Delivery, TrackedDelivery] = {}  # such a handler's delivery -> the redelivery that waits

    def waits(self, story: TrackedDelivery) -> bool:
        """Whether the message of this redelivery is still being run; if so it waits from now on."""
        running = self._runs.get(story.key or "")
        if running is not None:
            self._waiting[running.delivery] = story
        return running is not None

    def lost(self, story: TrackedDelivery) -> bool:
        """Its delivery was lost while it ran. Whether it only waited for an earlier run, and does no more."""
        if story.key is None:
            return False
        first = self._runs.setdefault(story.key, story)
        if first is story or self._waiting.get(first.delivery) is not story:
            return False
        del self._waiting[first.delivery]
        return True

    def ended(self, story: TrackedDelivery) -> TrackedDelivery | None:
        """Its handler is over, or is never run: who waited for that."""
        if story.key is None or self._runs.get(story.key) is not story:
            return None
        del self._runs[story.key]
        return self._waiting.pop(story.delivery, None)
