# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Limits a rate with a token bucket that is empty at the start. Pure except for the clock that it is given."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

SLACK: Final = 1.0  # seconds that a publisher may be late and catch up, after a slow answer or a slow disk


class RateLimit:
    """Allows at most `rate` messages per second (None: no limit).

    At once, at most those of `SLACK` seconds and one more.
    """

    def __init__(self, rate: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = rate, clock
        self._tokens = 0.0
        self._at: float | None = None  # when tokens were counted last; the time before the first message does not count

    def take(self) -> float:
        """Return 0.0 if the next message may go now; otherwise the seconds until it may, with no token taken."""
        if self._rate is None:
            return 0.0
        now = self._clock()
        most = 1.0 + self._rate * SLACK  # so that a part of a message is not lost after a stall
        since = now if self._at is None else self._at
        self._tokens = min(most, self._tokens + (now - since) * self._rate)
        self._at = now
        if self._tokens < 1.0:
            return (1.0 - self._tokens) / self._rate
        self._tokens -= 1.0
        return 0.0
