# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""A wall clock that somebody sets is told of. Nothing is done about it: holds go by the other clock."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from .ports import Clock, Moment, SystemClock

log = logging.getLogger("redeliver_mw")

NOTICED = 2.0  # seconds; a clock that is kept right by the network is slewed, or stepped by less


class Watched:
    """A clock that says once when its wall time has been set, as seen at the next reading. From any thread."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._saying = threading.Lock()
        self._ahead = _ahead(clock.now())

    def now(self) -> Moment:
        """One reading of both clocks."""
        moment = self.clock.now()
        ahead = _ahead(moment)
        if abs(ahead - self._ahead) > NOTICED:
            self._say(ahead)
        else:
            self._ahead = ahead  # a clock that is slewed may go any way in the end
        return moment

    def _say(self, ahead: float) -> None:
        with self._saying:
            step, self._ahead = ahead - self._ahead, ahead
        if abs(step) > NOTICED:
            log.warning(
                "the wall clock was set %s by %.0f s. Consuming goes on; what is held here goes by another clock, what "
                "waits elsewhere by its date", "forward" if step > 0 else "back", abs(step),
            )  # fmt: skip


def ticker(clock: Clock) -> Callable[[], float]:
    """What runs are timed with: seconds since some time, of that clock or finer."""
    own = clock.clock if isinstance(clock, Watched) else clock
    return time.perf_counter if isinstance(own, SystemClock) else lambda: own.now().mono


def _ahead(moment: Moment) -> float:
    return moment.wall - moment.mono
