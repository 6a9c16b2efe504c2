# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Computes ActiveMQ's delays exactly: each one from the one before, in whole milliseconds of 64 bits.

The first delay is `initial`, neither cut nor jittered. The next one, after `previous`::

    if it grows and previous > 0:   previous x multiplier, its fraction cut off;
                                    if that is above the cap: the cap, or `delay` if that is longer
    else:                           delay
    then, if it is jittered:        up to `factor` longer or shorter, its fraction cut off

So jitter compounds: a step starts from the jittered delay, and can pass the cap. Growth can freeze: 1 ms times 1.5 is 1
ms. Sums that do not fit into 64 bits stay at the largest that does, as in Java. A delay below zero is no delay.

`Backoff` keeps no state, so a draw for failure F repeats all F - 1 steps, as ActiveMQ does at every rollback.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ..errors import PolicyError
from .backoff import LONGEST, Backoff, DelaySpan

FARTHEST = 10_000  # failures; a delay that still grows then stays constant from there
_MOST, _LEAST = 2**63 - 1, -(2**63)


@dataclass(frozen=True)
class ActiveMQDelays(Backoff):
    """Computes delays from `initial`, `delay` and `cap` in milliseconds.

    `multiplier` None means no growth, `cap` None no cap.

    A multiplier of 1 or less is no growth, and without growth there is no cap. `factor` 0.15 is up to 15 per cent of
    jitter; its sign does not matter.
    """

    initial: int = 1000
    delay: int = 1000
    multiplier: float | None = None
    cap: int | None = None
    factor: float = 0.0

    def __post_init__(self) -> None:
        for name in ("initial", "delay", "cap"):
            _whole(getattr(self, name), name)
        for name in ("multiplier", "factor"):
            _finite(getattr(self, name), name)
        grows = self.multiplier is not None and self.multiplier > 1
        object.__setattr__(self, "multiplier", self.multiplier if grows else None)
        object.__setattr__(self, "cap", self.cap if grows else None)
        object.__setattr__(self, "factor", abs(self.factor))

    def following(self, previous: int, share: float = 0.0) -> int:
        """Return the delay after `previous`, in milliseconds.

        `share`, -1 to 1, is the part of the jitter that is applied.
        """
        delay = self._grown(previous)
        return _cut(delay + delay * (self.factor * share)) if self.factor else delay

    def span(self, failures: int) -> DelaySpan:
        return self._spans[min(max(failures, 1), len(self._spans)) - 1]

    def bound(self, last: int | None) -> float:
        return max((span.high for span in self._spans[:last]), default=0.0)

    def draw(self, failures: int, rng: random.Random) -> float:
        if not self.factor:
            return self.span(failures).base
        steps = min(failures, FARTHEST) - 1
        delay = self.initial
        # Without growth a delay does not depend on the one before, so the last step is enough.
        for _ in range(steps if self.multiplier is not None else min(steps, 1)):
            sign = 1.0 if rng.random() < 0.5 else -1.0
            delay = self.following(delay, sign * rng.random())
        return _seconds(delay)

    def _grown(self, previous: int) -> int:
        if self.multiplier is None or previous <= 0:
            return self.delay
        delay = _cut(previous * self.multiplier)
        if self.cap is not None and delay > self.cap:
            return max(self.cap, self.delay)
        return delay

    @cached_property
    def _spans(self) -> tuple[DelaySpan, ...]:
        # From failure 1 on; the last one repeats.
        return tuple(reach.span() for reach in self._walk())

    def _walk(self) -> Iterator[_Reach]:
        reach = _Reach(self.initial, *_split(self.initial, self.initial))
        yield reach
        for _ in range(FARTHEST - 1):
            before, reach = reach, self._next(reach)
            if reach == before:
                return
            yield reach

    def _next(self, reach: _Reach) -> _Reach:
        if not self.factor:
            base = self._grown(reach.base)
            return _Reach(base, *_split(base, base))
        ranges = [(self.delay, self.delay)] if reach.none else []
        if reach.some:
            ranges.append((self._grown(reach.some[0]), self._grown(reach.some[1])))
        jittered = [self._jittered(low, high) for low, high in ranges]
        parts = [_split(low, high) for low, high in jittered]
        return _Reach(self._grown(reach.base), _hull(part[0] for part in parts), _hull(part[1] for part in parts))

    def _jittered(self, low: int, high: int) -> tuple[int, int]:
        if not self.factor:
            return low, high
        ends = [_cut(delay + delay * share) for delay in (low, high) for share in (self.factor, -self.factor)]
        return min(ends), max(ends)

    def __str__(self) -> str:
        growth = f"growing {self.multiplier:g} times" if self.multiplier is not None else f"then {self.delay} ms"
        most = f" up to {max(self.cap, self.delay)} ms" if self.cap is not None else ""
        jitter = f", jitter {self.factor:.0%}, compounding" if self.factor else ""
        second = f"then {self.delay} ms, " if self.multiplier is not None and self.initial <= 0 else ""
        return f"{self.initial} ms, {second}{growth}{most}{jitter}"


_Range = tuple[int, int] | None


class _Reach(NamedTuple):
    """Holds the possible delays, in milliseconds: without jitter; the range at 0 or below; the range above 0.

    The two ranges are separate because growth begins again from `delay` after a delay of none.
    """

    base: int
    none: _Range
    some: _Range

    def span(self) -> DelaySpan:
        ends = [*(self.none or ()), *(self.some or ())]
        return DelaySpan(_seconds(self.base), _seconds(min(ends)), _seconds(max(ends)))


def _split(low: int, high: int) -> tuple[_Range, _Range]:
    return (low, min(high, 0)) if low <= 0 else None, (max(low, 1), high) if high > 0 else None


def _hull(ranges: Iterator[_Range]) -> _Range:
    found = [one for one in ranges if one]
    return (min(low for low, _ in found), max(high for _, high in found)) if found else None


def _cut(value: float) -> int:
    # Convert as Java converts a double to a long.
    return _MOST if value >= _MOST else _LEAST if value <= _LEAST else int(value)


def _seconds(milliseconds: int) -> float:
    return min(max(milliseconds, 0) / 1000, LONGEST)


def _whole(value: object, name: str) -> None:
    if value is None and name == "cap":
        return
    if isinstance(value, bool) or not isinstance(value, int) or not _LEAST <= value <= _MOST:
        raise PolicyError(
            f"{name} is {value!r:.100}", where="backoff", cure="Give whole milliseconds of 64 bits", code="policy-value"
        )


def _finite(value: object, name: str) -> None:
    if value is None and name == "multiplier":
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise PolicyError(
            f"{name} is {value!r:.100}", where="backoff", cure="Give a finite number", code="policy-value"
        )
