# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs one process of `run --processes`: `python -P -m redeliver_mw.cli.child TARGET FORMAT REPORTS LINE N OF`.

Started by the supervisor, never by people. REPORTS is `silent`, or those of `health,metrics,traces,notify` that are
wanted. The process imports the App again, consumes its share, and reports its state on the line; `traces` and `notify`
are no reports: the process itself makes spans, and sends notifications. The supervisor prints messages for people, each
once.
"""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import dataclass

from ..app import App
from ..processes.child_process import ControlChannel
from ..processes.supervisor import ChildChecked, ChildEnded, ChildFailed, ChildHealth, ChildMetrics, ChildStarted
from ..runtime.connection_health import not_ready
from ..runtime.partition import ProcessShare
from ..runtime.signals import StopRequest, run_until_signal
from ..telemetry.samples import to_json
from .app_loader import find_app
from .exit_codes import verdict
from .logs import LogFormat, show_logs

REPORT_EVERY = 1.0  # seconds
NOTIFY_VARIABLE = "REDELIVER_CHILD_NOTIFY"  # the URL of the webhook for `notify`


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


class Reporter:
    """Reports every second to the supervisor what it wants to know: `health`, `metrics`, or both."""

    def __init__(self, app: App, line: ControlChannel, wanted: str) -> None:
        self._app, self._line = app, line
        self._wanted = frozenset(wanted.split(","))
        self._over = threading.Event()

    def start(self) -> None:
        """Report from now on, on a thread of its own.

        Raises MissingExtra without what metrics or traces need, and ConfigError for a webhook that cannot be used.
        """
        if "metrics" in self._wanted:
            self._app.measured()
        if "traces" in self._wanted:
            self._app.traced()
        if "notify" in self._wanted:
            self._app.notified(os.environ[NOTIFY_VARIABLE])
        if self._wanted & {"health", "metrics"}:
            threading.Thread(target=self._work, name="redeliver-report", daemon=True).start()

    def stop(self) -> None:
        """Report the metrics for the last time."""
        if not self._over.is_set():
            self._over.set()
            self._report_metrics()

    def _work(self) -> None:
        while not self._over.is_set():
            if "health" in self._wanted:
                self._line.say(ChildHealth(not_ready(self._app.health())))
            self._report_metrics()
            self._over.wait(REPORT_EVERY)

    def _report_metrics(self) -> None:
        if "metrics" in self._wanted:
            self._line.say(ChildMetrics(to_json(self._app.measured().tallies.samples())))


def run(target: str, log_format: str, reports: str, line: ControlChannel, share: ProcessShare) -> int:
    """Run the App until it ends, and return the exit code."""
    show_logs(LogFormat(log_format), process=share.index + 1)
    reporter: Reporter | None = None
    try:
        app = find_app(target)
        reporter = Reporter(app, line, reports)
        reporter.start()
        processes = app.divide(share, lambda: line.say(ChildChecked()))
        parent = SupervisorChannel(line, ChildStarted(processes, app.stop_timeout))
        run_until_signal(app, True, parent)
    except (Exception, KeyboardInterrupt) as error:
        code, message = verdict(error)
        line.say(ChildFailed(code, message))
        return code
    finally:
        if reporter is not None:
            reporter.stop()
    if not parent.was_asked:
        line.say(ChildEnded())
    return 0


def main() -> None:
    """Run the process. The entry point."""
    target, log_format, reports, fd, index, of = sys.argv[1:]
    sys.exit(run(target, log_format, reports, ControlChannel(int(fd)), ProcessShare(int(index), int(of))))


if __name__ == "__main__":
    main()
