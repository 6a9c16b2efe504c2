# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs one process of `run --processes`: `python -P -m redeliver_mw.cli.child TARGET FORMAT REPORTS LINE N OF`.

Started by the supervisor, never by people. The process imports the App again, consumes its share, and reports its state
on the line. The supervisor prints messages for people, each once.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass

from ..app import App
from ..processes.child_process import ControlChannel
from ..processes.supervisor import ChildChecked, ChildEnded, ChildFailed, ChildHealth, ChildStarted
from ..runtime.connection_health import not_ready
from ..runtime.partition import ProcessShare
from ..runtime.signals import StopRequest, run_until_signal
from .app_loader import find_app
from .exit_codes import verdict
from .logs import LogFormat, show_logs

REPORTS = "reports"  # the value of REPORTS if the supervisor wants to know whether this process is ready
REPORT_EVERY = 1.0  # seconds


@dataclass(slots=True)
class SupervisorChannel:
    """Reports to the supervisor that this process is up, and receives the request to end."""

    line: ControlChannel
    up: ChildStarted
    ending: StopRequest | None = None

    def watch(self, ending: StopRequest) -> None:
        self.ending = ending
        self.line.watch(ending)

    def started(self) -> None:
        self.line.say(self.up)

    @property
    def was_asked(self) -> bool:
        return self.ending is not None and self.ending.wanted.is_set()


def report_health(app: App, line: ControlChannel, over: threading.Event) -> None:
    """Report to the supervisor every second what is not ready, until `over` is set.

    Runs on a thread of its own.
    """
    while not over.is_set():
        line.say(ChildHealth(not_ready(app.health())))
        over.wait(REPORT_EVERY)


def run(target: str, log_format: str, reports: str, line: ControlChannel, share: ProcessShare) -> int:
    """Run the App until it ends, and return the exit code."""
    show_logs(LogFormat(log_format), process=share.index + 1)
    over = threading.Event()
    try:
        app = find_app(target)
        processes = app.divide(share, lambda: line.say(ChildChecked()))
        if reports == REPORTS:
            threading.Thread(target=report_health, args=(app, line, over), name="redeliver-report", daemon=True).start()
        parent = SupervisorChannel(line, ChildStarted(processes, app.stop_timeout))
        run_until_signal(app, True, parent)
    except (Exception, KeyboardInterrupt) as error:
        code, message = verdict(error)
        line.say(ChildFailed(code, message))
        return code
    finally:
        over.set()
    if not parent.was_asked:
        line.say(ChildEnded())
    return 0


def main() -> None:
    """Run the process. The entry point."""
    target, log_format, reports, fd, index, of = sys.argv[1:]
    sys.exit(run(target, log_format, reports, ControlChannel(int(fd)), ProcessShare(int(index), int(of))))


if __name__ == "__main__":
    main()
