# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What a record of `events` is: the conditions that the marts share, as SQL. docs/marts.md has them in words.

An *attempt* is a run of a handler, however it ended. No attempts are `released` records, nor a verdict over a message
that was not run: it had expired, or its policy ends it when it arrives. Such a verdict comes without an error, or with
that of the last failure, which then was at `last_failure_us` and not at `ts_us`.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sf

HISTORY: Final = ("message_key", "generation", "destination")  # the attempts of one history have these in common
NUMBERED: Final = 1_000  # attempts with a higher number are in no array: a message may be tried for ever

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
# Most records of a healthy queue; they are dropped before any shuffle. One that the broker gave out before may have
# failed in a process that died with its count: that success belongs to a history.
FIRST_TRY: Final = f"({ACCEPTED} AND delivery_count <= 1 AND NOT broker_redelivered)"


def place() -> Column:
    """Where a record stands in its history. Counts come before times: clocks jump, counts do not."""
    return sf.struct("delivery_count", "ts_us", "record_id")


def day(us: str) -> Column:
    """The day of a column of microseconds since 1970, in UTC whatever the session's time zone is."""
    return sf.expr(f"date_from_unix_date(CAST(({us} - pmod({us}, 86400000000L)) div 86400000000L AS INT))")
