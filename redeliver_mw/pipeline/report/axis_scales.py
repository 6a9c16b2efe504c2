# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Computes where a value is on an axis, and which values are labelled. Pure; pixels are floats, times in seconds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final, NamedTuple

from .units import MONTHS, duration

DAY: Final = 86400.0
# Steps of a time axis; beyond the last, months.
_STEPS: Final = (1, 10, 30, 60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 2 * 86400, 7 * 86400)
_MONTHS: Final = (1, 3, 6, 12, 24, 60, 120, 600)
# Labels of an axis for time spans from nothing to years: as many as fit.
_FINE: Final = (
    0.001,
    0.003,
    0.01,
    0.03,
    0.1,
    0.3,
    1,
    3,
    10,
    30,
    60,
    180,
    600,
    1800,
    3600,
    3 * 3600,
    12 * 3600,
    DAY,
    3 * DAY,
    10 * DAY,
    30 * DAY,
    100 * DAY,
    365 * DAY,
    1000 * DAY,
    3650 * DAY,
)
_COARSE: Final = (0.001, 0.01, 0.1, 1, 10, 60, 600, 3600, 12 * 3600, 3 * DAY, 30 * DAY, 365 * DAY, 3650 * DAY)
_FIRST_MONDAY: Final = 4 * DAY  # 1970 began on a Thursday


class Tick(NamedTuple):
    """Is a mark on an axis, with its label."""

    value: float
    label: str


@dataclass(frozen=True)
class Scale:
    """Maps `low` to pixel `start` and `high` to pixel `end`; `log` scales by ratios, and needs `low` above 0."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return the pixel of a value; a value outside gets the nearer end."""
        value = min(max(value, self.low), self.high)
        if self.high <= self.low:
            return self.start
        if self.log:
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    def thinned(self, ticks: Iterable[Tick], gap: float) -> list[Tick]:
        """Return ticks on the scale that are at least `gap` pixels apart."""
        kept: list[Tick] = []
        for tick in ticks:
            inside = self.low <= tick.value <= self.high
            if inside and (not kept or abs(self(tick.value) - self(kept[-1].value)) >= gap):
                kept.append(tick)
        return kept


def rounds(highest: float, most: int) -> list[float]:
    """Return equal round steps from 0 to `highest`, at most `most`: 1, 2, 2.5 or 5 times a power of ten."""
    if highest <= 0:
        return [0.0, 1.0]
    power = 10.0 ** (math.floor(math.log10(highest / most)))
    step = next(power * times for times in (1, 2, 2.5, 5, 10, 20) if power * times * most >= highest * (1 - 1e-9))
    return [step * number for number in range(math.ceil(highest / step - 1e-9) + 1)]


def spans(scale: Scale, gap: float) -> list[Tick]:
    """Return round time spans on a scale of ratios, at least `gap` pixels apart."""
    for ladder in (_FINE, _COARSE):
        ticks = [Tick(span, duration(span)) for span in ladder if scale.low <= span <= scale.high]
        if len(scale.thinned(ticks, gap)) == len(ticks) > 0:
            return ticks
    return scale.thinned([Tick(span, duration(span)) for span in _COARSE], gap)


def times(low: float, high: float, most: int) -> list[Tick]:
    """Return at most `most` round moments in UTC: hours as `09:05`, days as `4 Mar`, months as `Mar`."""
    for step in _STEPS:
        if (high - low) / step < most:
            return _even_times(low, high, step)
    for months in _MONTHS:
        ticks = _month_times(low, high, months)
        if len(ticks) <= most:
            return ticks
    return []


def bucket(seconds: float, most: int) -> int:
    """Return the smallest round width, a multiple of ten seconds, of which at most `most` cover `seconds`.

    The widths cover `seconds` for any starting point.
    """
    ladder = (10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 3 * 3600, 6 * 3600, 12 * 3600)
    for width in ladder:
        if seconds / width + 1 <= most:
            return width
    return math.ceil(seconds / (most - 1) / DAY) * int(DAY)


def steps(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the corners of a curve that keeps each value until the next point."""
    corners = list(points[:1])
    for (_, before), (x, y) in pairwise(points):
        corners += [(x, before), (x, y)] if y != before else []
    return [*corners, (points[-1][0], points[-1][1])] if points else []


def _even_times(low: float, high: float, step: int) -> list[Tick]:
    origin = _FIRST_MONDAY if step == 7 * DAY else 0.0
    first = math.ceil((low - origin) / step)
    last = math.floor((high - origin) / step)
    return [Tick(origin + number * step, _label(origin + number * step, step)) for number in range(first, last + 1)]


def _label(seconds: float, step: int) -> str:
    when = datetime.fromtimestamp(seconds, UTC)
    if step >= DAY or seconds % DAY == 0:
        return f"{when.day} {MONTHS[when.month - 1]}"
    return f"{when:%H:%M:%S}" if step < 60 else f"{when:%H:%M}"


def _month_times(low: float, high: float, months: int) -> list[Tick]:
    begin, end = (datetime.fromtimestamp(edge, UTC) for edge in (low, high))
    first, last = begin.year * 12 + begin.month - 1, end.year * 12 + end.month - 1
    ticks = []
    for number in range(first, last + 1):
        start = datetime(number // 12, number % 12 + 1, 1, tzinfo=UTC).timestamp()
        if number % months == 0 and low <= start <= high:
            ticks.append(Tick(start, _month_label(number, months)))
    return ticks


def _month_label(number: int, months: int) -> str:
    year = str(number // 12)
    if months >= 12:
        return year
    return f"{MONTHS[number % 12]} {year}" if number % 12 == 0 else MONTHS[number % 12]
