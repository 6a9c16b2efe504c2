# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The letters of a plan are chosen, changed, put in order and written.

What is decided is written down before it is used: a condition or a transform that answers differently each time is
asked once. Only the first and the last step read bodies, and the transform's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from ..files import Files
from ..lake.lake import Lake
from .already_sent import sent_back
from .bucket_files import LETTERS, write_left_out, write_letters
from .eligibility import FAILED, decide, held_back
from .letter_transform import MADE, READ
from .options import PlanOptions
from .plan_dir import WORK
from .plan_file import PlanFile
from .ranking import buckets_for, rank
from .spark_transform import SHOWN, run_changes, run_redaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_TOLD: Final = 5  # of what a transform raised


@dataclass(frozen=True, slots=True)
class BuiltPlan:
    """What a plan says of its letters."""

    letters: int
    buckets: int
    files: list[PlanFile]
    destinations: dict[str, int]
    brokers: dict[str, int]
    dialects: dict[str, int]
    left_out: dict[str, int]
    left_out_file: PlanFile
    errors: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class PlanBuild:
    """One plan in the making. `letters`: all that might be asked for, rows of DEAD_LETTERS."""

    spark: SparkSession
    files: Files
    lake: Lake
    letters: DataFrame
    wish: PlanOptions
    tell: Callable[[str], None]

    def all(self) -> BuiltPlan:
        """From the condition to the files, which are synced."""
        self.tell("choosing letters")
        fates, made = self._kept("decided", self._decided()), None
        if self.wish.changes:
            self.tell("changing letters")
            made = self._kept("made", self._changed(fates))
            fates = _with_changes(fates, made)
        if self.wish.ordered:
            fates = held_back(fates)
        if made is not None or self.wish.ordered:
            fates = self._kept("fates", fates)
        self.tell("putting them in order")
        groups = fates.groupBy("why", "target", "broker", "dialect").count().collect()
        count = sum(row["count"] for row in groups if row["why"] is None)
        number = self.wish.buckets or buckets_for(count)
        going = fates.where("why IS NULL").drop("why", "detail")
        ranked = self._kept("ranked", rank(going, count, number, ordered=self.wish.ordered))
        self.tell("writing letters")
        left_out = write_left_out(self.files.url(), fates.where("why IS NOT NULL").select("dl_id", "why", "detail"))
        written = write_letters(self.files.url(), self._whole(ranked, made), number)
        if sum(file.rows for file in written) != count:
            raise RuntimeError(f"{count} letters were chosen, and {sum(file.rows for file in written)} written")
        self.files.sync(file.path for file in (*written, left_out))
        return BuiltPlan(
            letters=count,
            buckets=number,
            files=written,
            left_out_file=left_out,
            errors=self._errors(fates, groups),
            destinations=_counted(groups, "target"),
            brokers=_counted(groups, "broker"),
            dialects=_counted(groups, "dialect"),
            left_out=_left_out(groups),
        )

    def _decided(self) -> DataFrame:
        chosen = self.letters if self.wish.asked is None else self.letters.where(self.wish.asked)
        everything, sent = self.lake.dead_letters(self.spark), sent_back(self.spark, self.lake)
        return decide(chosen, everything, sent, self.wish.max_generation)

    def _kept(self, name: str, frame: DataFrame) -> DataFrame:
        """The same rows, from a file: whatever made them is not asked again."""
        path = self.files.url(f"{WORK}/{name}")
        frame.write.parquet(path)
        return self.spark.read.schema(frame.schema).parquet(path)

    def _changed(self, fates: DataFrame) -> DataFrame:
        going = self.letters.join(fates.where("why IS NULL").select("dl_id"), "dl_id")
        return going.select(*READ).mapInArrow(partial(run_changes, self.wish.changes), MADE)

    def _whole(self, ranked: DataFrame, made: DataFrame | None) -> DataFrame:
        """Rows of PLAN, and the bucket of each."""
        from pyspark.sql import functions as sf

        places = ranked.select("dl_id", "target", "edited_body", "edits", "bucket", "rank", "position")
        whole = self.letters.join(places, "dl_id")
        if made is not None:
            bodies = made.where("edited_body").selectExpr("dl_id", "body AS _body", "body_sha256 AS _sha256")
            whole = (
                whole.join(bodies, "dl_id", "left")
                .withColumn("body", sf.coalesce("_body", "body"))
                .withColumn("body_sha256", sf.coalesce("_sha256", "body_sha256"))
            )
        if self.wish.bodies == "lake":
            whole = self._without_bodies(whole, ranked)
        return whole.select("bucket", *LETTERS.names)

    def _without_bodies(self, whole: DataFrame, ranked: DataFrame) -> DataFrame:
        """What a reader has packed may have the body in it, too."""
        from pyspark.sql import functions as sf

        bare = whole.withColumn("letter", sf.lit(None).cast("BINARY"))
        if self.wish.redact is None:
            return bare.withColumn("body", sf.lit(None).cast("BINARY"))
        going = self.letters.join(ranked.select("dl_id"), "dl_id").select(*READ)
        shown = going.mapInArrow(partial(run_redaction, self.wish.redact), SHOWN)
        return bare.drop("body").join(shown.withColumnRenamed("shown", "body"), "dl_id")

    def _errors(self, fates: DataFrame, groups: Iterable[Row]) -> tuple[tuple[str, str], ...]:
        if all(row["why"] != FAILED for row in groups):
            return ()
        failed = fates.where(f"why = '{FAILED}'").select("dl_id", "detail").orderBy("dl_id").limit(_TOLD)
        return tuple((row["dl_id"], row["detail"]) for row in failed.collect())


def _with_changes(fates: DataFrame, made: DataFrame) -> DataFrame:
    """What the changes say of a letter goes before what was known of it."""
    from pyspark.sql import functions as sf

    renamed = {name: f"_{name}" for name in ("target", "edited_body", "edits", "why", "detail")}
    found = fates.join(made.select("dl_id", *renamed).withColumnsRenamed(renamed), "dl_id", "left")
    for name, theirs in renamed.items():
        found = found.withColumn(name, sf.coalesce(theirs, name))
    return found.select(*fates.columns)


def _counted(groups: Iterable[Row], name: str) -> dict[str, int]:
    found: Counter[str] = Counter()
    for row in groups:
        if row["why"] is None:
            found[row[name] or ""] += row["count"]
    return dict(sorted(found.items()))


def _left_out(groups: Iterable[Row]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for row in groups:
        if row["why"] is not None:
            found[row["why"]] += row["count"]
    return dict(sorted(found.items()))
