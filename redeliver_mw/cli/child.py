# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""One process of `redeliver run --processes`: `python -P -m redeliver_mw.cli.child TARGET FORMAT LINE INDEX OF`.

Started by the supervisor, never by people. It imports the App anew, consumes its share, and says on the line what
becomes of it; what is to be read by people the supervisor prints, once.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from ..processes.child_process import ControlChannel
from ..processes.supervisor import ChildEnded, ChildFailed, ChildStarted
from ..runtime.partition import ProcessShare
from ..runtime.signals import StopRequest, run_until_signal
from .app_loader import find_app
from .exit_codes import verdict
from .logs import LogFormat, show_logs


@dataclass(slots=True)
class SupervisorChannel:
    """Tells the supervisor that this process is up, and is told by it when to end."""

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


def run(target: str, log_format: str, line: ControlChannel, share: ProcessShare) -> int:
    """The App's whole life; the exit code."""
    show_logs(LogFormat(log_format), process=share.index + 1)
    try:
        app = find_app(target)
        processes = app.divide(share)
        boss = SupervisorChannel(line, ChildStarted(processes, app.stop_timeout))
        run_until_signal(app, True, boss)
    except (Exception, KeyboardInterrupt) as error:
        code, said = verdict(error)
        line.say(ChildFailed(code, said))
        return code
    if not boss.was_asked:
        line.say(ChildEnded())
    return 0


def main() -> None:
    """The entry point of the process."""
    target, log_format, fd, index, of = sys.argv[1:]
    sys.exit(run(target, log_format, ControlChannel(int(fd)), ProcessShare(int(index), int(of))))


if __name__ == "__main__":
    main()
