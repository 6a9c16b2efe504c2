# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the thread that works at a limbo, so that nobody else waits for a disk or a server."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

from ..adapter.protocol import OnAnswer, Verdict
from ..clock import Clock, SystemClock
from ..errors import NotCopyable, RedeliverError
from ..message import Destination
from .rows import Parked, ParkedRow, Parking, lines_of
from .store import Limbo

log = logging.getLogger("redeliver_mw.limbo")

POLL = 2.0  # seconds, at most, until it is seen what somebody else changed
WINDOW = 1000  # messages that are being published at once
BATCH, BATCH_BYTES = 500, 16 * 2**20  # of one transaction
TROUBLED_REST = 1.0

WorkerMessage = Literal["published", "failed", "back"]


class _Park(NamedTuple):
    parking: Parking
    answer: OnAnswer


class _RowMessage(NamedTuple):
    row: Parked
    message: WorkerMessage
    why: str = ""
    again: float | None = None
    at: float = 0.0  # monotonic: not to be written before


class _Forget(NamedTuple):
    source: Destination
    places: Sequence[tuple[str, int]]
    then: Callable[[], None] | None


class LimboWorker:
    """Parks, and has published what is due, for one opened `Limbo`; closes it in the end.

    `park`, `published`, `failed` and `back` are called from any thread, never wait and never raise. `publish` and the
    answers are called on the worker's thread, and must return at once; each row given to `publish` is answered by
    exactly one of `published`, `failed` and `back`, from any thread. At most `window` rows wait for that.

    While the database fails, copies to be parked are refused, published rows are remembered and removed later, and one
    log line says so. `run_once()` is what the thread does over and over; a test with a clock moved by hand calls it.
    """

    def __init__(
        self, limbo: Limbo, publish: Callable[[Parked], None], *, clock: Clock | None = None, window: int = WINDOW
    ) -> None:
        self._limbo, self._publish, self._window = limbo, publish, window
        self._clock = clock or SystemClock()
        self._jobs: queue.SimpleQueue[_Park | _RowMessage | _Forget | None] = queue.SimpleQueue()
        self._first: _Park | _RowMessage | _Forget | None = None  # taken from the queue, and not done yet
        self._messages: list[_RowMessage] = []  # not in the database yet
        self._keep_at = self._clock.now().mono + limbo.lease / 3
        self._in_trouble = ""
        self._closing = self._ended = False
        self._answers_until = 0.0  # monotonic, once it is closing
        self._thread: threading.Thread | None = None

    # -- any thread --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread: from here on due messages are published."""
        self._thread = threading.Thread(target=self._work, name="redeliver-limbo", daemon=True)
        self._thread.start()

    @property
    def owes(self) -> bool:
        """Return whether something was given to the worker that is not in the database yet."""
        return bool(self._messages)

    def park(self, parking: Parking, answer: OnAnswer) -> None:
        """Park a copy, and answer once.

        The answer is `("ok", "")` once the copy is on the disk, `("refused", why)` when nothing was kept of it, and
        `("unfit", why)` when it can never be kept.

        Once it is stopped the answer comes on the caller's thread, at once.
        """
        if self._ended:
            return _tell(_Park(parking, answer), "refused", "the limbo is closed")
        self._jobs.put(_Park(parking, answer))

    def forget_places(
        self, source: Destination, places: Sequence[tuple[str, int]], then: Callable[[], None] | None = None
    ) -> None:
        """Remove places, each given by its key and number; `then` is called afterwards, also where that failed.

        Once it is stopped `then` is called on the caller's thread, at once.
        """
        job = _Forget(source, places, then)
        if self._ended:
            return _follow(job)
        self._jobs.put(job)

    def published(self, row: Parked) -> None:
        """Remove a row whose copy was confirmed."""
        self._jobs.put(_RowMessage(row, "published"))

    def failed(self, row: Parked, why: str, again: float | None = None) -> None:
        """Count that its target refused a row.

        The next try is at `again`, in seconds since 1970, or as `Limbo.failed` has it.
        """
        self._jobs.put(_RowMessage(row, "failed", why, again))

    def back(self, row: Parked, delay: float = 1.0) -> None:
        """Publish a row again after `delay` seconds; count nothing: it was not tried, or nobody knows the outcome."""
        self._jobs.put(_RowMessage(row, "back", at=self._clock.now().mono + delay))

    def stop(self, timeout: float = 10.0) -> bool:
        """Do what was given to the worker, and close the limbo. False if that took more than `timeout` seconds.

        Nothing more is published. For the answers to what is being published already, the worker waits for half of
        that time. A row without an answer stays, and is published again some time.
        """
        self._answers_until = time.monotonic() + timeout / 2
        self._closing = True
        self._jobs.put(None)
        if self._thread is None:
            self._end()
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    # -- the worker's thread ------------------------------------------------------------------------

    def _work(self) -> None:
        rest = 0.0
        while not self._closing:
            try:
                rest = self.run_once()
                self._first = self._jobs.get(timeout=rest)
            except queue.Empty:
                pass
            except Exception:  # a bug of ours must not leave messages lying
                log.exception("%s: this is a bug; going on", self._limbo.where)
                self._limbo.back([one.row for one in self._messages])  # published again rather than never
                self._messages.clear()
                rest = TROUBLED_REST
        try:
            self._await_answers()
        finally:
            self._end()

    def _await_answers(self) -> None:
        """Take the answers to what is being published, each of which would else be published a second time."""
        with suppress(queue.Empty, RedeliverError):
            self._do_jobs()
            while self._limbo.handed_out > len(self._messages):
                self._first = self._jobs.get(timeout=max(0.0, self._answers_until - time.monotonic()))
                self._do_jobs()

    def _end(self) -> None:
        self._ended = True
        with suppress(RedeliverError):
            self._do_jobs()
        self._limbo.close()

    def run_once(self) -> float:
        """Do all that is due now; return in how many seconds there is more, unless something is given before."""
        try:
            self._do_jobs()
            if self._clock.now().mono >= self._keep_at:
                self._limbo.keep()
                self._keep_at = self._clock.now().mono + self._limbo.lease / 3
                self._trouble("")
            more = self._hand_out()
            return 0.0 if more else self._rest()
        except RedeliverError as error:
            self._trouble(str(error))
            return TROUBLED_REST

    def _do_jobs(self) -> None:
        parks: list[_Park] = []
        forgets: list[_Forget] = []
        job, self._first = self._first, None
        with suppress(queue.Empty):
            while True:
                if isinstance(job, _Park):
                    parks.append(job)
                elif isinstance(job, _Forget):
                    forgets.append(job)
                elif job is not None:
                    self._messages.append(job)
                job = self._jobs.get_nowait()
        for batch in _batches(parks):
            self._park(batch)
        self._forget_places(forgets)
        self._write_messages()

    def _forget_places(self, jobs: list[_Forget]) -> None:
        """Remove places from the database, and let their deliveries go on, also after an error.

        A place that stays keeps its key waiting for a while after the next start. That is no reason to hold up
        anything.
        """
        try:
            if gone := [(job.source, place) for job in jobs for place in job.places]:
                self._limbo.forget_places(gone)
        except Exception as error:
            self._trouble(str(error))
        for job in jobs:
            _follow(job)

    def _park(self, batch: list[_Park]) -> None:
        now_us = self._clock.now().us
        lines: list[tuple[ParkedRow, str]] = []
        good: list[_Park] = []
        for job in batch:
            try:
                lines.append((lines_of(job.parking, now_us), job.parking.out.copy_id))
                good.append(job)
            except NotCopyable as error:
                _tell(job, "unfit", error.message)
            except Exception as error:
                _tell(job, "refused", str(error))
        try:
            if lines:
                self._limbo.park_lines(lines)
        except Exception as error:  # whatever it is: nothing was written, and everybody is answered
            self._trouble(str(error))
            for job in good:
                _tell(job, "refused", str(error))
            return
        if good:
            self._trouble("")
        for job in good:
            _tell(job, "ok", "")

    def _write_messages(self) -> None:
        """Write what became of rows; what cannot be written now stays in `_messages`."""
        if not self._messages:
            return
        now = self._clock.now().mono
        back = [one for one in self._messages if one.message == "back" and one.at <= now]
        self._limbo.back([one.row for one in back])
        self._drop_written(back)
        published = [one for one in self._messages if one.message == "published"]
        for start in range(0, len(published), BATCH):
            some = published[start : start + BATCH]
            self._limbo.done([one.row for one in some])
            self._drop_written(some)
        alike: dict[tuple[str, float | None], list[_RowMessage]] = {}
        for one in self._messages:
            if one.message == "failed":
                alike.setdefault((one.why, one.again), []).append(one)
        for (why, again), some in alike.items():
            self._limbo.failed([one.row for one in some], why, again=again)
            self._drop_written(some)
        if published or alike:
            self._trouble("")

    def _drop_written(self, written: list[_RowMessage]) -> None:
        gone = {id(one) for one in written}
        self._messages = [one for one in self._messages if id(one) not in gone]

    def _hand_out(self) -> bool:
        """Give what is due to `publish`; True when there may be more of it."""
        room = min(self._window - self._limbo.handed_out, BATCH)
        if self._closing or room <= 0:
            return False
        rows = self._limbo.due(limit=room)
        for row in rows:
            try:
                self._publish(row)
            except Exception as error:
                log.exception("%s: message %d could not be handed over", self._limbo.where, row.id)
                self.failed(row, f"{type(error).__name__}: {error}")
        return bool(rows)

    def _rest(self) -> float:
        now = self._clock.now()
        rest = min([POLL, self._keep_at - now.mono, *(one.at - now.mono for one in self._messages)])
        if self._limbo.handed_out < self._window and (due := self._limbo.next_due()) is not None:
            rest = min(rest, max(due - now.wall, 0.0) + 0.001)
        return max(rest, 0.0)

    def _trouble(self, what: str) -> None:
        """Log trouble when it begins, and when something was written again. An empty text means that there is none."""
        if what and not self._in_trouble:
            log.error("%s. Nothing is lost; it goes on once that is over", what)
        elif self._in_trouble and not what:
            log.warning("%s: works again", self._limbo.where)
        self._in_trouble = what


def _tell(job: _Park, verdict: Verdict, why: str) -> None:
    try:
        job.answer(verdict, why)
    except Exception:
        log.exception("an answer about a parked message was not taken")


def _follow(job: _Forget) -> None:
    try:
        if job.then is not None:
            job.then()
    except Exception:
        log.exception("what was to follow a place that was forgotten failed")


def _batches(parks: list[_Park]) -> Iterator[list[_Park]]:
    """Yield as many messages at once as one transaction should hold."""
    batch: list[_Park] = []
    size = 0
    for job in parks:
        batch.append(job)
        size += len(job.parking.out.body)
        if len(batch) == BATCH or size > BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
