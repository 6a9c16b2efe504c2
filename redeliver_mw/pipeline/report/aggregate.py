# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reduces marts to the rows that the page needs, so that the collected data does not grow with the lake.

Each function is a pure DataFrame -> DataFrame; the results are the rows of `facts.MartRows`.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from .attempts import COLUMNS
from .failures import TEXT
from .letters import MESSAGES_SHOWN
from .storms import WINDOW_S

FAILURES_SEEN: Final = 64  # a policy's decisions after up to this many failures are examined one by one
_FAILURE: Final = ("destination", "fingerprint")
_WINDOW_US: Final = WINDOW_S * 1_000_000


def outcomes(messages: DataFrame) -> DataFrame:
    """Return how many histories ended with each outcome."""
    return messages.groupBy("outcome").agg(sf.count("*").alias("n"))


def recovery(recovery: DataFrame) -> DataFrame:
    """Return `recovery` over all days: as many rows as there are bins in use, for any number of messages."""
    keys = (*_FAILURE, "policy_version", "lo_bin", "hi_bin")
    return recovery.groupBy(*keys).agg(sf.sum("n").alias("n"))


def waste(waste: DataFrame) -> DataFrame:
    """Return `waste` over all days."""
    names = ("attempts", "handler_us", "hopeless_attempts")
    return waste.groupBy(*_FAILURE).agg(*(sf.try_sum(name).alias(name) for name in names))


def fingerprints(fingerprints: DataFrame) -> DataFrame:
    """Return `fingerprints`, each example cut to the length that the page keeps."""
    return fingerprints.withColumn("example", sf.substring("example", 1, TEXT + 1))


def attempt_curve(curve: DataFrame) -> DataFrame:
    """Return repeated attempts over all days; attempts without a column of their own are combined."""
    number = sf.least("attempt", sf.lit(COLUMNS + 1)).alias("attempt")
    repeated = curve.where("attempt > 1").select("destination", "error_type", number, "n", "n_accepted")
    return repeated.groupBy("destination", "error_type", "attempt").agg(
        sf.sum("n").alias("n"), sf.sum("n_accepted").alias("n_accepted")
    )


def retrying_messages(poison: DataFrame) -> DataFrame:
    """Return the messages that the page shows, in an order without ties."""
    return (
        poison.where("verdict <> 'healed'")
        .orderBy(sf.desc("attempts"), sf.desc("replays"), "message_key")
        .limit(MESSAGES_SHOWN)
    )


def verdicts(poison: DataFrame) -> DataFrame:
    """Return how many messages have each verdict."""
    return poison.groupBy("verdict").agg(sf.count("*").alias("n"))


def by_day(flow: DataFrame) -> DataFrame:
    return flow.groupBy("day").agg(sf.sum("in").alias("in"), sf.sum("out").alias("out"))


def by_reason(flow: DataFrame) -> DataFrame:
    return flow.groupBy("destination", "reason").agg(
        sf.sum("in").alias("in"), sf.sum("out").alias("out"), sf.min("oldest_us").alias("oldest_us")
    )


def span(storms: DataFrame) -> DataFrame:
    """Return one row: the first window and the last; nulls if there is none."""
    return storms.agg(sf.min("window_us").alias("first_us"), sf.max("window_us").alias("last_us"))


def buckets(storms: DataFrame, width_s: int) -> DataFrame:
    """Return windows of all destinations, summed in steps of `width_s` seconds.

    `last_us` is the last window of each.
    """
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
    """Return a row for each storm: stormy windows of one destination without a calm or missing window between them."""
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
    """Return how many messages of each failure ended for which reason, and the type of its error."""
    return messages.groupBy("fingerprint", "reason").agg(
        sf.min("error_type").alias("error_type"), sf.count("*").alias("n")
    )


def policies(events: DataFrame) -> DataFrame:
    """Return which policies decided on failures at each destination: how often, when last, and the decisions.

    `seen` has an item for each of the first numbers of failures for which the decision depended on the number: how
    often the message was `redelivered`, after delays from `least_us` to `most_us` before jitter, and how often it was
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
    decisive = (sf.col("delivery_count") <= FAILURES_SEEN) & (sf.col("redelivered") + sf.col("exhausted") > 0)
    return by_failures.groupBy(*policy).agg(
        sf.sum("n").alias("n"),
        sf.max("last_us").alias("last_us"),
        sf.array_sort(sf.collect_list(sf.when(decisive, seen))).alias("seen"),
    )


def clocks(clocks: DataFrame) -> DataFrame:
    """Return a row for each host and state: the smallest offset and the largest, and the largest error."""
    return clocks.groupBy("host", "state").agg(
        sf.min("offset_us").alias("offset_us"),
        sf.max("offset_us").alias("most_us"),
        sf.max("error_us").alias("error_us"),
    )
