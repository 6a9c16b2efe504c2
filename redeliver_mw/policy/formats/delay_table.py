# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Expresses any back-off as a table of delays, for languages that have nothing better. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from ..backoff import Backoff, Steps
from ..model import RedeliveryPolicy
from .unsupported import last_failure

WALKED = 1000  # failures that are computed one by one
_FAR = (2, 3, 10, 100, 10_000, 1_000_000)

DelayTable = list[tuple[int, float]]  # from failure number N on, this many seconds


def delay_table(policy: RedeliveryPolicy) -> tuple[DelayTable, list[str]]:
    """Return the delays before jitter of all failures that are followed by a delay, and what the table leaves out."""
    backoff, last = policy.backoff, _last_delay(policy)
    table: DelayTable = []
    last_base, jitter = 0.0, False
    for failures in _counts(backoff, last):
        base, low, high = backoff.span(failures)
        jitter |= low != high
        if base != last_base:
            table.append((failures, base))
            last_base = base
    missing = [f"jitter ({backoff})"] if jitter else []
    if _changes_later(backoff, last, table):
        missing.append(f"delays after failure {WALKED} ({backoff})")
    return table, missing


def whole_milliseconds(seconds: float) -> bool:
    """Return whether a delay is a whole number of milliseconds, within the precision of a float of seconds."""
    return math.isclose(seconds, round(seconds * 1000) / 1000, rel_tol=1e-15, abs_tol=1e-9)


def at(table: DelayTable, failures: int) -> float:
    """Return the delay in the table, in seconds."""
    return next((seconds for count, seconds in reversed(table) if count <= failures), 0.0)


def _last_delay(policy: RedeliveryPolicy) -> int | None:
    last = last_failure(policy)
    if last is None:
        return None
    # A message that is kept is delayed for ever as after the failure before its limit.
    return max(last - 1, 1 if policy.on_dead == "keep" else 0)


def _counts(backoff: Backoff, last: int | None) -> list[int]:
    walked = range(1, 1 + (WALKED if last is None else min(last, WALKED)))
    return [*walked, *sorted({count for count in _keys(backoff) if count > WALKED and (last is None or count <= last)})]


def _keys(part: object) -> Iterator[int]:
    if isinstance(part, Steps):
        yield from (count for count, _ in part.table)
    elif isinstance(part, tuple):
        for one in part:
            yield from _keys(one)
    elif isinstance(part, Backoff) and is_dataclass(part):
        for one in fields(part):
            yield from _keys(getattr(part, one.name))


def _changes_later(backoff: Backoff, last: int | None, table: DelayTable) -> bool:
    far = [WALKED * times for times in _FAR if last is None or WALKED * times <= last]
    far += [last] if last is not None and last > WALKED else []
    return any(backoff.span(failures).base != at(table, failures) for failures in far)
