# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Writes journal segments to Parquet: each segment once, each record once, and either all of a run or nothing.

A run reads the segments that no manifest names and writes files under a name of its own, which no reader sees. Then the
ids alone are compared to find duplicates, which are rare, and duplicates are removed. The head comes last: with the
head the run is in the lake. Files of a run that died before that are removed by a later run.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from typing import TYPE_CHECKING, Final

from ...errors import ConfigError
from ..errors import lake_error, readable_errors
from ..manifests import HEALTHY, TICKS, DataFile, Manifest, now_us, run_after
from ..progress import Progress
from ..time_range import DAY_US, TimeBound, TimeRange, day_of, span
from . import segment_lists, snapshots
from .journal_segments import JournalListing, ListedSegment, Unread, is_worth_tasks, list_journal, share_out, unread
from .lake import Lake, is_lake
from .lake_format import make_writable
from .task_messages import REPORT, CompactionReport, CompactionTask, LineCounts, read_report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHOWN: Final = 3  # folders that a message names
_EVERY: Final = 0.5  # seconds between two checks of the tasks' progress


@dataclass(frozen=True, slots=True)
class Compacted:
    """Sums up a compaction. `run` is None if there was nothing to do.

    `records` are new in the lake, `duplicates` were left out, `quarantined` lines are no records, `counts` are new
    lines that count healthy messages, `others` are lines about something else, `outside` are left for later by `since`
    or `until`. `segments` were read;
    `known` had been read before, `copies` are equal to others under another name, `unfinished` are still being written.
    `below` are subfolders of the journal's folder that hold segments, and how many each holds: these were not read.
    """

    run: str | None
    records: int
    duplicates: int
    quarantined: int
    others: int
    outside: int
    segments: int
    known: int
    copies: int
    unfinished: int
    files: int
    bytes: int
    days: tuple[date, ...]
    counts: int = 0
    below: dict[str, int] = field(default_factory=dict)


def compact(
    spark: SparkSession,
    journal: str | os.PathLike[str],
    lake: str | os.PathLike[str],
    *,
    since: TimeBound | None = None,
    until: TimeBound | None = None,
    progress: Progress | None = None,
) -> Compacted:
    """Read the journal's finished segments into the lake, which is created if it is missing.

    A record before `since`, or at `until` or later, is left to another run. Raises ConfigError if the path is no
    journal or no lake, LakeError if another process compacts into the lake or its disk is full, SparkError if Spark
    gives up. After an error the lake is as it was before.
    """
    wanted = span(since, until)
    listed = _listed(journal, lake)
    target = Lake(lake, create=True)
    with target.locked(), readable_errors(target.root):
        base = snapshots.current(target.files)
        found = unread(listed, segment_lists.entries(target.files, base.manifests))
        snapshots.remove_dead(target.files, base)
        if not found.new and not found.copies:
            return _summary(None, found, listed)
        make_writable(target.files)
        run = _Run(spark, target, base, wanted, progress)
        return _summary(run.publish(listed, found), found, listed)


def nothing_new(
    journal: str | os.PathLike[str],
    lake: str | os.PathLike[str],
    *,
    since: TimeBound | None = None,
    until: TimeBound | None = None,
) -> Compacted | None:
    """Return the result of `compact` if there is nothing to do, else None.

    Needs no Spark, and raises the errors that `compact` would.
    """
    span(since, until)
    listed = _listed(journal, lake)
    target = Lake(lake, create=True)
    manifests = target.manifests()
    with readable_errors(target.root):
        found = unread(listed, segment_lists.entries(target.files, manifests))
    return None if found.new or found.copies else _summary(None, found, listed)


def named_folders(below: Mapping[str, int]) -> str:
    """Return the first of these folders of a journal as text."""
    names = list(below)
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _listed(journal: str | os.PathLike[str], lake: str | os.PathLike[str]) -> JournalListing:
    """List the journal's segments. Raises ConfigError for a journal without any, if the lake is new.

    Later all segments may have been read, and deleted.
    """
    listed = list_journal(journal)
    if not listed.segments and not listed.unfinished and not is_lake(lake):
        what, cure = "no segment of a journal is here", "Give the folder that `App(journal=…)` writes to"
        if listed.below:
            what, cure = f"{what}, but in {named_folders(listed.below)}", "Compact each of these folders by itself"
        raise ConfigError(what, where=listed.folder, cure=cure, code="journal-missing")
    return listed


class _Run:
    """Runs one compaction, under a name of its own, as the successor of the snapshot `base`."""

    def __init__(
        self, spark: SparkSession, lake: Lake, base: snapshots.Snapshot, wanted: TimeRange, progress: Progress | None
    ) -> None:
        self.spark, self.lake, self.base, self.wanted, self.progress = spark, lake, base, wanted, progress
        self.before = {
            "events": [file for manifest in base.manifests for file in manifest.files],
            HEALTHY: [file for manifest in base.manifests for file in manifest.healthy],
        }
        self.name = run_after(base.head.generation)

    def publish(self, journal: JournalListing, found: Unread) -> Manifest:
        """Put all records into the lake, or none."""
        files = self.lake.files
        with snapshots.unpublished(files, self.base, self.name):
            reports = self._read(found) if found.new else []
            manifest = self._manifest(journal, found, reports)
            files.sync([file.path for file in manifest.files + manifest.healthy + manifest.quarantine])
            snapshots.write(files, self.base, manifest)
        published = snapshots.publish(files, self.base, manifest)
        with contextlib.suppress(OSError):
            files.remove(f"{TICKS}/run={self.name}")
            snapshots.remove_dead(files, published)
        return manifest

    def _read(self, found: Unread) -> list[CompactionReport]:
        from .compaction_task import run_tasks

        slots = _slots(self.spark) if is_worth_tasks(found.new) else 1
        tasks = share_out(found.new, found.known_bad, slots)
        ticks = self.lake.files.url(f"{TICKS}/run={self.name}") if self.progress and self.lake.files.is_folder else None
        work = CompactionTask(self.lake.root, self.name, self.wanted, tasks, ticks)
        numbers = self.spark.range(0, len(tasks), 1, len(tasks))
        with _told_how_far(work, found.new, self.progress):
            sent = numbers.mapInArrow(partial(run_tasks, work), REPORT).collect()
        return [_ended_well(read_report(row["report"])) for row in sent]

    def _manifest(self, journal: JournalListing, found: Unread, reports: list[CompactionReport]) -> Manifest:
        written = [file for report in reports for file in report.files]
        counts = _by_segment(reports)
        rows = sum(file.rows for file in written)
        if rows != sum(one.records for one in counts.values()):
            raise RuntimeError(f"the tasks read {sum(one.records for one in counts.values())} records and wrote {rows}")
        counted = [file for report in reports for file in report.healthy]
        if sum(file.rows for file in counted) != sum(one.healthy for one in counts.values()):
            raise RuntimeError("the tasks read other counts of healthy messages than they wrote")
        kept, kept_counts = self._once(written, "events"), self._once(counted, HEALTHY)
        entries = [segment.entry() for segment in [*found.new, *found.copies]]
        for number, count in counts.items():
            entries[number] = replace(
                entries[number],
                records=count.records,
                quarantined=count.quarantined,
                others=count.others,
                outside=count.outside,
            )
        return Manifest(
            run=self.name,
            created_us=now_us(),
            journal=journal.folder,
            segments=entries,
            files=sorted(kept, key=lambda file: file.path),
            quarantine=[file for report in reports for file in report.quarantine],
            duplicates=rows - sum(file.rows for file in kept),
            healthy=sorted(kept_counts, key=lambda file: file.path),
        )

    def _once(self, written: list[DataFile], table: str) -> list[DataFile]:
        """Return the files without rows that are in the lake, or among these files, already."""
        from .dedupe import without_duplicates

        if not written:
            return []
        self._tell("looking for duplicates")
        touched = {os.path.dirname(os.path.dirname(file.path)) for file in written}
        old = [file for file in self.before[table] if os.path.dirname(os.path.dirname(file.path)) in touched]
        kept = without_duplicates(self.spark, self.lake, written, old, table=table)
        for path in {file.path for file in written} - {file.path for file in kept}:
            self.lake.files.remove(path)
        return kept

    def _tell(self, what: str) -> None:
        if self.progress is not None:
            self.progress(what, 1, 1)


def _slots(spark: SparkSession) -> int:
    """Return how many tasks Spark runs at a time, which a session over Connect does not report by itself."""
    from pyspark.sql import functions as sf

    return spark.range(100_000).select(sf.spark_partition_id()).distinct().count()


def _ended_well(report: CompactionReport) -> CompactionReport:
    if report.error is not None:
        number, text, place = report.error
        raise lake_error(OSError(number, text), place)
    return report


def _by_segment(reports: list[CompactionReport]) -> dict[int, LineCounts]:
    found: dict[int, LineCounts] = {}
    for one in (count for report in reports for count in report.counts):
        whole = found.setdefault(one.segment, LineCounts(one.segment))
        whole.records += one.records
        whole.healthy += one.healthy
        whole.quarantined += one.quarantined
        whole.others += one.others
        whole.outside += one.outside
    return found


def _summary(manifest: Manifest | None, found: Unread, journal: JournalListing) -> Compacted:
    segments = manifest.segments if manifest else []
    files = manifest.files if manifest else []
    days = {day for file in files for day in range(file.min_us // DAY_US, file.max_us // DAY_US + 1)}
    return Compacted(
        run=manifest.run if manifest else None,
        records=sum(file.rows for file in files),
        duplicates=manifest.duplicates if manifest else 0,
        quarantined=sum(one.quarantined for one in segments),
        others=sum(one.others for one in segments),
        outside=sum(one.outside for one in segments),
        segments=len(found.new),
        known=found.known,
        copies=len(found.copies),
        unfinished=journal.unfinished,
        files=len(files),
        bytes=sum(file.bytes for file in files),
        days=tuple(sorted(day_of(day * DAY_US) for day in days)),
        counts=sum(file.rows for file in manifest.healthy) if manifest else 0,
        below=journal.below,
    )


@contextmanager
def _told_how_far(work: CompactionTask, segments: Sequence[ListedSegment], tell: Progress | None) -> Iterator[None]:
    """Call `tell("reading", bytes read, bytes to read)` regularly while the block runs, from a thread.

    Each task leaves an empty file for each piece that is done. This works with any Spark: a session over Connect does
    not report tasks.
    """
    if tell is None:
        yield
        return
    if work.ticks is None:  # in a bucket, where an empty file costs as much as one with rows
        tell("reading", 0, sum(segment.size for segment in segments))
        yield
        return
    os.makedirs(work.ticks)
    pieces = [piece for task in work.tasks for piece in task]
    ends = {piece: segments[piece.segment].size if piece.end is None else piece.end for piece in pieces}
    sizes = {f"{piece.segment}-{piece.start}": end - piece.start for piece, end in ends.items()}
    total, over = sum(sizes.values()), threading.Event()

    def look() -> None:
        while not over.wait(_EVERY):
            done = sum(sizes[name] for name in os.listdir(work.ticks))
            tell("reading", done, total)

    tell("reading", 0, total)
    looking = threading.Thread(target=look, name="redeliver-ticking", daemon=True)
    looking.start()
    try:
        yield
    finally:
        over.set()
        looking.join()
