# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Decides which of the chosen letters go back, and why the others do not. DataFrame to DataFrame, without bodies.

Of one message, which has one key on its broker, only the last dead letter is sent: the one of the highest generation,
then the latest. All letters of the lake are compared for that, not only the chosen ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..schemas import LIMBO

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

REPLAYED: Final = "replayed"
SUPERSEDED: Final = "superseded"
PROBLEM: Final = "problem"
LIFETIME: Final = "lifetime"
TRANSFORM: Final = "transform"
FAILED: Final = "failed"
BEHIND: Final = "behind"
PARKED: Final = "parked"
WHY: Final = {
    REPLAYED: "a replay has sent the message back already",
    SUPERSEDED: "its message has died again since, or this is another copy of it",
    PROBLEM: "it cannot be sent back",
    LIFETIME: "its message was replayed too often",
    TRANSFORM: "the transform left it out",
    FAILED: "the transform, or an edit, raised",
    BEHIND: "one before it in its group cannot go",
    PARKED: "a limbo holds the message: `redeliver limbo release` sends it",
}
_STOPPING: Final = (PROBLEM, LIFETIME, FAILED, PARKED)
_NARROW: Final = ("dl_id", "broker", "dialect", "message_key", "group_id", "dead_us")
_MADE: Final = ("target", "edited_body", "edits")  # the values of a letter without any change
LEFT_OUT: Final = "dl_id STRING, why STRING, detail STRING"
SENT: Final = "dl_id STRING, broker STRING, message_key STRING, generation INT"


def decide(asked: DataFrame, everything: DataFrame, sent: DataFrame, max_generation: int) -> DataFrame:
    """Return `dl_id`, the columns that order and count the letters, `why` (null: the letter goes) and `detail`.

    `asked` and `everything` are rows of DEAD_LETTERS, one for each `dl_id`; `sent` has the columns of SENT: letters
    that a broker has confirmed to a replay. Messages that a limbo holds do not go, and supersede no letter.
    """
    from pyspark.sql import functions as sf

    letters = asked.select(
        *_NARROW,
        _generation(),
        _problem().alias("problem"),
        (sf.col("source") == LIMBO).alias("is_parked"),
        sf.col("original_destination").alias("target"),
        sf.lit(False).alias("edited_body"),
        sf.lit(None).cast("STRING").alias("edits"),
    )
    keyed = letters.where("message_key IS NOT NULL").select("broker", "message_key").distinct()
    last = (
        everything.where(f"message_key IS NOT NULL AND NOT source <=> '{LIMBO}'")
        .select(*_NARROW, _generation())
        .join(keyed, ["broker", "message_key"], "left_semi")
        .groupBy("broker", "message_key")
        .agg(sf.max(sf.struct("generation", "dead_us", "dl_id"))["dl_id"].alias("last_id"))
    )
    known = sent.groupBy("broker", "message_key").agg(sf.max("generation").alias("sent_generation"))
    by_id = sent.select("dl_id", sf.lit(True).alias("is_sent")).distinct()
    found = (
        letters.join(last, ["broker", "message_key"], "left")
        .join(known.where("message_key IS NOT NULL"), ["broker", "message_key"], "left")
        .join(by_id, "dl_id", "left")
    )
    why = (
        sf.when(sf.col("is_parked"), PARKED)
        .when(sf.expr("is_sent OR generation <= sent_generation"), REPLAYED)
        .when(sf.expr("last_id <> dl_id"), SUPERSEDED)
        .when(sf.expr("problem IS NOT NULL"), PROBLEM)
        .when(sf.col("generation") >= max_generation, LIFETIME)
    )
    detail = (
        sf.when(sf.col("why") == SUPERSEDED, sf.col("last_id"))
        .when(sf.col("why").isin(PROBLEM, PARKED), sf.col("problem"))
        .when(sf.col("why") == LIFETIME, sf.format_string("replayed %d times", "generation"))
    )
    return found.withColumn("why", why).withColumn("detail", detail).select(*_NARROW, *_MADE, "why", "detail")


def held_back(decided: DataFrame) -> DataFrame:
    """Return the decisions for a plan with ordered groups: letters behind one that cannot go do not go either.

    A letter that is left out on purpose, by a transform or because its message went already, holds back no others.
    """
    from pyspark.sql import functions as sf

    stopping = decided.where(sf.col("why").isin(*_STOPPING) & sf.col("group_id").isNotNull())
    first = stopping.groupBy("group_id").agg(sf.min(sf.struct("dead_us", "dl_id")).alias("stop"))
    behind = sf.expr("why IS NULL AND struct(dead_us, dl_id) > stop")
    found = decided.join(first, "group_id", "left")
    return (
        found.withColumn("detail", sf.when(behind, sf.col("stop")["dl_id"]).otherwise(sf.col("detail")))
        .withColumn("why", sf.when(behind, BEHIND).otherwise(sf.col("why")))
        .select(*decided.columns)
    )


def _generation() -> Column:
    from pyspark.sql import functions as sf

    return sf.coalesce("generation", sf.lit(0)).alias("generation")


def _problem() -> Column:
    """Return the problem that the drain noted, or that the letter has by itself."""
    from pyspark.sql import functions as sf

    return sf.coalesce(
        "problem",
        sf.when(sf.expr("letter IS NULL OR body IS NULL"), "its body was not kept"),
        sf.when(sf.expr("coalesce(original_destination, '') = ''"), "nobody knows where it was consumed from"),
    )
