# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Checks a limbo: reachable, with tables of this release, and with a clock like ours. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from ..adapter.inspection import ClockReading
from ..clock import Clock
from ..errors import ConfigError, LimboError
from ..storage.database import Database
from .clocks import compared
from .finding import Finding, ok, wrong

_AWAY = ("limbo-file-missing", "limbo-not-reachable", "limbo-locked")
_OTHER = ("limbo-tables",)


def check_limbo(url: str, clock: Clock) -> Iterator[Finding]:
    """Yield the findings about the limbo at `url`. Raises ConfigError if that is no URL of a database."""
    database = Database(url)
    where = database.where
    try:
        database.open(create=False)
        try:
            before = clock.now().wall
            theirs = database.wall_time()
            after = clock.now().wall
        finally:
            database.close()
    except (LimboError, ConfigError) as error:
        problem = "limbo-not-usable"
        if error.code in _AWAY:
            problem = "limbo-not-reachable"
        elif error.code in _OTHER:
            problem = "limbo-other-release"
        yield wrong(problem, where, error.what, error.cure or "Look at the database")
        return
    yield ok("limbo", where, "reachable, with tables of this release")
    reading = ClockReading(theirs - (before + after) / 2, (after - before) / 2)
    yield compared("limbo-clock", "limbo-clock-skew", where, reading, "the database's clock")
