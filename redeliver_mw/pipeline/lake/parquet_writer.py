# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Writes Parquet files in a task: by day, of a good size, and either complete or absent.

A file's name contains run, task and number, so a task that is tried again writes the same files again. Memory is
bounded by the data that may wait to be written, in addition to one block of a segment.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..files import Files, files_at
from ..manifests import DataFile
from ..time_range import DAY_US, day_of

WAITING: Final = 96 << 20  # bytes in Arrow that are collected until they are written as row groups
LARGE: Final = 128 << 20  # bytes, above which a file ends
DAYS_OPEN: Final = 64  # files of different days that are open at a time


class ParquetFile:
    """Writes one file, `<name>.parquet` in a folder of `place`; no reader sees the file before `close`.

    `by` is the column with the instants of its rows.
    """

    def __init__(self, place: str | Files, path: str, schema: pa.Schema, *, by: str = "ts_us") -> None:
        self.path, self._by = path, by
        self.rows, self.min_us, self.max_us = 0, 0, 0
        self._files = files_at(place) if isinstance(place, str) else place
        self._new = self._files.draft(path)
        self._file = pa.OSFile(self._new, "wb")
        self._writer = pq.ParquetWriter(self._file, schema, compression="zstd")

    @property
    def size(self) -> int:
        return int(self._file.tell())

    def write(self, table: pa.Table) -> None:
        """Write rows as row groups of their own. Raises OSError."""
        self._writer.write_table(table)
        if self._by in table.column_names and len(table):
            found = pc.min_max(table[self._by]).as_py()
            self.min_us = min(found["min"], self.min_us) if self.rows else found["min"]
            self.max_us = max(found["max"], self.max_us)
        self.rows += len(table)

    def close(self) -> DataFile:
        """Finish the file, make it survive a power cut, and give it its name. Raises OSError."""
        self._writer.close()
        self._file.close()
        size = self._files.finish(self._new, self.path)
        return DataFile(self.path, self.rows, size, self.min_us, self.max_us)

    def drop(self) -> None:
        """Remove all traces, even of a file that a full disk did not take. Does not raise OSError."""
        with contextlib.suppress(OSError):
            self._writer.close()
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            os.unlink(self._new)


class DayWriter:
    """Writes rows into files of the UTC day of `by`.

    The files are `<table>/dt=DAY/run=RUN/RUN-<task>-<number>.parquet` under `root`.
    """

    def __init__(
        self,
        root: str,
        run: str,
        task: int,
        schema: pa.Schema,
        *,
        waiting: int = WAITING,
        large: int = LARGE,
        table: str = "events",
        by: str = "ts_us",
    ) -> None:
        self._table, self._by, self._large = table, by, large
        self._root, self._run, self._task, self._schema, self._limit = root, run, task, schema, waiting
        self._number = 0
        self._open: dict[int, ParquetFile] = {}
        self._waiting: dict[int, list[pa.Table]] = {}
        self._bytes = 0
        self.files: list[DataFile] = []

    def add(self, table: pa.Table) -> None:
        """Add records. Raises OSError if the disk refuses them."""
        for day, part in _by_day(table, self._by):
            self._waiting.setdefault(day, []).append(part)
        self._bytes += table.nbytes
        if self._bytes >= self._limit:
            self._flush()

    def close(self) -> list[DataFile]:
        """Finish all files, and return them."""
        self._flush()
        self._end(list(self._open))
        return self.files

    def drop(self) -> None:
        """Drop the files that are not finished."""
        for file in self._open.values():
            file.drop()

    def _flush(self) -> None:
        waiting, self._waiting, self._bytes = self._waiting, {}, 0
        for day, parts in sorted(waiting.items()):
            if day not in self._open:
                self._open[day] = self._begin(day)
            self._open[day].write(pa.concat_tables(parts))
        self._end([day for day, file in self._open.items() if len(self._open) > DAYS_OPEN or file.size >= self._large])

    def _begin(self, day: int) -> ParquetFile:
        self._number += 1
        name = f"{self._run}-{self._task:05d}-{self._number:04d}.parquet"
        path = f"{self._table}/dt={day_of(day * DAY_US)}/run={self._run}/{name}"
        return ParquetFile(self._root, path, self._schema, by=self._by)

    def _end(self, days: list[int]) -> None:
        for day in days:
            self.files.append(self._open[day].close())
            del self._open[day]


def _by_day(table: pa.Table, by: str) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each UTC day, in their order; days counted from 1970."""
    if not len(table):
        return
    days = table[by].to_numpy() // DAY_US
    if days[0] == days[-1] and (days == days[0]).all():
        yield int(days[0]), table
        return
    order = np.argsort(days, kind="stable")
    sorted_table, sorted_days = table.take(order), days[order]
    starts = [0, *(np.flatnonzero(np.diff(sorted_days)) + 1).tolist(), len(days)]
    for start, end in pairwise(starts):
        yield int(sorted_days[start]), sorted_table.slice(start, end - start)
