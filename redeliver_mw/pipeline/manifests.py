# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Lists the files and segments of a run of the compaction in one JSON file: only files that are listed there count.

Paths are relative to the lake's folder, so that a lake can be moved.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from .errors import LakeError
from .file_store import for_each
from .files import Files

FOLDER: Final = "events/_manifests"
_RUN: Final = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{6}-g(?P<base>\d+)")
HEALTHY: Final = "healthy_counts"  # the table and its folder
TICKS: Final = "events/_ticks"  # where the tasks of a run with progress leave a file for each piece that is done


@dataclass(frozen=True, slots=True)
class DataFile:
    """Describes a Parquet file: rows, bytes, and the first and last instant of its rows (0 in quarantine)."""

    path: str
    rows: int
    bytes: int
    min_us: int = 0
    max_us: int = 0


@dataclass(frozen=True, slots=True)
class SegmentEntry:
    """Describes a segment that was read. `mark` is the same for a copy under another name.

    `records` were good, `quarantined` lines bad, `others` are lines about something other than an attempt, `outside`
    were left out because of --since or --until: a segment with any of these is read again.
    """

    name: str
    size: int
    mark: str
    records: int = 0
    quarantined: int = 0
    others: int = 0
    outside: int = 0


@dataclass(frozen=True, slots=True)
class Merger:
    """Describes what a run of `optimize` has put into its manifest in place of all manifests before it.

    `segments` are files that list the segments which those runs have read. `through` is the highest base of their runs,
    -1 if none has a base. `before` are the names of the last of them, the oldest first: by these a run finds out that
    it was published. `replaced` are files that list the old files, which are removed later.
    """

    segments: list[str] = field(default_factory=list)
    through: int = -1
    before: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Manifest:
    """Describes one run: the folder of the journal that was read, its segments, and the files that hold their rows.

    `merger` is None for a run of the compaction. A run of `optimize` has no segments of its own, and no journal.
    `healthy` are the files of the table `healthy_counts`.
    """

    run: str
    created_us: int
    journal: str
    segments: list[SegmentEntry] = field(default_factory=list)
    files: list[DataFile] = field(default_factory=list)
    quarantine: list[DataFile] = field(default_factory=list)
    duplicates: int = 0
    merger: Merger | None = None
    healthy: list[DataFile] = field(default_factory=list)

    @property
    def path(self) -> str:
        return f"{FOLDER}/{self.run}.json"


def new_run() -> str:
    """Return a name that no other run has; names sort by time."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


def run_after(generation: int) -> str:
    """Return a new run's name, which contains the generation of the head that the run is based on."""
    return f"{new_run()}-g{generation}"


def base_of(run: str) -> int | None:
    """Return the generation that a run is based on, None for a run of a release that knew none."""
    found = _RUN.fullmatch(run)
    return int(found["base"]) if found else None


def is_dead(run: str, generation: int) -> bool:
    """Return whether a run that the head of this generation does not lead to can never be published.

    A run without a base was written under an exclusive lock, by a release that the lake refuses now.
    """
    base = base_of(run)
    return base is None or base < generation


def now_us() -> int:
    return time.time_ns() // 1000


def to_json(manifest: Manifest) -> bytes:
    return orjson.dumps(manifest)


def read_manifests(files: Files) -> list[Manifest]:
    """Return the manifests of a lake that has no head of its events yet, the oldest first.

    Manifests of runs with a base count only if a head leads to them, and are left out. Raises LakeError if a manifest
    cannot be read, because counts would be wrong without it.
    """
    listed = [entry for entry in files.entries(FOLDER) if entry.name.endswith(".json") and entry.name[0] not in "._"]
    old = [entry for entry in listed if base_of(entry.name.removesuffix(".json")) is None]
    return for_each(files, lambda entry: read_manifest(files, f"{FOLDER}/{entry.name}"), old)


def read_manifest(files: Files, path: str) -> Manifest:
    """Return a manifest. Raises LakeError if it is damaged."""
    try:
        return _manifest(orjson.loads(files.read(path)))
    except (ValueError, KeyError, TypeError) as error:
        raise LakeError(
            f"this manifest is damaged: {error}",
            where=files.url(path),
            cure="Restore it, or remove it and compact the journal again",
            code="lake-damaged",
        ) from None


def _manifest(given: dict[str, Any]) -> Manifest:
    return Manifest(
        run=given["run"],
        created_us=given["created_us"],
        journal=given["journal"],
        segments=[SegmentEntry(**one) for one in given["segments"]],
        files=_data_files(given["files"]),
        quarantine=_data_files(given["quarantine"]),
        duplicates=given["duplicates"],
        merger=Merger(**given["merger"]) if given.get("merger") is not None else None,
        healthy=_data_files(given.get("healthy", ())),
    )


def _data_files(given: Iterable[dict[str, Any]]) -> list[DataFile]:
    return [DataFile(**one) for one in given]


def run_folders(files: Files) -> dict[str, list[str]]:
    """Return the folders of each run in the lake, whether the run was published or died before."""
    found: dict[str, list[str]] = {}
    places = [
        f"{table}/{day.name}"
        for table in ("events", HEALTHY)
        for day in files.entries(table)
        if day.name.startswith("dt=")
    ]
    for place in [*places, "quarantine", TICKS]:
        for entry in files.entries(place):
            if entry.is_folder and entry.name.startswith("run="):
                found.setdefault(entry.name.removeprefix("run="), []).append(os.path.join(place, entry.name))
    return found


def run_of(path: str) -> str:
    """Return the run in whose folder, or under whose name, a file of the lake is."""
    folder = path.rsplit("/", 2)[-2]
    return folder.removeprefix("run=") if folder.startswith("run=") else os.path.basename(path).partition(".")[0]
