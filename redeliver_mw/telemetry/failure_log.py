# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Writes failed attempts to the log `redeliver_mw.failures`, and keeps a storm of failures from filling the log.

A line, its traceback, and the summary of a storm:

    queue:orders: message 17 failed, F=2: redelivered after 4 s (hold): ValueError: no stock
    Traceback (most recent call last):
      ...
    90 more failures with ValueError (fingerprint 6f1d…) were left out of the log within one second

Times of one fingerprint, with 200 failures in each second and no more after 2 s:

    0.00 s  line and traceback, then nine lines      the second of this fingerprint begins
    0.05 s  190 attempts are only counted
    1.00 s  summary: 190; ten lines, no traceback    the next second begins
    2.00 s  summary: 190                             written by a timer
"""

from __future__ import annotations

import logging
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ..clock import Clock
from ..errors import EVENT_CODE, ConfigError
from ..redaction import one_line, trim_utf8, visible
from ..redelivery.commands import RecordAttempt

__all__ = ["FIELDS", "FailureLog", "log_failures_option"]

log = logging.getLogger("redeliver_mw.failures")
K = TypeVar("K")
V = TypeVar("V")
Later = Callable[[float, Callable[[], None]], object]

LINES = 10  # for one fingerprint in one second
SECOND = 1.0
TRACEBACK_EVERY = 60.0  # seconds
REMEMBERED = 1000  # fingerprints
ERROR_BYTES = 1000  # of an error's message in a line
ID_BYTES = 256
EARLY = 1e-3  # seconds by which a timer may fire too early

# The attributes that a log record of a failed attempt may have, for formatters that write fields.
FIELDS = (
    *("source", "message_id", "failures", "outcome", "reason", "delay", "mechanism", "targets"),
    *("error_type", "error", "fingerprint", "left_out"),
)


def log_failures_option(given: object) -> bool:
    """Return the value of `log_failures=`. Raises ConfigError if it is not True or False."""
    if not isinstance(given, bool):
        raise ConfigError(
            f"log_failures={given!r} is neither True nor False",
            cure="Write log_failures=False, or omit",
            code="option-value",
        )
    return given


class _Second:
    """Counts the lines of one fingerprint and level in the second that began with the first of them."""

    __slots__ = ("accounted", "ends", "error_type", "fingerprint", "level", "lines")

    def __init__(self, ends: float, level: int, error_type: str, fingerprint: str) -> None:
        self.ends, self.level, self.error_type, self.fingerprint = ends, level, error_type, fingerprint
        self.lines = 0  # including those that were left out
        self.accounted = LINES  # the ones of these that were written or counted in a summary


class FailureLog:
    """Logs failed attempts, at most ten lines a second for each fingerprint and level.

    A dead letter is an ERROR. Any other failed attempt is a WARNING. An attempt that is no failure of the message (the
    policy ignores the error, or the breaker tried the message) is DEBUG. Thread-safe. Nothing raised by a logging
    handler, filter or formatter leaves this class (log-after-the-fact).
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # never held while a line is written: a logging handler may be slow, or call us
        self._seconds: OrderedDict[tuple[str, int], _Second] = OrderedDict()
        self._traced: OrderedDict[str, float] = OrderedDict()  # fingerprint -> when its traceback was last written
        self._full: list[_Second] = []  # seconds with lines that were left out and are in no summary yet
        self._wakes = -math.inf  # when the timer is due

    def attempt(self, c: RecordAttempt, later: Later | None = None) -> None:
        """Log an attempt if it failed.

        `later(seconds, fn)` starts the timer for a summary; without it a summary waits for the next line.
        """
        level = _level(c)
        if level and log.isEnabledFor(level):
            try:
                self._attempt(c, level, later)
            except Exception:  # the message continues as if nothing had happened
                return

    def flush(self) -> None:
        """Write every waiting summary, including those of seconds that are not over."""
        try:
            self._summarise(math.inf)
        except Exception:
            return

    def _attempt(self, c: RecordAttempt, level: int, later: Later | None) -> None:
        failure = c.failure
        key = "" if failure is None else failure.fingerprint, level
        now = self._clock.now().mono
        with self._lock:
            second = self._seconds.get(key)
            if second is None or now >= second.ends:
                second = _Second(now + SECOND, level, "" if failure is None else failure.type, key[0])
                _remember(self._seconds, key, second)
            second.lines = number = second.lines + 1
            if number > LINES and number != second.accounted + 1:
                return  # the attempt is only counted
            if number > LINES:
                self._full.append(second)
                waits = self._claim_timer(now) if later is not None else None
            else:
                traceback = self._traceback(c, level, now)
        if number <= LINES:
            self._summarise(now)
            line, fields = _line(c)
            event = "message-dead-lettered" if c.outcome == "dead_lettered" else "attempt-failed"
            _write(level, event, line, fields, traceback)
        elif later is not None and waits is not None:
            later(waits, lambda: self._due(later))

    def _traceback(self, c: RecordAttempt, level: int, now: float) -> str:
        """Return the traceback if it is due. A copy that was sent on carries none."""
        failure = c.failure
        if failure is None or not failure.text or level == logging.DEBUG:
            return ""
        if now < self._traced.get(failure.fingerprint, -math.inf) + TRACEBACK_EVERY:
            return ""
        _remember(self._traced, failure.fingerprint, now)
        return failure.text.rstrip("\n")

    # -- summaries --------------------------------------------------------------------------------

    def _summarise(self, now: float) -> None:
        """Write the summaries of all seconds that are over."""
        if not self._full:
            return
        with self._lock:
            over = [second for second in self._full if second.ends <= now]
            self._full = [second for second in self._full if second.ends > now]
            summaries = [(second, second.lines - second.accounted) for second in over]
            for second in over:
                second.accounted = second.lines
        for second, left_out in summaries:
            fields = {"error_type": second.error_type, "fingerprint": second.fingerprint, "left_out": left_out}
            _write(second.level, "failures-left-out", _summary(second, left_out), fields)

    def _claim_timer(self, now: float) -> float | None:
        """Return the seconds after which `_due` is to be called, or None while another timer runs.

        The timer of a lost connection never fires; it is replaced.
        """
        if not self._full or now < self._wakes + SECOND:
            return None
        self._wakes = min(second.ends for second in self._full)
        return max(0.0, self._wakes - now)

    def _due(self, later: Later) -> None:
        """Write the summaries of seconds that are over. Called on the thread of the timer."""
        try:
            now = self._clock.now().mono
            self._summarise(now + EARLY)
            with self._lock:
                self._wakes = -math.inf
                waits = self._claim_timer(now)
            if waits is not None:
                later(waits, lambda: self._due(later))
        except Exception:
            return


def _remember(found: OrderedDict[K, V], key: K, value: V) -> None:
    """Put `value` at the end; if there are too many values, drop the one that was put longest ago."""
    found[key] = value
    found.move_to_end(key)
    if len(found) > REMEMBERED:
        found.popitem(last=False)


def _level(c: RecordAttempt) -> int:
    """Return the level of an attempt's line; 0 if it did not fail."""
    if c.outcome == "dead_lettered":
        return logging.ERROR
    if c.failure is None:
        return logging.NOTSET
    return logging.DEBUG if c.outcome == "accepted" or c.reason == "breaker" else logging.WARNING


# -- lines ----------------------------------------------------------------------------------------


def _line(c: RecordAttempt) -> tuple[str, dict[str, Any]]:
    """Return the line of an attempt, and the fields of the log record that the line expresses in words."""
    source, message_id, targets = str(c.delivery.destination), c.delivery.message_id, list(map(str, c.targets))
    message = f"message {one_line(message_id, ID_BYTES)}" if message_id else "a message"
    fields: dict[str, Any] = {
        "source": source,
        "message_id": message_id,
        "failures": c.past.failures,
        "outcome": c.outcome,
        "reason": c.reason or None,
        "delay": c.delay,
        "mechanism": c.mechanism,
        "targets": targets or None,
    }
    error = ""
    if c.failure is not None:
        message += " failed"
        error = f": {one_line(c.failure.type, ID_BYTES)}"
        if c.failure.message:
            error += f": {one_line(c.failure.message, ERROR_BYTES)}"
        fields |= {
            "error_type": c.failure.type,
            "error": trim_utf8(c.failure.message, ERROR_BYTES),
            "fingerprint": c.failure.fingerprint,
        }
    line = f"{source}: {message}, F={c.past.failures}: {_outcome(c, targets)}{error}"
    return line, {name: value for name, value in fields.items() if value is not None}


def _outcome(c: RecordAttempt, targets: Sequence[str]) -> str:
    """Return the outcome with its delay, its targets and its reason, as far as there are any."""
    text = c.outcome.replace("_", "-")
    if targets:
        text += f" to {', '.join(targets)}"
    if c.delay is not None:
        text += f" after {c.delay:.3g} s" if c.delay < 1000 else f" after {c.delay:.0f} s"
    why = ", ".join(word for word in (c.reason, c.mechanism) if word)
    return f"{text} ({why})" if why else text


def _summary(second: _Second, left_out: int) -> str:
    what = "dead letters" if second.level == logging.ERROR else "failures"
    error = (
        f" with {one_line(second.error_type, ID_BYTES)} (fingerprint {second.fingerprint})"
        if second.fingerprint
        else ""
    )
    return f"{left_out} more {what}{error} were left out of the log within one second"


def _write(level: int, event: str, text: str, fields: dict[str, Any], traceback: str = "") -> None:
    record = log.makeRecord(log.name, level, __file__, 0, text, (), None, extra=fields | {EVENT_CODE: event})
    if traceback:  # where every formatter looks for a traceback that was already made into text
        record.exc_text = visible(traceback, lines=True)
    log.handle(record)
