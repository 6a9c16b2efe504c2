# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Moves all staged letters to the table `dead_letters`, each letter once, in files of their UTC day.

Bodies are copied in pieces, one staging file at a time. Only ids are compared all together, in Arrow, and only letters
whose id is not unique become objects.

In a folder the caller has the table's lock. In a bucket several processes may gather at a time: the one that replaces
the head first is published, and the others remove what they have written. Staged letters are removed only when the head
leads to their rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...errors import counted
from ..errors import LakeError, readable_errors
from ..file_store import for_each
from ..head import InDoubt, LostRace
from ..lake.lake import Lake
from ..lake.lake_format import make_writable
from ..lake.parquet_writer import DayWriter
from ..manifests import DataFile, now_us, run_after
from .dedupe import Matched, Staged, StagedLetter, doubt_of, match
from .manifests import BROKER, Gathered, LetterSnapshot, current, doubts_of, publish, remove_dead, unpublished
from .rows import LETTERS
from .staging import STAGING, TABLE, StagedBatch, batches, remove, remove_torn

_ORDINAL: Final = r"-[0-9]+$"
_LOOKED_AT: Final = ["dl_id", "broker", "dlq", "original_destination", "body_sha256", "known_by", "may_be_back"]


def queue_name(broker: str, dlq: str) -> str:
    """Return the name of a queue in a doubt, to which the doubt's letters may come back."""
    return f"{broker} {dlq}"


def gather(lake: Lake, *, seen_empty: str = "") -> Gathered | None:
    """Move all staged letters into the table, and return what was moved; None if there was nothing to do.

    `seen_empty`: a queue that is empty, so that none of its letters can come back. Raises LakeError, whose text says
    where the letters are; then the staged letters are still there.
    """
    try:
        return _gathered(lake, seen_empty)
    except LakeError as error:
        raise _with_staged(lake, error) from None


def _with_staged(lake: Lake, error: LakeError) -> LakeError:
    """Add to the error where the letters are that have left their queue and are not in the table yet."""
    try:
        staged = sum(batch.rows for batch in batches(lake.files))
    except OSError:
        staged = 0
    if not staged:
        return error
    what = f"{error.what}; {counted(staged, 'letter')} taken off the queue lie in {lake.files.url(STAGING)}"
    if isinstance(error, LostRace | InDoubt):
        cure = "Drain again: the next drain puts them into the table, and nothing is lost or there twice"
        return type(error)(what, where=error.where, cure=cure, code=error.code)
    what_first = "see to the disk" if error.code == "lake-disk" else error.cure[:1].lower() + error.cure[1:]
    cure = f"Keep that folder, {what_first}, and drain again: the next drain puts them into the table"
    return LakeError(what, where=error.where, cure=cure, code=error.code)


def _gathered(lake: Lake, seen_empty: str) -> Gathered | None:
    with readable_errors(lake.root):
        base = current(lake.files)
        remove_dead(lake.files, base, alone=lake.files.is_folder)
        remove_torn(lake.files, base.head.generation)
        known = {name for one in base.manifests for name in one.staged}
        found = batches(lake.files)
        remove(lake.files, [batch for batch in found if batch.name in known])
        found = [batch for batch in found if batch.name not in known]
        if not found and not any(doubt.queue == seen_empty for doubt in doubts_of(base.manifests)):
            return None
        manifest, published = _Gathering(lake, base, found, "lake", seen_empty).publish()
        remove(lake.files, found)
        if not lake.files.is_folder:  # in a folder the lock has shown at the start that no other run is alive
            with suppress(OSError):
                remove_dead(lake.files, published)
        return manifest


def gather_looked(lake: Lake, found: list[StagedBatch], base: LetterSnapshot | None = None) -> Gathered:
    """Add letters that their broker still owns; a letter that was looked at before does not become a second row.

    `base` is the snapshot that the look began with.
    """
    with readable_errors(lake.root):
        return _Gathering(lake, base or current(lake.files), found, BROKER).publish()[0]


class _Gathering:
    """Moves staged letters into the table once, under a name of its own."""

    def __init__(
        self, lake: Lake, base: LetterSnapshot, found: list[StagedBatch], owner: str, seen_empty: str = ""
    ) -> None:
        self._lake, self._found, self._owner, self._seen_empty = lake, found, owner, seen_empty
        self._base, self._before = base, doubts_of(base.manifests)
        self._drained = [file for one in base.manifests if one.owner != BROKER for file in one.files]
        self._looked = [file for one in base.manifests if one.owner == BROKER for file in one.files]
        self._run = run_after(base.head.generation)

    def publish(self) -> tuple[Gathered, LetterSnapshot]:
        """Move all letters into the table, or none; return what was moved, and the snapshot with it."""
        files = self._lake.files
        make_writable(files)
        with unpublished(files, self._base, self._run):
            heads = for_each(files, lambda batch: self._read(batch, _LOOKED_AT), self._found)
            matched = self._match(heads)
            written = self._write(matched, heads) if self._found else []
            files.sync([file.path for file in written])
            rows = sum(file.rows for file in written)
            # A run that only looks at letters leaves all doubts unchanged.
            doubts = self._before if self._owner == BROKER else matched.doubts
            manifest = Gathered(
                run=self._run,
                created_us=now_us(),
                owner=self._owner,
                files=written,
                staged=[batch.name for batch in self._found],
                letters=rows,
                again=sum(batch.rows for batch in self._found) - rows,
                doubts=[one for one in doubts if one.queue != self._seen_empty],
            )
        return manifest, publish(files, self._base, self._run, [*self._base.manifests, manifest])

    # -- equal letters ----------------------------------------------------------------------------

    def _match(self, heads: Sequence[pa.Table]) -> Matched:
        staged = [self._staged(batch, head) for batch, head in zip(self._found, heads, strict=True)]
        if not heads:
            return Matched(doubts=list(self._before))
        ids = pa.chunked_array([chunk for head in heads for chunk in head["dl_id"].chunks], pa.string())
        there = self._there(pc.unique(ids), self._drained)
        counts = ids.value_counts()
        several = pc.filter(counts.field("values"), pc.greater(counts.field("counts"), 1)).to_pylist()
        in_doubt = (dl_id for doubt in self._before for dl_id in (*doubt.known, *doubt.others))
        shared = pa.array({*several, *in_doubt, *there}, pa.string())
        return match(staged, _letters(heads, shared), there, self._before)

    def _staged(self, batch: StagedBatch, head: pa.Table) -> Staged:
        queue = queue_name(head["broker"][0].as_py(), head["dlq"][0].as_py())
        origin = (batch.attempt, batch.generation)
        if batch.sure:
            return Staged(queue, origin, None)
        known = zip(head["dl_id"].to_pylist(), head["known_by"].to_pylist(), strict=True)
        return Staged(queue, origin, doubt_of(batch.name, queue, origin, known))

    def _there(self, ids: pa.Array, files: Sequence[DataFile]) -> dict[str, list[tuple[str, str]]]:
        """Return the entries in the files for these ids, without ordinals."""
        found: dict[str, list[tuple[str, str]]] = {}
        for rows in for_each(self._lake.files, lambda file: self._rows_with(ids, file), files):
            for row in rows:
                known = (row["dl_id"], _same(row["body_sha256"], row["original_destination"]))
                for key in {row["base"], row["dl_id"]}:
                    found.setdefault(key, []).append(known)
        return found

    def _rows_with(self, ids: pa.Array, file: DataFile) -> list[dict[str, Any]]:
        """Return the file's rows that have one of these ids, with or without an ordinal."""
        rows: list[dict[str, Any]] = []
        with self._lake.files.open(file.path) as opened, pq.ParquetFile(opened) as source:
            for part in source.iter_batches(columns=["dl_id", "body_sha256", "original_destination"]):
                table = pa.table(part)
                base = pc.replace_substring_regex(table["dl_id"], _ORDINAL, "")
                either = pc.or_(pc.is_in(base, ids), pc.is_in(table["dl_id"], ids))
                rows += table.append_column("base", base).filter(either).to_pylist()
        return rows

    # -- the files --------------------------------------------------------------------------------

    def _write(self, matched: Matched, heads: Sequence[pa.Table]) -> list[DataFile]:
        shown = self._shown(matched, heads) if self._owner == BROKER else set()
        writer = DayWriter(self._lake.root, self._run, 0, LETTERS, table=TABLE, by="dead_us")
        try:
            for number, batch in enumerate(self._found):
                table = self._read(batch, LETTERS.names)
                ids = table["dl_id"].to_pylist()
                keep = [(number, row) not in matched.again for row in range(len(ids))]
                ids = [matched.ids.get((number, row), dl_id) for row, dl_id in enumerate(ids)]
                keep = [kept and dl_id not in shown for kept, dl_id in zip(keep, ids, strict=True)]
                table = table.set_column(0, "dl_id", pa.array(ids, pa.string()))
                writer.add(table if all(keep) else table.filter(pa.array(keep)))
            return writer.close()
        finally:
            writer.drop()

    def _shown(self, matched: Matched, heads: Sequence[pa.Table]) -> set[str]:
        """Return the ids that were looked at before and are rows already."""
        ids = pa.array({*matched.ids.values(), *(one for head in heads for one in head["dl_id"].to_pylist())})
        return {dl_id for known in self._there(ids, self._looked).values() for dl_id, _ in known}

    def _read(self, batch: StagedBatch, columns: Sequence[str]) -> pa.Table:
        """Read a staged batch.

        In a folder a task that outlived its driver may rename the batch now, because the batch became sure.
        """
        for path in batch.paths if self._lake.files.is_folder else (batch.path,):
            try:
                opened = self._lake.files.open(path)
            except FileNotFoundError:
                continue
            with opened, pq.ParquetFile(opened) as source:
                return source.read(columns=list(columns))
        raise FileNotFoundError(2, "a staging file went away", batch.path)


def _letters(heads: Sequence[pa.Table], shared: pa.Array) -> Iterator[StagedLetter]:
    for number, head in enumerate(heads):
        mask = pc.is_in(head["dl_id"], shared)
        if not pc.any(mask).as_py():
            continue
        found = head.append_column("row", pa.array(range(len(head)))).filter(mask)
        for row in found.to_pylist():
            same = _same(row["body_sha256"], row["original_destination"])
            yield StagedLetter(number, row["row"], row["dl_id"], same, row["known_by"], row["may_be_back"])


def _same(body: str, source: str) -> str:
    return f"{body} {source}"
