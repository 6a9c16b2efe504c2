# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Turns the trouble of one App into notifications, on a thread of its own.

The thread sleeps while there is no trouble. With a store it looks every ten seconds whether another process has left it
a notification to send. No message waits for it, whatever the store or the target does.
"""

from __future__ import annotations

import logging
import os
import random
import secrets
import socket
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final

from ..clock import Clock, Moment, SystemClock
from ..errors import ERROR_CODE, RedeliverError, StoreError
from ..redaction import clean, redact
from ..timers import Cancel, SingleTimer
from .grouping import FailureNews, NotificationOrigin, OutageGroups, TroubleNews
from .notification import Notification
from .option import Notify, given_notify
from .sender import NotificationSender, log_left
from .sink import CollectedTrouble, TroubleSink
from .targets import NotificationTarget

if TYPE_CHECKING:
    from ..operations.shared_outages import SharedOutages

log = logging.getLogger("redeliver_mw.notifications")

WARM_UP: Final = 600.0  # seconds after the start in which no failure is new, without a store
REMEMBERED: Final = 10_000  # fingerprints; with more of them none is new
LOOK_EVERY: Final = 10.0  # seconds from one look into the store to the next, and at a slow function
SHORTEST_REST: Final = 0.5  # seconds from one turn to the next
TRIES: Final = 30  # to write, while other processes write too
LONGEST_TURN: Final = 0.5  # seconds to the last of these tries from the one before
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0  # seconds from an error of the store to the next try
MISSING: Final = "store-file-missing"
PATIENCE: Final = 2.0  # seconds that a stop waits for notifications

Later = Callable[[float, Callable[[], None]], Cancel]


class KnownFailures:
    """Remembers the fingerprints that this process has seen. Not thread-safe."""

    def __init__(self, started: float) -> None:
        self._started = started
        self._known: set[str] = set()
        self._unwritten: set[str] = set()  # seen while the store was away

    def unknown(self, failures: Sequence[FailureNews]) -> set[str]:
        """Return the fingerprints that were not seen before."""
        if len(self._known) >= REMEMBERED:
            return set()
        return {one.fingerprint for one in failures if one.fingerprint} - self._known

    def new_here(self, unknown: Collection[str], now: float) -> set[str]:
        """Return those that are new without a store: all of them, once the first ten minutes are over."""
        return set(unknown) if now - self._started >= WARM_UP else set()

    def remember(self, fingerprints: Collection[str]) -> None:
        self._known |= set(fingerprints)

    def remember_unwritten(self, fingerprints: Collection[str]) -> None:
        self._unwritten |= set(fingerprints)

    def written(self) -> None:
        self._unwritten.clear()

    @property
    def unwritten(self) -> frozenset[str]:
        return frozenset(self._unwritten)


class Notifier:
    """Groups what its sink has collected, and has the notifications sent."""

    def __init__(self, notify: Notify, target: NotificationTarget, app: str) -> None:
        """Take the options. Nothing is sent before the start."""
        self.sink = TroubleSink()
        self._rules, self._target, self._app = notify.rules, target, clean(app)
        self._process_id = secrets.token_hex(8)
        self._clock: Clock = SystemClock()
        self._sender = NotificationSender(target)
        self._groups = OutageGroups(self._rules, self._origin("process"), _new_id)  # without the store
        self._shared: SharedOutages | None = None
        self._read_ids: frozenset[str] = frozenset()  # outages that the store had at the last look
        self._away, self._retry_at, self._pause = False, 0.0, FIRST_PAUSE
        self._done: set[str] = set()
        self._known = KnownFailures(0.0)
        self._woken, self._closing = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._timer: SingleTimer | None = None
        self._is_started = False

    # -- life -----------------------------------------------------------------------------------------

    def start(
        self, clock: Clock, store: str | None = None, later: Later | None = None, since: float | None = None
    ) -> None:
        """Begin. `store`: the URL of the store that processes share. `later`: the timers of a hand-driven test.

        `since`: when the program began to look for failures, on the monotonic clock; None: now. Raises ConfigError for
        a URL that is no store's.
        """
        self._clock = clock
        self.sink.use(clock)
        self._known = KnownFailures(clock.now().mono if since is None else since)
        if store is not None:
            from ..operations.shared_outages import SharedOutages as Shared  # imports SQLAlchemy

            self._shared = Shared(store, self._app)
        self._is_started = True
        if later is not None:
            self._timer = SingleTimer(later, self._run_driven)
            # With a store, what has arrived is written at once, so that no other process sends it again.
            done = None if self._shared is None else self._wake_driven
            self._sender = NotificationSender(self._target, done, inline=True)
            self.sink.wake = self._wake_driven
            return self._run_driven()
        self._sender = NotificationSender(self._target, None if self._shared is None else self._wake)
        self.sink.wake = self._wake
        self._thread = threading.Thread(target=self._work, name="redeliver-notify", daemon=True)
        self._thread.start()
        return None

    def close(self) -> None:
        """Send what waits, in about two seconds at most, and end. A second call does nothing."""
        if not self._is_started or self._closing.is_set():
            return
        self._closing.set()
        if self._timer is not None:
            self._timer.off()
            return self._end()
        self._woken.set()
        if self._thread is not None:
            self._thread.join(2 * PATIENCE)
        return None

    def hurry(self) -> None:
        """Make a `close` that is under way stop waiting. Safe in a signal handler."""
        self._sender.hurry()

    def _wake(self) -> None:
        if not self._woken.is_set():
            self._woken.set()

    def _wake_driven(self) -> None:
        assert self._timer is not None
        if not self._closing.is_set() and not self._woken.is_set():
            self._woken.set()
            self._timer.set(0.0)

    # -- the notifier's thread --------------------------------------------------------------------------

    def _work(self) -> None:
        rest: float | None = 0.0
        while not self._closing.is_set():
            self._woken.wait(rest)
            self._woken.clear()
            if self._closing.is_set():
                break
            try:
                rest = self.run_once()
            except Exception:  # a bug of ours must not end the notifications
                log.exception("notifications: this is a bug; going on")
                rest = LOOK_EVERY
            self._closing.wait(SHORTEST_REST)  # trouble comes in storms
        self._end()

    def _run_driven(self) -> None:
        self._woken.clear()
        rest = self.run_once()
        if self._timer is None or self._closing.is_set():
            return
        if self._woken.is_set():
            self._timer.set(0.0)
        elif rest is not None:
            self._timer.set(rest)

    def run_once(self, *, leaving: bool = False) -> float | None:
        """Take the news, and send what is due; return the seconds until there is more to do, None if never."""
        now = self._clock.now()
        self._sender.look()
        trouble = self.sink.take()
        self._done |= self._sender.take_done()
        if self._shared is None:
            groups = self._alone(trouble, now, leaving=leaving)
        else:
            groups = self._with_store(self._shared, trouble, now, leaving=leaving)
        due = groups.next_us(now.us)
        rests = [] if due is None else [max(0.0, (due - now.us) / 1e6)]
        if self._shared is not None or self._sender.is_busy:
            rests.append(LOOK_EVERY)
        if self._away:
            rests.append(max(0.0, self._retry_at - now.mono))
        return min(rests, default=None)

    def _alone(self, trouble: CollectedTrouble, now: Moment, *, leaving: bool) -> OutageGroups:
        """Do without a store."""
        unknown = self._known.unknown(trouble.failures)
        news = self._news(trouble, self._known.new_here(unknown, now.mono), leaving=leaving)
        self._known.remember(unknown)
        if self._shared is not None:
            self._known.remember_unwritten(unknown)
        self._groups.origin = self._origin("process" if self._shared is None else "store-away")
        self._send(self._groups.take(news, now.us))
        self._done.clear()
        return self._groups

    def _with_store(
        self, shared: SharedOutages, trouble: CollectedTrouble, now: Moment, *, leaving: bool
    ) -> OutageGroups:
        """Do with the store, or without it while it is away."""
        if not self._away or now.mono >= self._retry_at or leaving:
            try:
                return self._through_store(shared, trouble, now, leaving=leaving)
            except RedeliverError as error:
                self._failed(error, now)
                if error.code != MISSING:  # a new connection would make a new file in the place of the missing one
                    shared.close()
        return self._alone(trouble, now, leaving=leaving)

    def _through_store(
        self, shared: SharedOutages, trouble: CollectedTrouble, now: Moment, *, leaving: bool
    ) -> OutageGroups:
        """Take the news into the outages of all processes. Raises RedeliverError, with nothing taken."""
        unknown = self._known.unknown(trouble.failures)
        asked = unknown | self._known.unwritten
        for number in range(TRIES):
            time.sleep(random.uniform(0, LONGEST_TURN * number / TRIES))  # so as not to be in step with the others
            version, before = shared.read()
            groups = OutageGroups.from_json(before, self._rules, self._origin("store"), _new_id)
            read_ids = frozenset(one.outage_id for one in groups.outages)
            new = asked - shared.known(asked)
            if self._away:
                groups.adopt(self._groups, self._read_ids)
            due = groups.take(self._news(trouble, new & unknown, leaving=leaving), now.us)
            after = groups.to_json()
            if (after == before or (not before and not groups.outages)) and not new:
                break
            if shared.write(version, after, new, now.us):
                break
        else:
            raise StoreError("other processes write all the time", where=shared.where, code="store-locked")
        self._known.remember(unknown)
        self._known.written()
        self._done.clear()
        self._read_ids = read_ids | frozenset(one.outage_id for one in groups.outages)
        self._well(shared)
        # what is done without the store, should it go away, begins with what it had
        self._groups = OutageGroups.from_json(groups.to_json(), self._rules, self._origin("store-away"), _new_id)
        self._send(due)
        return groups

    def _news(self, trouble: CollectedTrouble, new: Collection[str], *, leaving: bool) -> TroubleNews:
        failures = [one._replace(is_new=True) if one.fingerprint in new else one for one in trouble.failures]
        return TroubleNews(failures, trouble.blocks, trouble.blocked, frozenset(self._done), leaving)

    def _send(self, notifications: Sequence[Notification]) -> None:
        for notification in notifications:
            self._sender.send(notification)

    def _end(self) -> None:
        """Announce what has just begun, and leave to other processes what cannot be sent in time."""
        try:
            if self.sink.has_news or self._groups.needs_goodbye:
                self.run_once(leaving=True)
            self._sender.close(PATIENCE)
            self._sender.look()
            self._done |= self._sender.take_done()
            if self._shared is not None and (self._done or self._sender.left()):
                self.run_once(leaving=True)
            if self._shared is None or self._away:
                log_left(self._target, self._sender.left())
        except Exception:
            log.exception("notifications: this is a bug; the stop goes on")
        finally:
            if self._shared is not None:
                self._shared.close()

    # -- the store ------------------------------------------------------------------------------------

    def _origin(self, scope: str) -> NotificationOrigin:
        host = clean(socket.gethostname())
        return NotificationOrigin(self._process_id, self._app, self.sink.broker, host, os.getpid(), scope)

    def _failed(self, error: RedeliverError, now: Moment) -> None:
        self._retry_at = now.mono + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        if not self._away:
            self._away = True
            what = "the store is away; until it is back, this process notifies by itself: %s"
            log.warning(what, redact(str(error)), extra={ERROR_CODE: error.code})

    def _well(self, shared: SharedOutages) -> None:
        self._pause = FIRST_PAUSE
        if self._away:
            self._away = False
            log.warning("%s: the store is back; its processes notify together again", shared.where)


def _new_id() -> str:
    return secrets.token_hex(16)


def notifier_for(given: object, secret: str | None, app: str) -> Notifier | None:
    """Return what notifies for the two options of an App; None if there are no notifications. Raises ConfigError."""
    found = given_notify(given, secret)
    return None if found is None else Notifier(*found, app)
