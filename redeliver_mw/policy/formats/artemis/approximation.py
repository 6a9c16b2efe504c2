# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Approximates any back-off by one of Artemis': the same delays if it can express them, else the nearest. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass, replace
from itertools import chain, count, pairwise, repeat

from ...artemis_delays import ArtemisDelays
from ...backoff import Backoff, DelaySpan
from ...model import RedeliveryPolicy
from ..total_time import MULTIPLIERS, AllDelays, all_delays_of
from ..unsupported import last_failure

_COMPARED = (*range(1, 201), 500, 1000, 10_000, 10**6)
_SHRINKING = (0.5, 0.75, 0.9)  # multipliers
_CLOSE = 1e-9  # seconds, for each second


def fitted(policy: RedeliveryPolicy) -> tuple[ArtemisDelays, list[str]]:
    """Return Artemis' delays for a policy, and what they do not express of the policy's own."""
    backoff = policy.backoff
    kept = policy.on_dead == "keep" and policy.dead_after is not None
    if isinstance(backoff, ArtemisDelays) and not kept:
        return backoff, []
    spans = _spans(policy)
    if not spans:
        return ArtemisDelays(0), []
    best = min(_candidates(backoff, spans), key=lambda one: _distance(one, spans))
    if all(_same(best.span(count), span) for count, span in spans.items()):
        return best, []
    if all(_same_base(best.span(failures), span) for failures, span in spans.items()):
        return best, [f"delays ({backoff}): the nearest are {best}"]
    wanted = all_delays_of(policy)
    plain = wanted.nearest(chain([replace(best, factor=0.0)], _as_long(wanted, backoff)), _walked)
    if best.factor:
        # Jitter comes before the cap, which must not cut it off.
        plain = replace(plain, factor=best.factor, cap=round((plain.cap or 0) * (1 + best.factor)))
    return plain, [f"delays ({backoff}): the nearest are {plain}; {wanted.kept(_walked(plain))}"]


def _as_long(wanted: AllDelays, backoff: Backoff) -> Iterator[ArtemisDelays]:
    # Candidates with the same sum of delays: without growth, growing and shrinking.
    delays = wanted.delays
    yield ArtemisDelays(wanted.mean, 1.0, wanted.mean)
    shrinking = _SHRINKING if delays[-1] < delays[0] else ()
    for multiplier in sorted({*MULTIPLIERS, *shrinking, *_numbers(backoff, "multiplier")} - {0.0, 1.0}):
        for cap in sorted({max(delays), delays[-1]} - {0}) if multiplier > 1 else (wanted.total,):
            yield from _growing(wanted, multiplier, cap)


def _growing(wanted: AllDelays, multiplier: float, cap: int) -> Iterator[ArtemisDelays]:
    def made(start: int) -> ArtemisDelays:
        return ArtemisDelays(start, multiplier, cap)

    return wanted.as_long(made, _walked)


def _walked(candidate: ArtemisDelays) -> Iterator[int]:
    # Once the delay reaches the cap or 0, it stays there, so that growth to the thousandth power is never computed.
    for failures in count(1):
        delay = round(candidate.after(failures) * 1000)
        yield delay
        if candidate.multiplier == 1 or delay == (0 if candidate.multiplier < 1 else candidate.cap):
            yield from repeat(delay)


def _same_base(one: DelaySpan, other: DelaySpan) -> bool:
    return abs(one.base - other.base) <= _CLOSE * max(other.base, 1)


def _spans(policy: RedeliveryPolicy) -> dict[int, DelaySpan]:
    # All compared failures that are followed by a delay; a kept message is delayed as after its last retry.
    limit = last_failure(policy)
    if limit is None:
        return {count: policy.backoff.span(count) for count in _COMPARED}
    if policy.on_dead == "keep":
        return {count: policy.backoff.span(min(count, max(limit - 1, 1))) for count in _COMPARED}
    return {count: policy.backoff.span(count) for count in _COMPARED if count < limit}


def _candidates(backoff: Backoff, spans: dict[int, DelaySpan]) -> Iterator[ArtemisDelays]:
    delays = [round(span.base * 1000) for span in spans.values()]
    most = max(delays)
    first = next((delay for delay in delays if delay), 0)
    for factor in dict.fromkeys((0.0, *_factors(spans.values()))):
        cap = round(max(span.high for span in spans.values()) * 1000) if factor else most
        for multiplier in dict.fromkeys((1.0, *_numbers(backoff, "multiplier"), *_ratios(delays))):
            yield ArtemisDelays(first, multiplier, cap, factor)


def _factors(spans: Iterable[DelaySpan]) -> Iterator[float]:
    for base, low, _ in spans:
        if base > low:
            yield min(round((base - low) / base, 6), 1.0)
            return


def _ratios(delays: list[int]) -> Iterator[float]:
    for before, after in pairwise(delays[:4]):
        if before:
            yield after / before


def _numbers(part: object, name: str) -> Iterator[float]:
    if isinstance(part, tuple):
        for one in part:
            yield from _numbers(one, name)
    elif isinstance(part, Backoff) and is_dataclass(part):
        own = getattr(part, name, None)
        if own is not None:
            yield own
        for field in fields(part):
            yield from _numbers(getattr(part, field.name), name)


def _same(one: DelaySpan, other: DelaySpan) -> bool:
    return all(abs(ours - theirs) <= _CLOSE * max(theirs, 1) for ours, theirs in zip(one, other, strict=True))


def _distance(candidate: ArtemisDelays, spans: dict[int, DelaySpan]) -> float:
    return sum(
        abs(ours - theirs) / max(theirs, 1)
        for count, span in spans.items()
        for ours, theirs in zip(candidate.span(count), span, strict=True)
    )
