# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Records what one connection of an adapter does, for `health()` and, in few lines, for the log."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable

from ...errors import ERROR_CODE, RedeliverError
from ...redaction import clean, redact, trim_utf8
from ..protocol import ConnectionReport

SAME_AGAIN = 60.0  # seconds within which the same reason is logged once
MOST_LINES = 10  # in so many seconds, however many different reasons there are
REASON_BYTES = 500


class ConnectionState:
    """Records the changes of one connection, and logs losses, failed attempts and reconnects at WARNING.

    A reason is logged at once, and the same reason again after a minute at the earliest. Reasons hold no secrets, and
    `secret` least of all. With `caller_reports_first` the failures of a first connect are not
    logged: the caller reports them.
    Thread-safe. `monotonic` and `wall` tell seconds.
    """

    def __init__(
        self,
        place: str,
        role: str,
        log: logging.Logger,
        *,
        secret: str | None = None,
        caller_reports_first: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.role = role
        self._place, self._secret, self._log = place, secret, log
        self._monotonic, self._wall = monotonic, wall
        self._lock = threading.Lock()
        self._report = ConnectionReport(role, "closed", wall())
        self._quiet = caller_reports_first
        self._attempts = 0  # since the connection was lost
        self._lost_at: float | None = None  # monotonic; None: it was not lost
        self._loss_logged = False  # this loss, or an attempt after it
        self._logged: dict[str, float] = {}  # reason: when, monotonic

    def report(self) -> ConnectionReport:
        """Return what is so now."""
        with self._lock:
            return self._report

    def connecting(self) -> None:
        """Record that an attempt begins; the state stays "connecting" until one succeeds."""
        with self._lock:
            if self._report.state != "connecting":
                self._change("connecting")

    def connected(self) -> None:
        """Record that the connection is open, and log that if its loss was logged."""
        with self._lock:
            was_logged, self._loss_logged = self._loss_logged, False
            attempts, self._attempts = self._attempts + 1, 0
            lost_at, self._lost_at = self._lost_at, None
            self._quiet = False
            self._change("connected")
            now = self._monotonic()
        if was_logged and lost_at is not None:
            tries = "1 attempt" if attempts == 1 else f"{attempts} attempts"
            self._log.warning(
                "%s: connected again (%s), after %.1f s and %s", self._place, self.role, now - lost_at, tries
            )

    def lost(self, error: BaseException) -> None:
        """Record that the open connection has ended, and why."""
        reason = self._reason(error)
        with self._lock:
            self._lost_at = self._monotonic()
            self._change("connecting", reason, code_of(error))
            wanted = self._wanted(reason)
        if wanted:
            self._log.warning(
                "%s: the connection (%s) was lost: %s", self._place, self.role, reason, extra=_field(error)
            )

    def failed(self, error: BaseException) -> None:
        """Record that an attempt to connect has failed, and why."""
        reason = self._reason(error)
        with self._lock:
            self._attempts += 1
            self._change("connecting", reason, code_of(error))
            wanted = not self._quiet and self._wanted(reason)
        if wanted:
            self._log.warning(
                "%s: cannot connect (%s): %s; trying again", self._place, self.role, reason, extra=_field(error)
            )

    def closed(self) -> None:
        """Record that the connection is closed, and that we wanted that."""
        with self._lock:
            self._change("closed")

    def block(self, why: str) -> None:
        """Record that the broker takes nothing from an open connection; empty: it does again."""
        why = self._safe(why)
        with self._lock:
            if why != self._report.blocked:
                self._report = self._report._replace(blocked=why)

    def trouble(self, error: BaseException | str) -> None:
        """Record an error that did not end the connection."""
        reason = self._reason(error)
        with self._lock:
            self._note(reason, code_of(error))

    # -- with the lock held -----------------------------------------------------------------------

    def _change(self, state: str, reason: str = "", code: str = "") -> None:
        if state != self._report.state:
            self._report = self._report._replace(state=state, since=self._wall(), blocked="")
        if reason:
            self._note(reason, code)

    def _note(self, reason: str, code: str) -> None:
        self._report = self._report._replace(last_error=reason, last_error_at=self._wall(), last_error_code=code)

    def _wanted(self, reason: str) -> bool:
        now = self._monotonic()
        self._logged = {known: at for known, at in self._logged.items() if now - at < SAME_AGAIN}
        if reason in self._logged or len(self._logged) >= MOST_LINES:
            return False
        self._logged[reason] = now
        self._loss_logged = True
        return True

    # -- words ------------------------------------------------------------------------------------

    def _reason(self, error: BaseException | str) -> str:
        what, cure = getattr(error, "what", None), getattr(error, "cure", "")
        text = what or getattr(error, "strerror", None) or str(error) or type(error).__name__
        line = self._safe(f"{text}. {cure}" if cure else text)
        return f"{line} [{code}]" if (code := code_of(error)) else line

    def _safe(self, text: str) -> str:
        """Return the text in one line, without the URL's password, whatever the broker's error has in it."""
        return trim_utf8(redact(without_secret(clean(text).partition("\n")[0], self._secret)), REASON_BYTES)


def code_of(error: object) -> str:
    """Return the code of an error of redeliver-mw; empty for any other."""
    return error.code if isinstance(error, RedeliverError) else ""


def _field(error: BaseException) -> dict[str, str]:
    """Return the attribute that a log record has for the code of an error."""
    return {ERROR_CODE: code} if (code := code_of(error)) else {}


def without_secret(text: str, secret: str | None) -> str:
    """Return the text with `***` for each place where `secret` stands as a word of its own."""
    return re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "***", text) if secret else text
