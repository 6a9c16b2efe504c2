# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What the worlds share whose clock is the wall's."""

from __future__ import annotations

import time
from collections.abc import Callable

from redeliver_mw.testing.contract import World


class RealTimeWorld(World):
    """Nobody moves its clock: it waits."""

    def now(self) -> float:
        return time.monotonic()

    def advance(self, seconds: float) -> None:
        time.sleep(seconds)

    def wait_until(self, true: Callable[[], bool], timeout: float | None = None) -> bool:
        end = self.now() + (self.patience if timeout is None else timeout)
        while not (done := true()) and self.now() < end:
            time.sleep(0.01)
        return done
