# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Computes `recovery`: how long failures took to recover, as counted intervals. The back-test reads only this mart.

The recovery time of a history lies in (last failure, success], measured from its first failure; without a success it is
longer than the time of the last failure, and `hi_bin` is null. If the times cannot be trusted, only a lower bound of 0
is known: `lo_bin` is 0, `hi_bin` null, and the history still counts.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from ..time_bins import as_sql
from .attempts import day

# No time of a history is before that of an earlier attempt. Otherwise a clock was wrong, or a count was lost.
_IN_ORDER: Final = """
(first_failure_us <= last_failure_us
AND (recovered_us IS NULL OR last_failure_us <= recovered_us)
AND array_sort(transform(history, step -> step.ts_us)) = transform(history, step -> step.ts_us))
"""
# In order, and without a failure after the first success.
TRUSTED: Final = f"""
coalesce(
    {_IN_ORDER} AND array_position(transform(history, step -> step.outcome), 'accepted') IN (0, failures + 1), false)
"""


def order(messages: DataFrame) -> DataFrame:
    """Return one row: how many `histories` have several attempts, and how many of these have times in `disorder`."""
    return messages.where("size(history) > 1").agg(
        sf.count("*").alias("histories"), sf.count_if(~sf.expr(_IN_ORDER)).alias("disorder")
    )


def recovery(messages: DataFrame) -> DataFrame:
    """Return the mart for `messages`, each of which is counted once."""
    intervals = messages.select(
        day("last_us").alias("day"),
        "destination",
        "fingerprint",
        "policy_version",
        sf.expr(f"if({TRUSTED}, last_failure_us - first_failure_us, 0L)").alias("lo_us"),
        sf.expr(f"if({TRUSTED}, recovered_us - first_failure_us, NULL)").alias("hi_us"),
    )
    keys = ("day", "destination", "fingerprint", "policy_version", "lo_bin", "hi_bin")
    binned = intervals.withColumns({"lo_bin": sf.expr(as_sql("lo_us")), "hi_bin": sf.expr(as_sql("hi_us"))})
    return binned.groupBy(*keys).agg(sf.count("*").alias("n"))
