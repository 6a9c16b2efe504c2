# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Formats numbers for people. Rounded as far as a decision allows, and never misleading: 99.96 % is not 100 %.

>>> duration(1.5), duration(180), duration(7200), share(0.9996), count(1234567), short(1234567)
('1.5 s', '3 min', '2 h', '> 99.9 %', '1,234,567', '1.2 M')
"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

_UNITS: Final = (("ms", 0.001), ("s", 1.0), ("min", 60.0), ("h", 3600.0), ("d", 86400.0))
# English in any locale of the process
MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def duration(seconds: float) -> str:
    """Return a span of `seconds` >= 0 with about two digits: `0 s`, `250 ms`, `1.5 s`, `3 min`, `2.6 h`, `41 d`."""
    if seconds <= 0:
        return "0 s"
    if seconds < 0.0005:
        return "< 1 ms"
    for (name, size), (_, following) in pairwise(_UNITS):
        shown = _digits(seconds / size)
        # 59.97 s is a minute, not 60 s
        if float(shown) * size < following * (1 - 1e-9):
            return f"{shown} {name}"
    days = seconds / 86400
    return f"{_digits(days)} d" if days < 1000 else f"{count(round(days))} d"


def count(number: float) -> str:
    """Return all digits, in groups of three."""
    return f"{round(number):,}"


def short(number: float) -> str:
    """Return about two digits: `0.4`, `7`, `950`, `1.2 k`, `34 M`."""
    for name, size in (("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9)):
        shown = _digits(number / size)
        if abs(float(shown)) < 1000 or name == "G":
            return f"{shown} {name}".strip()
    raise AssertionError("the last unit takes all")


def share(value: float) -> str:
    """Return a share between 0 and 1 in per cent; 0 % and 100 % only if the share is exactly that."""
    if value <= 0:
        return "0 %"
    if value >= 1:
        return "100 %"
    percent = value * 100
    if percent < 0.1:
        return "< 0.1 %"
    if percent > 99.9:
        return "> 99.9 %"
    shown = f"{percent:.0f}" if 10 <= percent < 99 else f"{percent:.1f}".removesuffix(".0")
    return f"{shown} %"


def at_most(value: float) -> str:
    """Return a share between 0 and 1 for a sentence that itself says `fewer than`: never `fewer than < 0.1 %`."""
    return "100 %" if value > 0.999 else share(max(value, 0.001))


def no_later(seconds: float) -> str:
    """Return a time span for a sentence that itself says `up to`: never `up to < 1 ms`."""
    return duration(max(seconds, 0.001)) if seconds > 0 else duration(seconds)


def one_in(value: float) -> str:
    """Return a share as people count: `1 in 12`; empty if that adds nothing to the percentage."""
    return f"1 in {count(1 / value)}" if 0 < value <= 0.2 else ""


def date(seconds: float) -> str:
    """Return a day in UTC of seconds since 1970: `4 Mar 2026`."""
    when = datetime.fromtimestamp(seconds, UTC)
    return f"{when.day} {MONTHS[when.month - 1]} {when.year}"


def moment(seconds: float) -> str:
    """Return a minute in UTC of seconds since 1970: `4 Mar 2026 09:05`."""
    return f"{date(seconds)} {datetime.fromtimestamp(seconds, UTC):%H:%M}"


def _digits(number: float) -> str:
    """Return two digits, all of those before the point, without trailing zeros."""
    return f"{number:.1f}".removesuffix(".0") if abs(number) < 9.95 else f"{number:.0f}"
