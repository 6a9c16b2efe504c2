# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines a lake: a folder of Parquet files, and the manifests that list the files that count.

::

    _lake.json                               the format's version
    events/_head.json                        written last: the current snapshot; see `snapshots`
    events/_snapshots/GENERATION-RUN.json    the manifests that count
    events/dt=2026-11-30/run=RUN/*.parquet   the journal's records, by the UTC day of ts_us
    events/_manifests/RUN.json               what RUN read, and which files hold it
    healthy_counts/dt=2026-11-30/run=RUN/*.parquet   the journal's counts of healthy messages, as the records
    quarantine/run=RUN/*.parquet             lines that are no records
    dead_letters/dt=2026-11-30/run=RUN/*.parquet   letters, by the UTC day of their dead-lettering
    dead_letters/_head.json                  written last: the current snapshot; see `draining.manifests`
    dead_letters/_snapshots/GENERATION-RUN.json    the manifests that count
    dead_letters/_manifests/RUN.json         which files hold the letters that RUN added
    dead_letters/_staging/RUN/*.parquet      letters that were taken off their queue and are not in the table yet
    marts/_head.json                         written last: the current manifest of the marts; see `mart_set`
    marts/_manifests/RUN.json                the files of each mart, and which events they were made from
    marts/_runs/RUN/NAME/*.parquet           tables made of the events
    marts/NAME/*.parquet                     the same files under a stable path, for other programs
    marts/backtest/run=RUN/*.parquet         a table that is published by itself
    marts/backtest/_current.json             written last: the current run of that table

Readers take no lock: they see the state that was published when they looked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from .. import schemas
from ..errors import LakeError, readable_errors
from ..files import Files, files_at
from ..manifests import HEALTHY, DataFile, Manifest
from ..time_range import TimeBound, TimeRange, span
from . import snapshots
from .lake_format import ABOUT, COMPACT, check, make
from .mart_set import MAKE_THEM, MartSet, SetManifest, current, ddl_of, new_marts, pointer, publish_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DRAIN: Final = "Run `redeliver pipeline drain URL DLQ LAKE`"


class Lake:
    """Reads and writes the lake in a folder or a bucket.

    `create` makes a lake where nothing is. Raises ConfigError if there is no lake, or one of a newer format. Every
    method may raise LakeError.
    """

    def __init__(self, root: str | os.PathLike[str], *, create: bool = False) -> None:
        self.files: Files = files_at(root)
        self.root = self.files.url()
        self._locks: dict[str, int] = {}
        with readable_errors(self.root):
            if create:
                make(self.files)
            check(self.files)

    def manifests(self) -> list[Manifest]:
        """Return the manifests of all compactions, the oldest run first."""
        with readable_errors(self.root):
            return snapshots.current(self.files).manifests

    def events(
        self,
        spark: SparkSession,
        since: TimeBound | None = None,
        until: TimeBound | None = None,
        *,
        manifests: Sequence[Manifest] | None = None,
    ) -> DataFrame:
        """Return the records from `since` on and before `until`, with the schema `EVENTS_WITH_DAY`, in no order.

        `manifests` are those of the runs to read, by default all. Raises LakeError if nothing has been compacted yet;
        returns no rows if there are none in that time.
        """
        runs = self.manifests() if manifests is None else manifests
        listed = [file for manifest in runs for file in manifest.files]
        if not listed and not any(manifest.healthy for manifest in runs):
            raise LakeError("the lake holds no records yet", where=self.root, cure=COMPACT, code="lake-part-missing")
        return self._within(spark, schemas.EVENTS_WITH_DAY, listed, span(since, until), base="events")

    def healthy_counts(
        self,
        spark: SparkSession,
        since: TimeBound | None = None,
        until: TimeBound | None = None,
        *,
        manifests: Sequence[Manifest] | None = None,
    ) -> DataFrame:
        """Return the counts of healthy messages, with the schema `HEALTHY_COUNTS_WITH_DAY`, in no order.

        A count is taken whole, by the time of its last message. There are no rows if no App had
        `journal_healthy="counts"`. `manifests` as for `events`.
        """
        runs = self.manifests() if manifests is None else manifests
        listed = [file for manifest in runs for file in manifest.healthy]
        return self._within(spark, schemas.HEALTHY_COUNTS_WITH_DAY, listed, span(since, until), base=HEALTHY)

    def _within(
        self, spark: SparkSession, ddl: str, listed: Sequence[DataFile], wanted: TimeRange, *, base: str
    ) -> DataFrame:
        from pyspark.sql import functions as sf

        paths = [file.path for file in listed if wanted.touches(file.min_us, file.max_us)]
        frame = self.read(spark, ddl, paths, base=base)
        if wanted.since_us is not None:
            frame = frame.where(sf.col("ts_us") >= wanted.since_us)
        if wanted.until_us is not None:
            frame = frame.where(sf.col("ts_us") < wanted.until_us)
        return frame

    def quarantine(self, spark: SparkSession) -> DataFrame:
        """Return the lines that are no records, with the schema `QUARANTINE`."""
        paths = [file.path for manifest in self.manifests() for file in manifest.quarantine]
        return self.read(spark, schemas.QUARANTINE, paths, base="quarantine")

    def dead_letters(
        self, spark: SparkSession, since: TimeBound | None = None, until: TimeBound | None = None
    ) -> DataFrame:
        """Return letters dead-lettered from `since` on and before `until`, with the schema `DEAD_LETTERS`, in no order.

        These are the letters that were drained, the letters that were only looked at and not drained later, and the
        messages that stayed in a limbo when it was copied last. Raises LakeError if there was never any of them.
        """
        from pyspark.sql import functions as sf

        from ..draining.manifests import BROKER, read_all
        from ..draining.staging import TABLE

        wanted = span(since, until)
        with readable_errors(self.root):
            manifests = read_all(self.files)
        if not manifests:
            raise LakeError(
                "the lake holds no dead letters yet", where=self.root, cure=_DRAIN, code="lake-part-missing"
            )

        def rows(looked: bool) -> DataFrame:
            listed = [file for one in manifests if (one.owner == BROKER) == looked for file in one.files]
            paths = [file.path for file in listed if wanted.touches(file.min_us, file.max_us)]
            frame = self.read(spark, schemas.DEAD_LETTERS, paths, base=TABLE)
            if wanted.since_us is not None:
                frame = frame.where(sf.col("dead_us") >= wanted.since_us)
            return frame if wanted.until_us is None else frame.where(sf.col("dead_us") < wanted.until_us)

        drained = rows(looked=False)
        if not any(one.owner == BROKER for one in manifests):
            return drained
        return drained.unionByName(rows(looked=True).join(drained.select("dl_id"), "dl_id", "left_anti"))

    def marts(self) -> MartSet:
        """Open the marts as they were published last, all of one run. Raises LakeError if they never were."""
        with readable_errors(self.root):
            if (found := current(self.files)) is None:
                raise LakeError(
                    "its marts are not there yet", where=self.root, cure=MAKE_THEM, code="lake-part-missing"
                )
        return MartSet(self, found)

    def mart(self, spark: SparkSession, name: str) -> DataFrame:
        """Return a mart as it was published last. Raises LakeError if it never was.

        Two calls may read marts of two runs. To read several marts of one run, open `marts()` once.
        """
        ddl = ddl_of(name)
        if name in schemas.MARTS:
            with readable_errors(self.root):
                found = current(self.files)
            return MartSet(self, found or SetManifest("", 0)).mart(spark, name)
        with readable_errors(self.root):
            if (single := pointer(self.files, name)) is None:
                raise LakeError(
                    f"the table {name!r} is not there yet",
                    where=self.root,
                    cure="Publish it first",
                    code="lake-part-missing",
                )
            return self.read(spark, ddl, single.files, base=f"marts/{name}")

    def publish(self, spark: SparkSession, name: str, frame: DataFrame) -> int:
        """Replace a mart by `frame`, at once for all readers that look later, and return its rows.

        The other marts stay unchanged: the caller is responsible that the mart fits to them. The previous run's files
        stay for its readers until the next publish. Raises TypeError unless `frame` has exactly the mart's columns and
        types.
        """
        ddl_of(name)
        if name in schemas.MARTS:
            with new_marts(self, spark, keep=True) as new:
                return new.write(name, frame)
        return publish_table(self, spark, name, frame)

    @contextmanager
    def locked(self, part: str = "events") -> Iterator[None]:
        """Let only one process write to a part of the lake. Raises LakeError, naming the holder, if another has it.

        Reentrant for its holder, on the same Lake.
        """
        if self._locks.get(part):
            self._locks[part] += 1
            try:
                yield
            finally:
                self._locks[part] -= 1
            return
        with self.files.locked(f"_{part}.lock", part):
            self._locks[part] = 1
            try:
                yield
            finally:
                self._locks[part] = 0

    def read(self, spark: SparkSession, ddl: str, paths: Sequence[str], *, base: str) -> DataFrame:
        """Return these Parquet files as a table with the columns of `ddl`; there may be no files."""
        empty = spark.createDataFrame([], ddl)
        return self.scan(spark, ddl, paths, base=base).select(empty.columns) if paths else empty

    def scan(self, spark: SparkSession, ddl: str, paths: Sequence[str], *, base: str) -> DataFrame:
        """Return these Parquet files, at least one, as Spark reads them.

        Columns that folders under `base` name are read from the folder names.
        """
        places = [_literal(self.files.spark_url(path)) for path in paths]
        return spark.read.schema(ddl).option("basePath", self.files.spark_url(base)).parquet(*places)


def is_lake(place: str | os.PathLike[str]) -> bool:
    """Return whether there is a lake, of any format.

    Raises ConfigError for a place where none can be, and LakeError if it cannot be read.
    """
    files = files_at(place)
    with readable_errors(files.url()):
        return any(entry.name == ABOUT for entry in files.entries())


def _literal(path: str) -> str:
    """Return a path without any pattern for Spark."""
    return "".join(f"\\{c}" if c in "{}[]*?\\" else c for c in path)
