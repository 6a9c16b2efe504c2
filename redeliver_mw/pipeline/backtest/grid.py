# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes candidates from a grid: delays that grow by a factor up to a cap, so many attempts, some jitter."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from ...errors import ConfigError
from ...policy import Backoff, RedeliveryPolicy
from ...policy.backoff import DelaySpan
from .rows import Candidate

DLQ: Final = "queue:DLQ.$"
MOST: Final = 100_000  # candidates of one grid
_LARGEST: Final = 1e12  # of any number in it
_UNTIL: Final = 64  # failures whose delays tell two candidates apart
_REMEMBERED: Final = 20_000  # back-offs, and delays of them: a search has a few hundred, and some thousands
_RANGE: Final = re.compile(r"(\d+)-(\d+)")
_DEFAULTS: Final[Mapping[str, tuple[float, ...]]] = {"multiplier": (2.0,), "cap": (), "jitter": (0.0,)}


class Shape(NamedTuple):
    """Is one candidate: `attempts` in all, and the delays between them.

    The delays are seconds from the first failure to the next attempt, each `multiplier` times longer than the one
    before and at most `cap`, None: without one; up to `jitter` longer or shorter, 0 to 1.
    """

    attempts: int
    initial: float
    multiplier: float = 2.0
    cap: float | None = None
    jitter: float = 0.0

    def backoff(self) -> Backoff:
        """Return the back-off of this candidate. Raises PolicyError for numbers that cannot be."""
        return _backoff(self.initial, self.multiplier, self.cap, self.jitter)

    def normalised(self) -> Shape:
        """Return the plainest shape with the same delays: a cap that is not above the first delay makes it constant.

        So does a second attempt that is the last one: there is only one delay then.
        """
        shape = self
        if shape.cap is not None and shape.cap <= shape.initial:
            shape = shape._replace(initial=shape.cap, multiplier=1.0)
        if shape.attempts <= 2:
            shape = shape._replace(multiplier=1.0)
        return shape._replace(cap=None) if shape.multiplier == 1 else shape

    def candidate(self, like: RedeliveryPolicy) -> Candidate:
        """Return `like` with this number of attempts and these delays; its rules and targets stay.

        One that keeps its messages for ever would never come to its last attempt: it gets our own dead-letter queue.
        With one attempt there is no delay, and the one of `like` stays.
        """
        backoff = self.backoff() if self.attempts > 1 else like.backoff
        changes = {"dead_letter": DLQ} if like.on_dead == "keep" else {}
        policy = like.replace(dead_after=self.attempts, backoff=backoff, **changes)
        return Candidate(f"{self.attempts} attempts, {backoff}" if self.attempts > 1 else "1 attempt", policy)


def shapes(
    *,
    initial: Collection[float],
    attempts: Collection[int],
    multiplier: Collection[float] = (2.0,),
    cap: Collection[float | None] = (None,),
    jitter: Collection[float] = (0.0,),
) -> list[Shape]:
    """Return every combination, in its plainest form, without those that do the same as one before.

    ConfigError if there are more than MOST.
    """
    if math.prod(map(len, (attempts, initial, multiplier, cap, jitter))) > MOST:
        raise ConfigError(
            "these are too many candidates",
            where="grid",
            cure=f"Name at most {MOST} combinations",
            code="backtest-input",
        )
    found: dict[tuple[object, ...], Shape] = {}
    for values in itertools.product(attempts, initial, multiplier, cap, jitter):
        found.setdefault(doing(shape := Shape(*values).normalised()), shape)
    return list(found.values())


def read_grid(text: str) -> list[Shape]:
    """Read a grid: `attempts=3-8 initial=0.5,1,2 multiplier=1,2 cap=60,600 jitter=0,0.2`.

    `attempts` and `initial` must be there. Raises ConfigError, which says what is wrong in the text.
    """
    given: dict[str, tuple[float, ...]] = {}
    for part in text.split():
        name, sign, values = part.partition("=")
        if not sign or name not in Shape._fields or name in given:
            raise _no_grid(f"{part[:80]!r}", f"Write each of {', '.join(Shape._fields)} once, as in attempts=3-8")
        given[name] = tuple(number for value in values.split(",") for number in _numbers(value, part))
        if name == "attempts" and not all(count >= 1 and count == int(count) for count in given[name]):
            raise _no_grid(f"{part[:80]!r}", "Write whole numbers from 1 on, as in attempts=3-8")
    if missing := [name for name in ("attempts", "initial") if name not in given]:
        raise _no_grid(f"{text[:80]!r}", f"Add {' and '.join(missing)}, as in attempts=3-8 initial=1,2")
    counts = [int(value) for value in given.pop("attempts")]
    every = {**_DEFAULTS, **given}
    return shapes(
        attempts=counts,
        initial=every["initial"],
        multiplier=every["multiplier"],
        cap=every["cap"] or (None,),
        jitter=every["jitter"],
    )


def _numbers(value: str, part: str) -> Iterable[float]:
    """Return one number, or those of a range. Raises ConfigError if `value` is neither."""
    if (span := _RANGE.fullmatch(value)) and int(span[1]) <= int(span[2]):
        return (float(number) for number in range(int(span[1]), min(int(span[2]), int(span[1]) + MOST) + 1))
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 <= number <= _LARGEST:
        raise _no_grid(f"{part[:80]!r}", "Write numbers with commas between them, as in 0.5,1,2, or a range, as in 3-8")
    return (number,)


def _no_grid(where: str, cure: str) -> ConfigError:
    return ConfigError("this is no grid", where=where, cure=cure, code="backtest-input")


def doing(shape: Shape) -> tuple[object, ...]:
    """Return what tells a candidate from others: its number of attempts and its delays."""
    attempts, *delays = shape
    return attempts, *(_span(*delays, failures) for failures in range(1, min(attempts, _UNTIL)))


@lru_cache(maxsize=_REMEMBERED)
def _backoff(initial: float, multiplier: float, cap: float | None, jitter: float) -> Backoff:
    """Return the same back-off to all shapes that differ in their attempts alone, so that each is made once."""
    grown = Backoff.constant(initial) if multiplier == 1 else Backoff.exponential(initial, multiplier, cap)
    return grown.jittered(jitter) if jitter else grown


@lru_cache(maxsize=_REMEMBERED)
def _span(initial: float, multiplier: float, cap: float | None, jitter: float, failures: int) -> DelaySpan:
    """Return a delay of all shapes that differ in their attempts alone, so that each is computed once."""
    return _backoff(initial, multiplier, cap, jitter).span(failures)
