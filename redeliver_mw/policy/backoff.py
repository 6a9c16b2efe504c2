# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines how long a message is delayed after its F-th failure, by small frozen strategies that can be combined.

A `Backoff` is a function of F and nothing else. It returns the delay before jitter (`base`), the range that jitter can
reach (`low`, `high`), and draws from that range with the caller's random generator. It keeps no state, so that asking
twice gives the same answer and nothing can compound by accident.

The order of composition is the order of computation: `exponential(1).jittered(0.5).capped(60)` jitters and then cuts
(Artemis), `exponential(1).capped(60).jittered(0.5)` cuts and then jitters (ActiveMQ).

Delays are float seconds. No delay is longer than `LONGEST`, so that every delay can be added to a date.
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import PolicyError

LONGEST = 1e9  # seconds, about 31 years: growth without a cap stops here
_WALKED = 1000  # counts of failures that `longest` checks one by one


class DelaySpan(NamedTuple):
    """Holds a delay in seconds: before jitter, and the range that jitter can reach; 0 <= low <= high <= LONGEST."""

    base: float
    low: float
    high: float


class Backoff(ABC):
    """Computes a delay as a function of F. Frozen, pure, thread-safe."""

    @abstractmethod
    def span(self, failures: int) -> DelaySpan:
        """Return the delay after failure number `failures` (>= 1)."""

    @abstractmethod
    def bound(self, last: int | None) -> float:
        """Return an upper bound in seconds of every `high` for failures 1 to `last` (None: for all failures)."""

    def draw(self, failures: int, rng: random.Random) -> float:
        """Return one delay from the span, with jitter, in seconds.

        Uniformly distributed unless a strategy says otherwise.
        """
        _, low, high = self.span(failures)
        return low if low == high else rng.uniform(low, high)

    def longest(self, last: int | None) -> float:
        """Return the largest `high` of failures 1 to `last`, in seconds; 0 if there is no such failure.

        Exact up to a thousand failures and for every strategy that only grows; otherwise an upper bound.
        """
        if last is not None and last <= _WALKED:
            return max((self.span(f).high for f in range(1, last + 1)), default=0.0)
        return min(self.bound(last), LONGEST)

    @staticmethod
    def constant(seconds: float) -> Backoff:
        """Return a back-off with the same delay after every failure."""
        return Constant(seconds)

    @staticmethod
    def listed(delays: Sequence[float]) -> Backoff:
        """Return a back-off of one delay after another; the last one repeats. Raises PolicyError if there is none."""
        if not delays:
            raise PolicyError(
                "an empty list of delays",
                where="backoff",
                cure="Give at least one delay in seconds",
                code="policy-value",
            )
        return Steps(tuple(enumerate(delays, 1)))

    @staticmethod
    def steps(steps: Mapping[int, float]) -> Backoff:
        """Return a back-off of `value` seconds from failure number `key` on; no delay before the first key."""
        return Steps(tuple(sorted(steps.items())))

    @staticmethod
    def exponential(initial: float = 1.0, multiplier: float = 2.0, cap: float | None = None) -> Backoff:
        """Return a back-off of `initial` seconds, each next one `multiplier` times as long, at most `cap`."""
        growth = Exponential(initial, multiplier)
        return growth if cap is None else growth.capped(cap)

    def capped(self, cap: float, floor: float = 0.0) -> Backoff:
        """Return this back-off cut to at most `cap` and at least `floor` seconds."""
        return Clamp(self, floor, cap)

    def jittered(self, factor: float, *, first: bool = True) -> Backoff:
        """Return this back-off up to `factor` (0 to 1) longer or shorter; the first delay only if `first`."""
        return Spread(self, factor, first)

    def __add__(self, other: Backoff) -> Backoff:
        return Sum((self, other))


@dataclass(frozen=True)
class Constant(Backoff):
    """Gives the same delay after every failure."""

    seconds: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "seconds", seconds_of(self.seconds, "a delay"))

    def span(self, failures: int) -> DelaySpan:
        """Return the one delay, without a range."""
        return DelaySpan(self.seconds, self.seconds, self.seconds)

    def bound(self, last: int | None) -> float:
        """Return the one delay."""
        return self.seconds

    def __str__(self) -> str:
        return f"{self.seconds:g} s"


@dataclass(frozen=True)
class Steps(Backoff):
    """Gives the delay of the largest step that F has reached; none before the first."""

    table: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        table = tuple((at, seconds_of(delay, f"the delay of step {at!r}")) for at, delay in self.table)
        object.__setattr__(self, "table", table)
        reached = 0
        for at, _ in table:
            if isinstance(at, bool) or not isinstance(at, int) or at <= reached:
                raise PolicyError(
                    f"step {at!r} after step {reached}",
                    where="backoff",
                    cure="Number the steps 1, 2, 3, … upwards",
                    code="policy-value",
                )
            reached = at

    def span(self, failures: int) -> DelaySpan:
        """Return the delay of the largest step that `failures` has reached, without a range; 0 before the first."""
        delay = 0.0
        for at, seconds in self.table:
            if at > failures:
                break
            delay = seconds
        return DelaySpan(delay, delay, delay)

    def bound(self, last: int | None) -> float:
        """Return the largest delay of the steps up to `last`, exactly."""
        return max((delay for at, delay in self.table if last is None or at <= last), default=0.0)

    def __str__(self) -> str:
        return ", ".join(f"{at}: {delay:g} s" for at, delay in self.table) or "0 s"


@dataclass(frozen=True)
class Exponential(Backoff):
    """Gives `initial` x `multiplier` ^ (F - 1) seconds."""

    initial: float
    multiplier: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "initial", seconds_of(self.initial, "the initial delay"))
        object.__setattr__(self, "multiplier", number_of(self.multiplier, "the multiplier"))

    def span(self, failures: int) -> DelaySpan:
        """Return the delay, without a range; it grows to LONGEST at most."""
        delay = self.initial and min(self.initial * _power(self.multiplier, max(failures - 1, 0)), LONGEST)
        return DelaySpan(delay, delay, delay)

    def bound(self, last: int | None) -> float:
        """Return the delay after the failure that has the longest, exactly; LONGEST if it grows without an end."""
        peak = 1 if self.multiplier <= 1 else last
        return self.span(peak).high if peak is not None else LONGEST if self.initial else 0.0

    def __str__(self) -> str:
        return f"{self.initial:g} s times {self.multiplier:g}"


@dataclass(frozen=True)
class Linear(Backoff):
    """Gives `start` + `increment` x (F - 1) seconds, never below 0; the increment may be negative."""

    start: float
    increment: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", seconds_of(self.start, "the start"))
        if isinstance(self.increment, bool) or not math.isfinite(self.increment):
            raise PolicyError(
                f"the increment is {self.increment!r}", where="backoff", cure="Give seconds", code="policy-value"
            )

    def span(self, failures: int) -> DelaySpan:
        """Return the delay, without a range, from 0 to LONGEST."""
        delay = min(max(self.start + self.increment * (failures - 1), 0.0), LONGEST)
        return DelaySpan(delay, delay, delay)

    def bound(self, last: int | None) -> float:
        """Return the delay after the failure that has the longest, exactly; LONGEST if it grows without an end."""
        peak = 1 if self.increment <= 0 else last
        return self.span(peak).high if peak is not None else LONGEST

    def __str__(self) -> str:
        return f"{self.start:g} s plus {self.increment:g} s each time"


@dataclass(frozen=True)
class Uniform(Backoff):
    """Gives a random delay from `low` to `high` seconds; before jitter it is `low`."""

    low: float
    high: float

    def __post_init__(self) -> None:
        low, high = seconds_of(self.low, "the shortest delay"), seconds_of(self.high, "the longest delay")
        if low > high:
            raise PolicyError(
                f"from {low:g} s to {high:g} s",
                where="backoff",
                cure="Give the shorter delay first",
                code="policy-value",
            )
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    def span(self, failures: int) -> DelaySpan:
        """Return the whole range, the same after each failure."""
        return DelaySpan(self.low, self.low, self.high)

    def bound(self, last: int | None) -> float:
        """Return the end of the range."""
        return self.high

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g} s"


# -- back-offs that combine others
# --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sum(Backoff):
    """Adds up its parts; each draws for itself."""

    parts: tuple[Backoff, ...]

    def span(self, failures: int) -> DelaySpan:
        """Return the sums of the parts, each at most LONGEST."""
        spans = [part.span(failures) for part in self.parts]
        base, low, high = (min(sum(column), LONGEST) for column in zip(*spans, strict=True))
        return DelaySpan(base, low, high)

    def bound(self, last: int | None) -> float:
        """Return the sum of the bounds of the parts."""
        return sum(part.bound(last) for part in self.parts)

    def draw(self, failures: int, rng: random.Random) -> float:
        """Return the sum of one delay from each part: it is not uniformly distributed."""
        return sum(part.draw(failures, rng) for part in self.parts)

    def __str__(self) -> str:
        return " + ".join(str(part) for part in self.parts)


@dataclass(frozen=True)
class Chain(Backoff):
    """Uses part number F; the last one repeats. Each part is asked with F itself, as in tenacity."""

    parts: tuple[Backoff, ...]

    def _part(self, failures: int) -> Backoff:
        return self.parts[min(max(failures, 1), len(self.parts)) - 1]

    def span(self, failures: int) -> DelaySpan:
        """Return the span of the failure's own part."""
        return self._part(failures).span(failures)

    def bound(self, last: int | None) -> float:
        """Return the largest bound of the parts."""
        return max(part.bound(last) for part in self.parts)

    def draw(self, failures: int, rng: random.Random) -> float:
        """Return one delay from the failure's own part."""
        return self._part(failures).draw(failures, rng)

    def __str__(self) -> str:
        return ", then ".join(str(part) for part in self.parts)


@dataclass(frozen=True)
class Clamp(Backoff):
    """Cuts the inner delay to at most `cap` and at least `floor` seconds; if the two cross, the floor wins."""

    inner: Backoff
    floor: float
    cap: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "floor", seconds_of(self.floor, "the shortest delay"))
        object.__setattr__(self, "cap", seconds_of(self.cap, "the cap"))

    def _cut(self, delay: float) -> float:
        return max(self.floor, min(delay, self.cap))

    def span(self, failures: int) -> DelaySpan:
        """Return the inner span, each of its delays cut."""
        base, low, high = self.inner.span(failures)
        return DelaySpan(self._cut(base), self._cut(low), self._cut(high))

    def bound(self, last: int | None) -> float:
        """Return the inner bound, cut."""
        return self._cut(self.inner.bound(last))

    def draw(self, failures: int, rng: random.Random) -> float:
        """Return one inner delay, cut: the ends of the range may be more likely than what lies between."""
        return self._cut(self.inner.draw(failures, rng))

    def __str__(self) -> str:
        least = f", at least {self.floor:g} s" if self.floor else ""
        most = f" up to {self.cap:g} s" if self.cap < LONGEST else ""
        return f"{self.inner}{most}{least}"


@dataclass(frozen=True)
class Spread(Backoff):
    """Makes the inner delay up to `factor` longer or shorter, uniformly; the first one is unchanged unless `first`."""

    inner: Backoff
    factor: float
    first: bool = True

    def __post_init__(self) -> None:
        factor = number_of(self.factor, "the jitter")
        if factor > 1:
            raise PolicyError(
                f"the jitter is {factor:g}", where="backoff", cure="Give a share from 0 to 1", code="policy-value"
            )
        object.__setattr__(self, "factor", factor)

    def _factor(self, failures: int) -> float:
        return self.factor if self.first or failures > 1 else 0.0

    def span(self, failures: int) -> DelaySpan:
        """Return the inner span, made wider by `factor` of its ends, to LONGEST at most."""
        base, low, high = self.inner.span(failures)
        factor = self._factor(failures)
        return DelaySpan(base, low * (1 - factor), min(high * (1 + factor), LONGEST))

    def bound(self, last: int | None) -> float:
        """Return the inner bound, `factor` of it longer."""
        return self.inner.bound(last) * (1 + self.factor)

    def draw(self, failures: int, rng: random.Random) -> float:
        """Return one inner delay, up to `factor` of it longer or shorter."""
        factor = self._factor(failures)
        delay = self.inner.draw(failures, rng)
        return delay * (1 + rng.uniform(-factor, factor)) if factor else delay

    def __str__(self) -> str:
        return f"{self.inner}, jitter {self.factor:.0%}"


@dataclass(frozen=True)
class FullJitter(Backoff):
    """Gives a random delay from `least` seconds to the inner delay, uniformly."""

    inner: Backoff
    least: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "least", seconds_of(self.least, "the shortest delay"))

    def span(self, failures: int) -> DelaySpan:
        """Return the range from `least` to the longest inner delay; `least` is cut to that."""
        base, _, high = self.inner.span(failures)
        return DelaySpan(base, min(self.least, high), high)

    def bound(self, last: int | None) -> float:
        """Return the inner bound."""
        return self.inner.bound(last)

    def __str__(self) -> str:
        return f"{self.least:g} s to {self.inner}"


def seconds_of(value: object, what: str) -> float:
    """Return a delay as float seconds. Raises PolicyError unless it is a number from 0 to LONGEST."""
    seconds = number_of(value, what)
    if seconds > LONGEST:
        raise PolicyError(
            f"{what} is {value!r} s", where="backoff", cure=f"Give at most {LONGEST:g} s", code="policy-value"
        )
    return seconds


def number_of(value: object, what: str) -> float:
    """Return a finite float >= 0. Raises PolicyError for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise PolicyError(
            f"{what} is {value!r}", where="backoff", cure="Give a finite number, 0 or more", code="policy-value"
        )
    try:
        return float(value)
    except OverflowError:  # an int larger than all floats
        raise PolicyError(
            f"{what} is too large", where="backoff", cure="Give a smaller number", code="policy-value"
        ) from None


def _power(base: float, exponent: int) -> float:
    try:
        return base**exponent
    except OverflowError:
        return math.inf
