# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Computes `waste`: the attempts spent on messages that were dead-lettered in the end, and how many were hopeless."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from .attempts import DIED, NUMBERED, day

_FAILURE: Final = ("destination", "fingerprint")

# Each attempt of a history by itself, and as one row the attempts that are not in its array, at its end.
_SPENT: Final = f"""
concat(
    transform(history, step -> named_struct(
        'attempt', step.attempt, 'ts_us', step.ts_us, 'n', 1L,
        'n_accepted', if(step.outcome = 'accepted', 1L, 0L), 'handler_us', step.handler_us)),
    if(attempts = size(history), array(), array(named_struct(
        'attempt', {NUMBERED + 1}, 'ts_us', last_us, 'n', CAST(attempts - size(history) AS BIGINT),
        'n_accepted', CAST(attempts - failures - size(filter(history, one -> one.outcome = 'accepted')) AS BIGINT),
        'handler_us', handler_us - aggregate(history, 0L, (sum, one) -> sum + one.handler_us)))))
"""


def waste(messages: DataFrame) -> DataFrame:
    """Return the mart for `messages`.

    A retry is hopeless if at its number and at every later one fewer than 1 in 100 succeed, of all messages of that
    destination that failed first with that fingerprint, dead-lettered or not, on any day. A first attempt never is.
    """
    spent = messages.select(*_FAILURE, sf.expr(DIED).alias("died"), sf.explode(sf.expr(_SPENT)).alias("spent"))
    daily = (
        spent.select("*", "spent.*", day("spent.ts_us").alias("day"))
        .groupBy("day", *_FAILURE, "attempt")
        .agg(
            sf.sum("n").alias("n"),
            sf.sum("n_accepted").alias("n_accepted"),
            sf.sum(sf.when(sf.col("died"), sf.col("n"))).alias("died_n"),
            sf.try_sum(sf.when(sf.col("died"), sf.col("handler_us"))).alias("died_us"),
        )
    )
    of_number, of_failure = Window.partitionBy(*_FAILURE, "attempt"), Window.partitionBy(*_FAILURE)
    pays = sf.sum("n_accepted").over(of_number) * 100 >= sf.sum("n").over(of_number)
    last_hope = sf.max(sf.when(sf.col("pays"), sf.col("attempt"))).over(of_failure)
    judged = daily.withColumn("pays", pays).withColumn("last_hope", sf.greatest(sf.lit(1), last_hope))
    return (
        judged.where("died_n > 0")
        .groupBy("day", *_FAILURE)
        .agg(
            sf.sum("died_n").alias("attempts"),
            sf.try_sum("died_us").alias("handler_us"),
            sf.sum(sf.expr("if(attempt > last_hope, died_n, 0L)")).alias("hopeless_attempts"),
        )
    )
