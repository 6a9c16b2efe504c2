# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Compares clocks: delays that others wait out, and times in headers, go by the wall time of several machines. Pure."""

from __future__ import annotations

from typing import Final

from ..adapter.inspection import ClockReading
from ..clock import NOTICED
from .finding import Finding, not_known, ok, seconds, warning, wrong

FAR: Final = 30.0  # seconds; beyond that short delays are lost in the difference
CURE: Final = "Let one time server set both clocks (NTP)"


def check_broker_clock(reading: ClockReading | None, why: str, where: str) -> Finding:
    """Return whether the clock of the broker and ours are equal. `why`: why there is no reading."""
    if reading is None:
        return not_known("clock", where, why, CURE)
    return compared("clock", "clock-skew", where, reading, "the broker's clock")


def compared(check: str, problem: str, where: str, reading: ClockReading, whose: str) -> Finding:
    """Return whether a clock and ours are equal, as far as the reading shows that."""
    away = abs(reading.ahead) - reading.within
    if away <= NOTICED:
        return ok(check, where, f"{whose} and ours differ by {seconds(NOTICED)} at most")
    side = "ahead of" if reading.ahead > 0 else "behind"
    return (wrong if away > FAR else warning)(
        problem,
        where,
        f"{whose} is {abs(reading.ahead):.0f} s {side} ours: delays that are waited out elsewhere are wrong by that",
        CURE,
    )
