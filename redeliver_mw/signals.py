# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""`run_until_signal`: an App on the main thread of a process, until SIGTERM or SIGINT."""

from __future__ import annotations

import logging
import signal
import threading
from types import FrameType
from typing import Any, Protocol

from .runner import StartGivenUp, StopReport

log = logging.getLogger("redeliver_mw")


class Stoppable(Protocol):
    """What is needed of an App."""

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


def run_until_signal(app: Stoppable, handle_signals: bool) -> StopReport:
    """Start, wait, stop. A signal during the start gives it up; a second one lets the stop wait no longer.

    Signals are Python's to hand out on the main thread only: on another one they are left alone.
    """
    wanted = threading.Event()
    before: dict[int, Any] = {}
    starting = True

    def on_signal(number: int, frame: FrameType | None) -> None:
        if starting:
            app.give_up()
        elif wanted.is_set():
            app.hurry()
        wanted.set()

    if handle_signals and threading.current_thread() is threading.main_thread():
        before = {s: signal.signal(s, on_signal) for s in (signal.SIGTERM, signal.SIGINT)}
    try:
        app.start()
        starting = False
        log.info("consuming %s at %s", ", ".join(map(str, app.sources)), app.place)
        while not wanted.wait(0.5) and not app.is_over:
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
