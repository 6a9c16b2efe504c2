# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The clocks: readings of monotonic and wall time, and a warning when the wall clock is set.

Nothing has to be done about a wall clock that is set: held messages use the monotonic clock.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

log = logging.getLogger("redeliver_mw")

COMPARED = 0.05  # seconds for which a comparison of the machine's two clocks is good
NOTICED = 2.0  # seconds; a clock that is kept right by the network is slewed, or stepped by less


class Moment(NamedTuple):
    """One reading of both clocks: `mono` for holds and timeouts, `wall` (since 1970) for headers. Seconds."""

    mono: float
    wall: float

    @property
    def us(self) -> int:
        """Wall time in microseconds."""
        return round(self.wall * 1_000_000)


class Clock(Protocol):
    def now(self) -> Moment: ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> Moment:
        return Moment(time.monotonic(), time.time())


class StepWatchingClock:
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
                "waits elsewhere by its date",
                "forward" if step > 0 else "back",
                abs(step),
            )


class Stamps:
    """Wall time of a tick of `ticker`, without reading two clocks for each: the machine's are compared now and then.

    A clock that somebody moves by hand is read each time. For one thread, or for several that bear being late.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._valid = COMPARED if isinstance(_own(clock), SystemClock) else 0.0
        self._until, self._epoch_us = -math.inf, 0.0

    def us(self, tick: float) -> int:
        """Microseconds since 1970 of a tick that was just read."""
        if tick < self._until:
            return int(self._epoch_us + tick * 1e6)
        now_us = self._clock.now().us
        self._epoch_us = now_us - tick * 1e6
        self._until = tick + self._valid
        return now_us


def ticker(clock: Clock) -> Callable[[], float]:
    """What runs are timed with: seconds since some time, of that clock or finer."""
    own = _own(clock)
    return time.perf_counter if isinstance(own, SystemClock) else lambda: own.now().mono


def _own(clock: Clock) -> Clock:
    return clock.clock if isinstance(clock, StepWatchingClock) else clock


def _ahead(moment: Moment) -> float:
    return moment.wall - moment.mono
