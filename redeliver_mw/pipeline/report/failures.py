# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks the kinds of failures by cost, from rows of `recovery`, `waste` and `fingerprints`. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..schemas import Row
from .healing import Interval, Likely, RecoveryCurve, interval, recovery_curve

Key = tuple[str, str]  # destination, fingerprint

SHOWN: Final = 20
TEXT: Final = 400  # characters kept of another program's text


@dataclass(frozen=True, kw_only=True)
class Waste:
    """Counts attempts at messages that were dead-lettered; `hopeless`: attempts without a real chance."""

    attempts: int = 0
    handler_s: float = 0.0
    hopeless: int = 0

    def __add__(self, other: Waste) -> Waste:
        return Waste(
            attempts=self.attempts + other.attempts,
            handler_s=self.handler_s + other.handler_s,
            hopeless=self.hopeless + other.hopeless,
        )


@dataclass(frozen=True, kw_only=True)
class FailureGroup:
    """Describes one kind of failure at one destination.

    `error` is an example, `alike` the number of similar failures.
    """

    number: int  # its place on the page, from 1
    destination: str
    fingerprint: str  # empty if there was no error
    error: str
    alike: int
    first_s: float | None
    last_s: float | None
    healing: RecoveryCurve
    waste: Waste


@dataclass(frozen=True, kw_only=True)
class Others:
    """Sums up the failures that do not fit on the page."""

    failures: int
    messages: int
    healed: int
    waste: Waste


@dataclass(frozen=True, kw_only=True)
class Failures:
    """Holds the ways of failing: those that the page shows, and the sum of the others."""

    shown: tuple[FailureGroup, ...]
    others: Others | None
    messages: int  # this and the next two count all failures
    healed: int
    waste: Waste


def failures(
    recovery: Iterable[Row], waste: Iterable[Row], fingerprints: Iterable[Row], estimates: Iterable[Row]
) -> Failures:
    """Return all failures: the first SHOWN by waste, the others summed up. `estimates`: `after_s`, `healed`."""
    intervals, wasted = _intervals(recovery), _wasted(waste)
    known = {row["fingerprint"]: row for row in fingerprints}
    groups = Counter(row["group"] for row in known.values())
    likely: dict[Key, list[Likely]] = defaultdict(list)
    for row in estimates:
        likely[_key(row)].append(Likely(after_s=row["after_s"], healed=row["healed"]))
    healed = {key: recovery_curve(intervals.get(key, ()), likely.get(key, ())) for key in {*intervals, *wasted}}
    keys = sorted(healed, key=lambda key: _rank(key, healed[key], wasted[key]))
    shown = tuple(
        _failure(number, key, healed[key], wasted[key], known.get(key[1]), groups)
        for number, key in enumerate(keys[:SHOWN], 1)
    )
    return Failures(
        shown=shown,
        others=_others(keys[SHOWN:], healed, wasted),
        messages=sum(one.messages for one in healed.values()),
        healed=sum(one.healed for one in healed.values()),
        waste=sum(wasted.values(), Waste()),
    )


def text(words: str | None) -> str:
    """Return another program's text, cut to the kept length."""
    words = words or ""
    return words if len(words) <= TEXT else words[: TEXT - 1] + "…"


def _intervals(recovery: Iterable[Row]) -> dict[Key, list[Interval]]:
    """Return intervals summed over days and policies, so that their number depends on the bins alone."""
    sums: dict[Key, Counter[tuple[int, int | None]]] = defaultdict(Counter)
    for row in recovery:
        sums[_key(row)][row["lo_bin"], row["hi_bin"]] += row["n"]
    return {key: [interval(lo, hi, n) for (lo, hi), n in bins.items()] for key, bins in sums.items()}


def _wasted(waste: Iterable[Row]) -> dict[Key, Waste]:
    sums: dict[Key, list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in waste:
        place = sums[_key(row)]
        for number, name in enumerate(("attempts", "handler_us", "hopeless_attempts")):
            place[number] += row[name] or 0
    found: dict[Key, Waste] = defaultdict(Waste)
    for key, (attempts, handler_us, hopeless) in sums.items():
        found[key] = Waste(attempts=attempts, handler_s=handler_us / 1e6, hopeless=hopeless)
    return found


def _key(row: Row) -> Key:
    return row["destination"], row["fingerprint"] or ""


def _rank(key: Key, healed: RecoveryCurve, wasted: Waste) -> tuple[object, ...]:
    """Return the sort key: most waste first; then most messages not recovered; then the names, for a stable order."""
    return -wasted.handler_s, -wasted.attempts, healed.healed - healed.messages, -healed.messages, key


def _failure(
    number: int, key: Key, healed: RecoveryCurve, wasted: Waste, known: Row | None, groups: Mapping[str, int]
) -> FailureGroup:
    return FailureGroup(
        number=number,
        destination=key[0],
        fingerprint=key[1],
        error=text(known["example"] if known else ""),
        alike=groups[known["group"]] if known else 1,
        first_s=known["first_us"] / 1e6 if known else None,
        last_s=known["last_us"] / 1e6 if known else None,
        healing=healed,
        waste=wasted,
    )


def _others(keys: Sequence[Key], healed: Mapping[Key, RecoveryCurve], wasted: Mapping[Key, Waste]) -> Others | None:
    if not keys:
        return None
    return Others(
        failures=len(keys),
        messages=sum(healed[key].messages for key in keys),
        healed=sum(healed[key].healed for key in keys),
        waste=sum((wasted[key] for key in keys if key in wasted), Waste()),
    )
