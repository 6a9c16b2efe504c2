# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Rewrites small files of a lake into large ones, and merges the manifests of many runs into one. No Spark.

A run of `optimize` is published by the head as a compaction is (see `snapshots`), and its manifest takes the place of
all manifests before it. So readers see the lake before it or after it, and a run that dies changes nothing. Much work
is done in several runs, each of a bounded size, so that a compaction which is published meanwhile costs one of them.

The letters that drains have put into the lake are optimized after the events: see `letter_optimization`.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from typing import Final

from ...errors import ConfigError
from ..errors import readable_errors
from ..files import Files
from ..manifests import HEALTHY, DataFile, Manifest, Merger, base_of, now_us, run_after
from ..progress import Progress
from . import old_files, segment_lists, snapshots
from .lake import Lake
from .lake_format import make_writable
from .letter_optimization import optimize_letters
from .old_files import ReplacedFiles
from .rewriting import Optimized, RewriteOrder, first_days, rewrite

TARGET: Final = 128 << 20
KEEP_S: Final = 7 * 86_400
_LEAST: Final = 4096  # bytes of the smallest target
_LISTS: Final = 16  # lists of segments, above which they become one
_REMEMBERED: Final = 1_000  # merged runs by whose names a run finds out that it was published
_THREADS_OF_BUCKET: Final = 16  # of which most wait for the store


def optimize(
    lake: Lake | str | os.PathLike[str],
    *,
    older_than_s: float = 0,
    target_bytes: int = TARGET,
    keep_s: float = KEEP_S,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Optimized:
    """Rewrite the small files of each day into files of about `target_bytes`, and remove old files.

    These are the files of events, then those of dead letters that were drained. Files with a record younger than
    `older_than_s` stay as they are. Old files are removed `keep_s` after they were
    replaced. `workers` days are rewritten at a time. Raises ConfigError if the path is no lake or a number is too
    small, LakeError if another process writes to the lake, or was faster. After an error the lake is as it was before,
    or as the last complete run has left it.
    """
    if target_bytes < _LEAST or older_than_s < 0 or keep_s < 0 or (workers is not None and workers < 1):
        raise ConfigError(
            "this number is too small",
            where="optimize",
            cure=f"Give a target of at least {_LEAST} bytes, times that are not negative, and at least one worker",
            code="option-value",
        )
    place = lake if isinstance(lake, Lake) else Lake(lake)
    at_us = now_us()
    wanted = RewriteOrder(at_us - round(older_than_s * 1e6), at_us, target_bytes, workers or _workers(place.files))
    keep_us = round(keep_s * 1e6)
    with place.locked(), readable_errors(place.root):
        done = _events(place, wanted, keep_us, progress)
        done = replace(done, logged=old_files.has_delta_log(place.files, "events"))
    return replace(done, letters=optimize_letters(place, wanted, keep_us, progress))


def _workers(files: Files) -> int:
    return len(os.sched_getaffinity(0)) if files.is_folder else _THREADS_OF_BUCKET


def _events(lake: Lake, wanted: RewriteOrder, keep_us: int, progress: Progress | None) -> Optimized:
    """Publish as many runs as are needed, and remove what was replaced long enough ago."""
    files, done = lake.files, Optimized()
    now = snapshots.current(files)
    snapshots.remove_dead(files, now)
    small, small_counts = wanted.small(_files(now)), wanted.small(_counts(now))
    total = sum(file.bytes for days in (small, small_counts) for found in days.values() for file in found)
    rewritten = 0
    while len(now.manifests) > 1 or small or small_counts:
        make_writable(files)
        days, counts = first_days(small), first_days(small_counts)
        if progress is not None:
            progress("rewriting", rewritten, max(total, 1))
        merged = len(now.manifests)
        run, new = _MergingRun(lake, now, wanted, days, counts).publish()
        now = snapshots.current(files)  # with its version, by which the next run replaces it
        small, small_counts = wanted.small(_files(now)), wanted.small(_counts(now))
        old = [file for part in (days, counts) for found in part.values() for file in found]
        rewritten += sum(file.bytes for file in old)
        done = done.after(run, merged, old, new)
    removed, kept = old_files.remove_old(files, now, now_us() - keep_us)
    with contextlib.suppress(OSError):
        snapshots.remove_dead(files, now)
    return replace(done, removed=removed, kept=kept)


def _files(snapshot: snapshots.Snapshot) -> list[DataFile]:
    return [file for one in snapshot.manifests for file in one.files]


def _counts(snapshot: snapshots.Snapshot) -> list[DataFile]:
    return [file for one in snapshot.manifests for file in one.healthy]


class _MergingRun:
    """Merges all manifests of a snapshot, and rewrites these days, and days of counts, under a name of its own."""

    def __init__(
        self,
        lake: Lake,
        base: snapshots.Snapshot,
        wanted: RewriteOrder,
        days: dict[str, list[DataFile]],
        counts: dict[str, list[DataFile]] | None = None,
    ) -> None:
        self.lake, self.base, self.wanted, self.days, self.counts = lake, base, wanted, days, counts or {}
        self.name = run_after(base.head.generation)

    def publish(self) -> tuple[str, list[DataFile]]:
        """Return the name of the run, and the files that were written."""
        from .validation import ARROW, COUNTS_ARROW

        files = self.lake.files
        with snapshots.unpublished(files, self.base, self.name):
            written = rewrite(self.lake, self.name, self.days, self.wanted, ARROW, table="events", by="ts_us")
            counted = rewrite(self.lake, self.name, self.counts, self.wanted, COUNTS_ARROW, table=HEALTHY, by="ts_us")
            manifest = self._manifest(written, counted)
            files.sync([file.path for file in (*written, *counted)])
            snapshots.write(files, self.base, manifest)
        snapshots.publish(files, self.base, manifest)
        return self.name, [*written, *counted]

    def _manifest(self, written: list[DataFile], counted: list[DataFile]) -> Manifest:
        files, manifests = self.lake.files, self.base.manifests
        old = {file.path for days in (self.days, self.counts) for found in days.values() for file in found}
        kept_counts = [file for file in _counts(self.base) if file.path not in old]
        kept = [file for one in manifests for file in one.files if file.path not in old]
        mergers = [one.merger for one in manifests if one.merger is not None]
        lists = [path for merger in mergers for path in merger.segments]
        together = len(lists) >= _LISTS
        listed = segment_lists.entries(
            files, manifests if together else [replace(one, merger=None) for one in manifests]
        )
        if found := list(listed):
            lists, dropped = [*([] if together else lists), segment_lists.write(files, self.name, found)], lists
            old |= set(dropped) - set(lists)
            files.sync(lists[-1:])
        replaced = old_files.write(
            files, self.name, ReplacedFiles(now_us(), [one.run for one in manifests], sorted(old))
        )
        files.sync([replaced])
        through = [-1 if (base := base_of(one.run)) is None else base for one in manifests if one.merger is None]
        before = [run for one in manifests for run in (*(one.merger.before if one.merger is not None else ()), one.run)]
        earlier = [path for merger in mergers for path in merger.replaced]
        there = {entry.name for entry in files.entries(snapshots.REPLACED)}
        return Manifest(
            run=self.name,
            created_us=now_us(),
            journal="",
            files=sorted([*kept, *written], key=lambda file: file.path),
            quarantine=[file for one in manifests for file in one.quarantine],
            duplicates=sum(one.duplicates for one in manifests),
            healthy=sorted([*kept_counts, *counted], key=lambda file: file.path),
            merger=Merger(
                segments=lists,
                through=max([*through, *(merger.through for merger in mergers)], default=-1),
                before=[run for run in before if base_of(run) is not None][-_REMEMBERED:],
                replaced=[*(path for path in earlier if os.path.basename(path) in there), replaced],
            ),
        )
