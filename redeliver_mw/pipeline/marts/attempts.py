# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Classifies the records of `events`: the conditions that the marts share, as SQL. docs/marts.md explains them.

An *attempt* is a run of a handler, however it ended. A `released` record is no attempt, and neither is a decision about
a message that was not run: the message had expired, or its policy ends it when it arrives. Such a decision comes
without an error, or with the error of the last failure, which then was at `last_failure_us` and not at `ts_us`.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

# All attempts of one history have the same values of these.
HISTORY: Final = ("message_key", "generation", "destination")
NUMBERED: Final = 1_000  # attempts with a higher number are in no array: a message may be tried forever

_UNRUN: Final = """
outcome <> 'accepted' AND coalesce(
    (reason = 'expired' AND error_type IS NULL)
    OR (reason IN ('expired', 'exhausted') AND outcome IN ('dead_lettered', 'discarded') AND handler_us = 0
        AND (error_type IS NULL OR last_failure_us < ts_us)),
    false)
"""
TOLD: Final = "(outcome <> 'released')"
ATTEMPT: Final = f"({TOLD} AND NOT ({_UNRUN}))"
FAILED: Final = f"({ATTEMPT} AND outcome <> 'accepted')"
ACCEPTED: Final = "(outcome = 'accepted')"
DIED: Final = "(outcome IN ('dead_lettered', 'discarded'))"
# These are most records of a healthy queue; they are dropped before any shuffle. A message that the broker delivered
# before may have failed in a process that died with its count: that success belongs to a history.
FIRST_TRY: Final = f"({ACCEPTED} AND delivery_count <= 1 AND NOT broker_redelivered)"


def first_tries(healthy: DataFrame) -> DataFrame:
    """Return the columns of first attempts for rows of `healthy_counts`, and how many `messages` each row stands for.

    All of them were successes, and a row has one time for all, that of the last.
    """
    return healthy.select(
        "ts_us",
        "destination",
        sf.lit(1).alias("delivery_count"),
        sf.lit("accepted").alias("outcome"),
        "messages",
    )


def place() -> Column:
    """Return the position of a record in its history.

    Counts come before times, because clocks jump and counts do not.
    """
    return sf.struct("delivery_count", "ts_us", "record_id")


def day(us: str) -> Column:
    """Return the day of a column of microseconds since 1970, in UTC for every time zone of the session."""
    return sf.expr(f"date_from_unix_date(CAST(({us} - pmod({us}, 86400000000L)) div 86400000000L AS INT))")
