# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""`recovery`: how long failures took to heal, as counted intervals. It is all that the back-test reads.

The recovery time of a history lies in (last failure, success], measured from its first failure; without a success it
lies beyond the last failure, and `hi_bin` is null. Where the times cannot be trusted nothing is known but that it is
above 0: `lo_bin` is 0, `hi_bin` null, and the history stays among the counted.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from ..time_bins import as_sql
from .attempts import day

# No time in it lies before that of an earlier attempt. If one does, a clock was wrong, or a count was lost.
_IN_ORDER: Final = """
(first_failure_us <= last_failure_us
AND (recovered_us IS NULL OR last_failure_us <= recovered_us)
AND array_sort(transform(history, step -> step.ts_us)) = transform(history, step -> step.ts_us))
"""
# In order, and nothing failed after the first success.
TRUSTED: Final = f"""
coalesce(
    {_IN_ORDER} AND array_position(transform(history, step -> step.outcome), 'accepted') IN (0, failures + 1), false)
"""


def order(messages: DataFrame) -> DataFrame:
    """Return one row: how many `histories` have more than one attempt, and of how many the times are in `disorder`."""
    return messages.where("size(history) > 1").agg(
        sf.count("*").alias("histories"), sf.count_if(~sf.expr(_IN_ORDER)).alias("disorder")
    )


def recovery(messages: DataFrame) -> DataFrame:
    """The mart out of `messages`, each of which is counted once."""
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
