# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Looks every few seconds at what only others know: dead-letter queues, parked messages, letters in the store.

An App looks only while something wants to know, because each look is a request to the broker. What cannot be read has
no value until the next look.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

from ..adapter.protocol import Adapter
from ..clock import Clock
from ..dead_letters.letter import letter_of
from ..errors import RedeliverError
from ..message import Delivery, Destination
from ..timers import Cancel

LOOK_EVERY = 5.0  # seconds
PATIENCE = 60.0  # seconds after which a queue is asked for again although no answer has come
LONGEST_SHARE = 0.05  # of the time, at most, is spent with looking: counting a long queue may be slow


class ParkedCounter(Protocol):
    """Counts parked messages. Implemented by `limbo.service.LimboService`."""

    def waiting(self) -> tuple[int, float | None]:
        """Return how many messages are parked, and when the first is due, in seconds since 1970. Blocks."""


class LetterCounter(Protocol):
    """Counts the letters in the store. Implemented by `operations.waiting_letters.WaitingLetters`."""

    def by_source(self, sources: Collection[str], /) -> Mapping[str, tuple[int, float]]:
        """Return how many letters of each source wait, and when the oldest died, in seconds since 1970. Blocks."""

    def close(self) -> None:
        """Disconnect."""


class BrokerWatch:
    """Keeps what was seen last.

    These are `depths` and `oldest` of the queues, `parked` and `parked_due` of the limbo, and `stored`: how many
    letters of each source wait in the store, and when the oldest was dead-lettered; None if there is none.

    The oldest message of a queue is asked for where the broker shows it without taking it out. Elsewhere `oldest` is
    the time since when the queue was seen not to be empty. `queues` is asked at every look. With `driven` the
    adapter's timers are used instead of a thread, for a hand-driven test.
    """

    def __init__(
        self,
        adapter: Adapter,
        queues: Callable[[], Iterable[Destination]],
        limbo: ParkedCounter | None,
        clock: Clock,
        *,
        letters: LetterCounter | None = None,
        sources: Collection[Destination] = (),
        driven: bool = False,
    ) -> None:
        self.stored: dict[Destination, tuple[int, float | None]] = {}
        self._letters, self._sources = letters, {str(source): source for source in sources}
        self.depths: dict[Destination, int] = {}
        self.oldest: dict[Destination, float] = {}
        self.parked: int | None = None
        self.parked_due: float | None = None
        self._adapter, self._queues, self._limbo, self._clock, self._driven = adapter, queues, limbo, clock, driven
        self._since: dict[Destination, float] = {}  # since when a queue was seen not to be empty
        self._over = threading.Event()
        self._cancel: Cancel | None = None
        self._answered = threading.Event()
        self._asked: dict[Destination, float] = {}  # queues whose answer is awaited, since

    def start(self) -> None:
        """Look now, and every few seconds."""
        if self._driven:
            self._look_driven()
        else:
            threading.Thread(target=self._work, name="redeliver-watch", daemon=True).start()

    def stop(self) -> None:
        """Look no more."""
        self._over.set()
        self._answered.set()
        if self._cancel is not None:
            self._cancel()
        if self._driven and self._letters is not None:
            self._letters.close()

    def _look_driven(self) -> None:
        if not self._over.is_set():
            self._look()
            self._cancel = self._adapter.call_later(LOOK_EVERY, self._look_driven)

    def _work(self) -> None:
        rest = 0.0
        while not self._over.wait(rest):
            begun = self._clock.now().mono
            self._look()
            self._answered.wait(LOOK_EVERY)
            took = self._clock.now().mono - begun
            rest = max(LOOK_EVERY, took / LONGEST_SHARE)
        if self._letters is not None:
            self._letters.close()

    def _look(self) -> None:
        self._answered.clear()
        queues = set(self._queues())
        for known in (self.depths, self.oldest, self._since):
            for gone in known.keys() - queues:
                known.pop(gone, None)
        if self._adapter.capabilities.depth:
            now = self._clock.now().mono
            for queue in (queue for queue in queues if self._asked.get(queue, -math.inf) < now - PATIENCE):
                self._asked[queue] = now
                self._adapter.depth(queue, partial(self._counted, queue))
        if not self._asked:
            self._answered.set()
        if self._limbo is not None:
            try:
                self.parked, self.parked_due = self._limbo.waiting()
            except RedeliverError:  # its own thread logs why
                self.parked = self.parked_due = None
        if self._letters is not None:
            try:
                found = self._letters.by_source(self._sources.keys())
                self.stored = {source: found.get(text, (0, None)) for text, source in self._sources.items()}
            except RedeliverError:  # the link to the store logs why
                self.stored = {}

    def _counted(self, queue: Destination, depth: int | RedeliverError) -> None:
        """Take the depth of a queue. Called on the adapter's thread."""
        if isinstance(depth, RedeliverError):
            self.depths.pop(queue, None)
            self.oldest.pop(queue, None)
            return self._done(queue)
        self.depths[queue] = depth
        if depth == 0:
            self._since.pop(queue, None)
            self.oldest.pop(queue, None)
            return self._done(queue)
        since = self._since.setdefault(queue, self._clock.now().wall)
        if self._adapter.capabilities.browse == "copy":
            return self._adapter.browse(queue, 1, partial(self._browsed, queue))
        self.oldest[queue] = since
        return self._done(queue)

    def _browsed(self, queue: Destination, found: Sequence[Delivery] | RedeliverError) -> None:
        first = None if isinstance(found, RedeliverError) or not found else found[0]
        failed = None if first is None else letter_of(first, self._adapter.capabilities).since
        self.oldest[queue] = failed if failed is not None else self._since.get(queue, self._clock.now().wall)
        self._done(queue)

    def _done(self, queue: Destination) -> None:
        self._asked.pop(queue, None)
        if not self._asked:
            self._answered.set()
