# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Computes `messages`: a row for each history with at least one failure. Other marts are made from it."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from .attempts import ACCEPTED, ATTEMPT, DIED, FAILED, FIRST_TRY, HISTORY, NUMBERED, TOLD, place

_END: Final = ("broker", "outcome", "reason", "policy_version", "policy_arm", "propensity", "ts_us")
_FAILURE: Final = ("error_fingerprint", "error_type", "delivery_count", "ts_us", "first_attempt_us")
_STEP: Final = ("delivery_count", "ts_us", "record_id", "outcome", "error_fingerprint", "delay_us", "handler_us")


def messages(events: DataFrame) -> DataFrame:
    """Return the mart for `events`. Messages without success at once are shuffled, once.

    A history ends with the last record that accepted or ended a message, otherwise with the last record: if a process
    died with the count of failures, later attempts have lower numbers.
    """
    failed, ran, spot = sf.col("failed"), sf.col("ran"), sf.col("place")
    grouped = (
        _rows(events)
        .groupBy("hash", *HISTORY)
        .agg(
            sf.max_by("end", sf.struct("settled", "place")).alias("end"),
            sf.min_by("failure", sf.when(failed, spot)).alias("failure"),
            sf.max(sf.when(failed, spot)).alias("last_failure"),
            sf.min(sf.when(ran, spot)).alias("first"),
            sf.min(sf.when(sf.col("accepted"), spot)).alias("success"),
            sf.count_if(ran).alias("attempts"),
            sf.count_if(failed).alias("failures"),
            sf.try_sum(sf.when(ran, sf.col("handler_us"))).alias("handler_us"),
            sf.collect_list(sf.when(ran & (spot["delivery_count"] <= NUMBERED), sf.col("step"))).alias("steps"),
        )
    )
    return grouped.where("failures > 0").select(
        *HISTORY,
        "end.broker",
        "end.outcome",
        "end.reason",
        sf.col("failure.error_fingerprint").alias("fingerprint"),
        "failure.error_type",
        "end.policy_version",
        "end.policy_arm",
        "end.propensity",
        sf.col("attempts").cast("int"),
        sf.col("failures").cast("int"),
        sf.col("first.ts_us").alias("first_us"),
        # The record of the first attempt is missing if the events begin after it; the attempt's start replaces it.
        sf.expr("if(failure.delivery_count > 1, failure.first_attempt_us, failure.ts_us)").alias("first_failure_us"),
        sf.col("last_failure.ts_us").alias("last_failure_us"),
        sf.col("success.ts_us").alias("recovered_us"),
        sf.col("end.ts_us").alias("last_us"),
        "handler_us",
        sf.transform(sf.sort_array("steps"), _shown).alias("history"),
    )


def _rows(events: DataFrame) -> DataFrame:
    return events.where(f"{TOLD} AND NOT {FIRST_TRY}").select(
        # First among the keys, so that sorting compares a number, and seldom three texts.
        sf.xxhash64(*HISTORY).alias("hash"),
        *HISTORY,
        place().alias("place"),
        sf.expr(ATTEMPT).alias("ran"),
        sf.expr(FAILED).alias("failed"),
        sf.expr(ACCEPTED).alias("accepted"),
        sf.expr(f"{ACCEPTED} OR {DIED}").alias("settled"),
        sf.struct(*_END).alias("end"),
        sf.struct(*_FAILURE).alias("failure"),
        sf.struct(*_STEP).alias("step"),
        "handler_us",
    )


def _shown(step: Column) -> Column:
    """Return an attempt without its sort keys, under the names of the mart."""
    names = {"delivery_count": "attempt", "error_fingerprint": "fingerprint"}
    return sf.struct(*(step[name].alias(names.get(name, name)) for name in _STEP if name != "record_id"))
