# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Finds or makes the rungs of each source, and knows when they can be trusted with a copy (exact-copies).

A quorum queue that is killed within seconds of its declaration comes back empty, confirmed messages included, and the
broker does not tell how old a queue is. So a marker is left for other processes, and for this one after a restart:
before a missing rung is declared, a persistent message is confirmed into a durable classic queue,
`redeliver.retry.<source>.young`, whose messages live for twelve seconds. While it is there, rungs that are found are
young; rungs that are found beside an empty marker queue are old, and are used at once. Rungs without a marker queue
were declared by others: they count as new when they are first seen, and a marker queue is made for the next start. The
marker queue itself stays, as the rungs do: one that went away could not be distinguished from one that never existed.

On the thread of the connection's loop, but for `wait`.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable

from redeliver_mw.adapter import OnAnswer
from redeliver_mw.errors import BrokerError, BrokerUnavailable, DestinationMissing, RedeliverError
from redeliver_mw.message import Destination, Outgoing
from redeliver_pika.capabilities import YOUNG, queue_of, rung_arguments, rung_queue
from redeliver_pika.queues import OnQueue, Queues

log = logging.getLogger("redeliver_mw.pika")

MARKER_TTL = 12.0  # seconds: longer than a rung is young, since declaring it takes time after the marker's confirm
FRESH = 1.0  # seconds for which a confirmed marker covers what is declared next
LOOK_AGAIN = 1.0  # seconds between two looks at another process's marker
RENEW_AFTER = 4.0  # seconds after which a marker is renewed while a rung is being declared
MARKER_ARGUMENTS = {"x-queue-type": "classic", "x-message-ttl": round(MARKER_TTL * 1000)}

Publish = Callable[[Outgoing, str, str, OnAnswer], None]
Later = Callable[[float, Callable[[], None]], object]
OnMarked = Callable[[RedeliverError | None], None]


def marker_queue(source: Destination) -> str:
    return f"redeliver.retry.{queue_of(source)}.young"


class RetryLadder:
    """Makes sure of rungs on one connection, and knows from when on each can be used."""

    def __init__(self, queues: Queues, publish: Publish, later: Later) -> None:
        """Keep what the ladder uses: `publish`, which is with a confirm, and `later`.

        `later` calls a function after so many seconds, or never.
        """
        self._queues, self._publish, self._later = queues, publish, later
        self._trusted: dict[str, float] = {}  # rung -> when it can be used, on the monotonic clock
        self._watched: dict[str, set[str]] = {}  # marker queue -> the rungs that its marker makes young
        self._marked: dict[str, float] = {}  # marker queue -> when our newest marker was sent
        self._asked: dict[str, list[tuple[tuple[float, ...], bool, OnQueue]]] = {}  # by queue, in order

    def wait(self, queue: str) -> float:
        """Return for how many seconds yet a rung is not to be used; 0 for what is none of ours. From any thread."""
        left = self._trusted.get(queue, 0.0) - time.monotonic()
        if left <= 0:
            return 0.0
        return min(left, LOOK_AGAIN) if any(queue in rungs for rungs in list(self._watched.values())) else left

    def knows(self, queue: str) -> bool:
        """Return whether a rung has been found or made."""
        return queue in self._trusted

    def forget(self, queue: str) -> None:
        """Let a rung be looked up again: it may be gone."""
        self._trusted.pop(queue, None)

    def ensure(self, source: Destination, rungs: Iterable[float], answer: OnQueue, *, anew: bool = False) -> None:
        """Find these rungs of a source as they are, or make them; those that are known are looked up only `anew`.

        One answer, once: an error, or 0.
        """
        asked = self._asked.setdefault(queue_of(source), [])
        asked.append((tuple(rungs), anew, answer))
        if len(asked) == 1:
            self._go_on(source, 1)

    def _go_on(self, source: Destination, count: int) -> None:
        """Take the first `count` questions together."""
        asked = self._asked[queue_of(source)]
        anew = any(again for _, again, _ in asked[:count])
        wanted = sorted({rung for rungs, _, _ in asked[:count] for rung in rungs})
        wanted = [rung for rung in wanted if anew or not self.knows(rung_queue(source, rung))]

        def done(found: int | RedeliverError) -> None:
            answered, asked[:count] = asked[:count], []
            if asked:
                self._go_on(source, len(asked))
            else:
                del self._asked[queue_of(source)]
            for _, _, answer in answered:
                answer(found)

        _Search(self, source, wanted, done).start()


class _Search:
    """Looks for some rungs of one source, then at its marker; then makes what is missing."""

    def __init__(self, ladder: RetryLadder, source: Destination, rungs: list[float], done: OnQueue) -> None:
        self._ladder, self._queues, self._source, self._done = ladder, ladder._queues, source, done
        self._marker = marker_queue(source)
        self._rungs, self._found, self._missing = rungs, list[str](), list[float]()
        self._markable = True

    def start(self) -> None:
        """Look a rung up: before the marker, or a rung that is made meanwhile would pass as old."""
        if not self._rungs:
            return self._look_at_marker()
        rung = self._rungs.pop(0)

        def looked(found: int | RedeliverError) -> None:
            if isinstance(found, DestinationMissing):
                self._ladder.forget(rung_queue(self._source, rung))
                self._missing.append(rung)
            elif isinstance(found, RedeliverError):
                return self._done(found)
            elif not self._ladder.knows(rung_queue(self._source, rung)):
                self._found.append(rung_queue(self._source, rung))
            self.start()

        self._queues.look_up(rung_queue(self._source, rung), looked)

    # -- what is there ----------------------------------------------------------------------------

    def _look_at_marker(self) -> None:
        if self._found:
            self._queues.look_up(self._marker, self._marker_seen)
        else:
            self._make_missing()

    def _marker_seen(self, count: int | RedeliverError) -> None:
        if isinstance(count, BrokerUnavailable):
            return self._done(count)
        old = isinstance(count, int) and count == 0
        trusted = time.monotonic() + (0.0 if old else YOUNG)
        self._ladder._trusted.update(dict.fromkeys(self._found, trusted))
        if isinstance(count, int) and not old:
            self._watch()
        if not self._missing and isinstance(count, DestinationMissing):  # for the next process
            self._mark(lambda _: None)
        return self._make_missing()

    def _watch(self) -> None:
        """Look at the marker until it is gone: that may be before ten seconds are over."""
        watched = self._ladder._watched.setdefault(self._marker, set())
        begun = bool(watched)
        watched.update(self._found)
        if not begun:
            self._ladder._later(LOOK_AGAIN, self._look_again)

    def _look_again(self) -> None:
        def seen(count: int | RedeliverError) -> None:
            if isinstance(count, int) and count > 0 and any(map(self._ladder.wait, watched)):
                self._ladder._later(LOOK_AGAIN, self._look_again)
                return
            del self._ladder._watched[self._marker]
            if not isinstance(count, RedeliverError):
                for rung in watched & self._ladder._trusted.keys():
                    self._ladder._trusted[rung] = min(self._ladder._trusted[rung], time.monotonic())

        watched = self._ladder._watched[self._marker]
        self._queues.look_up(self._marker, seen)

    # -- what is missing --------------------------------------------------------------------------

    def _make_missing(self) -> None:
        if not self._missing:
            return self._done(0)
        if self._markable and self._marker_age() > FRESH:
            return self._mark(self._marker_sent)
        return self._make(self._missing.pop(0))

    def _marker_sent(self, error: RedeliverError | None) -> None:
        if error is not None:
            self._done(error)
        else:
            self._make_next()

    def _make_next(self) -> None:
        if self._missing:
            self._make(self._missing.pop(0))
        else:
            self._done(0)

    def _make(self, rung: float) -> None:
        queue, over = rung_queue(self._source, rung), False

        def made(found: int | RedeliverError) -> None:
            nonlocal over
            over = True
            if isinstance(found, RedeliverError):
                return self._done(found)
            self._ladder._trusted[queue] = time.monotonic() + YOUNG
            if self._markable and self._marker_age() > MARKER_TTL - YOUNG:  # the rung would be young for longer
                return self._mark(self._marker_sent)
            return self._make_missing()

        def renew() -> None:
            """Renew the marker while a rung is still being declared: it has to be there whenever that comes about."""
            if self._markable and not over:
                self._mark(lambda _: None)
                self._ladder._later(RENEW_AFTER, renew)

        self._ladder._later(RENEW_AFTER, renew)
        self._queues.make(queue, rung_arguments(self._source, rung), made)

    # -- the marker -------------------------------------------------------------------------------

    def _marker_age(self) -> float:
        return time.monotonic() - self._ladder._marked.get(self._marker, -math.inf)

    def _mark(self, done: OnMarked, *, again: bool = True) -> None:
        """Confirm a marker into its queue. Where the queue cannot be had, others see rungs that nobody has marked."""

        def there(found: int | RedeliverError) -> None:
            if isinstance(found, BrokerUnavailable):
                return done(found)
            if isinstance(found, RedeliverError):
                self._markable = False
                log.warning(
                    "%s: each start takes its retry queues for new ones, for ten seconds: %s", self._source, found
                )
                return done(None)
            self._send(done, again)

        self._queues.ensure(self._marker, MARKER_ARGUMENTS, there)

    def _send(self, done: OnMarked, again: bool) -> None:
        sent = time.monotonic()

        def answered(verdict: str, why: str) -> None:
            if verdict == "ok":
                self._ladder._marked[self._marker] = sent
                done(None)
            elif verdict == "refused" and again:  # it was deleted just now
                self._mark(done, again=False)
            elif verdict == "refused":
                done(BrokerError(f"queue {self._marker!r} takes no message: {why}", code="publish-refused"))
            else:
                done(BrokerUnavailable(f"queue {self._marker!r}: {why}", code="connection-lost"))

        self._ladder._publish(Outgoing(Destination(self._marker), b"", {}), "", self._marker, answered)
