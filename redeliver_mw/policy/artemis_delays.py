# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Computes Artemis' delays exactly: in whole milliseconds, each fraction cut off, jitter before the cap.

After failure F::

    delay x multiplier ^ (F - 1)              its fraction cut off
    up to `factor` longer or shorter          its fraction cut off; only if there is a factor
    at most `cap`, even where that is shorter than `delay`

A delay of 0 or less is no delay, whatever the multiplier.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from ..errors import PolicyError
from .backoff import LONGEST, Backoff, DelaySpan, number_of

_MOST = 2**63 - 1


@dataclass(frozen=True)
class ArtemisDelays(Backoff):
    """Computes delays from `delay` and `cap` in milliseconds, `multiplier` 0 or more, `factor` from 0 to 1.

    `cap` None is ten times `delay`, as in Artemis.
    """

    delay: int
    multiplier: float = 1.0
    cap: int | None = None
    factor: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "cap", self.delay * 10 if self.cap is None else self.cap)
        for name, value in (("delay", self.delay), ("cap", self.cap)):
            if type(value) is not int:
                raise PolicyError(
                    f"{name} is {value!r:.100}", where="backoff", cure="Give whole milliseconds", code="policy-value"
                )
        object.__setattr__(self, "multiplier", number_of(self.multiplier, "the multiplier"))
        object.__setattr__(self, "factor", number_of(self.factor, "the jitter"))
        if self.factor > 1:
            raise PolicyError(
                f"the jitter is {self.factor:g}", where="backoff", cure="Give a share from 0 to 1", code="policy-value"
            )

    def after(self, failures: int, share: float = 0.0) -> float:
        """Return the delay after failure number `failures`, in seconds.

        `share`, -1 to 1, is the part of the jitter that is applied.
        """
        if self.delay <= 0:
            return 0.0
        delay = _cut(self.delay * _power(self.multiplier, max(failures, 1) - 1))
        if self.factor:
            delay = _cut(delay + delay * (self.factor * share))
        cap = delay if self.cap is None else self.cap
        return min(max(min(delay, cap), 0) / 1000, LONGEST)

    def span(self, failures: int) -> DelaySpan:
        base = self.after(failures)
        if not self.factor:
            return DelaySpan(base, base, base)
        return DelaySpan(base, self.after(failures, -1.0), self.after(failures, 1.0))

    def bound(self, last: int | None) -> float:
        if self.multiplier <= 1:
            return self.after(1, 1.0)
        if last is not None:
            return self.after(last, 1.0)
        cap = LONGEST * 1000 if self.cap is None else self.cap
        return min(max(cap, 0) / 1000, LONGEST) if self.delay > 0 else 0.0

    def draw(self, failures: int, rng: random.Random) -> float:
        if not self.factor:
            return self.after(failures)
        sign = 1.0 if rng.random() < 0.5 else -1.0
        return self.after(failures, sign * rng.random())

    def __str__(self) -> str:
        growth = f" times {self.multiplier:g}" if self.multiplier != 1 else ""
        jitter = f", jitter {self.factor:.0%}," if self.factor else ""
        return f"{self.delay} ms{growth}{jitter} up to {self.cap} ms"


def _cut(value: float) -> int:
    # Convert as Java converts a double to a long.
    return _MOST if value >= _MOST else math.trunc(value)


def _power(base: float, exponent: int) -> float:
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return math.inf
