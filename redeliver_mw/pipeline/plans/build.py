# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Chooses, changes, orders and writes the letters of a plan.

Each decision is written to a file before it is used: so a condition or a transform that gives different results each
time is evaluated once. Only the first and the last step read bodies, and the step of the transform.

Letters are ordered by the hash of their group, and within a group by the time of their dead-lettering: any first part
of the order is a fair sample of the plan. A bucket holds whole groups, so each bucket keeps their order by itself.
Nothing is sorted in one place: the hashes' range is divided into slices, which are sorted and counted separately.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from ...dead_letters.edits.letter import Redact
from ..errors import LakeError
from ..files import Files
from ..lake.lake import Lake
from ..replaying import ledger
from ..replaying.registry import FOLDER, StartedReplay, all_begun
from .bucket_files import LETTERS, write_left_out, write_letters
from .eligibility import FAILED, SENT, decide, held_back
from .letter_transform import MADE, READ, LetterTransform, letter_in
from .options import PlanOptions
from .plan_dir import WORK
from .plan_file import ABOUT, PlanFile, path_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

_ERRORS_KEPT: Final = 5  # errors of a transform that are kept
_SENT_NAMES: Final = [column.split()[0] for column in SENT.split(", ")]
_BUCKET_PLACE: Final = "plan_id STRING, folder STRING, bucket INT"
_SHOWN: Final = "dl_id STRING, shown BINARY"
_MADE: Final = pa.schema(
    [
        ("dl_id", pa.string()),
        ("target", pa.string()),
        ("body", pa.binary()),
        ("body_sha256", pa.string()),
        ("edited_body", pa.bool_()),
        ("edits", pa.string()),
        ("why", pa.string()),
        ("detail", pa.string()),
    ]
)
_A_SLICE: Final = 100_000  # letters, approximately
_MOST_SLICES: Final = 4096
_SMALL_BUCKET: Final = 64  # letters: so few are not worth a file and a task of their own
_BUCKET: Final = 100_000
_USUAL_BUCKETS: Final = 16  # buckets: enough for as many publishers
_MOST_BUCKETS: Final = 1024


@dataclass(frozen=True, slots=True)
class BuiltPlan:
    """Holds the results that go into a plan's description."""

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
    """Builds one plan. `letters`: all letters that may be chosen, rows of DEAD_LETTERS."""

    spark: SparkSession
    files: Files
    lake: Lake
    letters: DataFrame
    wish: PlanOptions
    tell: Callable[[str], None]

    def all(self) -> BuiltPlan:
        """Do all steps, from the condition to the files, which are synced."""
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
        """Return the same rows, from a file, so that their source is not evaluated again."""
        path = self.files.url(f"{WORK}/{name}")
        frame.write.parquet(path)
        return self.spark.read.schema(frame.schema).parquet(path)

    def _changed(self, fates: DataFrame) -> DataFrame:
        going = self.letters.join(fates.where("why IS NULL").select("dl_id"), "dl_id")
        return going.select(*READ).mapInArrow(partial(run_changes, self.wish.changes), MADE)

    def _whole(self, ranked: DataFrame, made: DataFrame | None) -> DataFrame:
        """Return rows of PLAN, and the bucket of each."""
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
        """Remove bodies, and the packed letter, which may contain the body, too."""
        from pyspark.sql import functions as sf

        bare = whole.withColumn("letter", sf.lit(None).cast("BINARY"))
        if self.wish.redact is None:
            return bare.withColumn("body", sf.lit(None).cast("BINARY"))
        going = self.letters.join(ranked.select("dl_id"), "dl_id").select(*READ)
        shown = going.mapInArrow(partial(run_redaction, self.wish.redact), _SHOWN)
        return bare.drop("body").join(shown.withColumnRenamed("shown", "body"), "dl_id")

    def _errors(self, fates: DataFrame, groups: Iterable[Row]) -> tuple[tuple[str, str], ...]:
        if all(row["why"] != FAILED for row in groups):
            return ()
        failed = fates.where(f"why = '{FAILED}'").select("dl_id", "detail").orderBy("dl_id").limit(_ERRORS_KEPT)
        return tuple((row["dl_id"], row["detail"]) for row in failed.collect())


def _with_changes(fates: DataFrame, made: DataFrame) -> DataFrame:
    """Return the decisions; the result of the changes for a letter replaces the earlier decision."""
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


def sent_back(spark: SparkSession, lake: Lake) -> DataFrame:
    """Return the letters that replays have sent back already, from the ledgers of their plans: rows of SENT.

    A broker has confirmed each. Raises LakeError if a plan that was replayed is gone, because its ledger is gone with
    it.
    """
    begun = all_begun(lake.files)
    places = [(one.plan_id, one.folder, bucket) for one in begun for bucket in sorted(_tries(lake, one))]
    if not places:
        return spark.createDataFrame([], SENT)
    return spark.createDataFrame(places, _BUCKET_PLACE).repartition(len(places)).mapInArrow(_confirmed, SENT)


def _tries(lake: Lake, begun: StartedReplay) -> dict[int, list[str]]:
    if not os.path.exists(os.path.join(begun.folder, ABOUT)):
        raise LakeError(
            "this plan was replayed and is gone: nobody knows which of its letters were sent",
            where=begun.folder,
            cure=f"Put it back; or remove {lake.files.url(f'{FOLDER}/{begun.plan_id}.json')} to plan all of them again",
            code="plan-missing",
        )
    return ledger.tries(begun.folder)


def _confirmed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the confirmed letters of buckets. Called by Spark's `mapInArrow`."""
    for batch in batches:
        for place in batch.to_pylist():
            paths = ledger.tries(place["folder"]).get(place["bucket"], [])
            confirmed = ledger.read(paths, place["plan_id"]).confirmed
            if confirmed:
                table = pq.read_table(
                    os.path.join(place["folder"], path_of(place["bucket"])), columns=["position", *_SENT_NAMES]
                )
                is_sent = [position in confirmed for position in table["position"].to_pylist()]
                yield from table.filter(pa.array(is_sent, pa.bool_())).select(_SENT_NAMES).to_batches()


def run_changes(changes: LetterTransform, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows of MADE for rows of READ. Called by Spark's `mapInArrow`."""
    for batch in batches:
        yield pa.RecordBatch.from_pylist([changes.made_of(row) for row in batch.to_pylist()], schema=_MADE)


def run_redaction(redact: Redact, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows of _SHOWN for rows of READ. Called by Spark's `mapInArrow`."""
    for batch in batches:
        shown = [_shown(redact, row) for row in batch.to_pylist()]
        yield pa.RecordBatch.from_arrays([batch["dl_id"], pa.array(shown, pa.binary())], names=["dl_id", "shown"])


def _shown(redact: Redact, row: Mapping[str, Any]) -> bytes | None:
    """Return the redacted body; None if the function raises or returns no body.

    A body that cannot be redacted is not shown.
    """
    try:
        found = redact(letter_in(row))
    except (Exception, SystemExit):
        return None
    if isinstance(found, str):
        return found.encode("utf-8", "backslashreplace")
    return found if isinstance(found, bytes) else None


def buckets_for(letters: int) -> int:
    """Return a number of buckets, at least one: enough for all publishers, but without many nearly empty buckets."""
    small, large = -(-letters // _SMALL_BUCKET), -(-letters // _BUCKET)
    return max(1, min(_USUAL_BUCKETS, small), min(_MOST_BUCKETS, large))


def rank(letters: DataFrame, count: int, buckets: int, *, ordered: bool) -> DataFrame:
    """Return `letters` with `bucket` and `position`, both INT, and `rank`, BIGINT from 0.

    The letters have a unique `dl_id`, and `dead_us`, `message_key` and `group_id`; with `ordered`, letters of one group
    id are a group. `count` is their approximate number.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    bits = max(1, min(_MOST_SLICES, count // _A_SLICE).bit_length())
    # The highest bits, so that the slices are in the order of the hashes as unsigned numbers.
    hashed = letters.withColumn("_hash", sf.xxhash64(_group(ordered))).withColumn(
        "_slice", sf.shiftrightunsigned("_hash", 64 - bits).cast("INT")
    )
    within = Window.partitionBy("_slice").orderBy("_hash", "dead_us", "dl_id")
    in_bucket = Window.partitionBy("bucket").orderBy("rank")
    return (
        hashed.join(sf.broadcast(_offsets(hashed)), "_slice")
        .withColumn("rank", sf.row_number().over(within) - 1 + sf.col("_before"))
        .withColumn("bucket", sf.pmod(sf.col("_hash"), sf.lit(buckets)).cast("INT"))
        .withColumn("position", sf.row_number().over(in_bucket) - 1)
        .drop("_slice", "_hash", "_before")
    )


def _group(ordered: bool) -> Column:
    """Return the key that orders a letter.

    The kinds of keys are distinct, so that a message key never equals a group id.
    """
    from pyspark.sql import functions as sf

    alone = sf.coalesce(sf.concat(sf.lit("k"), "message_key"), sf.concat(sf.lit("d"), "dl_id"))
    return sf.coalesce(sf.concat(sf.lit("g"), "group_id"), alone) if ordered else alone


def _offsets(hashed: DataFrame) -> DataFrame:
    """Return how many letters come before each slice. There are a few thousand slices at most."""
    from pyspark.sql import functions as sf

    spark = hashed.sparkSession
    before, rows = 0, []
    for row in sorted(hashed.groupBy("_slice").agg(sf.count("*").alias("n")).collect(), key=lambda row: row["_slice"]):
        rows.append((row["_slice"], before))
        before += row["n"]
    return spark.createDataFrame(rows, "_slice INT, _before BIGINT")
