# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Cuts the mart `messages` down to what the back-test reads, so that the collected rows do not grow with the lake.

Each a pure DataFrame -> DataFrame. Time counts from a message's first failure to the beginning of an attempt: a failing
attempt may wait ten seconds for its timeout, and what it tells is that the message had not recovered when it began.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from ..marts.attempts import ACCEPTED, ATTEMPT
from ..marts.recovery import TRUSTED
from ..time_bins import as_sql

SLICES: Final = 64  # stretches of the time that is looked at, all as long
BUCKETS: Final = 2_000  # finer ones, in which failures are counted to find outages
VERSION: Final = "concat_ws(' ', policy_version, policy_arm)"  # an arm is a policy of its own

_FAILED: Final = "filter(history, step -> step.outcome <> 'accepted')"
_ACCEPTED: Final = "filter(history, step -> step.outcome = 'accepted')"
# Attempts with a high number are not in the array: then the end of the attempt stands for its beginning.
_LAST_FAILURE: Final = f"""
if(size({_FAILED}) = failures,
   array_max(transform({_FAILED}, step -> step.ts_us - coalesce(step.handler_us, 0L))), last_failure_us)
"""
_SUCCESS: Final = f"""
if(size({_ACCEPTED}) > 0,
   array_min(transform({_ACCEPTED}, step -> step.ts_us - coalesce(step.handler_us, 0L))), recovered_us)
"""
_LATE: Final = f"""
if({TRUSTED} AND size(history) > 1,
   transform(sequence(1, size(history) - 1), at -> struct('late' AS kind,
       history[at].ts_us - coalesce(history[at].handler_us, 0L)
       - history[at - 1].ts_us - history[at - 1].delay_us AS us)),
   array())
"""


def span(messages: DataFrame) -> DataFrame:
    """Return one row: when the first message and the last one failed first; nulls if there is none."""
    return messages.agg(sf.min("first_failure_us").alias("first_us"), sf.max("first_failure_us").alias("last_us"))


def histories(messages: DataFrame, first_us: int, width_us: int) -> DataFrame:
    """Return rows as the mart `recovery` has them, by slices of `width_us` from `first_us` on and not by days."""
    begun = messages.select(
        "destination",
        "fingerprint",
        sf.expr(VERSION).alias("policy_version"),
        _stretch(first_us, width_us).alias("slice"),
        sf.expr(f"if({TRUSTED} AND failures > 1, {_LAST_FAILURE} - first_failure_us, 0L)").alias("lo_us"),
        sf.expr(f"if({TRUSTED}, {_SUCCESS} - first_failure_us, NULL)").alias("hi_us"),
    )
    keys = ("destination", "fingerprint", "policy_version", "slice", "lo_bin", "hi_bin")
    binned = begun.withColumns({"lo_bin": sf.expr(as_sql("lo_us")), "hi_bin": sf.expr(as_sql("hi_us"))})
    return binned.groupBy(*keys).agg(sf.count("*").alias("n"))


def attempt_times(messages: DataFrame) -> DataFrame:
    """Return how long attempts took and how late they began, as `History` takes it."""
    steps = sf.expr(f"""
        concat(
            transform({_FAILED}, step -> struct('failing' AS kind, step.handler_us AS us)),
            transform({_ACCEPTED}, step -> struct('success' AS kind, step.handler_us AS us)),
            {_LATE})
    """)
    steps_of = messages.select("destination", "fingerprint", sf.explode(steps).alias("step"))
    counted = steps_of.select("destination", "fingerprint", "step.kind", "step.us").where("us IS NOT NULL")
    binned = counted.withColumn("bin", sf.expr(as_sql("us")))  # what is below 0 falls into the first bin
    return binned.groupBy("destination", "fingerprint", "kind", "bin").agg(sf.count("*").alias("n"))


def observed(messages: DataFrame) -> DataFrame:
    """Return what became of the messages of each policy and arm, by destination: counts and sums.

    `waited_us` is the time until they recovered, of those whose clocks can be trusted, `timed`.
    """
    timed = sf.expr(f"{TRUSTED} AND recovered_us IS NOT NULL")
    return messages.groupBy("destination", sf.expr(VERSION).alias("policy_version")).agg(
        sf.count("*").alias("messages"),
        sf.count("recovered_us").alias("recovered"),
        sf.sum("attempts").alias("attempts"),
        sf.sum(sf.when(timed, sf.expr("recovered_us - first_failure_us"))).alias("waited_us"),
        sf.count_if(timed).alias("timed"),
        sf.max("last_us").alias("last_us"),
    )


def hosts(events: DataFrame) -> DataFrame:
    """Return how many messages were tried again on each host, and how many of these attempts succeeded."""
    retries = events.where(f"{ATTEMPT} AND delivery_count > 1")
    return retries.groupBy("destination", "host").agg(
        sf.count("*").alias("retries"), sf.count_if(sf.expr(ACCEPTED)).alias("recovered")
    )


def failures_by_bucket(messages: DataFrame, first_us: int, width_us: int) -> DataFrame:
    """Return how many messages failed first in which bucket of `width_us` from `first_us` on, by destination."""
    bucket = _stretch(first_us, width_us).alias("bucket")
    return messages.groupBy("destination", bucket).agg(sf.count("*").alias("n"))


def _stretch(first_us: int, width_us: int) -> Column:
    """Return the number of the stretch of time in which a message failed first; the first one if that is not known."""
    return sf.expr(f"CAST(greatest((first_failure_us - {first_us}L) div {width_us}L, 0L) AS INT)")
