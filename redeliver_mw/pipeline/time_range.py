# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads points in time as users write them, and the span between two of them.

All values are int64 microseconds, UTC.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple

from ..errors import ConfigError

TimeBound = int | date | datetime | str
"""Microseconds since 1970, a day (its first instant in UTC), a time, or ISO 8601 text of any of the two. A time
without an offset is one in UTC."""

DAY_US: Final = 86_400_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_CURE: Final = "Write a day or a time in UTC, as in 2026-11-30 or 2026-11-30T06:00:00Z"


class TimeRange(NamedTuple):
    """Is the time from `since_us` on, and before `until_us`; None: no such bound."""

    since_us: int | None = None
    until_us: int | None = None

    def touches(self, first_us: int, last_us: int) -> bool:
        """Return whether any of the instants from `first_us` to `last_us`, both included, may be in the range."""
        return (self.since_us is None or last_us >= self.since_us) and (
            self.until_us is None or first_us < self.until_us
        )

    def holds(self, first_us: int, last_us: int) -> bool:
        """Return whether all of them are in the range."""
        return (self.since_us is None or first_us >= self.since_us) and (
            self.until_us is None or last_us < self.until_us
        )


def before_us(moment: TimeBound) -> int:
    """Return the instant that `--before` names. Raises ConfigError for an invalid time."""
    try:
        return micros(moment)
    except (ValueError, OverflowError):
        raise ConfigError(f"{moment!r} is no time", where="--before", cure=_CURE, code="option-value") from None


def span(since: TimeBound | None = None, until: TimeBound | None = None) -> TimeRange:
    """Return the range. Raises ConfigError for an invalid time, and if the end is not after the beginning."""
    found = TimeRange(_bound(since, "since"), _bound(until, "until"))
    if found.since_us is not None and found.until_us is not None and found.until_us <= found.since_us:
        raise ConfigError(
            f"ends at {until}, which is not after {since}",
            where="until",
            cure="Give a later end",
            code="option-value",
        )
    return found


def whole_days(since: TimeBound | None, until: TimeBound | None) -> TimeRange:
    """Return the range of days.

    Raises ConfigError if a bound is not the beginning of a day: marts have whole days only.
    """
    found = span(since, until)
    for name, bound in zip(("since", "until"), found, strict=True):
        if bound is not None and bound % DAY_US:
            raise ConfigError(
                "marts are by day, and this is within one",
                where=name,
                cure="Name a day: 2026-11-30",
                code="option-value",
            )
    return found


def day_of(us: int) -> date:
    """Return the UTC day of an instant."""
    return (_EPOCH + timedelta(days=us // DAY_US)).date()


def _bound(moment: TimeBound | None, name: str) -> int | None:
    try:
        return None if moment is None else micros(moment)
    except (ValueError, OverflowError):
        raise ConfigError(f"{moment!r} is no time", where=name, cure=_CURE, code="option-value") from None


def micros(moment: TimeBound) -> int:
    """Return an instant in microseconds. Raises ValueError for text that is no time."""
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment.strip())
    if isinstance(moment, datetime):
        known = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return (known - _EPOCH) // _MICROSECOND
    if isinstance(moment, date):
        return (moment - _EPOCH.date()).days * DAY_US
    return moment
