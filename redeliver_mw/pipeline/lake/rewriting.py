# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Chooses the small files of each day of a table, and writes their rows into large files."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ..files import Files
from ..manifests import DataFile
from ..time_range import DAY_US
from .lake import Lake

if TYPE_CHECKING:
    import pyarrow as pa

_FEW: Final = 8  # small files of a day that is not over, below which they wait for more
_WHOLE: Final = 8 << 20  # bytes of a file that is read in one piece
_AT_ONCE: Final = 1 << 30  # bytes that one run rewrites, unless one day has more
_FILES_AT_ONCE: Final = 3_000  # the same in files


@dataclass(frozen=True, slots=True)
class Optimized:
    """Sums up what was done: `runs` were published, the last of them is `run`, None if there was nothing to do.

    `merged` manifests became one, `files_before` small files became `files`, with `rows` in `bytes`.
    `removed` old files are gone, `kept` are still there because they are too young, or because of a Delta log, if the
    table is `logged` in one. All of this is about the events; `letters` sums up the same for the dead letters, and is
    None for a lake without any.
    """

    runs: int = 0
    run: str | None = None
    merged: int = 0
    files_before: int = 0
    files: int = 0
    rows: int = 0
    bytes: int = 0
    removed: int = 0
    kept: int = 0
    logged: bool = False
    letters: Optimized | None = None

    def after(self, run: str, merged: int, old: Sequence[DataFile], new: Sequence[DataFile]) -> Optimized:
        """Return the sum with one more run, which has merged so many manifests and rewritten these files."""
        return replace(
            self,
            runs=self.runs + 1,
            run=run,
            merged=max(self.merged, merged),
            files_before=self.files_before + len(old),
            files=self.files + len(new),
            rows=self.rows + sum(file.rows for file in new),
            bytes=self.bytes + sum(file.bytes for file in new),
        )


@dataclass(frozen=True, slots=True)
class RewriteOrder:
    """Holds which files are to be rewritten: those before `until_us`; and into which size, `workers` at a time."""

    until_us: int
    now_us: int
    target: int
    workers: int

    def small(self, files: Sequence[DataFile]) -> dict[str, list[DataFile]]:
        """Return the small files of each day that has enough of them, in the order of their first records."""
        days: dict[str, list[DataFile]] = {}
        for file in files:
            if file.bytes < self.target // 2 and file.max_us < self.until_us:
                days.setdefault(file.path.split("/", 2)[1], []).append(file)
        return {
            day: sorted(found, key=lambda file: (file.min_us, file.path))
            for day, found in sorted(days.items())
            if len(found) >= (2 if (found[0].min_us // DAY_US + 1) * DAY_US <= self.now_us else _FEW)
        }


def first_days(days: dict[str, list[DataFile]]) -> dict[str, list[DataFile]]:
    """Return the first days, as many as one run rewrites."""
    found: dict[str, list[DataFile]] = {}
    count, size = 0, 0
    for day, files in days.items():
        count, size = count + len(files), size + sum(file.bytes for file in files)
        if found and (count > _FILES_AT_ONCE or size > _AT_ONCE):
            break
        found[day] = files
    return found


def rewrite(
    lake: Lake,
    run: str,
    days: dict[str, list[DataFile]],
    wanted: RewriteOrder,
    schema: pa.Schema,
    *,
    table: str,
    by: str,
) -> list[DataFile]:
    """Write the rows of each day into new files, and return these. Raises OSError.

    Raises RuntimeError if the new files do not have exactly the rows of the old ones.
    """
    from .parquet_writer import WAITING, DayWriter

    def one(task: int, found: Sequence[DataFile]) -> list[DataFile]:
        waiting = min(WAITING // wanted.workers, max(wanted.target, 1 << 20))
        writer = DayWriter(lake.root, run, task, schema, waiting=waiting, large=wanted.target, table=table, by=by)
        try:
            for file in found:
                for part in _tables(lake.files, file, schema):
                    writer.add(part)
            written = writer.close()
        finally:
            writer.drop()
        if (new := sum(file.rows for file in written)) != (old := sum(file.rows for file in found)):
            raise RuntimeError(f"{old} rows were to be rewritten, and {new} were")
        return written

    with ThreadPoolExecutor(wanted.workers) as threads:
        return [file for files in threads.map(one, range(len(days)), days.values()) for file in files]


def _tables(files: Files, file: DataFile, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows of a file; columns that an earlier release did not write are null."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    opened = io.BytesIO(files.read(file.path)) if file.bytes <= _WHOLE else files.open(file.path)
    with opened, pq.ParquetFile(opened) as source:
        for group in range(source.num_row_groups):
            rows = source.read_row_group(group)
            columns = [
                rows[one.name].cast(one.type) if one.name in rows.column_names else pa.nulls(len(rows), one.type)
                for one in schema
            ]
            yield pa.table(columns, schema=schema)
