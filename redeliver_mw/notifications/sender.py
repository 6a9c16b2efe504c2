# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Sends notifications one after the other on a daemon thread, and tries again what has not arrived.

A target that fails is logged once, and once more when it works again. Nothing waits for this thread but a stop, for two
seconds at most.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from tenacity import (
    RetryCallState,
    Retrying,
    sleep_using_event,
    stop_after_delay,
    stop_when_event_set,
    wait_exponential,
    wait_random,
)

from ..errors import ERROR_CODE, RedeliverError, counted
from .notification import Notification
from .targets import NotificationTarget

log = logging.getLogger("redeliver_mw.notifications")

MOST_WAITING: Final = 50
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds between two tries; each pause doubles the one before
TRY_FOR: Final = 600.0  # seconds
LOOK: Final = 0.1  # seconds after which a stop that waits notices that it is not to wait any longer
SLOW: Final = 30.0  # seconds after which a function that has not returned is logged


class NotificationSender:
    """Sends notifications to one target. Thread-safe.

    `done` is called when a notification has arrived, or was given up. `inline`: a function is called at once, on the
    caller's thread, because a test drives the clock.
    """

    def __init__(
        self, target: NotificationTarget, done: Callable[[], object] | None = None, *, inline: bool = False
    ) -> None:
        self._target, self._inline = target, inline and not target.retries
        self._tell = done
        self._waiting: deque[Notification] = deque()
        self._done: set[str] = set()
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._hurried = False
        self._thread: threading.Thread | None = None
        self._busy_since: float | None = None
        self._slow = self._in_trouble = self._drops_logged = False
        self._dropped = 0

    def send(self, notification: Notification) -> None:
        """Send a notification soon. If too many wait, the oldest is dropped."""
        if self._inline:
            return self._send_one(notification)
        with self._changed:
            self._waiting.append(notification)
            if len(self._waiting) > MOST_WAITING:
                self._done.add(self._waiting.popleft().id)
                self._dropped += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="redeliver-notify-send", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return None

    @property
    def is_busy(self) -> bool:
        """Return whether a notification waits, or is on its way."""
        with self._changed:
            return bool(self._waiting) or self._busy_since is not None

    def take_done(self) -> set[str]:
        """Return the ids of the notifications that have arrived, or were given up, since the last call."""
        with self._changed:
            done, self._done = self._done, set()
            return done

    def look(self) -> None:
        """Log a function that has not returned for a long time, and notifications that were dropped. Once each."""
        with self._changed:
            since, dropped = self._busy_since, self._dropped
        if not self._target.retries and since is not None and time.monotonic() - since > SLOW and not self._slow:
            self._slow = True
            what = "%s has not returned for %.0f s; further notifications wait for it. Messages are not affected"
            log.warning(what, self._target.name, SLOW)
        if dropped and not self._drops_logged:
            self._drops_logged = True
            what = "%s: more than %d notifications wait; the oldest are dropped"
            log.warning(what, self._target.name, MOST_WAITING)

    def close(self, timeout: float) -> None:
        """Try for at most `timeout` seconds to send what waits."""
        until = time.monotonic() + timeout
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
            while (self._waiting or self._busy_since is not None) and not self._hurried:
                if (rest := until - time.monotonic()) <= 0:
                    break
                self._changed.wait(min(rest, LOOK))

    def hurry(self) -> None:
        """Make `close` stop waiting. Safe in a signal handler: takes no lock."""
        self._hurried = True

    def left(self) -> int:
        """Return how many notifications were not sent."""
        with self._changed:
            return len(self._waiting) + (self._busy_since is not None)

    # -- the thread ---------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    if self._closing.is_set():
                        return
                    self._changed.wait()
                notification = self._waiting.popleft()
                self._busy_since = time.monotonic()
            try:
                self._send_one(notification)
            except Exception:  # a bug of ours must not end the notifications
                log.exception("%s: this is a bug; going on with the next notification", self._target.name)
            finally:
                with self._changed:
                    self._busy_since = None
                    self._changed.notify_all()

    def _send_one(self, notification: Notification) -> None:
        arrived = self._tried(notification) if self._target.retries else self._called(notification)
        if arrived and self._in_trouble:
            self._in_trouble = False
            log.warning("%s: notifications arrive again", self._target.name)
        if arrived or not self._closing.is_set():
            with self._changed:
                self._done.add(notification.id)
            if self._tell is not None:
                self._tell()

    def _called(self, notification: Notification) -> bool:
        try:
            self._target.send(notification)
        except Exception:
            if not self._in_trouble:
                self._in_trouble = True
                log.exception("%s failed; it is called again for the next notification", self._target.name)
            return False
        self._slow = False
        return True

    def _tried(self, notification: Notification) -> bool:
        trying = Retrying(
            stop=stop_after_delay(TRY_FOR) | stop_when_event_set(self._closing),
            wait=wait_exponential(multiplier=FIRST_PAUSE, max=LONGEST_PAUSE) + wait_random(0, FIRST_PAUSE),
            sleep=sleep_using_event(self._closing),
            before_sleep=self._failed,
            retry_error_callback=self._failed,
        )
        return trying(self._arrives, notification) is True

    def _arrives(self, notification: Notification) -> bool:
        self._target.send(notification)
        return True

    def _failed(self, state: RetryCallState) -> None:
        if self._in_trouble or state.outcome is None:
            return
        self._in_trouble = True
        error = state.outcome.exception()
        code = error.code if isinstance(error, RedeliverError) else ""
        what = "a notification did not arrive, and is tried again for %.0f min; messages are not affected: %s"
        log.warning(what, TRY_FOR / 60, error, extra={ERROR_CODE: code})


def log_left(target: NotificationTarget, left: int) -> None:
    """Log that notifications were not sent before the end of the program."""
    if left:
        log.warning("%s: %s could not be sent before the end", target.name, counted(left, "notification"))
