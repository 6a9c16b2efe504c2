# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Approximates any back-off by one of ActiveMQ's: the same delays if it can express them, else the nearest. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from itertools import chain, pairwise, repeat

from ...activemq_delays import FARTHEST, ActiveMQDelays
from ...backoff import LONGEST, Backoff
from ...decisions import Keep, Redeliver
from ...model import RedeliveryPolicy
from .. import delay_table
from ..total_time import MULTIPLIERS, AllDelays, all_delays_of
from ..unsupported import limit

_COMPARED = 200  # failures that are compared one by one
_FAR = (500, 1000, 10_000)
_CUT = 0.001001  # seconds: a jittered delay is cut to whole milliseconds


Fit = tuple[ActiveMQDelays, list[str]]  # the delays, and what they do not express


def fitted(policy: RedeliveryPolicy) -> Fit:
    """Return ActiveMQ's delays for a policy, and what they do not express of the policy's own."""
    backoff = policy.backoff
    kept = policy.on_dead == "keep" and policy.dead_after is not None
    if isinstance(backoff, ActiveMQDelays) and not kept:
        return backoff, []
    table, _ = delay_table.delay_table(policy)
    counts = _counts(policy, [count for count, _ in table])
    exact = [delay_table.at(table, count) * 1000 for count in counts]
    wanted = [round(delay) for delay in exact]
    lost = []
    if any(abs(delay - near) > 1e-6 for delay, near in zip(exact, wanted, strict=True)):
        lost.append("fractions of a millisecond")
    if not wanted:
        return ActiveMQDelays(), lost
    best = min(_candidates(backoff, wanted), key=lambda one: _distance(one, counts, wanted))
    if _distance(best, counts, wanted):
        all_delays = all_delays_of(policy)
        best = all_delays.nearest(chain([best], _as_long(all_delays, backoff)), _walked)
        lost.append(f"delays ({backoff}): the nearest are {best}; {all_delays.kept(_walked(best))}")
    return _jittered(best, policy, counts, lost), lost


def _counts(policy: RedeliveryPolicy, changes: list[int]) -> list[int]:
    end = limit(policy)
    last = None if end is None else end - 1
    looked_at = sorted({*range(1, _COMPARED + 1), *changes, *_FAR})
    return [count for count in looked_at if last is None or count <= last]


def _candidates(backoff: Backoff, wanted: list[int]) -> Iterator[ActiveMQDelays]:
    first, second = wanted[0], wanted[min(1, len(wanted) - 1)]
    yield ActiveMQDelays(first, second)
    start = first or second
    ratios = [after / before for before, after in pairwise(wanted[:3]) if before]
    for multiplier in sorted({*_multipliers(backoff), *ratios}):
        if multiplier > 1:
            for cap in (None, wanted[-1]):
                delay = start if cap is None else min(start, cap)
                yield ActiveMQDelays(first, delay, multiplier, cap)


def _as_long(wanted: AllDelays, backoff: Backoff) -> Iterator[ActiveMQDelays]:
    # Candidates with the same sum of delays: without growth, growing from the first delay, and growing from the second.
    delays = wanted.delays
    if len(delays) > 1:
        others = len(delays) - 1 + wanted.more
        for delay in {(wanted.total - delays[0]) // others, wanted.total // others}:
            for first in (delays[0], wanted.total - others * delay):
                yield ActiveMQDelays(first, max(delay, 0))
    for multiplier in sorted({*MULTIPLIERS, *(one for one in _multipliers(backoff) if one > 1)}):
        for cap in sorted({max(delays), delays[-1]} - {0}):
            yield from _growing(wanted, multiplier, cap)


def _growing(wanted: AllDelays, multiplier: float, cap: int) -> Iterator[ActiveMQDelays]:
    def from_the_first(start: int) -> ActiveMQDelays:
        return ActiveMQDelays(start, min(start, cap), multiplier, cap)

    def from_the_second(start: int) -> ActiveMQDelays:
        return ActiveMQDelays(0, min(start, cap), multiplier, cap)

    for make in (from_the_first, from_the_second) if not wanted.delays[0] else (from_the_first,):
        yield from wanted.as_long(make, _walked)


def _walked(candidate: ActiveMQDelays) -> Iterator[int]:
    delay = candidate.initial
    while True:
        yield min(max(delay, 0), int(LONGEST) * 1000)
        before, delay = delay, candidate.following(delay)
        if delay == before:
            yield from repeat(min(max(delay, 0), int(LONGEST) * 1000))


def _multipliers(part: object) -> Iterator[float]:
    if isinstance(part, tuple):
        for one in part:
            yield from _multipliers(one)
    elif isinstance(part, Backoff) and is_dataclass(part):
        own = getattr(part, "multiplier", None)
        if own is not None:
            yield own
        for field in fields(part):
            yield from _multipliers(getattr(part, field.name))


def _distance(candidate: ActiveMQDelays, counts: list[int], wanted: list[int]) -> int:
    return sum(abs(one - other) for one, other in zip(_delays(candidate, counts), wanted, strict=True))


def _delays(candidate: ActiveMQDelays, counts: list[int]) -> Iterator[int]:
    # In milliseconds, one after another: a span would continue to where growth ends.
    delay, at = candidate.initial, 1
    for count in counts:
        while at < min(count, FARTHEST):
            before, delay, at = delay, candidate.following(delay), at + 1
            if delay == before:
                at = count
        yield min(max(delay, 0), int(LONGEST) * 1000)


def _jittered(best: ActiveMQDelays, policy: RedeliveryPolicy, counts: list[int], lost: list[str]) -> ActiveMQDelays:
    decisions = [decision for count in counts if isinstance(decision := policy.decide(count), Redeliver | Keep)]
    spans = [(decision.base, decision.low, decision.high) for decision in decisions]
    shares = [max(high - base, base - low) / base for base, low, high in spans if base]
    if not any(shares):
        return best
    factor = round(shares[min(1, len(shares) - 1)], 2)
    jittered = ActiveMQDelays(best.initial, best.delay, best.multiplier, best.cap, factor)
    written = [jittered.span(count) for count in counts[: len(spans)]]
    if any(
        abs(ours - theirs) > _CUT
        for span, other in zip(written, spans, strict=True)
        for ours, theirs in zip(span, other, strict=True)
    ):
        lost.append(f"jitter ({policy.backoff}): here the first delay has none, and it adds up from step to step")
    return jittered
