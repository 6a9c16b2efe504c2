# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds `QueueDrain`, one of several consumers that together empty a dead-letter queue.

A batch of letters is first stored where it outlasts this process, and then settled. After a crash a letter is in its
queue, or stored, or both, but never lost. Answers of the adapter are queued, and the one thread in `run` takes them off
the queue. A second thread does nothing but write: while it waits for the disk, the first one reads the next letters.

A process that has died cannot report whether the broker processed the settlement of a batch. So a batch is noted as
*sure* as soon as this is known: the broker leaves at most one window of letters unsettled, so a letter beyond the
window proves that the broker processed the settlements of the letters before it. Letters that are stored and not sure
may come back, and are then recognised by their contents.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import NamedTuple, Protocol

from ..adapter.capabilities import Capabilities
from ..adapter.protocol import Adapter, Subscription, SupportsPause
from ..errors import BrokerUnavailable, DestinationMissing, RedeliverError
from ..message import Delivery, Destination
from .replay import missing

BATCH = 1000  # letters that are stored at once, and so may come a second time after a kill
LARGE = 64 << 20  # bytes of bodies that are stored at once, even if there are fewer letters
QUIET = 0.2  # seconds without a letter, after which the letters in hand are stored
PATIENCE = 30.0  # seconds without a letter, after which missing letters are left to another drain
AGAIN_AFTER = 1.0  # seconds between two questions how many letters are left
LAST_WORDS = 10.0  # seconds for the broker to receive the last settlements


class ReadLetters(NamedTuple):
    """Holds letters that are ready to be stored. When `write` has returned, they outlast this process."""

    letters: Sequence[Delivery]
    write: Callable[[], None]


class LetterStore(Protocol):
    """Stores letters. Called on the thread in `run`; an exception ends the share, and nothing is settled."""

    def read(self, generation: int, letters: Sequence[Delivery], /) -> ReadLetters:
        """Return those of these letters that can be stored, ready to be. The others stay in their queue.

        `write` is called on another thread, perhaps while further letters are read here. Letters that were read first
        are written first, and one write ends before the next begins. An exception of a write ends the share, too.
        Without letters, `write` is not called.
        """

    def sure(self, batches: int, /) -> None:
        """Note that the broker has taken this many more batches off its queue, in the order of their writes."""

    def lost(self) -> None:
        """Note that for the batches that are not sure the outcome will never be known."""


@dataclass(frozen=True, slots=True)
class TakenLetter:
    """Sums up a share: letters that were kept, letters that stay, and why it ended before its quota (may be empty)."""

    kept: int
    stay: int
    rest: str = ""


class QueueDrain:
    """Drains as an adapter's `Sink`, for one call of `run`: at most `quota` letters (>= 1), at most `batch` at once.

    At most `batch` letters are unsettled, too. With `early`, so many letters are stored at once, and meanwhile the rest
    of the window is delivered and read. `stopped` is called regularly; the share ends when it returns True. With
    `waits`, neither an empty queue nor a lost connection is an end: the drain waits for more letters.
    """

    def __init__(
        self,
        adapter: Adapter,
        dlq: Destination,
        store: LetterStore,
        *,
        quota: int,
        batch: int = BATCH,
        early: int | None = None,
        stopped: Callable[[], bool] = lambda: False,
        waits: bool = False,
    ) -> None:
        self._waits = waits
        self._adapter, self._dlq, self._store = adapter, dlq, store
        self._quota, self._stopped = quota, stopped
        self._prefetch = min(batch, quota)
        self._early = min(early or batch, self._prefetch)
        # Some brokers have two queues for one subscription.
        self._window = self._prefetch * (2 if dlq.subscription else 1)
        self._inputs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._connected_once = False
        self._generation = 0
        self._hand: list[Delivery] = []
        self._bytes = 0  # of the bodies in hand
        self._stay: list[Delivery] = []  # unsettled until the end
        self._arrived_now, self._settled_now = 0, 0  # letters, in this generation
        self._unsure: deque[int] = deque()  # how many letters had been settled with each of the last batches
        self._kept = 0  # letters that were read, and are written or about to be
        self._writing: tuple[Future[None], Sequence[Delivery]] | None = None
        self._waited, self._ask_at = 0.0, 0.0  # seconds since a letter came; when to ask next how many are left
        self._over = False
        self._rest = ""
        self._written = threading.Event()
        self._broken = False

    def run(self) -> TakenLetter:
        """Take letters until the quota is reached or nothing is left, then close the adapter.

        Raises BrokerError, ConfigError, and exceptions of the store. In the last case the letters that were kept
        before are settled, and no others.
        """
        with ThreadPoolExecutor(1, thread_name_prefix="redeliver-drain-write") as self._writer:
            self._adapter.start(self)
            try:
                while not self._over:
                    self._step()
                self._settle_written()
                if self._unsure:
                    self._written.wait(LAST_WORDS)
            finally:
                self._adapter.close(LAST_WORDS)
        if self._unsure and self._written.is_set() and not self._broken:
            # The broker has closed the connection in order, which it does after it has processed every settlement.
            self._store.sure(len(self._unsure))
        return TakenLetter(self._kept, len(self._stay), self._rest)

    # -- the adapter's sink: any thread -----------------------------------------------------------

    def connected(self, capabilities: Capabilities, /) -> None:
        self._inputs.put(self._connected)

    def ready(self, source: Destination, generation: int, /) -> None:
        pass

    def arrived(self, batch: Sequence[Delivery], /) -> None:
        self._inputs.put(partial(self._take, batch))

    def lost(self, generation: int, error: BaseException | None, /) -> None:
        self._broken = self._broken or error is not None
        self._inputs.put(partial(self._forget, generation))

    def failed(self, error: RedeliverError, source: Destination | None, /) -> None:
        self._inputs.put(partial(self._fail, error))

    # -- the one thread ---------------------------------------------------------------------------

    def _step(self) -> None:
        try:
            step = self._inputs.get(timeout=QUIET)
        except Empty:
            self._nothing_came()
        else:
            step()
        self._judge()

    def _connected(self) -> None:
        if not self._connected_once:
            self._connected_once = True
            self._adapter.subscribe(Subscription(source=self._dlq, prefetch=self._prefetch, helpers=False))

    def _fail(self, error: RedeliverError) -> None:
        if isinstance(error, DestinationMissing):
            raise missing(self._dlq, self._adapter.broker) from None
        raise error

    def _take(self, batch: Sequence[Delivery]) -> None:
        self._waited, self._ask_at = 0.0, 0.0
        generation = batch[0].generation
        if generation < self._generation:
            return
        if generation > self._generation:
            self._begin(generation)
        self._hand += batch
        self._bytes += sum(len(delivery.body) for delivery in batch)
        self._arrived_now += len(batch)
        sure = 0
        while self._unsure and self._unsure[0] <= self._arrived_now - self._window:
            self._unsure.popleft()
            sure += 1
        if sure:
            self._store.sure(sure)

    def _begin(self, generation: int) -> None:
        """Begin a generation: the broker delivers the letters in hand again, and perhaps those that are not sure."""
        self._settle_written()  # in vain, but then they are among those that are not sure
        if self._unsure:
            self._store.lost()
        self._generation, self._broken = generation, False
        self._hand, self._stay, self._bytes = [], [], 0
        self._arrived_now = self._settled_now = 0
        self._unsure.clear()

    def _forget(self, generation: int) -> None:
        if generation == self._generation:
            self._begin(generation)
            self._broken = True

    def _judge(self) -> None:
        if self._over:
            return
        if self._stopped():
            self._over, self._rest = True, "it was asked to stop"
            return
        while number := self._due():
            self._keep(number)
        if self._kept + len(self._stay) >= self._quota:
            self._over = True
        elif len(self._stay) >= self._prefetch:
            self._over, self._rest = True, f"{len(self._stay)} letters that stay are in the way of the others"

    def _due(self) -> int:
        """Return how many letters in hand are to be stored now.

        For each letter that is settled the broker delivers another one. So letters are left in hand if settling them
        would bring letters beyond the quota; they are stored together with the last ones.
        """
        there = len(self._hand)
        wanted = self._quota - self._kept - len(self._stay)
        if there >= wanted:
            return wanted
        room = self._quota - self._kept - self._prefetch
        full = there >= self._early or there + len(self._stay) >= self._prefetch
        if full and room > 0:
            return min(there, self._early, room)
        return there if self._bytes >= LARGE else 0

    def _keep(self, number: int) -> None:
        """Read so many of the letters in hand, and begin to write them once those before are written."""
        hand, self._hand = self._hand[:number], self._hand[number:]
        self._bytes = sum(len(delivery.body) for delivery in self._hand)
        kept, write = self._store.read(self._generation, hand)
        self._settle_written()
        if self._kept + len(self._stay) + len(hand) >= self._quota and isinstance(self._adapter, SupportsPause):
            self._adapter.rest(self._dlq, lambda: None)  # otherwise new letters would come for those settled now
        if kept:
            future = self._writer.submit(write)
            self._writing = future, kept
            future.add_done_callback(lambda done: self._inputs.put(partial(self._settle_written, done)))
        if len(kept) < len(hand):
            settled = set(map(id, kept))
            self._stay += [delivery for delivery in hand if id(delivery) not in settled]
        self._kept += len(kept)

    def _settle_written(self, only: Future[None] | None = None) -> None:
        """Wait until the letters that are being written are, and settle them. Raises what the store has raised.

        `only`: do nothing if these are not the letters of this write, because they were settled already.
        """
        if self._writing is None or only not in (None, self._writing[0]):
            return
        (future, kept), self._writing = self._writing, None
        future.result()
        self._written.clear()
        self._adapter.settle([(delivery, "accepted") for delivery in kept], written=self._written.set)
        self._settled_now += len(kept)
        self._unsure.append(self._settled_now)

    # -- letters that are left --------------------------------------------------------------------

    def _nothing_came(self) -> None:
        if self._hand:
            return self._keep(len(self._hand))
        if self._writing is not None or (self._waits and self._connected_once):
            return
        self._waited += QUIET
        if self._waited > PATIENCE:
            if not self._connected_once:
                raise BrokerUnavailable("the broker does not answer", where=self._adapter.broker, code="broker-timeout")
            self._over, self._rest = True, f"nothing came for {PATIENCE:.0f} s"
        elif self._connected_once and self._waited >= self._ask_at and self._adapter.capabilities.depth:
            self._ask_at = self._waited + AGAIN_AFTER
            self._adapter.depth(self._dlq, lambda found: self._inputs.put(partial(self._look, found)))

    def _look(self, found: int | RedeliverError) -> None:
        """Take the count of letters.

        Some brokers count the letters in our hands; ready letters would have arrived by now.
        """
        if isinstance(found, int) and found <= len(self._stay) and not self._hand:
            self._over = True
