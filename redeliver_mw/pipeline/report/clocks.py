# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Describes the hosts' clocks in facts and sentences, from rows of `clocks` and `messages`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ..schemas import Row
from .markup import foreign
from .units import count, duration, share

NAMED: Final = 5  # hosts that a sentence names
DOUBTFUL: Final = 0.01  # the share of histories in disorder above which the page mentions it


@dataclass(frozen=True, kw_only=True)
class HostOffset:
    """Describes a host whose clock was off and is corrected: ahead by `least_s` to `most_s`; below 0: behind."""

    host: str
    least_s: float
    most_s: float
    error_s: float


@dataclass(frozen=True, kw_only=True)
class Clocks:
    """Sums up the clocks of all hosts.

    `corrected`: those furthest off first. `unknown`: hosts whose clock is not known at some time. `disorder`:
    histories, of `histories` with several attempts, whose times contradict each other.
    """

    hosts: int = 0
    corrected: tuple[HostOffset, ...] = ()
    unknown: tuple[str, ...] = ()
    histories: int = 0
    disorder: int = 0

    @property
    def doubtful(self) -> bool:
        """Return whether so many histories are in disorder that the shares of recovered messages may be wrong."""
        return self.disorder > 0 and self.disorder >= DOUBTFUL * self.histories


def clocks(rows: Iterable[Row], order: Iterable[Row]) -> Clocks:
    """Return the facts. `rows`: `clocks`, or its sums by host and state; `order` has `histories` and `disorder`."""
    offsets: dict[str, list[Row]] = {}
    hosts, unknown = set[str](), set[str]()
    for row in rows:
        hosts.add(row["host"])
        if row["state"] == "corrected":
            offsets.setdefault(row["host"], []).append(row)
        elif row["state"] == "unknown":
            unknown.add(row["host"])
    corrected = [_offset(host, found) for host, found in offsets.items()]
    ordered = list(order)
    return Clocks(
        hosts=len(hosts),
        corrected=tuple(sorted(corrected, key=lambda one: (-max(-one.least_s, one.most_s), one.host))),
        unknown=tuple(sorted(unknown)),
        histories=sum(row["histories"] for row in ordered),
        disorder=sum(row["disorder"] for row in ordered),
    )


def sentences(clocks: Clocks) -> list[str]:
    """Return sentences for a person on call; none if all clocks are well."""
    return [*_corrected(clocks.corrected), *_disorder(clocks)]


def cure(clocks: Clocks) -> str:
    """Return the cure; empty if there is nothing to do."""
    if clocks.corrected:
        return f"Keep {_clocks([one.host for one in clocks.corrected])} in step, with NTP or chrony."
    return "Keep the clocks of all hosts in step, with NTP or chrony." if clocks.doubtful else ""


def _corrected(offsets: Sequence[HostOffset]) -> Iterator[str]:
    for one in offsets[:NAMED]:
        yield (
            f"The clock of {foreign(one.host, 60)} was {_far(one)}, to within {duration(one.error_s)}. "
            "Its times are corrected by that."
        )
    if len(offsets) > NAMED:
        yield f"So are those of {count(len(offsets) - NAMED)} other hosts."


def _disorder(clocks: Clocks) -> Iterator[str]:
    if not clocks.doubtful:
        return
    part = share(clocks.disorder / clocks.histories)
    why = "a clock was set back, or a count of attempts was lost"
    if clocks.hosts > 1:
        why = "clocks of hosts are apart, a clock was set back, or a count of attempts was lost"
    yield (
        f"The times of {count(clocks.disorder)} of {count(clocks.histories)} messages that were tried more than once "
        f"({part}) contradict each other: {why}. When these recovered is not known. They count as not seen to recover, "
        f"so that up to {part} of them more may have recovered than is shown here."
    )
    if clocks.unknown:
        yield f"How far {_clocks(clocks.unknown)} may be off is not known for all of the time."


def _far(one: HostOffset) -> str:
    if one.most_s < 0 or one.least_s > 0:
        near, far = sorted((abs(one.least_s), abs(one.most_s)))
        shown = duration(near), duration(far)
        return f"{shown[0] if shown[0] == shown[1] else ' to '.join(shown)} {'behind' if one.most_s < 0 else 'ahead'}"
    return f"between {duration(-one.least_s)} behind and {duration(one.most_s)} ahead"


def _clocks(hosts: Sequence[str]) -> str:
    """Return `the clock of a`, `the clocks of a, b and 3 other hosts`."""
    names = [foreign(host, 60) for host in hosts[:NAMED]]
    if len(hosts) > NAMED:
        names.append(f"{count(len(hosts) - NAMED)} other {'host' if len(hosts) == NAMED + 1 else 'hosts'}")
    if len(names) == 1:
        return f"the clock of {names[0]}"
    return f"the clocks of {', '.join(names[:-1])} and {names[-1]}"


def _offset(host: str, rows: Sequence[Row]) -> HostOffset:
    return HostOffset(
        host=host,
        least_s=min(row["offset_us"] for row in rows) / 1e6,
        most_s=max(row.get("most_us", row["offset_us"]) for row in rows) / 1e6,
        error_s=max(row["error_us"] for row in rows) / 1e6,
    )
