# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Computes `storms`: attempts in windows of ten seconds, and times in which most attempts are retries.

`counts` counts the attempts in each window, `states` finds the storms. A stream uses the same two functions: see
`redeliver_mw.pipeline.storm_watch`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from ...errors import ConfigError
from .attempts import ATTEMPT, first_tries

WINDOW_US: Final = 10_000_000


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Defines when a storm begins and ends.

    A storm begins in a window with at least `enter_retries` retries and `enter_amplification`, or with no first
    attempts at all. It ends in a window with fewer than `leave_retries`, or less than `leave_amplification`. Raises
    ConfigError if a window could be both.
    """

    enter_retries: int = 20
    enter_amplification: float = 2.0
    leave_retries: int = 5
    leave_amplification: float = 1.5

    def __post_init__(self) -> None:
        retries, amplification = self.enter_retries, self.enter_amplification
        if not (0 < self.leave_retries <= retries and self.leave_amplification <= amplification):
            cure = "Let it end at fewer retries, and at a lower amplification, than it begins at"
            raise ConfigError(
                "a storm could end where it begins", where="thresholds of storms", cure=cure, code="option-value"
            )


USUAL: Final = Thresholds()


def storms(events: DataFrame, thresholds: Thresholds = USUAL, *, healthy: DataFrame | None = None) -> DataFrame:
    """Return the mart for `events`, and for the messages that rows of `healthy_counts` count."""
    return states(counts(events, healthy), thresholds)


def counts(events: DataFrame, healthy: DataFrame | None = None) -> DataFrame:
    """Return `window_us, destination, attempts, first_attempts` of the windows that have an attempt."""
    single = singly(events)
    if healthy is not None:
        single = single.unionByName(counted(healthy))
    return single.groupBy("window_us", "destination").agg(
        sf.sum("attempts").alias("attempts"), sf.sum("first_attempts").alias("first_attempts")
    )


def singly(events: DataFrame) -> DataFrame:
    """Return the columns of `counts` for each single attempt, to be summed up."""
    return events.where(ATTEMPT).selectExpr(
        f"ts_us - pmod(ts_us, {WINDOW_US}) AS window_us",
        "destination",
        "1L AS attempts",
        "if(delivery_count <= 1, 1L, 0L) AS first_attempts",
    )


def counted(healthy: DataFrame) -> DataFrame:
    """Return the columns of `singly` for each row of `healthy_counts`: all of its messages are first attempts."""
    return first_tries(healthy).selectExpr(
        f"ts_us - pmod(ts_us, {WINDOW_US}) AS window_us",
        "destination",
        "messages AS attempts",
        "messages AS first_attempts",
    )


def states(counted: DataFrame, thresholds: Thresholds = USUAL, *, known: str | None = None) -> DataFrame:
    """Return the mart for `counts`: a window keeps the state of the one before it, unless it begins or ends a storm.

    Windows without an attempt have no row and are calm. `known` names a column of states that are final already, null
    in all other windows.
    """
    along = Window.partitionBy("destination").orderBy("window_us")
    retries = sf.col("attempts") - sf.col("first_attempts")
    amplification = sf.when(sf.col("first_attempts") > 0, sf.col("attempts") / sf.col("first_attempts"))
    windows = counted.withColumns(
        {
            "retries": retries,
            "amplification": amplification,
            "follows": sf.col("window_us") - sf.lag("window_us").over(along) == WINDOW_US,
        }
    )
    turn = _turn(thresholds) if known is None else sf.coalesce(known, _turn(thresholds))
    return windows.select(
        "window_us",
        "destination",
        "attempts",
        "first_attempts",
        "retries",
        "amplification",
        sf.last(turn, ignorenulls=True).over(along).alias("state"),
    )


def _turn(thresholds: Thresholds) -> Column:
    """Return the state that a window begins; null if the window keeps the state before it."""
    retries, amplification = sf.col("retries"), sf.col("amplification")
    begins = (retries >= thresholds.enter_retries) & sf.coalesce(
        amplification >= thresholds.enter_amplification, sf.lit(True)
    )
    ends = (retries < thresholds.leave_retries) | sf.coalesce(
        amplification < thresholds.leave_amplification, sf.lit(False)
    )
    follows = sf.coalesce(sf.col("follows"), sf.lit(False))
    return sf.when(begins, "storm").when(ends | ~follows, "calm")
