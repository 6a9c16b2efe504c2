# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Finds the segments of a journal that a lake has not read yet, and divides their bytes among tasks."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from ...errors import ConfigError
from ..errors import readable_errors
from ..files import FileEntry, Files, files_at
from ..manifests import SegmentEntry
from .task_messages import SegmentPiece

_ENDINGS: Final = (".jsonl", ".jsonl.gz")
_EDGE: Final = 4096  # bytes at both ends that distinguish segments
_DEEP: Final = 3  # levels of subfolders of a journal that are searched for segments that are not read
_PACKED: Final = 8  # approximate ratio of text to bytes in a .gz
SPLIT: Final = 128 << 20  # bytes of a segment, above which several tasks share it; a .gz cannot be shared
_LEAST: Final = 64 << 20  # bytes that are worth a task
_MOST: Final = 512 << 20  # approximate maximum bytes that a task reads into one file


@dataclass(frozen=True, slots=True)
class ListedSegment:
    """Describes a finished segment as it is in the journal."""

    path: str
    size: int
    mark: str = ""

    @property
    def name(self) -> str:
        return os.path.basename(self.path)

    @property
    def weight(self) -> int:
        """Return the approximate bytes of text in the segment."""
        return self.size * (_PACKED if self.path.endswith(".gz") else 1)

    def entry(self) -> SegmentEntry:
        return SegmentEntry(self.name, self.size, self.mark)


@dataclass(frozen=True, slots=True)
class JournalListing:
    """Lists the finished segments in a folder, and counts those that are still being written.

    `below` are subfolders that hold finished segments, by relative paths, and how many each holds: these segments are
    not read as part of this journal.
    """

    folder: str
    segments: list[ListedSegment]
    unfinished: int
    below: dict[str, int]


@dataclass(frozen=True, slots=True)
class Unread:
    """Lists segments to read, the oldest first; the number read before; and copies of segments read now or before.

    `known_bad` are paths among the new: --since or --until left out some of their records, but none of their bad lines.
    """

    new: list[ListedSegment]
    copies: list[ListedSegment]
    known: int
    known_bad: set[str]


def list_journal(place: str | os.PathLike[str]) -> JournalListing:
    """Return the segments of a journal. Raises ConfigError if the folder does not exist."""
    files = files_at(place, "journal")
    folder = files.url()
    if not os.path.isdir(folder):
        what = "is no folder" if os.path.exists(folder) else "does not exist"
        raise ConfigError(
            f"the journal {what}",
            where=folder,
            cure="Give the folder that `App(journal=…)` writes to",
            code="journal-missing",
        )
    with readable_errors(folder):
        listed = files.entries()
    entries = [entry for entry in listed if not entry.is_folder]
    below = dict(_below(files, [entry.name for entry in listed if entry.is_folder], _DEEP))
    finished = [entry for entry in entries if _is_finished(entry)]
    unfinished = sum(entry.name.startswith("_seg-") and entry.name.endswith(".open") for entry in entries)
    segments = [ListedSegment(files.url(entry.name), entry.size) for entry in finished]
    return JournalListing(folder, segments, unfinished, below)


def _is_finished(entry: FileEntry) -> bool:
    return not entry.is_folder and entry.name.startswith("seg-") and entry.name.endswith(_ENDINGS)


def _below(files: Files, folders: Iterable[str], deep: int) -> Iterator[tuple[str, int]]:
    """Yield the subfolders that hold finished segments, and how many. A folder that cannot be read is skipped."""
    for folder in folders:
        with suppress(OSError):
            entries = files.entries(folder)
            if found := sum(_is_finished(entry) for entry in entries):
                yield folder, found
            if deep > 1:
                yield from _below(files, [f"{folder}/{one.name}" for one in entries if one.is_folder], deep - 1)


def unread(journal: JournalListing, known_segments: Iterable[tuple[str, SegmentEntry]]) -> Unread:
    """Return the segments that are not among those that the lake has read, given with the folders of their journals.

    A segment is known by its folder, name and size; a copy of it, under any name, by its size and mark. A segment that
    was not read as a whole is not known.
    """
    read = list(known_segments)
    known = {(entry.name, entry.size) for folder, entry in read if folder == journal.folder and not entry.outside}
    begun = {(entry.name, entry.size) for folder, entry in read if folder == journal.folder and entry.outside}
    marks = {(entry.size, entry.mark) for _, entry in read if not entry.outside}
    fresh = [segment for segment in journal.segments if (segment.name, segment.size) not in known]
    new: list[ListedSegment] = []
    copies: list[ListedSegment] = []
    with readable_errors(journal.folder):
        fresh.sort(key=lambda segment: (os.stat(segment.path).st_mtime_ns, segment.name))
        for segment in fresh:
            marked = replace(segment, mark=_mark(segment))
            (copies if (marked.size, marked.mark) in marks else new).append(marked)
            marks.add((marked.size, marked.mark))
    known_bad = {segment.path for segment in new if (segment.name, segment.size) in begun}
    return Unread(new, copies, len(journal.segments) - len(fresh), known_bad)


def _mark(segment: ListedSegment) -> str:
    """Return a mark of the bytes at both ends, which contain the ids of the first and the last record."""
    with open(segment.path, "rb") as file:
        head = file.read(_EDGE)
        file.seek(max(0, segment.size - _EDGE))
        return hashlib.blake2b(head + file.read(_EDGE), digest_size=16).hexdigest()


def is_worth_tasks(segments: Sequence[ListedSegment]) -> bool:
    """Return whether there is more to read than one task should read."""
    return sum(segment.weight for segment in segments) >= 2 * _LEAST


def share_out(segments: Sequence[ListedSegment], known_bad: set[str], slots: int) -> list[list[SegmentPiece]]:
    """Return pieces for tasks.

    Neighbours stay together, so that a task sees few days; no more tasks than are worthwhile.

    `slots` is how many tasks run at a time; `known_bad` are paths of segments whose bad lines are quarantined.
    """
    total = sum(segment.weight for segment in segments)
    tasks = max(1, -(-total // _MOST), min(slots, total // _LEAST))
    shared: list[list[SegmentPiece]] = [[]]
    done = 0
    for number, segment in enumerate(segments):
        bad = segment.path in known_bad
        for start, end in _ranges(segment):
            if shared[-1] and done >= total * len(shared) // tasks:
                shared.append([])
            shared[-1].append(SegmentPiece(number, segment.path, start, end, bad))
            done += segment.weight if end is None and start == 0 else (end or segment.size) - start
    return shared


def _ranges(segment: ListedSegment) -> list[tuple[int, int | None]]:
    if segment.path.endswith(".gz") or segment.size <= SPLIT:
        return [(0, None)]
    starts = list(range(0, segment.size, SPLIT // 2))
    return list(zip(starts, [*starts[1:], None], strict=True))
