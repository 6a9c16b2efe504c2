# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Removes dead letters that are old enough from the lake: whole days of them, or only their bodies. No Spark.

Letters that a drain has taken off their queue exist nowhere else. So the result includes how many of them no replay has
sent back.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ...errors import ConfigError
from ..draining.commit import gather
from ..draining.manifests import LAKE, Gathered, current, publish, remove_dead, unpublished
from ..draining.staging import TABLE, batches, remove_torn
from ..errors import readable_errors
from ..file_store import for_each
from ..manifests import DataFile, now_us, run_after
from ..replaying.registry import all_begun, remove_borrowed, sent_letters
from ..time_range import DAY_US, TimeBound, before_us, day_of
from .lake import Lake
from .lake_format import make_writable
from .letter_optimization import BARE

if TYPE_CHECKING:
    import pyarrow as pa

_BODIES: Final = ("body", "letter")  # the packed letter contains all headers, and sometimes the body


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Counts the letters that left the lake, or, if not `done`, would leave it.

    `letters` are in `files` of `days` days; `unsent` of them are owned by the lake, and no replay has sent them back.
    `staged` are of a drain that died, and are not counted in `letters` unless the removal is executed, because their
    dates have not been read.
    """

    letters: int
    unsent: int
    files: int
    days: int
    bodies_only: bool
    done: bool
    staged: int = 0


def forget(
    lake: Lake | str | os.PathLike[str], before: TimeBound, *, bodies_only: bool = False, execute: bool = False
) -> Forgotten:
    """Remove letters dead-lettered before a day, in UTC, from the table: all of their rows, or `bodies_only`.

    Without `execute` the letters are only counted. A letter without its body still counts in the table and cannot be
    sent back. All letters leave the table in one step; if this function is killed, the next call does the rest.
    Letters that a dead drain has staged are put into the table first. Raises ConfigError for an invalid day, and
    LakeError.
    """
    until_us = _day(before)
    place = lake if isinstance(lake, Lake) else Lake(lake)
    with place.locked(TABLE), readable_errors(place.root):
        if execute:
            gather(place)
        base = current(place.files)
        concerned = [
            (one, file) for one in base.manifests for file in one.files if _concerns(file, until_us, bodies_only)
        ]
        found = Forgotten(
            letters=sum(file.rows for _, file in concerned),
            unsent=_unsent(place, [file for one, file in concerned if one.owner == LAKE]),
            files=len(concerned),
            days=len({file.min_us // DAY_US for _, file in concerned}),
            bodies_only=bodies_only,
            done=execute,
            staged=sum(batch.rows for batch in batches(place.files)),
        )
        if execute:
            make_writable(place.files)
            run = run_after(base.head.generation)
            with unpublished(place.files, base, run):
                changed = [_changed(place, one, until_us, bodies_only, run) for one in base.manifests]
            # A new generation is published even if nothing has changed: whatever began before it is dead from then on.
            now = publish(place.files, base, run, changed)
            remove_dead(place.files, now, alone=place.files.is_folder, thorough=True)
            remove_torn(place.files, now.head.generation)
            remove_borrowed(place.files)
    return found


def _day(before: TimeBound) -> int:
    until_us = before_us(before)
    if until_us % DAY_US:
        cure = "Give a day, as in 2026-11-30: letters lie by days"
        raise ConfigError(f"{before} is no beginning of a day in UTC", where="--before", cure=cure, code="option-value")
    return until_us


def _concerns(file: DataFile, until_us: int, bodies_only: bool) -> bool:
    return file.max_us < until_us and not (bodies_only and file.path.endswith(BARE))


def _unsent(lake: Lake, files: Sequence[DataFile]) -> int:
    """Return how many of the files' letters no replay has confirmed."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    chunks = [chunk for one in all_begun(lake.files) for chunk in sent_letters(one).chunks]
    sent = pa.chunked_array(chunks, pa.string())

    def unsent(file: DataFile) -> int:
        with lake.files.open(file.path) as opened:
            ids = pq.read_table(opened, columns=["dl_id"])["dl_id"]
        return len(ids) - (pc.sum(pc.is_in(ids, sent)).as_py() or 0)

    return sum(for_each(lake.files, unsent, files))


def _changed(lake: Lake, manifest: Gathered, until_us: int, bodies_only: bool, run: str) -> Gathered:
    """Return the manifest without letters, or with files without bodies. These count once the run is published."""
    old = [file for one in manifest.replaced for file in one.files]
    if not any(_concerns(file, until_us, bodies_only) for file in (*manifest.files, *old)):
        return manifest
    files: list[DataFile] = []
    for file in manifest.files:
        if not _concerns(file, until_us, bodies_only):
            files.append(file)
        elif bodies_only:
            files.append(_bare(lake, file, run))
    lake.files.sync([file.path for file in files])
    kept = [
        replace(one, files=[file for file in one.files if not _concerns(file, until_us, bodies_only)])
        for one in manifest.replaced
    ]
    return replace(manifest, files=files, replaced=kept, revision=run)


def _bare(lake: Lake, file: DataFile, run: str) -> DataFile:
    import pyarrow.parquet as pq

    from .parquet_writer import ParquetFile

    why = f"its body was removed on {day_of(now_us())}"
    folder, name = os.path.split(file.path.removesuffix(".parquet") + BARE)
    path = f"{os.path.dirname(folder)}/run={run}/{name}"
    with lake.files.open(file.path) as opened, pq.ParquetFile(opened) as source:
        new = ParquetFile(lake.files, path, source.schema_arrow, by="dead_us")
        try:
            for group in range(source.num_row_groups):
                new.write(_without_bodies(source.read_row_group(group), why))
            return new.close()
        except BaseException:
            new.drop()
            raise


def _without_bodies(table: pa.Table, why: str) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    for name in _BODIES:
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(at), pa.nulls(len(table), table.schema.field(at).type))
    at = table.schema.get_field_index("problem")
    return table.set_column(at, table.schema.field(at), pc.coalesce(table["problem"], pa.scalar(why)))
