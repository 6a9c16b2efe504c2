# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Writes and keeps the Delta logs of a lake's tables. No Spark, and no copy of any data.

::

    events/_delta_log/          over events/dt=DAY/run=RUN/*.parquet
    dead_letters/_delta_log/    over dead_letters/dt=DAY/run=RUN/*.parquet
    delta/NAME/_delta_log/      over delta/NAME/RUN/*.parquet, which are links to the files of the mart NAME

The path of a file in a log is relative to the log's own folder and below it. The files of a mart lie elsewhere, and the
next `insights` removes them; so each mart has a folder with links of its own, which this module makes and removes.

The lake is the truth: an export compares what the log names with what the lake names, and commits the difference.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import counted
from .. import schemas
from ..arrow_schemas import arrow_schema
from ..draining.staging import TABLE as LETTERS
from ..errors import LakeError, readable_errors
from ..files import DRAFT
from ..lake.lake import Lake
from ..lake.table_files import BACKTEST, TABLES, UNKNOWN, files_of, letter_files, looked_again
from ..manifests import DataFile
from .log import Commit, LogFile, has_log, update

if TYPE_CHECKING:
    import os

FOLDER: Final = "delta"
MARTS: Final = (*schemas.MARTS, BACKTEST)
_INSTANTS: Final = {"events": "ts_us", LETTERS: "dead_us"}
_TRIES: Final = 5  # states of the lake that are exported before the export gives up to find it unchanged
_RUN: Final = re.compile(r"(?:run=)?(?P<run>[^/]+)")
_FOLDERS: Final = ("dt", "run")  # Polars wants each folder NAME=VALUE to be a partition column


@dataclass(frozen=True, slots=True)
class ExportedTable:
    """Describes a table with a Delta log: `location` is the place that readers are given.

    `added` and `removed` files are the difference that this export has committed; `rows` are in all `files`.
    """

    table: str
    location: str
    version: int
    files: int
    rows: int
    added: int
    removed: int


@dataclass(frozen=True, slots=True)
class DeltaExport:
    """Lists the tables that have a Delta log now; `notes` say what is not in them, and why."""

    tables: list[ExportedTable] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Holds what the log of one table has to name; `links` are the files of the lake by the folders of links."""

    files: dict[str, LogFile] = field(default_factory=dict)
    links: dict[str, list[str]] = field(default_factory=dict)
    note: str | None = None


def export(lake: Lake | str | os.PathLike[str]) -> DeltaExport:
    """Let the Delta logs of events, dead letters and marts name the files that the lake names now.

    One export works at a time in a folder; in a bucket a second one that is overtaken begins again. Raises MissingExtra
    without the extra `delta`, ConfigError if the path is no lake or another program's Delta table is in its place,
    LakeError if nothing is in the lake yet, another export is at work, or a log is damaged.
    """
    place = lake if isinstance(lake, Lake) else Lake(lake)
    tables: dict[str, ExportedTable] = {}
    notes: dict[str, str] = {}
    with place.locked(FOLDER), readable_errors(place.root):
        missing: LakeError | None = None
        for table in ("events", LETTERS, *MARTS):
            found = _export(place, table)
            if isinstance(found, LakeError):
                missing = missing or found
                continue
            if found[0] is not None:
                tables[table] = found[0]
            if found[1] is not None:
                notes[table] = found[1]
        if not tables and not notes and missing is not None:
            raise missing
    return DeltaExport(list(tables.values()), list(dict.fromkeys(notes.values())))


def folder_of(table: str) -> str:
    """Return the folder in the lake that holds a table's Delta log."""
    return f"{FOLDER}/{table}" if table in MARTS else table


def _export(lake: Lake, table: str) -> tuple[ExportedTable | None, str | None] | LakeError:
    """Export a table, again if the lake changes meanwhile. Return what was done and a note, or why there is no table.

    Files that `forget` or another run removes meanwhile are not in the log in the end.
    """
    known: dict[str, int] = {}
    added = removed = 0
    wanted = _wanted(lake, table, known)
    for _ in range(_TRIES):
        if isinstance(wanted, LakeError) and not has_log(lake.files, folder_of(table)):
            return wanted
        if not isinstance(wanted, LakeError) and wanted.links and (trouble := _link(lake, wanted)) is not None:
            if (again := _wanted(lake, table, known)) == wanted:
                return None, trouble
            wanted = again
            continue
        now = _Wanted() if isinstance(wanted, LakeError) else wanted
        commit = _commit(lake, table, now)
        added, removed = added + commit.added, removed + commit.removed
        with suppress(OSError):
            _remove_links(lake, table, [*now.files, *commit.before])
        again = _wanted(lake, table, known)
        if isinstance(again, LakeError) == isinstance(wanted, LakeError) and (
            isinstance(again, LakeError) or again.files.keys() == now.files.keys()
        ):
            rows = sum(file.rows for file in now.files.values())
            place = lake.files.url(folder_of(table))
            done = ExportedTable(table, place, commit.version, len(now.files), rows, added, removed)
            return done, now.note
        wanted = again
    raise LakeError(
        "the lake changes all the time",
        where=lake.root,
        cure="Run the export when no other job writes to the lake",
        code="lost-the-race",
    )


def _commit(lake: Lake, table: str, wanted: _Wanted) -> Commit:
    schema = arrow_schema(TABLES[table])
    names: Sequence[str] = ()
    if table not in MARTS:
        names = _FOLDERS
        columns = {"dt": pa.date32(), "run": pa.string()}
        for name in _FOLDERS:
            if name not in schema.names:
                schema = schema.append(pa.field(name, columns[name]))
    return update(lake.files, folder_of(table), table, schema, names, wanted.files, _INSTANTS.get(table))


def _wanted(lake: Lake, table: str, known: dict[str, int]) -> _Wanted | LakeError:
    """Return what the log has to name. `known` remembers the rows of files. Returns the error of a missing table."""
    note = None
    try:
        if table == LETTERS:
            listed, note = _letters(lake)
        else:
            listed = files_of(lake, table)
    except LakeError as error:
        if error.code != "lake-part-missing":
            raise
        return error
    if table in MARTS:
        return _mart(lake, table, listed, known)
    by = _INSTANTS[table]
    files = {}
    for file in listed:
        path = file.path.removeprefix(f"{table}/")
        partitions = dict(part.split("=", 1) for part in path.split("/")[:-1])
        files[path] = LogFile(path, file.bytes, file.rows, partitions, {by: file.min_us}, {by: file.max_us})
    return _Wanted(files, note=note)


def _letters(lake: Lake) -> tuple[list[DataFile], str | None]:
    """Return the files of the table without letters that are in two of them, and a note about what is left out."""
    drained, looked = letter_files(lake)
    again = looked_again(lake, drained, looked)
    if not again:
        return [*drained, *looked], None
    out = [file for file in looked if file.path in again]
    others = sum(file.rows - len(again[file.path]) for file in out)
    note = None
    if others:
        note = (
            f"dead_letters: {counted(others, 'letter')} that were only looked at are left out, because other letters "
            "of their files were drained since. They are still at the broker: look again, or drain them"
        )
    return [*drained, *(file for file in looked if file.path not in again)], note


def _mart(lake: Lake, table: str, listed: Sequence[DataFile], known: dict[str, int]) -> _Wanted:
    if not lake.files.is_folder:
        return _Wanted(note="marts: a bucket has no links, so that only events have a Delta log there")
    files: dict[str, LogFile] = {}
    links: dict[str, list[str]] = {}
    for file in listed:
        folder, _, name = file.path.rpartition("/")
        run = _run_of(folder, table)
        rows = file.rows if file.rows != UNKNOWN else _rows(lake, file.path, known)
        files[f"{run}/{name}"] = LogFile(f"{run}/{name}", file.bytes, rows)
        links.setdefault(f"{FOLDER}/{table}/{run}", []).append(file.path)
    return _Wanted(files, links)


def _run_of(folder: str, table: str) -> str:
    """Return the run of a mart's folder, `marts/_runs/RUN/NAME`; earlier releases had `marts/NAME/run=RUN`."""
    parts = folder.split("/")
    part = parts[-2] if parts[-1] == table else parts[-1]
    found = _RUN.fullmatch(part)
    return found["run"] if found is not None else part


def _rows(lake: Lake, path: str, known: dict[str, int]) -> int:
    if path not in known:
        with lake.files.open(path) as file:
            known[path] = int(pq.read_metadata(file).num_rows)
    return known[path]


def _link(lake: Lake, wanted: _Wanted) -> str | None:
    """Make the folders of links that are not there, and return why one cannot be made."""
    for folder, paths in wanted.links.items():
        names = {path.rpartition("/")[2] for path in paths}
        there = {entry.name for entry in lake.files.entries(folder)}
        if names <= there:
            continue
        try:
            if there:
                lake.files.remove(folder)
            lake.files.link(paths, folder)
        except OSError as error:
            reason = error.strerror or str(error)
            return f"marts: this file system makes no links ({reason}), so that marts have no Delta log"
    return None


def _remove_links(lake: Lake, table: str, named: Sequence[str]) -> None:
    """Remove folders of links that the log names neither now nor in the version before, which readers may still use."""
    if table not in MARTS:
        return
    kept = {path.partition("/")[0] for path in named}
    for entry in lake.files.entries(f"{FOLDER}/{table}"):
        if entry.is_folder and entry.name not in kept and (entry.name.startswith(DRAFT) or entry.name[0] != "_"):
            lake.files.remove(f"{FOLDER}/{table}/{entry.name}")
