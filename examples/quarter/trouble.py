# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines the failures of the quarter and their times: the truth that the report has to find again in the journal.

Points in time are seconds since 1970, UTC, on the wall clock.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

FIRST_DAY = datetime(2026, 7, 1, tzinfo=UTC)
DAYS = 92
HOUR, MINUTE = 3600.0, 60.0
NEVER = math.inf


class Span(NamedTuple):
    """Is the time from `begin` to before `end`."""

    begin: float
    end: float

    def holds(self, at: float) -> bool:
        return self.begin <= at < self.end


def _span(day: str, time: str, lasts: timedelta) -> Span:
    begin = datetime.fromisoformat(f"2026-{day}T{time}:00+00:00")
    return Span(begin.timestamp(), (begin + lasts).timestamp())


def _minutes(day: str, time: str, minutes: int) -> Span:
    return _span(day, time, timedelta(minutes=minutes))


# Every call fails, for every message.
OUTAGES = {
    "warehouse": (
        _minutes("07-14", "13:05", 42),
        _minutes("08-03", "09:30", 3),
        _minutes("08-21", "17:40", 145),
        _minutes("09-09", "11:12", 11),
    ),
    "payments": (
        _minutes("07-27", "19:50", 18),
        _minutes("09-01", "08:15", 70),
        _minutes("09-18", "20:05", 4),
    ),
}
# One producer of invoices writes a format that no consumer can read, until the producer is rolled back.
NEW_FORMAT = _span("08-18", "06:00", timedelta(days=15, hours=8))
# On these evenings the payment provider's quota for a minute is used up after its first twenty seconds.
SALES = tuple(_span(f"09-{day}", "18:00", timedelta(hours=4)) for day in (11, 12, 13))
QUOTA = 20.0
# Times when somebody replays a queue's dead letters: half an hour after an outage, and once as an experiment.
REPLAYS = (
    *((span.end + 30 * MINUTE, "orders") for span in OUTAGES["warehouse"]),
    *((span.end + 30 * MINUTE, "payments") for span in OUTAGES["payments"]),
    (NEW_FORMAT.begin + 27 * HOUR, "invoices"),
)
# Each night the catalogue's import locks the database for other handlers; from August 10 on for twice as long.
IMPORT_AT, IMPORT_LASTS = 2 * HOUR, 10 * MINUTE
GROWN = datetime(2026, 8, 10, tzinfo=UTC).timestamp()


def is_down(service: str, at: float) -> bool:
    return any(span.holds(at) for span in OUTAGES[service])


def quota_is_back_in(at: float) -> float:
    """Return the seconds until the payment provider accepts calls again; 0 if it accepts them now."""
    if not any(span.holds(at) for span in SALES) or at % MINUTE < QUOTA:
        return 0.0
    return MINUTE - at % MINUTE


def import_of(day: float) -> Span:
    """Return the time of the catalogue's import on the day that begins at `day`."""
    lasts = IMPORT_LASTS * (2 if day >= GROWN else 1)
    return Span(day + IMPORT_AT, day + IMPORT_AT + lasts)


def is_importing(at: float) -> bool:
    return import_of(at - at % (24 * HOUR)).holds(at)


@dataclass(frozen=True, slots=True)
class Ill:
    """Describes a problem: the `share` of messages with it, in percent, and its lognormal duration.

    The median is in seconds; NEVER for a problem without an end.
    """

    name: str
    share: float
    median: float = NEVER
    sigma: float = 0.0

    def lasts(self, rng: random.Random) -> float:
        return NEVER if self.median == NEVER else self.median * math.exp(rng.gauss(0.0, self.sigma))


# Problems of single messages, by queue. At most one for each message.
ILLS = {
    "orders": (Ill("busy", 24.0, 5.0, 1.5), Ill("out of stock", 0.6, 2 * HOUR, 1.0)),
    "payments": (Ill("slow", 14.0, 12.0, 1.2), Ill("declined", 1.5)),
    "mails": (Ill("greylisted", 18.0, 90.0, 0.5), Ill("unknown mailbox", 1.2)),
    "invoices": (Ill("busy", 4.0, 3.0, 1.0),),
    "imports": (Ill("conflict", 5.0, 20.0, 1.0),),
}


class Fate(NamedTuple):
    """Holds a message's problem, and its end."""

    ill: str = ""
    until: float = 0.0


def fate_of(queue: str, at: float, rng: random.Random) -> Fate:
    """Draw the fate of a message that is sent to `queue` at `at`."""
    drawn = rng.random() * 100.0
    for ill in ILLS[queue]:
        if drawn < ill.share:
            return Fate(ill.name, at + ill.lasts(rng))
        drawn -= ill.share
    return Fate()
