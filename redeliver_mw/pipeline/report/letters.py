# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Counts dead letters that came and went, and messages that do not recover. Pure.

From rows of the marts `dead_letter_flow` and `poison`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Final

from ..schemas import Row
from .failures import text

LINES: Final = 12
DAYS: Final = 100  # for more days each bar is a week or longer
MESSAGES_SHOWN: Final = 10
DAY: Final = 86400


@dataclass(frozen=True, kw_only=True)
class FlowBar:
    """Counts the dead letters of `days` days from `start_s` on: new ones, and those sent back."""

    start_s: float
    days: int
    came: int
    left: int


@dataclass(frozen=True, kw_only=True)
class FlowLine:
    """Holds the dead letters of one destination and reason: how many came and left, and since when one waits."""

    destination: str
    reason: str
    came: int
    left: int
    oldest_s: float | None


@dataclass(frozen=True, kw_only=True)
class Flow:
    """Holds bars by time, without empty ones, and lines in order of new dead letters."""

    came: int
    left: int
    bars: tuple[FlowBar, ...]
    lines: tuple[FlowLine, ...]
    others: int  # number of lines that are not shown
    others_came: int
    others_left: int


@dataclass(frozen=True, kw_only=True)
class RetryingMessage:
    """Describes a message that does not recover."""

    message_key: str
    destination: str
    fingerprint: str
    attempts: int
    replays: int
    first_s: float
    last_s: float
    verdict: str


@dataclass(frozen=True, kw_only=True)
class Poison:
    """Lists the messages with most attempts that did not recover, and counts messages by verdict."""

    messages: tuple[RetryingMessage, ...]
    verdicts: Mapping[str, int]


def flow(by_day: Iterable[Row], by_reason: Iterable[Row]) -> Flow:
    """Return bars from `by_day`, and all else from `by_reason`.

    Rows are those of the mart, or sums that kept `day`, and `destination` and `reason`.
    """
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    oldest: dict[tuple[str, str], int] = {}
    for row in by_reason:
        key = row["destination"], row["reason"] or ""
        sums[key][0] += row["in"]
        sums[key][1] += row["out"]
        if row["oldest_us"] is not None:
            oldest[key] = min(oldest.get(key, row["oldest_us"]), row["oldest_us"])
    lines = [
        FlowLine(
            destination=key[0],
            reason=text(key[1]),
            came=came,
            left=left,
            oldest_s=oldest[key] / 1e6 if key in oldest else None,
        )
        for key, (came, left) in sorted(sums.items(), key=lambda item: (-item[1][0], -item[1][1], item[0]))
    ]
    return Flow(
        came=sum(one.came for one in lines),
        left=sum(one.left for one in lines),
        bars=_bars(by_day),
        lines=tuple(lines[:LINES]),
        others=len(lines[LINES:]),
        others_came=sum(one.came for one in lines[LINES:]),
        others_left=sum(one.left for one in lines[LINES:]),
    )


def poison(rows: Iterable[Row], verdicts: Iterable[Row]) -> Poison:
    """Return the messages.

    `rows`: those with most attempts suffice. `verdicts`: rows of `verdict` and `n`, of all messages.
    """
    ranked = sorted(
        (row for row in rows if row["verdict"] != "healed"),
        key=lambda row: (-row["attempts"], -row["replays"], row["message_key"]),
    )
    return Poison(
        messages=tuple(_retrying_message(row) for row in ranked[:MESSAGES_SHOWN]),
        verdicts={text(row["verdict"]): row["n"] for row in sorted(verdicts, key=lambda row: row["verdict"])},
    )


def _retrying_message(row: Row) -> RetryingMessage:
    return RetryingMessage(
        message_key=text(row["message_key"]),
        destination=row["destination"],
        fingerprint=row["fingerprint"] or "",
        attempts=row["attempts"],
        replays=row["replays"],
        first_s=row["first_us"] / 1e6,
        last_s=row["last_us"] / 1e6,
        verdict=text(row["verdict"]),
    )


def _bars(rows: Iterable[Row]) -> tuple[FlowBar, ...]:
    """Return a bar for each day; for a long time, a bar for several days."""
    came: Counter[int] = Counter()
    left: Counter[int] = Counter()
    for row in rows:
        came[_day(row["day"])] += row["in"]
        left[_day(row["day"])] += row["out"]
    if not came:
        return ()
    first, last = min(came), max(came)
    days = next((width for width in (1, 7, 28) if (last - first) // width < DAYS), (last - first) // DAYS + 1)
    bars: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for day in came:
        place = bars[first + (day - first) // days * days]
        place[0] += came[day]
        place[1] += left[day]
    return tuple(
        FlowBar(start_s=float(start * DAY), days=days, came=both[0], left=both[1])
        for start, both in sorted(bars.items())
    )


def _day(day: date) -> int:
    """Return the days since 1970."""
    return (day - date(1970, 1, 1)).days
