# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Removes files that `optimize` has replaced, after a time, when no head leads to them.

::

    events/_replaced/RUN.json    {"at_us": …, "runs": […], "files": […]}    what RUN has replaced

A list counts if the head leads to the run that has written it. Readers that began before that run may still read the
old files: therefore these are kept for a time. A table with a Delta log keeps all of them, since the log may name them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import orjson

from ..errors import LakeError
from ..files import Files
from ..manifests import FOLDER as MANIFESTS
from ..manifests import Manifest, base_of, run_folders, run_of
from . import snapshots

DELTA_LOG: Final = "_delta_log"


@dataclass(frozen=True, slots=True)
class ReplacedFiles:
    """Lists what a run has replaced: runs, whose manifests are old, and files of data or lists; and when."""

    at_us: int
    runs: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)


def write(files: Files, run: str, replaced: ReplacedFiles) -> str:
    """Write the list of a run, and return its path."""
    path = f"{snapshots.REPLACED}/{run}.json"
    files.publish(path, orjson.dumps(replaced))
    return path


def read(files: Files, path: str) -> ReplacedFiles | None:
    """Return a list, None if all of its files are removed. Raises LakeError if the list is damaged."""
    try:
        return ReplacedFiles(**orjson.loads(files.read(path)))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise LakeError(
            f"this list of old files is damaged: {error}",
            where=files.url(path),
            cure="Restore it from a backup, or remove it: then the old files that it lists stay for ever",
            code="lake-damaged",
        ) from None


def has_delta_log(files: Files, table: str) -> bool:
    """Return whether a Delta log of this table is in the lake."""
    return bool(files.entries(f"{table}/{DELTA_LOG}"))


def remove_old(files: Files, now: snapshots.Snapshot, before_us: int) -> tuple[int, int]:
    """Remove the files of the events that were replaced before this instant.

    Return how many were removed, and how many are too young or in a Delta log's keeping. The snapshot was just read or
    published; a run that follows it leads to no file that it does not lead to, except for new ones.
    """
    mergers = [one.merger for one in now.manifests if one.merger is not None]
    lists = {path: found for merger in mergers for path in merger.replaced if (found := read(files, path)) is not None}
    logged = has_delta_log(files, "events")
    removed, kept = 0, 0
    named = _named(now.manifests)
    folders = {path.rpartition("/")[0] for path in named}
    for path, replaced in lists.items():
        gone = [file for file in replaced.files if file not in named]
        if logged or replaced.at_us > before_us:
            kept += len(gone)
            continue
        for run in replaced.runs:  # first: whoever looks for a manifest finds either all of its files or no manifest
            files.remove(f"{MANIFESTS}/{run}.json")
        remove_files(files, gone, folders)
        files.remove(path)
        removed += len(gone)
    if not logged:
        _remove_late(files, now.manifests, list(lists.values()))
    return removed, kept


def remove_files(files: Files, gone: Sequence[str], in_use: set[str]) -> None:
    """Remove these files, and the folders of runs that were theirs, except for folders that are still in use."""
    folders = {path.rpartition("/")[0] for path in gone if "/run=" in path} - in_use
    for folder in folders:
        files.remove(folder)
    for path in gone:
        if path.rpartition("/")[0] not in folders:
            files.remove(path)


def _named(manifests: Sequence[Manifest]) -> set[str]:
    named = {file.path for one in manifests for file in (*one.files, *one.healthy, *one.quarantine)}
    return named.union(*(one.merger.segments for one in manifests if one.merger is not None))


def _remove_late(files: Files, manifests: Sequence[Manifest], lists: Sequence[ReplacedFiles]) -> None:
    """Remove the files of dead runs that wrote them after their base was merged: `remove_dead` leaves these alone."""
    merged = snapshots.merged_below(manifests)
    known = snapshots.named_runs(manifests) | {run for one in lists for run in one.runs}
    known |= {run_of(file) for one in lists for file in one.files}
    for run, folders in run_folders(files).items():
        base = base_of(run)
        if base is not None and base < merged and run not in known:
            for folder in folders:
                files.remove(folder)
