# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Publishes runs of the compaction: the head names a snapshot, and the snapshot names the manifests that count.

::

    events/_head.json                      {"generation": 12, "run": RUN, "manifest": "events/_snapshots/…", …}
    events/_snapshots/00000012-RUN.json    {"manifests": ["events/_manifests/….json", …]}
    events/_manifests/RUN.json             what one run read, and which files hold its records

Only the head is ever replaced; see `head`. A lake of an earlier release has no head: until a run is published there,
all manifests count that are there.

The manifest of a run of `optimize` takes the place of all manifests before it: its snapshot names it alone. The files
that it has replaced stay for a while (see `old_files`), although no snapshot leads to them.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Final

from ..file_store import for_each
from ..files import DRAFT, Files
from ..head import Head, HeadFile, LostRace, swap_head
from ..manifests import (
    FOLDER as MANIFESTS,
)
from ..manifests import (
    Manifest,
    base_of,
    is_dead,
    read_manifest,
    read_manifests,
    run_folders,
    run_of,
    to_json,
)
from . import segment_lists

HEAD: Final = "events/_head.json"
FOLDER: Final = "events/_snapshots"
REPLACED: Final = "events/_replaced"
_HEAD: Final = HeadFile(HEAD, "the events", "Restore it: without it nobody knows which records are in the lake")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Holds the head of the events, and the manifests that it leads to, the oldest first."""

    head: Head
    manifests: list[Manifest]


def current(files: Files) -> Snapshot:
    """Return the snapshot that was published last. Raises LakeError if a file of it is missing or damaged."""

    def read(head: Head) -> Snapshot:
        if head.version is None:
            return Snapshot(head, read_manifests(files))
        return Snapshot(head, for_each(files, lambda path: read_manifest(files, path), _paths(files, head)))

    return _HEAD.follow(files, read)


def of_runs(files: Files, manifests: Sequence[Manifest], runs: Iterable[str]) -> list[Manifest] | None:
    """Return the manifests that hold the records of these runs and no others, None if there are none any more.

    `manifests` are those of the current snapshot. Runs that `optimize` has replaced are found as long as their old
    files are kept.
    """
    wanted, there = set(runs), {one.run: one for one in manifests}
    if wanted <= there.keys():
        return [one for one in manifests if one.run in wanted]
    if not manifests or manifests[0].merger is None:
        return None
    # Runs are published in the order of their bases, and the merged manifest has all runs up to `through`.
    bases = {run: -1 if (base := base_of(run)) is None else base for run in wanted}
    own = base_of(manifests[0].run) or 0
    later = {run for run, base in bases.items() if base >= own}
    newest = max((base for base in bases.values() if base < own), default=-1)
    if 0 <= manifests[0].merger.through <= newest and later <= there.keys():
        return [manifests[0], *(one for one in manifests if one.run in later)]
    with suppress(FileNotFoundError):
        return [read_manifest(files, f"{MANIFESTS}/{run}.json") for run in sorted(wanted)]
    return None


def write(files: Files, base: Snapshot, manifest: Manifest) -> None:
    """Write the manifest of a run and its snapshot, which nothing leads to yet, so that they survive a power cut."""
    paths = [one.path for one in _with(base, manifest)]
    files.publish(manifest.path, to_json(manifest))
    files.publish(_place(manifest.run), json.dumps({"manifests": paths}, separators=(",", ":")).encode())
    files.sync([manifest.path, _place(manifest.run)])


def publish(files: Files, base: Snapshot, manifest: Manifest) -> Snapshot:
    """Publish a run whose snapshot was written, and return the snapshot.

    A run that has lost the race is removed. After any other error, and after an interrupt, its files stay, because the
    head may come to lead to them. Raises LostRace and InDoubt.
    """
    place = _place(manifest.run)
    try:
        swap_head(files, HEAD, base.head, manifest.run, place, leads_to=lambda head: _leads_to(files, head, manifest))
    except LostRace:
        with suppress(OSError):
            remove(files, manifest.run)
        raise
    return Snapshot(Head(base.head.generation + 1, manifest.run, place, version=""), _with(base, manifest))


def _with(base: Snapshot, manifest: Manifest) -> list[Manifest]:
    """Return the manifests that count when this one is published."""
    return [manifest] if manifest.merger is not None else [*base.manifests, manifest]


def _leads_to(files: Files, head: Head, manifest: Manifest) -> bool:
    """Return whether a run was published. Raises OSError if so much was published since that this is not known."""
    paths = _paths(files, head)
    if manifest.path in paths:
        return True
    merger = read_manifest(files, paths[0]).merger if paths else None
    if merger is None or manifest.run in merger.before:
        return merger is not None
    if merger.before and (base_of(manifest.run) or 0) < (base_of(merger.before[0]) or 0):
        raise OSError(errno.EAGAIN, "many runs were published since, and merged", files.url(HEAD))
    return False


def unpublished(files: Files, base: Snapshot, run: str) -> AbstractContextManager[None]:
    """Remove the files of a run if the block, which writes them and does not publish the run, fails.

    Raises LostRace instead if another run was published since `base`, which may have removed files of this one.
    """
    return _HEAD.unpublished(files, base.head, run, remove)


def remove(files: Files, run: str) -> None:
    """Remove all files of a run that cannot be published any more."""
    for folder in run_folders(files).get(run, []):
        files.remove(folder)
    files.remove(f"{MANIFESTS}/{run}.json")
    if base_of(run) is not None:
        for path in (f"{segment_lists.FOLDER}/{run}.parquet", f"{REPLACED}/{run}.json", _place(run)):
            files.remove(path)


def merged_below(manifests: Iterable[Manifest]) -> int:
    """Return the base of the last run of `optimize`, 0 if there was none.

    Published runs with an older base were merged, and their files are kept for a while though nothing leads to them.
    """
    return max((base_of(one.run) or 0 for one in manifests if one.merger is not None), default=0)


def named_runs(manifests: Iterable[Manifest]) -> set[str]:
    """Return the runs with files that these manifests lead to: their own, and those whose files were taken over."""
    named: set[str] = set()
    for one in manifests:
        named.add(one.run)
        named.update(run_of(file.path) for file in one.files)
        named.update(run_of(file.path) for file in (*one.quarantine, *one.healthy))
        if one.merger is not None:
            named.update(run_of(path) for path in (*one.merger.segments, *one.merger.replaced))
    return named


def remove_dead(files: Files, now: Snapshot) -> None:
    """Remove the files of runs that can never be published, and snapshots that no reader has just found in the head."""
    generation, named, merged = now.head.generation, named_runs(now.manifests), merged_below(now.manifests)
    listed = {run for run, _ in _runs(files, MANIFESTS)}

    def goes(run: str) -> bool:
        base = base_of(run)
        if run in named or not is_dead(run, generation) or (merged and (base is None or base < merged)):
            return False
        # A release without a head may have been at work when the lake got one: its manifest is not in the snapshot.
        return not (base is None and run in listed)

    for run, folders in run_folders(files).items():
        if goes(run):
            for folder in folders:
                files.remove(folder)
    for run in listed - named:
        if base_of(run) is not None and goes(run):
            files.remove(f"{MANIFESTS}/{run}.json")
    for folder in (segment_lists.FOLDER, REPLACED):
        for entry in files.entries(folder):
            if goes(entry.name.partition(".")[0].removeprefix(DRAFT)):
                files.remove(f"{folder}/{entry.name}")
    for entry in files.entries(MANIFESTS):  # drafts, which a killed writer of a folder leaves
        run = entry.name.removeprefix(DRAFT).removesuffix(".json")
        if entry.name.startswith(DRAFT) and base_of(run) is not None and is_dead(run, generation):
            files.remove(f"{MANIFESTS}/{entry.name}")
    for name, path in _runs(files, FOLDER):
        base = base_of(name.partition("-")[2])
        if base is not None and base < generation - 2 and path != now.head.manifest:
            files.remove(path)


def _runs(files: Files, folder: str) -> Iterator[tuple[str, str]]:
    for entry in files.entries(folder):
        if entry.name.endswith(".json") and entry.name[0] not in "._":
            yield entry.name.removesuffix(".json"), f"{folder}/{entry.name}"


def _place(run: str) -> str:
    return f"{FOLDER}/{(base_of(run) or 0) + 1:08d}-{run}.json"


def _paths(files: Files, head: Head) -> list[str]:
    return _HEAD.parse(files, head.manifest, lambda content: [str(path) for path in json.loads(content)["manifests"]])
