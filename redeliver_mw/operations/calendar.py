# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Converts days between microseconds since 1970 and text, for years that `datetime` does not have. Pure.

A letter's time comes from other programs and is anything that 64 bits hold. The algorithms are `civil_from_days` and
`days_from_civil` by Howard Hinnant.
"""

from __future__ import annotations

import re
from typing import Final

from ..errors import ConfigError

DAY_US: Final = 86_400_000_000
_DAY: Final = re.compile(r"(-?\d{4,6})-(\d{2})-(\d{2})", re.ASCII)


def day_text(us: int) -> str:
    """Return the day, in UTC, of microseconds since 1970: as 2026-11-26."""
    year, month, day = _civil(us // DAY_US)
    return f"{year:04d}-{month:02d}-{day:02d}"


def day_us(text: str, where: str = "day") -> int:
    """Return the first microsecond of a day since 1970. Raises ConfigError for a text that is no day."""
    found = _DAY.fullmatch(text)
    if found is not None:
        year, month, day = map(int, found.groups())
        days = _days(year, month, day) if 1 <= month <= 12 and 1 <= day <= 31 else 0
        if day_text(days * DAY_US) == f"{year:04d}-{month:02d}-{day:02d}":
            return days * DAY_US
    raise ConfigError(f"{text!r} is no day", where=where, cure="Write it as 2026-11-26", code="option-value")


def _civil(days: int) -> tuple[int, int, int]:
    """Return year, month and day of so many days after 1970-01-01."""
    days += 719_468
    era, of_era = divmod(days, 146_097)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * of_year + 2) // 153
    day, month = of_year - (153 * shifted + 2) // 5 + 1, shifted + 3 if shifted < 10 else shifted - 9
    return year + era * 400 + (month <= 2), month, day


def _days(year: int, month: int, day: int) -> int:
    """Return how many days after 1970-01-01 a day is."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468
