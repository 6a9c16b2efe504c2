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

# No time in it lies before that of an earlier attempt, and nothing failed after the first success.
TRUSTED: Final = """
coalesce(
    first_failure_us <= last_failure_us
    AND (recovered_us IS NULL OR last_failure_us <= recovered_us)
    AND array_sort(transform(history, step -> step.ts_us)) = transform(history, step -> step.ts_us)
    AND array_position(transform(history, step -> step.outcome), 'accepted') IN (0, failures + 1),
    false)
"""


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
