# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Marts cut down to what the page reads of them, so that what is collected does not grow with the lake.

Each a pure DataFrame -> DataFrame; what comes out are the rows of `facts.Rows`.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from .attempts import COLUMNS
from .failures import TEXT
from .letters import SICK
from .storms import WINDOW_S

FAILURES_SEEN: Final = 64  # of a policy's decisions, those after so many failures are looked at one by one
_FAILURE: Final = ("destination", "fingerprint")
_WINDOW_US: Final = WINDOW_S * 1_000_000


def outcomes(messages: DataFrame) -> DataFrame:
    """How many histories ended how."""
    return messages.groupBy("outcome").agg(sf.count("*").alias("n"))


def recovery(recovery: DataFrame) -> DataFrame:
    """`recovery` over all days: as many rows as there are bins in use, whatever the number of messages."""
    keys = (*_FAILURE, "policy_version", "lo_bin", "hi_bin")
    return recovery.groupBy(*keys).agg(sf.sum("n").alias("n"))


def waste(waste: DataFrame) -> DataFrame:
    """`waste` over all days."""
    names = ("attempts", "handler_us", "hopeless_attempts")
    return waste.groupBy(*_FAILURE).agg(*(sf.try_sum(name).alias(name) for name in names))


def fingerprints(fingerprints: DataFrame) -> DataFrame:
    """With as much of each example as is kept."""
    return fingerprints.withColumn("example", sf.substring("example", 1, TEXT + 1))


def attempt_curve(curve: DataFrame) -> DataFrame:
    """Repeated attempts over all days; those that have no column of their own are one."""
    number = sf.least("attempt", sf.lit(COLUMNS + 1)).alias("attempt")
    repeated = curve.where("attempt > 1").select("destination", "error_type", number, "n", "n_accepted")
    return repeated.groupBy("destination", "error_type", "attempt").agg(
        sf.sum("n").alias("n"), sf.sum("n_accepted").alias("n_accepted")
    )


def sick(poison: DataFrame) -> DataFrame:
    """The messages that the page shows: in one order, whatever Spark makes of ties."""
    return (
        poison.where("verdict <> 'healed'").orderBy(sf.desc("attempts"), sf.desc("replays"), "message_key").limit(SICK)
    )


def verdicts(poison: DataFrame) -> DataFrame:
    """How many messages have each verdict."""
    return poison.groupBy("verdict").agg(sf.count("*").alias("n"))


def by_day(flow: DataFrame) -> DataFrame:
    return flow.groupBy("day").agg(sf.sum("in").alias("in"), sf.sum("out").alias("out"))


def by_reason(flow: DataFrame) -> DataFrame:
    return flow.groupBy("destination", "reason").agg(
        sf.sum("in").alias("in"), sf.sum("out").alias("out"), sf.min("oldest_us").alias("oldest_us")
    )


def span(storms: DataFrame) -> DataFrame:
    """One row: the first window and the last; nulls if there is none."""
    return storms.agg(sf.min("window_us").alias("first_us"), sf.max("window_us").alias("last_us"))


def buckets(storms: DataFrame, width_s: int) -> DataFrame:
    """Windows of all destinations, summed up in steps of `width_s` seconds; `last_us` is the last window of each."""
    step = sf.expr(f"window_us - pmod(window_us, {width_s * 1_000_000})")
    return (
        storms.groupBy(step.alias("step"))
        .agg(
            sf.min("window_us").alias("window_us"),
            sf.max("window_us").alias("last_us"),
            sf.sum("first_attempts").alias("first_attempts"),
            sf.sum("retries").alias("retries"),
        )
        .drop("step")
    )


def episodes(storms: DataFrame) -> DataFrame:
    """A row for each storm: stormy windows of one destination with no window between them that is calm, or missing."""
    along = Window.partitionBy("destination").orderBy("window_us")
    begins = sf.coalesce(sf.col("window_us") - sf.lag("window_us").over(along) > _WINDOW_US, sf.lit(True))
    numbered = storms.where("state = 'storm'").withColumn("storm", sf.sum(begins.cast("int")).over(along))
    return (
        numbered.groupBy("destination", "storm")
        .agg(
            sf.min("window_us").alias("first_us"),
            (sf.max("window_us") + _WINDOW_US).alias("end_us"),
            sf.sum("attempts").alias("attempts"),
            sf.sum("retries").alias("retries"),
            sf.max(sf.col("attempts") / sf.greatest("first_attempts", sf.lit(1))).alias("peak"),
        )
        .drop("storm")
    )


def reasons(messages: DataFrame) -> DataFrame:
    """How many messages of each failure ended for which reason, and the type of its error."""
    return messages.groupBy("fingerprint", "reason").agg(
        sf.min("error_type").alias("error_type"), sf.count("*").alias("n")
    )


def policies(events: DataFrame) -> DataFrame:
    """Which policies decided on failures at each destination: how often, when last, and what after which failure.

    `seen` has an item for each of the first numbers of failures after which something hung on the number: how often
    the message was `redelivered`, after delays from `least_us` to `most_us` before jitter, and how often it was
    `exhausted`.
    """
    decided = events.where("outcome IN ('redelivered', 'dead_lettered', 'discarded', 'kept')")
    policy = ("destination", "policy", "policy_version", "policy_arm")
    again = sf.col("outcome") == "redelivered"
    delay_us = sf.when(again, sf.coalesce("delay_base_us", "delay_us"))
    by_failures = decided.groupBy(*policy, "delivery_count").agg(
        sf.count("*").alias("n"),
        sf.max("ts_us").alias("last_us"),
        sf.count_if(again).alias("redelivered"),
        sf.count_if(~again & (sf.col("reason") == "exhausted")).alias("exhausted"),
        sf.min(delay_us).alias("least_us"),
        sf.max(delay_us).alias("most_us"),
    )
    seen = sf.struct(sf.col("delivery_count").alias("failures"), "redelivered", "exhausted", "least_us", "most_us")
    told = (sf.col("delivery_count") <= FAILURES_SEEN) & (sf.col("redelivered") + sf.col("exhausted") > 0)
    return by_failures.groupBy(*policy).agg(
        sf.sum("n").alias("n"),
        sf.max("last_us").alias("last_us"),
        sf.array_sort(sf.collect_list(sf.when(told, seen))).alias("seen"),
    )


def clocks(clocks: DataFrame) -> DataFrame:
    """A row for each host and state: the least offset and the greatest, and the greatest error."""
    return clocks.groupBy("host", "state").agg(
        sf.min("offset_us").alias("offset_us"),
        sf.max("offset_us").alias("most_us"),
        sf.max("error_us").alias("error_us"),
    )
