# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a Spark task of the compaction: reads segments of a journal, writes Parquet files and returns a report.

A task gets pieces of segments and reads them in blocks, so that its memory does not depend on a segment's contents.
Rows do not pass through Spark: Arrow reads, checks and writes them, and Spark only places the tasks.
"""

from __future__ import annotations

import errno
import gzip
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import BinaryIO, Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from ..manifests import HEALTHY, DataFile
from ..time_range import TimeRange
from .line_reader import BLOCK, LONGEST, LineBlock, read_lines
from .parquet_writer import DayWriter, ParquetFile
from .task_messages import CompactionReport, CompactionTask, LineCounts, SegmentPiece, failed, to_text
from .validation import ARROW, COUNTS_ARROW, BadLine, Checked, check, head_of

_QUARANTINE: Final = pa.schema(
    [
        ("segment", pa.string()),
        ("offset", pa.int64()),
        ("length", pa.int64()),
        ("reason", pa.string()),
        ("head", pa.string()),
    ]
)
_BAD_AT_ONCE: Final = 20_000  # bad lines held until they are written
# Errors that no other try of the task would change; Spark retries after all others.
_FINAL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT}


def run_tasks(work: CompactionTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run the tasks with these numbers and yield a report for each. Called by Spark's `mapInArrow`."""
    for batch in batches:
        for task in batch.column(0).to_pylist():
            yield pa.record_batch([pa.array([to_text(_run(work, task))])], names=["report"])


def _run(work: CompactionTask, task: int) -> CompactionReport:
    events = DayWriter(work.root, work.run, task, ARROW)
    healthy = DayWriter(work.root, work.run, task, COUNTS_ARROW, table=HEALTHY)
    bad = _Quarantine(work, task)
    try:
        counts = [_read_piece(work, piece, events, healthy, bad) for piece in work.tasks[task]]
        return CompactionReport(counts, events.close(), bad.close(), healthy.close())
    except OSError as error:
        if error.errno not in _FINAL:
            raise
        return failed(error, work.root)
    finally:
        events.drop()
        healthy.drop()
        bad.drop()


def _read_piece(
    work: CompactionTask, piece: SegmentPiece, events: DayWriter, healthy: DayWriter, bad: _Quarantine
) -> LineCounts:
    counts = LineCounts(piece.segment)
    for found in checked(piece):
        if found.attempts is not None:
            inside = _inside(found.attempts, work.span)
            events.add(inside)
            counts.records += len(inside)
            counts.outside += len(found.attempts) - len(inside)
        if found.counts is not None:
            inside = _inside(found.counts, work.span)
            healthy.add(inside)
            counts.healthy += len(inside)
            counts.outside += len(found.counts) - len(inside)
        counts.others += found.others
        counts.quarantined += len(found.bad)
        if not piece.known_bad:
            bad.add(piece.path, found.bad)
    if work.ticks is not None:
        with open(os.path.join(work.ticks, f"{piece.segment}-{piece.start}"), "wb"):
            pass
    return counts


def checked(piece: SegmentPiece) -> Iterator[Checked]:
    """Yield the lines of the piece, block by block. Raises OSError if the piece cannot be read."""
    if piece.path.endswith(".gz") and (broken := _broken_gz(piece.path)):
        yield Checked(bad=[broken])
        return
    with _opened(piece.path) as file:
        for part in read_lines(file, piece.start, piece.end):
            if isinstance(part, LineBlock):
                yield from check(part.data, part.offset)
            else:
                reason = f"a line of more than {LONGEST} bytes"
                yield Checked(bad=[BadLine(part.offset, part.length, reason, head_of(part.head))])


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    if path.endswith(".gz"):
        with gzip.open(path) as unpacked:
            yield cast(BinaryIO, unpacked)
    else:
        with open(path, "rb", buffering=0) as plain:
            yield plain


def _broken_gz(path: str) -> BadLine | None:
    """Return a bad line for a .gz that is cut short or damaged: all of it is quarantined, as its data may be wrong."""
    try:
        with gzip.open(path) as unpacked:
            while unpacked.read(BLOCK):
                pass
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        with open(path, "rb") as packed:
            return BadLine(0, os.stat(path).st_size, f"no whole .gz: {error}", head_of(packed.read(256)))
    return None


def _inside(table: pa.Table, span: TimeRange) -> pa.Table:
    if not len(table):
        return table
    limits = pc.min_max(table["ts_us"]).as_py()
    if span.holds(limits["min"], limits["max"]):
        return table
    if span.since_us is not None:
        table = table.filter(pc.greater_equal(table["ts_us"], span.since_us))
    return table if span.until_us is None else table.filter(pc.less(table["ts_us"], span.until_us))


class _Quarantine:
    """Writes the bad lines of a task into one file, if there are any."""

    def __init__(self, work: CompactionTask, task: int) -> None:
        self._root, self._path = work.root, f"quarantine/run={work.run}/{work.run}-{task:05d}.parquet"
        self._waiting: list[dict[str, object]] = []
        self._file: ParquetFile | None = None

    def add(self, segment: str, lines: Sequence[BadLine]) -> None:
        self._waiting += ({"segment": segment, **asdict(line)} for line in lines)
        if len(self._waiting) >= _BAD_AT_ONCE:
            self._flush()

    def close(self) -> list[DataFile]:
        if self._waiting:
            self._flush()
        if self._file is None:
            return []
        file, self._file = self._file.close(), None
        return [file]

    def drop(self) -> None:
        if self._file is not None:
            self._file.drop()

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if self._file is None:
            self._file = ParquetFile(self._root, self._path, _QUARANTINE)
        self._file.write(pa.Table.from_pylist(waiting, schema=_QUARANTINE))
