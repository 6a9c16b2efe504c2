# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Rewrites small files of drained letters into large ones, and merges the manifests of many drains into one. No Spark.

A run is published by the head of the dead letters, as a drain is (see `draining.manifests`). Its manifest takes the
place of those of the drains, and keeps what a later drain has to know of them: the batches that they have gathered, and
the doubts. It also lists the files that it has replaced, which stay for a time for their readers.

Letters that were only looked at stay as they are, and so do copies of a limbo, and files without bodies.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ..draining.manifests import (
    LAKE,
    Gathered,
    LetterSnapshot,
    ReplacedLetters,
    current,
    publish,
    remove_dead,
    unpublished,
)
from ..draining.staging import TABLE
from ..errors import readable_errors
from ..file_store import for_each
from ..files import Files
from ..manifests import DataFile, base_of, now_us, run_after
from ..progress import Progress
from . import old_files
from .lake import Lake
from .lake_format import make_writable
from .rewriting import Optimized, RewriteOrder, first_days, rewrite

BARE: Final = "-bare.parquet"  # ends the name of a file whose bodies are removed


def optimize_letters(lake: Lake, wanted: RewriteOrder, keep_us: int, progress: Progress | None) -> Optimized | None:
    """Publish as many runs as are needed, and remove what was replaced longer ago than `keep_us`.

    Return what was done, None for a lake without dead letters. Raises LakeError if another process writes letters into
    the lake, or was faster.
    """
    files = lake.files
    with readable_errors(lake.root):
        if not current(files).manifests:
            return None
    with lake.locked(TABLE), readable_errors(lake.root):
        done, now = Optimized(logged=old_files.has_delta_log(files, TABLE)), current(files)
        remove_dead(files, now, alone=files.is_folder)
        small = wanted.small(_with_bodies(now))
        total, rewritten = sum(file.bytes for found in small.values() for file in found), 0
        while len(drained := _drained(now)) > 1 or small:
            make_writable(files)
            if progress is not None:
                progress("rewriting letters", rewritten, max(total, 1))
            days = first_days(small)
            manifest, new, now = _publish(lake, now, wanted, days)
            small = wanted.small(_with_bodies(now))
            old = [file for found in days.values() for file in found]
            rewritten += sum(file.bytes for file in old)
            done = done.after(manifest.run, len(drained), old, new)
        removed, kept = _remove_old(files, now, now_us() - keep_us, logged=done.logged)
        with contextlib.suppress(OSError):
            remove_dead(files, now, alone=files.is_folder)
    return replace(done, removed=removed, kept=kept)


def _drained(now: LetterSnapshot) -> list[Gathered]:
    return [one for one in now.manifests if one.owner == LAKE]


def _with_bodies(now: LetterSnapshot) -> list[DataFile]:
    return [file for one in _drained(now) for file in one.files if not file.path.endswith(BARE)]


def _publish(
    lake: Lake, base: LetterSnapshot, wanted: RewriteOrder, days: dict[str, list[DataFile]]
) -> tuple[Gathered, list[DataFile], LetterSnapshot]:
    """Merge the manifests of all drains, and rewrite these days.

    Return the manifest, the files that were written, and the snapshot that was published.
    """
    from ..draining.rows import LETTERS

    files, run = lake.files, run_after(base.head.generation)
    with unpublished(files, base, run):
        written = rewrite(lake, run, days, wanted, LETTERS, table=TABLE, by="dead_us")
        files.sync([file.path for file in written])
        manifest = _merged(files, base, run, [file for found in days.values() for file in found], written)
    drained = _drained(base)
    after = [one for one in base.manifests if one.owner != LAKE]
    # The doubts of the last manifest are those that are open, so the merged one comes where the last of the drains was.
    after.insert(base.manifests.index(drained[-1]) + 1 - len(drained), manifest)
    publish(files, base, run, after)
    return manifest, written, current(files)  # with its version, by which the next run replaces it


def _merged(
    files: Files, base: LetterSnapshot, run: str, old: Sequence[DataFile], written: Sequence[DataFile]
) -> Gathered:
    drained = _drained(base)
    gone = {file.path for file in old}
    replaced = _there(files, drained)
    if old:
        replaced.append(ReplacedLetters(now_us(), list(old)))
    return Gathered(
        run=run,
        created_us=now_us(),
        owner=LAKE,
        files=sorted(
            [*(file for one in drained for file in one.files if file.path not in gone), *written],
            key=lambda file: file.path,
        ),
        staged=[name for one in drained for name in one.staged],
        letters=sum(one.letters for one in drained),
        again=sum(one.again for one in drained),
        doubts=drained[-1].doubts,
        replaced=replaced,
        headless=[
            name for one in drained for name in (*one.headless, *([one.run] if base_of(one.run) is None else []))
        ],
    )


def _there(files: Files, manifests: Sequence[Gathered]) -> list[ReplacedLetters]:
    """Return which replaced files are still in the lake."""
    listed = [one for manifest in manifests for one in manifest.replaced]
    folders = sorted({file.path.rpartition("/")[0] for one in listed for file in one.files})
    entries = for_each(files, files.entries, folders)
    there = {f"{folder}/{entry.name}" for folder, found in zip(folders, entries, strict=True) for entry in found}
    kept = [replace(one, files=[file for file in one.files if file.path in there]) for one in listed]
    return [one for one in kept if one.files]


def _remove_old(files: Files, now: LetterSnapshot, before_us: int, *, logged: bool) -> tuple[int, int]:
    """Remove the files that were replaced before this instant, none of them while a Delta log may name it.

    Return how many were removed, and how many are kept.
    """
    found = _there(files, now.manifests)
    old = [] if logged else [one for one in found if one.at_us <= before_us]
    gone = [file.path for one in old for file in one.files]
    in_use = {file.path for one in now.manifests for file in one.files}
    in_use |= {file.path for one in found if one not in old for file in one.files}
    old_files.remove_files(files, gone, {path.rpartition("/")[0] for path in in_use})
    return len(gone), sum(len(one.files) for one in found) - len(gone)
