# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps the lists of the segments that merged runs have read, in files of their own.

A compaction needs these lists, so that it reads no segment twice; readers of the lake do not. One file,
`events/_segments/RUN.parquet`, has a row for each segment, and is never changed.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Final

from ..errors import LakeError
from ..files import Files
from ..manifests import Manifest, SegmentEntry

FOLDER: Final = "events/_segments"
_COLUMNS: Final = tuple(one.name for one in fields(SegmentEntry))


def entries(files: Files, manifests: Iterable[Manifest]) -> Iterator[tuple[str, SegmentEntry]]:
    """Yield each segment that the runs have read, with the folder of its journal. Raises LakeError for a bad list."""
    for manifest in manifests:
        for path in manifest.merger.segments if manifest.merger is not None else ():
            yield from read(files, path)
        for entry in manifest.segments:
            yield manifest.journal, entry


def read(files: Files, path: str) -> Iterator[tuple[str, SegmentEntry]]:
    """Yield the segments of one list."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(io.BytesIO(files.read(path)))
        journals = table["journal"].to_pylist()
        columns = [table[name].to_pylist() for name in _COLUMNS]
    except (pa.ArrowException, KeyError) as error:
        raise LakeError(
            f"this list of segments is damaged: {error}",
            where=files.url(path),
            cure="Restore it: without it segments would be read a second time",
            code="lake-damaged",
        ) from None
    for journal, *values in zip(journals, *columns, strict=True):
        yield journal, SegmentEntry(*values)


def write(files: Files, run: str, found: Sequence[tuple[str, SegmentEntry]]) -> str:
    """Write a list under the name of a run, and return its path."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    values = {"journal": [journal for journal, _ in found]}
    values |= {name: [getattr(entry, name) for _, entry in found] for name in _COLUMNS}
    content = io.BytesIO()
    pq.write_table(pa.table(values), content, compression="zstd")
    path = f"{FOLDER}/{run}.parquet"
    files.publish(path, content.getvalue())
    return path
