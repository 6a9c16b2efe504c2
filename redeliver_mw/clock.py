# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Provides the clocks: readings of monotonic and wall time, and a warning when the wall clock is set.

No action is needed when the wall clock is set: held messages use the monotonic clock.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import NamedTuple, Protocol

log = logging.getLogger("redeliver_mw")

NOTICED = 2.0  # seconds; a clock that the network keeps right is slewed, or stepped by less


class Moment(NamedTuple):
    """Holds one reading of both clocks: `mono` for holds and timeouts, `wall` (since 1970) for headers. Seconds."""

    mono: float
    wall: float

    @property
    def us(self) -> int:
        """Return the wall time in microseconds since 1970."""
        return round(self.wall * 1_000_000)


class Clock(Protocol):
    """Reads both clocks at once. Thread-safe."""

    def now(self) -> Moment: ...


class SystemClock:
    """Reads the machine's clocks. Thread-safe."""

    def now(self) -> Moment:
        return Moment(time.monotonic(), time.time())


class StepWatchingClock:
    """Logs once when its wall time has been set, at the next reading. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._saying = threading.Lock()
        self._ahead = _ahead(clock.now())

    def now(self) -> Moment:
        """Return one reading of both clocks."""
        moment = self.clock.now()
        ahead = _ahead(moment)
        if abs(ahead - self._ahead) > NOTICED:
            self._say(ahead)
        else:
            self._ahead = ahead  # a slewed clock may move any distance in the end
        return moment

    def _say(self, ahead: float) -> None:
        with self._saying:
            step, self._ahead = ahead - self._ahead, ahead
        if abs(step) > NOTICED:
            log.warning(
                "the wall clock was set %s by %.0f s. Consuming goes on; what is held here goes by another clock, what "
                "waits elsewhere by its date",
                "forward" if step > 0 else "back",
                abs(step),
            )


def _ahead(moment: Moment) -> float:
    return moment.wall - moment.mono
