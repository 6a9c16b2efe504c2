# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Rewrites small files of the table `dead_letters` into large ones, and merges the manifests of its runs.

The new manifest names the manifests that it replaces, which do not count beside it. So one new file makes the change,
and readers see the table before it or after it. The old manifests and files are removed later.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import readable_errors
from ..lake import old_files
from ..manifests import new_run, now_us
from .manifests import BROKER, FOLDER, Gathered, doubts_of, read_all, to_json
from .staging import TABLE

if TYPE_CHECKING:
    from ..lake.lake import Lake
    from ..lake.rewriting import RewriteOrder


@dataclass(frozen=True, slots=True)
class MergedLetters:
    """Counts the small files `before`, the files `after`, and the old files that were removed or are kept."""

    before: int = 0
    after: int = 0
    removed: int = 0
    kept: int = 0


def merge_letters(lake: Lake, wanted: RewriteOrder, keep_us: int) -> MergedLetters:
    """Merge the letters of each owner, and remove what was replaced so long ago or longer.

    Raises LakeError if another process drains into the lake.
    """
    if not lake.files.entries(FOLDER):
        return MergedLetters()
    with lake.locked(TABLE), readable_errors(lake.root):
        manifests, before, after = read_all(lake.files), 0, 0
        for looked in (False, True):
            ours = [one for one in manifests if (one.owner == BROKER) == looked]
            if len(ours) < 2 and not wanted.small([file for one in ours for file in one.files]):
                continue
            old, new = _merge(lake, ours, manifests, wanted)
            before, after, manifests = before + old, after + new, read_all(lake.files)
        removed, kept = _remove_old(lake, manifests, max(now_us(), manifests[-1].created_us) - keep_us)
        return MergedLetters(before, after, removed, kept)


def _merge(lake: Lake, ours: list[Gathered], manifests: list[Gathered], wanted: RewriteOrder) -> tuple[int, int]:
    """Replace the manifests of one owner, and return how many files went and came."""
    from ..lake.rewriting import rewrite
    from .rows import LETTERS

    files, run = lake.files, new_run()
    days = wanted.small([file for one in ours for file in one.files])
    old = {file.path for found in days.values() for file in found}
    try:
        written = rewrite(lake, run, days, wanted, LETTERS, table=TABLE, by="dead_us")
        files.sync([file.path for file in written])
    except BaseException:
        with contextlib.suppress(OSError):
            _remove_run(lake, run)
        raise
    there = {entry.name.removesuffix(".json") for entry in files.entries(FOLDER)}
    manifest = Gathered(
        run=run,
        created_us=max(now_us(), manifests[-1].created_us + 1),  # the newest has the doubts that are open
        owner=ours[0].owner,
        files=[*(file for one in ours for file in one.files if file.path not in old), *written],
        staged=[name for one in ours for name in one.staged],
        letters=sum(one.letters for one in ours),
        again=sum(one.again for one in ours),
        doubts=doubts_of(manifests),
        replaces=[name for one in ours for name in (*(known for known in one.replaces if known in there), one.run)],
    )
    files.publish(manifest.path, to_json(manifest))  # after an error it may count: its files stay
    return len(old), len(written)


def _remove_run(lake: Lake, run: str) -> None:
    for day in lake.files.entries(TABLE):
        if day.name.startswith("dt="):
            lake.files.remove(f"{TABLE}/{day.name}/run={run}")


def _remove_old(lake: Lake, manifests: list[Gathered], before_us: int) -> tuple[int, int]:
    files = lake.files
    replaced = {run: one.created_us for one in manifests for run in one.replaces}
    if not replaced:
        return 0, 0
    logged = old_files.has_delta_log(files, TABLE)
    named = {file.path for one in manifests for file in one.files}
    removed, kept = 0, 0
    for day in files.entries(TABLE):
        for folder in files.entries(f"{TABLE}/{day.name}") if day.name.startswith("dt=") else ():
            run = folder.name.removeprefix("run=")
            if run not in replaced:
                continue
            path = f"{TABLE}/{day.name}/{folder.name}"
            old = [one for entry in files.entries(path) if (one := f"{path}/{entry.name}") not in named]
            if logged or replaced[run] > before_us:
                kept += len(old)
                continue
            for one in old:
                files.remove(one)
            removed += len(old)
            if not files.entries(path):
                files.remove(path)
    for run, at_us in replaced.items():
        if not logged and at_us <= before_us:
            files.remove(f"{FOLDER}/{run}.json")
    return removed, kept
