# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Back-offs made of other back-offs: sum, chain, clamp, and the two kinds of jitter."""

from __future__ import annotations

import random
from dataclasses import dataclass

from ..errors import PolicyError
from .backoff import LONGEST, Backoff, DelaySpan, number_of, seconds_of


@dataclass(frozen=True)
class Sum(Backoff):
    """The parts one after another; each draws for itself."""

    parts: tuple[Backoff, ...]

    def span(self, failures: int) -> DelaySpan:
        spans = [part.span(failures) for part in self.parts]
        base, low, high = (min(sum(column), LONGEST) for column in zip(*spans, strict=True))
        return DelaySpan(base, low, high)

    def bound(self, last: int | None) -> float:
        return sum(part.bound(last) for part in self.parts)

    def draw(self, failures: int, rng: random.Random) -> float:
        return sum(part.draw(failures, rng) for part in self.parts)

    def __str__(self) -> str:
        return " + ".join(str(part) for part in self.parts)


@dataclass(frozen=True)
class Chain(Backoff):
    """Part number F; the last one repeats. Each part is asked with F itself, as tenacity does."""

    parts: tuple[Backoff, ...]

    def _part(self, failures: int) -> Backoff:
        return self.parts[min(max(failures, 1), len(self.parts)) - 1]

    def span(self, failures: int) -> DelaySpan:
        return self._part(failures).span(failures)

    def bound(self, last: int | None) -> float:
        return max(part.bound(last) for part in self.parts)

    def draw(self, failures: int, rng: random.Random) -> float:
        return self._part(failures).draw(failures, rng)

    def __str__(self) -> str:
        return ", then ".join(str(part) for part in self.parts)


@dataclass(frozen=True)
class Clamp(Backoff):
    """The inner delay, at most `cap` and at least `floor` seconds; where the two cross the floor wins."""

    inner: Backoff
    floor: float
    cap: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "floor", seconds_of(self.floor, "the shortest delay"))
        object.__setattr__(self, "cap", seconds_of(self.cap, "the cap"))

    def _cut(self, delay: float) -> float:
        return max(self.floor, min(delay, self.cap))

    def span(self, failures: int) -> DelaySpan:
        base, low, high = self.inner.span(failures)
        return DelaySpan(self._cut(base), self._cut(low), self._cut(high))

    def bound(self, last: int | None) -> float:
        return self._cut(self.inner.bound(last))

    def draw(self, failures: int, rng: random.Random) -> float:
        return self._cut(self.inner.draw(failures, rng))

    def __str__(self) -> str:
        least = f", at least {self.floor:g} s" if self.floor else ""
        most = f" up to {self.cap:g} s" if self.cap < LONGEST else ""
        return f"{self.inner}{most}{least}"


@dataclass(frozen=True)
class Spread(Backoff):
    """The inner delay, up to `factor` longer or shorter, evenly; the first one as it is unless `first`."""

    inner: Backoff
    factor: float
    first: bool = True

    def __post_init__(self) -> None:
        factor = number_of(self.factor, "the jitter")
        if factor > 1:
            raise PolicyError(f"the jitter is {factor:g}", where="backoff", cure="Give a share from 0 to 1")
        object.__setattr__(self, "factor", factor)

    def _factor(self, failures: int) -> float:
        return self.factor if self.first or failures > 1 else 0.0

    def span(self, failures: int) -> DelaySpan:
        base, low, high = self.inner.span(failures)
        factor = self._factor(failures)
        return DelaySpan(base, low * (1 - factor), min(high * (1 + factor), LONGEST))

    def bound(self, last: int | None) -> float:
        return self.inner.bound(last) * (1 + self.factor)

    def draw(self, failures: int, rng: random.Random) -> float:
        factor = self._factor(failures)
        delay = self.inner.draw(failures, rng)
        return delay * (1 + rng.uniform(-factor, factor)) if factor else delay

    def __str__(self) -> str:
        return f"{self.inner}, jitter {self.factor:.0%}"


@dataclass(frozen=True)
class FullJitter(Backoff):
    """Anything from `least` seconds to the inner delay, evenly."""

    inner: Backoff
    least: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "least", seconds_of(self.least, "the shortest delay"))

    def span(self, failures: int) -> DelaySpan:
        base, _, high = self.inner.span(failures)
        return DelaySpan(base, min(self.least, high), high)

    def bound(self, last: int | None) -> float:
        return self.inner.bound(last)

    def __str__(self) -> str:
        return f"{self.least:g} s to {self.inner}"
