# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Links an App to a store: what became of replayed messages goes there, and what operators want comes from there.

All of it is done on a thread of its own. While the store is away the App goes on as it is: outcomes wait in memory, up
to a limit, and the last wishes hold.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from ..adapter.protocol import Adapter
from ..clock import Clock
from ..errors import ERROR_CODE, RedeliverError
from ..operations.became import FAILED_AGAIN, RECOVERED, KnownEnd, mark
from ..operations.control import ProcessReport, ProcessState, SourceReport, last_wishes, report_process
from ..operations.store import Store
from ..operations.waiting_letters import WaitingLetters
from ..redaction import clean, redact
from ..redelivery.commands import RecordAttempt
from ..timers import SingleTimer
from .remote_control import RemoteControl

log = logging.getLogger("redeliver_mw.operations")

LOOK_EVERY: Final = 1.0  # seconds from one look at the wishes to the next
REPORT_EVERY: Final = 10.0  # seconds from one report to the next, if nothing has changed
MOST_WAITING: Final = 10_000  # outcomes
BATCH: Final = 500  # outcomes of one transaction
FIRST_LOOK: Final = 3.0  # seconds that a start waits for the wishes
BUSY_TIMEOUT: Final = 2.0  # seconds to wait for another program's lock, or for a connection
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0  # seconds from an error to the next try; each pause doubles the one before
TEXT: Final = 500  # characters of a text in a report


class _Access:
    """Knows when a store that has failed is to be tried again. Seconds, monotonic."""

    def __init__(self) -> None:
        self._pause = FIRST_PAUSE
        self.at = 0.0
        self.fails = False

    def failed(self, now: float) -> None:
        self.fails, self.at = True, now + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def works(self) -> None:
        self.fails, self._pause = False, FIRST_PAUSE


class OperationsLink:
    """Writes outcomes and reports to a store, and reads wishes. Raises ConfigError for a URL that is no store's.

    `attempt` may be called from any thread; it never waits and never raises. `driven`: the clock is hand-driven, so
    there is no thread.
    """

    def __init__(
        self,
        url: str,
        *,
        app: str,
        adapter: Adapter,
        clock: Clock,
        control: RemoteControl,
        sources: Callable[[], Mapping[str, Mapping[str, Any]]],
        driven: bool = False,
    ) -> None:
        """Take the store's URL. `sources` returns the part of `App.health()` of that name."""
        self._store = Store(url, busy_timeout=BUSY_TIMEOUT)
        self._app, self._adapter, self._clock, self._control = clean(app), adapter, clock, control
        self._sources, self._driven = sources, driven
        self._process_id = secrets.token_hex(8)
        self._started_us = clock.now().us
        self._open = False
        self._reading, self._writing = _Access(), _Access()
        self._in_trouble = False
        self._waiting: deque[KnownEnd] = deque()
        self._lock = threading.Lock()  # for `_waiting` and `_dropped`
        self._dropped = 0
        self._drops_logged = False
        self._reported: list[SourceReport] = []
        self._report_at = 0.0
        self._alarm = SingleTimer(adapter.call_later, self._run_driven)
        self._looked, self._closing = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    # -- any thread -------------------------------------------------------------------------------

    def attempt(self, attempt: RecordAttempt) -> None:
        """Remember what became of a replayed message, if this attempt was its last one."""
        became = _became(attempt)
        if became is None:
            return
        past = attempt.past
        end = KnownEnd(clean(past.replay_id or ""), clean(past.lineage or attempt.key), became, attempt.at.us)
        with self._lock:
            self._waiting.append(end)
            self._bound()

    def _bound(self) -> None:
        while len(self._waiting) > MOST_WAITING:
            self._waiting.popleft()
            self._dropped += 1

    def waiting_letters(self) -> WaitingLetters:
        """Return what counts the letters of this store that wait, over a connection of its own."""
        return WaitingLetters(self._store)

    # -- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin; return when the wishes that hold are obeyed, or after FIRST_LOOK seconds if the store is away."""
        if self._driven:
            return self._run_driven()
        self._thread = threading.Thread(target=self._work, name="redeliver-operations", daemon=True)
        self._thread.start()
        self._looked.wait(FIRST_LOOK)
        return None

    def close(self, timeout: float) -> None:
        """Write what waits, and a last report, in at most `timeout` seconds; then disconnect."""
        self._alarm.off()
        self._closing.set()
        if self._thread is None:
            self._end()
        else:
            self._thread.join(timeout)

    # -- the link's thread ------------------------------------------------------------------------

    def _work(self) -> None:
        rest = 0.0
        while not self._closing.wait(rest):
            try:
                rest = self.run_once()
            except Exception:  # a bug of ours must not end the control of an App
                log.exception("%s: this is a bug; going on", self._store.where)
                rest = LONGEST_PAUSE
        self._end()

    def _run_driven(self) -> None:
        self._alarm.set(self.run_once())

    def run_once(self) -> float:
        """Do all that is due; return the seconds until there is more to do."""
        now = self._clock.now().mono
        if now >= self._reading.at:
            self._look(now)
            self._looked.set()
        if now >= self._writing.at:
            self._write(now)
        return max(0.0, min(self._reading.at, now + LOOK_EVERY) - now)

    def _look(self, now: float) -> None:
        """Read the wishes, and obey."""
        try:
            self._connect()
            wishes = last_wishes(self._store, self._app)
        except RedeliverError as error:
            self._reading.failed(now)
            return self._trouble(error)
        self._reading.works()
        self._reading.at = now + LOOK_EVERY
        self._control.obey(wishes)
        return self._well()

    def _write(self, now: float) -> None:
        """Write outcomes, and the report if it is due or has changed."""
        try:
            while ends := self._take():
                self._write_ends(ends)
            self._report(now)
        except RedeliverError as error:
            self._writing.failed(now)
            return self._trouble(error)
        self._writing.works()
        return self._well()

    def _write_ends(self, ends: list[KnownEnd]) -> None:
        try:
            self._connect()
            with self._store.writing() as connection:
                mark(connection, ends)
        except BaseException:
            with self._lock:
                self._waiting.extendleft(reversed(ends))
                self._bound()
            raise

    def _take(self) -> list[KnownEnd]:
        with self._lock:
            return [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]

    def _report(self, now: float, state: ProcessState = "running") -> None:
        sources = _reports(self._sources())
        if state == "running" and now < self._report_at and _states(sources) == _states(self._reported):
            return
        at = self._clock.now().us
        report = ProcessReport(
            self._process_id,
            self._app,
            clean(socket.gethostname()),
            os.getpid(),
            clean(self._adapter.broker),
            self._started_us,
            at,
            state,
            sources,
        )
        self._connect()
        with self._store.writing() as connection:
            report_process(connection, report)
        self._reported, self._report_at = sources, now + REPORT_EVERY

    def _connect(self) -> None:
        if not self._open:
            self._store.open()
            self._open = True

    def _end(self) -> None:
        now = self._clock.now().mono
        with suppress(RedeliverError):
            while ends := self._take():
                self._write_ends(ends)
            self._report(now, "stopped")
        if left := len(self._waiting):
            what = "%s: what became of %d replayed messages could not be written; their replay calls it unknown"
            log.warning(what, self._store.where, left)
        self._store.close()

    # -- the log ----------------------------------------------------------------------------------

    def _trouble(self, error: RedeliverError) -> None:
        if not self._in_trouble:
            self._in_trouble = True
            what = "the store of operations is away, and is tried again; consuming goes on: %s"
            log.warning(what, redact(str(error)), extra={ERROR_CODE: error.code})
        if self._dropped and not self._drops_logged:
            self._drops_logged = True
            what = "%s: more than %d outcomes of replayed messages wait for the store; the oldest are dropped"
            log.warning(what, self._store.where, MOST_WAITING)

    def _well(self) -> None:
        if not self._in_trouble or self._reading.fails or self._writing.fails:
            return
        with self._lock:
            dropped, self._dropped = self._dropped, 0
        self._in_trouble = self._drops_logged = False
        lost = f"; {dropped} outcomes of replayed messages were dropped meanwhile" if dropped else ""
        log.warning("%s: the store of operations is back%s", self._store.where, lost)


def _became(attempt: RecordAttempt) -> Any:
    """Return what became of a message; None if it may still be handled, or if its policy ignores its failure."""
    if attempt.outcome == "accepted":
        return RECOVERED if attempt.failure is None else None
    return FAILED_AGAIN if attempt.outcome in ("dead_lettered", "discarded") else None


def _reports(sources: Mapping[str, Mapping[str, Any]]) -> list[SourceReport]:
    return [
        SourceReport(
            clean(name),
            one["consuming"],
            clean(redact(one["why_not_consuming"] or ""))[:TEXT],
            one["breaker"]["state"] if one["breaker"] else "",
            bool(one["breaker"] and one["breaker"]["forced"]),
            one["waiting"],
        )
        for name, one in sources.items()
    ]


def _states(reports: list[SourceReport]) -> list[tuple[Any, ...]]:
    """Return what of the reports is reported at once when it changes."""
    return [(one.source, one.consuming, one.why, one.breaker, one.forced) for one in reports]
