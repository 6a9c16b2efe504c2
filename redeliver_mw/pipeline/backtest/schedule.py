# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Turns a policy into times: when it would retry a message that always fails, counted from its first failure."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, TypeGuard

import numpy as np

from ...errors import ConfigError
from ...policy import Accept, Backoff, Keep, Redeliver, RedeliveryPolicy
from ...policy.backoff import Spread
from ...policy.stops import AfterFailures
from ..arrays import Floats
from .attempt_times import PATHS, AttemptTimes

MOST: Final = 10_000  # attempts that are followed
LATE: Final = 1e9  # seconds: instead of a time that is not followed
_FIRST: Final = 12  # retries whose times are computed together; few policies make more
AT_ONCE: Final = AttemptTimes.constant()  # attempts that take no time


@dataclass(frozen=True)
class AttemptSchedule:
    """Describes what a policy does with a message that always fails, in a few equally likely ways (rows).

    `times` (ways x retries) are the seconds from the first failure to the beginning of each retry, ascending; a row
    that has fewer repeats its last, and `retries` says how many count. The times end with the first that is later than
    anybody asked for. `attempts` counts all, the first and those not listed included; `last` is when the last of them
    begins, at most LATE. `success_s` is how long a successful attempt takes.
    """

    times: Floats
    retries: Floats
    attempts: Floats
    last: Floats
    ends: bool  # it is given up in the end: dead-lettered or discarded, not kept for ever or accepted
    success_s: float = 0.0


def schedule(
    policy: RedeliveryPolicy, until: float, *, taking: AttemptTimes = AT_ONCE, error: BaseException | None = None
) -> AttemptSchedule:
    """Return the times that a policy means, up to the first after `until` seconds.

    Each retry begins later than its delay says, and each failing attempt takes time, as in `taking`. `error` is asked
    about where the policy has rules by exception. Raises ConfigError for a policy that tries more than MOST times
    until then.
    """
    if isinstance(policy.stop, AfterFailures):
        found = _of_counts(policy, until, taking, error)
    else:
        paths = 1 if _is_certain(policy) and taking.is_constant else PATHS
        found = _joined([_way(policy, until, taking, error, number, paths) for number in range(paths)])
    return replace(found, success_s=taking.success_s)


def _of_counts(
    policy: RedeliveryPolicy, until: float, taking: AttemptTimes, error: BaseException | None
) -> AttemptSchedule:
    """Return the schedule of a policy with the same decisions in all ways: only the delays differ."""
    decisions: list[Redeliver | Keep] = []
    soonest, (least_late, least_failing) = 0.0, taking.soonest
    while soonest <= until:
        if len(decisions) == MOST:
            raise _too_many(policy, until)
        decision = policy.decide(len(decisions) + 1, error=error)
        if not isinstance(decision, Redeliver | Keep):
            return _ended(_times(policy, decisions, taking), isinstance(decision, Accept))
        soonest += decision.low + least_late + (least_failing if decisions else 0.0)
        decisions.append(decision)
    return _cut(policy, _times(policy, decisions, taking))


def _times(policy: RedeliveryPolicy, decisions: list[Redeliver | Keep], taking: AttemptTimes) -> Floats:
    paths = 1 if taking.is_constant and all(decision.low == decision.high for decision in decisions) else PATHS
    if decisions == _first_decisions(policy.backoff)[: len(decisions)]:
        return _first_times(policy.backoff, taking, paths)[:, : len(decisions)]
    return _times_of(policy.backoff, decisions, taking, paths)


@lru_cache(maxsize=1000)
def _first_decisions(backoff: Backoff) -> list[Redeliver | Keep]:
    """Return what a policy with this back-off decides until it ends, unless the error wishes for a longer delay."""
    return [Redeliver(*backoff.span(failures), backoff, failures) for failures in range(1, _FIRST + 1)]


@lru_cache(maxsize=1000)
def _first_times(backoff: Backoff, taking: AttemptTimes, paths: int) -> Floats:
    """Return the times of the first retries, the same for all policies that differ in nothing but when they end."""
    times = _times_of(backoff, _first_decisions(backoff), taking, paths)
    times.flags.writeable = False
    return times


def _times_of(backoff: Backoff, decisions: list[Redeliver | Keep], taking: AttemptTimes, paths: int) -> Floats:
    """Return the times of the retries (ways x retries): delays, lateness and failing attempts, added up."""
    steps = _delays(backoff, decisions, paths) + taking.late_until(len(decisions))[:, :paths]
    steps[1:] += taking.failing_until(len(decisions))[1:, :paths]  # the first one's end is where time begins
    return np.cumsum(steps, axis=0).T


def _ended(times: Floats, accepted: bool) -> AttemptSchedule:
    paths, count = times.shape
    last = np.minimum(times[:, -1], LATE) if count else np.zeros(paths)
    return AttemptSchedule(times, np.full(paths, float(count)), np.full(paths, count + 1.0), last, not accepted)


def _cut(policy: RedeliveryPolicy, times: Floats) -> AttemptSchedule:
    """Return a schedule of which a part is listed: the policy goes on, and nothing is known of so late a time."""
    paths, count = times.shape
    limit = None if policy.on_dead == "keep" else policy.dead_after
    over = limit == count + 1
    last = np.minimum(times[:, -1], LATE) if over else np.full(paths, LATE)
    attempts = float(count + 1 if limit is None else limit)
    return AttemptSchedule(times, np.full(paths, float(count)), np.full(paths, attempts), last, limit is not None)


def _way(
    policy: RedeliveryPolicy, until: float, taking: AttemptTimes, error: BaseException | None, number: int, paths: int
) -> AttemptSchedule:
    """Return one way of a policy that asks how much time has passed: the time decides, too."""
    first = float(taking.failing_of(1)[number])
    ended, known = first, 0  # since the first attempt began
    times: list[float] = []
    for failures in range(1, MOST + 1):
        decision = policy.decide(failures, elapsed=ended, error=error)
        if not isinstance(decision, Redeliver | Keep):
            row = np.array([times[: known or None]])
            last = np.array([min(times[-1], LATE) if times else 0.0])
            return AttemptSchedule(
                row, np.array([float(row.size)]), np.array([float(failures)]), last, not isinstance(decision, Accept)
            )
        delay = float(_drawn(policy.backoff, failures, decision, paths)[number])
        begun = ended + delay + float(taking.late_of(failures)[number])
        times.append(begun - first)
        ended = begun + float(taking.failing_of(failures + 1)[number])
        if not known and times[-1] > until:
            known = len(times)
    if not known:
        raise _too_many(policy, until)
    row = np.array([times[:known]])
    return AttemptSchedule(row, np.array([float(known)]), np.array([known + 1.0]), np.array([LATE]), False)


def _joined(ways: list[AttemptSchedule]) -> AttemptSchedule:
    longest = max(way.times.shape[1] for way in ways)
    times = np.stack([padded(way.times, longest)[0] for way in ways])
    retries, attempts, last = (
        np.concatenate([getattr(way, name) for way in ways]) for name in ("retries", "attempts", "last")
    )
    return AttemptSchedule(times, retries, attempts, last, all(way.ends for way in ways))


def padded(times: Floats, count: int) -> Floats:
    """Return `times` with its last column, or 0, repeated up to `count` columns."""
    made, known = np.zeros((len(times), count)), times.shape[1]
    made[:, :known] = times
    if known:
        made[:, known:] = times[:, -1:]
    return made


def _is_certain(policy: RedeliveryPolicy) -> bool:
    """Return whether a policy has no jitter: then one way is all there is."""
    spans = (policy.backoff.span(failures) for failures in (*range(1, 65), 100, 1000))
    return all(low == high for _, low, high in spans)


def _too_many(policy: RedeliveryPolicy, until: float) -> ConfigError:
    return ConfigError(
        f"it tries more than {MOST} times within {until:g} s, which is as far as history knows",
        where=policy.text,
        cure="Give it longer delays, or an end",
        code="backtest-input",
    )


@lru_cache(maxsize=20_000)
def _drawn_of(backoff: Backoff, failures: int, decision: Redeliver | Keep, paths: int) -> Floats:
    dice = _Even(paths, failures)
    drawn = np.array([decision.draw(dice.for_path(number)) for number in range(paths)])
    drawn.flags.writeable = False
    return drawn


def _drawn(backoff: Backoff, failures: int, decision: Redeliver | Keep, paths: int) -> Floats:
    """Return the delay in each of `paths` ways, with jitter drawn as the runtime does."""
    if decision.low == decision.high:
        return np.full(paths, decision.low)
    return _drawn_of(backoff, failures, decision, paths)


def _delays(backoff: Backoff, decisions: list[Redeliver | Keep], paths: int) -> Floats:
    """Return the delay before each retry in each of so many ways (retries x ways)."""
    if _is_stretched(backoff, decisions):
        # All at once: most candidates of a search are such, and to draw one by one takes a third of its time.
        base, low, high = np.array([(one.base, one.low, one.high) for one in decisions]).T[:, :, None]
        found: Floats = np.clip(base * _stretches(backoff.factor, len(decisions), paths), low, high)
        return found
    drawn = [_drawn(backoff, number, decision, paths) for number, decision in enumerate(decisions, 1)]
    return np.array(drawn).reshape(-1, paths)


def _is_stretched(backoff: Backoff, decisions: list[Redeliver | Keep]) -> TypeGuard[Spread]:
    """Return whether each delay is its `base` times a number that depends on nothing but its place and the jitter."""
    if type(backoff) is not Spread or not backoff.first or not decisions:
        return False
    inner = (backoff.inner.span(decision.failures) for decision in decisions)
    return all(span.low == span.high == decision.base for span, decision in zip(inner, decisions, strict=True))


@lru_cache(maxsize=8)
def _stretches(factor: float, retries: int, paths: int) -> Floats:
    """Return by what a `Spread` with this factor multiplies the delay before each retry in each of so many ways."""
    dice = (_Even(paths, number) for number in range(1, retries + 1))
    drawn = [[1 + each.for_path(way).uniform(-factor, factor) for way in range(paths)] for each in dice]
    return np.array(drawn).reshape(-1, paths)


class _Even(random.Random):
    """Replaces chance: over all ways, each draw takes the middle of every equal part of 0 to 1 once, shuffled."""

    def __init__(self, paths: int, failures: int) -> None:
        super().__init__(0)
        self._shuffler = np.random.default_rng([failures, paths])
        self._draws: list[Floats] = []
        self._paths, self._number, self._next = paths, 0, 0

    def for_path(self, number: int) -> _Even:
        """Return the generator itself, at the first draw of this way."""
        self._number, self._next = number, 0
        return self

    def random(self) -> float:
        if self._next == len(self._draws):
            self._draws.append((self._shuffler.permutation(self._paths) + 0.5) / self._paths)
        self._next += 1
        return float(self._draws[self._next - 1][self._number])
