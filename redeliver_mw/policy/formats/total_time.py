# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Computes how long all attempts of a policy take, and which delays of a poorer language take as long. Pure.

A language that cannot express the delays of a policy still keeps the number of attempts. Of the delays that the
language can express, the nearest are those with the nearest sum; of equally near sums, those that differ least one by
one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from typing import TypeVar

from ..model import RedeliveryPolicy
from .delay_table import at, delay_table, whole_milliseconds
from .unsupported import last_failure

WALKED = 1000  # delays that are compared one by one
MULTIPLIERS = (1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)

Candidate = TypeVar("Candidate")


@dataclass(frozen=True)
class AllDelays:
    """Holds all delays of a policy before jitter, in milliseconds.

    Beyond WALKED the last delay stands for the others.
    """

    delays: tuple[int, ...]
    more: int = 0  # further delays, each as long as the last one
    endless: bool = False

    @property
    def total(self) -> int:
        return self.sum_of(self.delays)

    @property
    def mean(self) -> int:
        """Return the one delay with which all attempts take as long."""
        return round(self.total / (len(self.delays) + self.more)) if self.delays else 0

    def sum_of(self, delays: Iterable[int]) -> int:
        """Return how long the attempts of this policy take with other delays."""
        found = list(islice(delays, len(self.delays)))
        return sum(found) + self.more * (found[-1] if found else 0)

    def rank(self, delays: Iterable[int]) -> tuple[float, int]:
        """Return the distance of other delays from these: in their sum, to the per mille, and one by one."""
        found = list(islice(delays, len(self.delays)))
        off = abs(self.sum_of(found) - self.total) / max(self.total, 1)
        return round(off, 3), sum(abs(one - other) for one, other in zip(found, self.delays, strict=True))

    def as_long(
        self, make: Callable[[int], Candidate], delays: Callable[[Candidate], Iterable[int]]
    ) -> Iterator[Candidate]:
        """Yield the two candidates whose sums enclose this one's; a longer start makes every delay longer."""
        most = max(self.total, 1)
        above = bisect_left(range(most), self.total, key=lambda start: self.sum_of(delays(make(start))))
        return (make(start) for start in (above - 1, above) if start >= 0)

    def nearest(self, candidates: Iterable[Candidate], delays: Callable[[Candidate], Iterable[int]]) -> Candidate:
        """Return the candidate of the lowest rank, the first of equals."""
        return min(candidates, key=lambda one: self.rank(delays(one)))

    def kept(self, delays: Iterable[int]) -> str:
        """Return what other delays keep of these, for the list of what is lost."""
        kept, wanted = self.sum_of(delays) / 1000, self.total / 1000
        time = f"{kept:.10g} s" + ("" if kept == wanted else f" instead of {wanted:.10g} s")
        if self.endless:
            return f"the first {len(self.delays)} delays come to {time}"
        return f"{len(self.delays) + self.more + 1} attempts are kept, over {time}"


def all_delays_of(policy: RedeliveryPolicy) -> AllDelays:
    """Return the delays of a policy. A policy that keeps its dead messages delays them for ever as before its limit."""
    limit = last_failure(policy)
    if limit is None or policy.on_dead == "keep":
        last = WALKED if limit is None else max(limit - 1, 1)
        return AllDelays(_milliseconds(policy, [min(count, last) for count in range(1, WALKED + 1)]), endless=True)
    counts = range(1, min(limit - 1, WALKED) + 1)
    return AllDelays(_milliseconds(policy, counts), more=limit - 1 - len(counts))


def one_delay(policy: RedeliveryPolicy, most: int | None = None) -> tuple[int, list[str]]:
    """Return the one delay, in milliseconds, for a language that has only one, and what is lost.

    `most`: the number of attempts that the language can express; with fewer of them the total time is kept.
    """
    table, lost = delay_table(policy)
    wanted = all_delays_of(policy)
    delays = len(wanted.delays) + wanted.more
    if most is not None and 1 < most <= delays and not wanted.endless and wanted.total:
        delay = round(wanted.total / (most - 1))
        if len(table) == 1 and table == [(1, delay / 1000)]:
            return delay, lost  # only attempts are lost, which another line reports
        spent = f"{most} attempts over {delay * (most - 1) / 1000:.10g} s instead of {wanted.total / 1000:.10g} s"
        return delay, [*lost, f"delays ({policy.backoff}): one delay for all, {delay / 1000:.10g} s; {spent}"]
    if len(table) > 1 or (table and table[0][0] != 1):
        kept = wanted.kept(repeat(wanted.mean))
        return wanted.mean, [
            *lost,
            f"delays ({policy.backoff}): one delay for all, {wanted.mean / 1000:.10g} s; {kept}",
        ]
    one = at(table, 1)
    if not whole_milliseconds(one):
        lost.append("fractions of a millisecond")
    return round(one * 1000), lost


def _milliseconds(policy: RedeliveryPolicy, counts: Sequence[int]) -> tuple[int, ...]:
    return tuple(round(policy.backoff.span(count).base * 1000) for count in counts)
