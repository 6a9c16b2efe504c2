# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Collects the trouble of Apps and drop-in wrappers until the notifier takes it. No I/O.

Failed attempts are counted by source and fingerprint, so a storm of failures needs no more memory than a few of them.
A message that is handled at its first attempt does not come here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from ..clock import Clock, SystemClock
from ..message import Destination
from ..redelivery.commands import RecordAttempt
from ..telemetry.bounded_label import label
from ..telemetry.hook import TelemetrySink
from ..telemetry.state import ObservedConsumer
from .grouping import OTHER, BlockNews, FailureNews
from .notification import TroubleKind, one_line

MOST_COUNTS: Final = 1000  # pairs of source and fingerprint; more of them are counted together
MOST_BLOCKED: Final = 500  # sources


class CollectedTrouble(NamedTuple):
    """Holds the trouble since the last time that it was taken, and what is blocked now."""

    failures: list[FailureNews]
    blocks: list[BlockNews]
    blocked: frozenset[tuple[str, str]]


class TroubleSink(TelemetrySink):
    """Counts failures and dead letters, and knows which sources are blocked. Thread-safe.

    `wake` is called when there is trouble that nobody has taken yet. It must not block.
    """

    def __init__(self) -> None:
        self.wake: Callable[[], object] = lambda: None
        self.broker = ""
        self._clock: Clock = SystemClock()
        self._lock = threading.Lock()
        self._failures: dict[tuple[str, str], FailureNews] = {}
        self._blocks: list[BlockNews] = []
        self._blocked: set[tuple[TroubleKind, str]] = set()
        self._changed = False

    def use(self, clock: Clock) -> None:
        """Take the times of breakers and pauses from this clock."""
        self._clock = clock

    # -- moments ------------------------------------------------------------------------------------

    def started(self, consumer: ObservedConsumer, /) -> None:
        self.broker = self.broker or consumer.telemetry_description().broker

    def attempt_recorded(self, attempt: RecordAttempt, /) -> None:
        failure, is_dead = attempt.failure, attempt.outcome == "dead_lettered"
        if not is_dead and (failure is None or attempt.outcome in ("accepted", "released")):
            return
        if attempt.reason == "breaker":  # the breaker tried the message, and its failure does not count
            return
        source, at_us = label(str(attempt.delivery.destination)), attempt.at.us
        key = source, "" if failure is None else failure.fingerprint
        with self._lock:
            known = self._failures.get(key)
            if known is None and len(self._failures) >= MOST_COUNTS:
                key = OTHER, ""
                known = self._failures.get(key)
            if known is None:
                kind, message = ("", "") if failure is None else (label(failure.type), one_line(failure.message))
                known = FailureNews(*key, kind, message, 0, 0, at_us, at_us)
            self._failures[key] = known._replace(
                failures=known.failures + (failure is not None),
                dead_letters=known.dead_letters + is_dead,
                last_us=max(known.last_us, at_us),
            )
        self.wake()

    def breaker_changed(self, source: Destination, state: str, why: str, rest: float, /) -> None:
        if state == "open":
            self._block("breaker-open", source, why)
        elif state == "closed":
            self._unblock("breaker-open", source)

    def source_paused(self, source: Destination, why: str, loud: bool, /) -> None:
        if loud:
            self._block("source-paused", source, why)

    def source_resumed(self, source: Destination, /) -> None:
        self._unblock("source-paused", source)

    def _block(self, kind: TroubleKind, source: Destination, why: str) -> None:
        name = label(str(source))
        with self._lock:
            if (kind, name) in self._blocked or len(self._blocked) >= MOST_BLOCKED:
                return
            self._blocked.add((kind, name))
            if len(self._blocks) < MOST_BLOCKED:
                self._blocks.append(BlockNews(kind, name, one_line(why), self._clock.now().us))
            self._changed = True
        self.wake()

    def _unblock(self, kind: TroubleKind, source: Destination) -> None:
        with self._lock:
            if (kind, label(str(source))) not in self._blocked:
                return
            self._blocked.discard((kind, label(str(source))))
            self._changed = True
        self.wake()

    # -- the notifier -------------------------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        """Return whether something has happened since the last `take`."""
        return self._changed or bool(self._failures)

    def take(self) -> CollectedTrouble:
        """Return what has happened since the last call."""
        with self._lock:
            found = CollectedTrouble([*self._failures.values()], self._blocks, frozenset(self._blocked))
            self._failures, self._blocks, self._changed = {}, [], False
            return found
