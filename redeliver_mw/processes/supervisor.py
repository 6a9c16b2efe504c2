# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Supervises several processes of one App: starts them, restarts those that have died, stops them together.

The supervisor imports no user code and holds no connection. It starts one process, and the others once that one is up:
until then everything is as with one process, including a single error. A process that dies afterwards is restarted,
with growing delays, and so is one that a message killed before it could report that it is up. A process that reports a
wrong configuration ends all of them.
"""

from __future__ import annotations

import logging
import math
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from ..errors import ConfigError
from ..runtime.partition import ProcessShare
from ..telemetry.samples import ProcessSamples, from_json

log = logging.getLogger("redeliver_mw")

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds before a process is restarted; each delay doubles the one before
STEADY = 60.0  # seconds of life after which a process has its first delay again
UNTOLD = 30.0  # the `stop_timeout` of an App that has not reported its own yet
CLOSING = 20.0  # seconds beyond `stop_timeout` for a process to close its connections and end
AT_ONCE = 10.0  # the same from the second signal on
FAREWELL = 10.0  # seconds from a process's last news to its end
SILENT = 10.0  # seconds without a report after which a process no longer counts as ready
INTERRUPTED, CONFIGURATION = 130, ConfigError.exit_code
_FINE = {0, INTERRUPTED, -signal.SIGTERM, -signal.SIGINT}  # exit codes of a process that was asked to end


class ChildStarted(NamedTuple):
    """Reports that a process consumes.

    `processes` of this App have sources to consume; a stop takes at most `stop_timeout` seconds.
    """

    processes: int
    stop_timeout: float


class ChildChecked(NamedTuple):
    """Reports that a process has checked everything, and is about to consume: a message may kill it from now on."""


class ChildFailed(NamedTuple):
    """Reports that a process is about to end, and why; `code` will be its exit code."""

    code: int
    message: str


class ChildEnded(NamedTuple):
    """Reports that a process's App was stopped by its own code."""


class ChildHealth(NamedTuple):
    """Reports what keeps an App from being ready: `what` and `why` of each cause. Sent up to once a second."""

    not_ready: list[dict[str, str]]


class ChildMetrics(NamedTuple):
    """Reports the values of all metrics of a process, as `telemetry.samples.to_json` writes them. Sent like health."""

    samples: dict[str, Any]


News = ChildChecked | ChildStarted | ChildFailed | ChildEnded | ChildHealth | ChildMetrics


class SupervisorResult(NamedTuple):
    """Holds the common exit code, and the text to show to the user (may be empty)."""

    code: int
    message: str = ""


class Child(Protocol):
    """Is one process. No method waits."""

    @property
    def pid(self) -> int: ...
    def ended(self) -> int | None: ...  # exit code; -9: by SIGKILL
    def news(self) -> Sequence[News]: ...  # news since the last call
    def stop(self) -> None: ...  # running handlers are finished
    def hurry(self) -> None: ...  # nothing is waited for
    def kill(self) -> None: ...
    def close(self) -> None: ...  # called when the process has ended


@dataclass(slots=True)
class RestartBackoff:
    """Computes how long to wait before a process of one slot is restarted."""

    _next: float = FIRST_PAUSE

    def after(self, lived: float) -> float:
        """Return the delay in seconds after a process that lived for `lived` seconds."""
        pause = FIRST_PAUSE if lived >= STEADY else self._next
        self._next = min(2 * pause, LONGEST_PAUSE)
        return pause


@dataclass(slots=True)
class Slot:
    """Is the place of one process and its successors. Times are in monotonic seconds."""

    share: ProcessShare
    start_at: float = 0.0  # inf: never again
    child: Child | None = None
    since: float = 0.0  # when it was started
    kill_at: float = math.inf
    checked: bool = False
    up: bool = False
    last: ChildFailed | ChildEnded | None = None  # its last news
    health: ChildHealth | None = None  # its last report
    heard: float = 0.0  # when that report came
    why: str = ""  # why the previous process has ended
    pauses: RestartBackoff = field(default_factory=RestartBackoff)

    @property
    def is_over(self) -> bool:
        return self.child is None and self.start_at == math.inf

    def not_ready(self, now: float) -> list[dict[str, str]]:
        """Return what keeps this slot from being ready; nothing if its App was stopped by its own code."""
        if self.is_over:
            return []
        if self.child is None:
            why = f"it is not running: {self.why}" if self.why else "it is being started"
            return [{"what": "process", "why": why}]
        health = self.health
        if health is None:
            return [{"what": "process", "why": "it is starting"}]
        if now - self.heard > SILENT:
            return [{"what": "process", "why": f"it has reported nothing for {now - self.heard:.0f} s"}]
        return [*health.not_ready] or ([] if self.up else [{"what": "process", "why": "it is starting"}])

    @property
    def who(self) -> str:
        return f"{self.share.name} (pid {self.child.pid})" if self.child is not None else self.share.name


class Supervisor:
    """Decides what to do now and when to look again; the caller waits. Used by one thread, except for `ask`."""

    def __init__(self, start: Callable[[ProcessShare], Child], wanted: int) -> None:
        self._start, self._wanted = start, wanted
        self.slots = [Slot(ProcessShare(0, wanted))]
        self._stop_timeout = UNTOLD
        self._any_up = False
        self._asked = self._heeded = 0
        self.stopping = False
        self.samples = ProcessSamples()
        self.outcome = SupervisorResult(0)

    def ask(self) -> None:
        """Ask all processes to stop; the second time at once. Safe in a signal handler."""
        self._asked += 1

    @property
    def is_over(self) -> bool:
        return all(slot.is_over for slot in self.slots)

    def not_ready(self, now: float) -> list[dict[str, Any]]:
        """Return what keeps each process from being ready, with its number from 1 on. Thread-safe."""
        if self.stopping:
            return [{"what": "supervisor", "why": "it is stopping"}]
        return [{"process": slot.share.index + 1, **one} for slot in list(self.slots) for one in slot.not_ready(now)]

    def run_once(self, now: float) -> float:
        """Do what is due; return the seconds until the next call at the latest; inf: only when something happens."""
        for slot in list(self.slots):
            if slot.child is not None:
                self._look_at(slot, slot.child, now)
        for _ in range(self._asked - self._heeded):  # after the check for processes that died before
            self._heeded += 1
            self._heed(now)
        for slot in self.slots:
            if slot.child is None and slot.start_at <= now:
                self._begin(slot, now)
        dates = [slot.start_at if slot.child is None else slot.kill_at for slot in self.slots]
        return max(0.0, min(dates) - now)

    def _begin(self, slot: Slot, now: float) -> None:
        slot.since, slot.kill_at, slot.last, slot.health = now, math.inf, None, None
        slot.checked = slot.up = False
        try:
            slot.child = self._start(slot.share)
        except OSError as error:  # no memory, or no more processes allowed
            self._died(slot, 1, f"{slot.who} could not be started: {error.strerror or error}", now)

    def _look_at(self, slot: Slot, child: Child, now: float) -> None:
        code = child.ended()  # read first, so that all news from before the end is there
        for news in child.news():
            if isinstance(news, ChildStarted):
                self._is_up(slot, news)
            elif isinstance(news, ChildChecked):
                slot.checked = True
            elif isinstance(news, ChildHealth):
                slot.health, slot.heard = news, now
            elif isinstance(news, ChildMetrics):
                self.samples.reported(slot.share.index, from_json(news.samples))
            else:
                slot.last, slot.kill_at = news, min(slot.kill_at, now + FAREWELL)
        if code is not None:
            self._ended(slot, code, now)
            self.samples.ended(slot.share.index)
            child.close()
            slot.child = None
        elif now >= slot.kill_at:
            log.warning("%s does not end: killed", slot.who)
            slot.kill_at = math.inf
            child.kill()

    def _is_up(self, slot: Slot, news: ChildStarted) -> None:
        slot.up, self._stop_timeout = True, news.stop_timeout
        if self._any_up or self.stopping:
            return
        self._any_up = True
        if news.processes < self._wanted:
            log.warning(
                "%d of %d processes: each source here is consumed by one process at a time, and there are no more",
                news.processes,
                self._wanted,
            )
        self.slots += [Slot(ProcessShare(index, self._wanted)) for index in range(1, news.processes)]

    # -- ends -------------------------------------------------------------------------------------

    def _ended(self, slot: Slot, code: int, now: float) -> None:
        if isinstance(slot.last, ChildEnded):
            log.info("%s has ended by itself", slot.who)
            slot.start_at = math.inf
        elif isinstance(slot.last, ChildFailed):
            code, message = slot.last
            self._died(slot, code, f"{slot.who}: {message}" if self._any_up and code != CONFIGURATION else message, now)
        else:
            self._died(slot, code, f"{slot.who} {_how(code)}" + ("" if self._any_up else " before it was up"), now)

    def _died(self, slot: Slot, code: int, why: str, now: float) -> None:
        # asked to end as this supervisor was, and died of the signal before it could handle it
        was_asked = self._asked > self._heeded and code in _FINE
        if self.stopping or was_asked:
            slot.start_at = math.inf
            if slot.up and code not in _FINE and not self.outcome.code:
                self.outcome = SupervisorResult(max(1, code), why)
        elif code == CONFIGURATION or not (self._any_up or (slot.checked and code < 0)):
            self.outcome = SupervisorResult(max(1, code), why)
            if any(other.child is not None for other in self.slots if other is not slot):
                log.error("%s cannot go on as it is configured: all are stopped", slot.who)
            self._heed(now)
        else:
            pause = slot.pauses.after(now - slot.since)
            slot.start_at, slot.why = now + pause, why
            log.warning("%s. It is started again in %.1f s", why.rstrip("."), pause)

    # -- the stop ---------------------------------------------------------------------------------

    def _heed(self, now: float) -> None:
        """Stop starting processes, and give each running one its time to end."""
        at_once, self.stopping = self.stopping, True
        for slot in self.slots:
            slot.start_at = math.inf
            if slot.child is not None and at_once:
                slot.kill_at = min(slot.kill_at, now + AT_ONCE)
                slot.child.hurry()
            elif slot.child is not None:
                slot.kill_at = min(slot.kill_at, now + self._stop_timeout + CLOSING)
                slot.child.stop()


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
