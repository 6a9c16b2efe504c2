# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Provides `run_until_signal`: runs an App on the main thread of a process, until SIGTERM or SIGINT."""

from __future__ import annotations

import logging
import signal
import threading
from types import FrameType
from typing import Any, Protocol

from .runner import StartGivenUp, StopReport

log = logging.getLogger("redeliver_mw")


class Stoppable(Protocol):
    """Is the part of an App that is needed here."""

    @property
    def place(self) -> str: ...
    @property
    def sources(self) -> list[Any]: ...
    @property
    def is_started(self) -> bool: ...
    @property
    def is_over(self) -> bool: ...
    def start(self) -> None: ...
    def stop(self) -> StopReport: ...
    def give_up(self) -> None: ...
    def hurry(self) -> None: ...


class StopRequest:
    """Requests the end of a run. Thread-safe, and safe in a signal handler."""

    def __init__(self, app: Stoppable) -> None:
        self._app = app
        self.wanted = threading.Event()
        self.starting = True

    def stop(self) -> None:
        """Finish running handlers; a start is given up."""
        if self.starting:
            self._app.give_up()
        self.wanted.set()

    def hurry(self) -> None:
        """Stop waiting."""
        self._app.hurry()
        self.stop()


class ParentProcess(Protocol):
    """Is the process that has started this process, with others, and tells all of them when to end."""

    def watch(self, ending: StopRequest, /) -> None: ...  # the request may already be there
    def started(self) -> None: ...


def run_until_signal(app: Stoppable, handle_signals: bool, parent: ParentProcess | None = None) -> StopReport:
    """Start, wait, stop. A signal during the start gives up the start; a second signal makes the stop wait no longer.

    With a parent, only the parent requests the end: the same signal may have reached both, and each process separately.
    Python delivers signals on the main thread only: on another thread they are left alone.
    """
    ending = StopRequest(app)
    before: dict[int, Any] = {}

    def on_signal(number: int, frame: FrameType | None) -> None:
        if parent is None and ending.wanted.is_set() and not ending.starting:
            app.hurry()
        ending.stop()

    if handle_signals and threading.current_thread() is threading.main_thread():
        before = {s: signal.signal(s, on_signal) for s in (signal.SIGTERM, signal.SIGINT)}
    try:
        if parent is not None:
            parent.watch(ending)
        app.start()
        ending.starting = False
        if parent is not None:
            parent.started()  # before the line below: a reader of that line may kill this process at once
        log.info("consuming %s at %s", ", ".join(map(str, app.sources)), app.place)
        while not ending.wanted.wait(0.5) and not app.is_over:
            pass
        report = app.stop()
        log.info("stopped after %.1f s; unsettled: %d", report.seconds, report.unsettled)
        return report
    except StartGivenUp:
        log.info("stopped before it was started")
        return app.stop() if app.is_started else StopReport(0.0, 0, True)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
