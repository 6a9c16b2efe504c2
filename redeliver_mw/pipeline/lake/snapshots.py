# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Publishes runs of the compaction: the head names a snapshot, and the snapshot names the manifests that count.

::

    events/_head.json                      {"generation": 12, "run": RUN, "manifest": "events/_snapshots/…", …}
    events/_snapshots/00000012-RUN.json    {"manifests": ["events/_manifests/….json", …]}
    events/_manifests/RUN.json             what one run read, and which files hold its records

Only the head is ever replaced; see `head`. A lake of an earlier release has no head: until a run is published there,
all manifests count that are there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from ..errors import LakeError
from ..file_store import for_each
from ..files import DRAFT, Files
from ..head import Head, LostRace, lost, read_head, swap_head
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
    to_json,
)

HEAD: Final = "events/_head.json"
FOLDER: Final = "events/_snapshots"
_RESTORE: Final = "Restore it: without it nobody knows which records are in the lake"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Holds the head of the events, and the manifests that it leads to, the oldest first."""

    head: Head
    manifests: list[Manifest]


def current(files: Files) -> Snapshot:
    """Return the snapshot that was published last. Raises LakeError if a file of it is missing or damaged."""
    head = _head(files)
    while True:
        if head.version is None:
            return Snapshot(head, read_manifests(files))
        try:
            return Snapshot(head, for_each(files, lambda path: read_manifest(files, path), _paths(files, head)))
        except FileNotFoundError as error:
            again = _head(files)
            if again.version == head.version:
                what = f"a file that the head of the events leads to is missing: {error.filename}"
                raise LakeError(what, where=files.url(), cure=_RESTORE, code="lake-damaged") from None
            head = again  # other runs have ended since the head was read


def write(files: Files, base: Snapshot, manifest: Manifest) -> None:
    """Write the manifest of a run and its snapshot, which nothing leads to yet, so that they survive a power cut."""
    paths = [*(one.path for one in base.manifests), manifest.path]
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
        swap_head(
            files, HEAD, base.head, manifest.run, place, leads_to=lambda head: manifest.path in _paths(files, head)
        )
    except LostRace:
        with suppress(OSError):
            remove(files, manifest.run)
        raise
    return Snapshot(Head(base.head.generation + 1, manifest.run, place, version=""), [*base.manifests, manifest])


@contextmanager
def unpublished(files: Files, base: Snapshot, run: str) -> Iterator[None]:
    """Remove the files of a run if the block, which writes them and does not publish the run, fails.

    Raises LostRace instead if another run was published since `base`, which may have removed files of this one.
    """
    try:
        yield
    except BaseException as error:
        # A task may still be running: its files do not count, and a later run removes them.
        with suppress(OSError):
            remove(files, run)
        if isinstance(error, Exception) and (found := _lost_meanwhile(files, base, run)) is not None:
            raise found from error
        raise


def _lost_meanwhile(files: Files, base: Snapshot, run: str) -> LostRace | None:
    with suppress(OSError, LakeError):
        head = _head(files)
        if head.generation != base.head.generation:
            return lost(files, run, head.writer)
    return None


def remove(files: Files, run: str) -> None:
    """Remove all files of a run that cannot be published any more."""
    for folder in run_folders(files).get(run, []):
        files.remove(folder)
    files.remove(f"{MANIFESTS}/{run}.json")
    if base_of(run) is not None:
        files.remove(_place(run))


def remove_dead(files: Files, now: Snapshot) -> None:
    """Remove the files of runs that can never be published, and snapshots that no reader has just found in the head."""
    generation, named = now.head.generation, {one.run for one in now.manifests}
    listed = {run for run, _ in _runs(files, MANIFESTS)}
    for run, folders in run_folders(files).items():
        # A release without a head may have been at work when the lake got one: its manifest is not in the snapshot.
        if run not in named and is_dead(run, generation) and not (base_of(run) is None and run in listed):
            for folder in folders:
                files.remove(folder)
    for run in listed - named:
        if base_of(run) is not None and is_dead(run, generation):
            files.remove(f"{MANIFESTS}/{run}.json")
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


def _head(files: Files) -> Head:
    try:
        return read_head(files, HEAD)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(files, HEAD, error) from None


def _paths(files: Files, head: Head) -> list[str]:
    try:
        return [str(path) for path in json.loads(files.read(head.manifest))["manifests"]]
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(files, head.manifest, error) from None


def _damaged(files: Files, path: str, error: Exception) -> LakeError:
    return LakeError(f"this file is damaged: {error!r}", where=files.url(path), cure=_RESTORE, code="lake-damaged")
