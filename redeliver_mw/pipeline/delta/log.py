# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads and writes one Delta log: the folder `_delta_log` beside the files of a table.

A log says nothing that the lake does not know, so a log that is lost or damaged is written again. Needs the extra
`delta`, except for `has_log`.

Several writers may work at the same time: the one that commits second finds the other's commit, because all name the
same application, and begins again.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import orjson
import pyarrow as pa

from ...errors import ConfigError, MissingExtra
from ..errors import LakeError, StoreTrouble
from ..files import Files
from ..object_files import ObjectFiles

if TYPE_CHECKING:
    from deltalake import DeltaTable, Schema

FOLDER: Final = "_delta_log"
_BY: Final = "Written by `redeliver pipeline export`"  # the description of every table with a log of ours
_APPLICATION: Final = "redeliver-mw"
_TRIES: Final = 8
_MARKS: Final = re.compile(r"\x1b\[[0-9;]*m|\u21b3")  # of a tree of causes, in the texts of deltalake
_CONFIGURATION: Final = {
    # VACUUM of another program would otherwise remove files of the lake that the log does not name yet.
    "delta.deletedFileRetentionDuration": "interval 5200 weeks",
    "delta.logRetentionDuration": "interval 30 days",
}


@dataclass(frozen=True, slots=True)
class LogFile:
    """Describes a Parquet file of a Delta table by its path in the table's folder.

    `partitions` are values by the names of the partition columns, `low` and `high` the least and the greatest value of
    the one column that has them.
    """

    path: str
    bytes: int
    rows: int
    partitions: Mapping[str, str] = field(default_factory=dict)
    low: Mapping[str, int] = field(default_factory=dict)
    high: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Commit:
    """Counts the files that one update has added to the log and removed from it; `version` is that of the log now.

    `before` are the paths that the log named before the update.
    """

    version: int
    added: int
    removed: int
    before: frozenset[str] = frozenset()


def has_log(files: Files, folder: str) -> bool:
    """Return whether a folder of the lake holds a Delta log, of whatever program. Raises OSError."""
    return any(entry.name.endswith((".json", ".parquet")) for entry in files.entries(f"{folder}/{FOLDER}"))


def files_named(files: Files, table: str) -> frozenset[str]:
    """Return the files that the newest version of a table's Delta log names, by their paths in the lake.

    `table` is `events` or `dead_letters`, whose logs lie in their own folders. None of these files may be removed
    before `export` has taken it out of the log: programs that read the table by its log would fail. Returns an empty
    set if there is no log. Raises MissingExtra, ConfigError or LakeError if there is one and it cannot be read; then
    all files have to stay.
    """
    if not has_log(files, table):
        return frozenset()
    found = _opened(files, table)
    return frozenset(f"{table}/{path}" for path in _paths(found)) if found is not None else frozenset()


def update(
    files: Files,
    folder: str,
    name: str,
    schema: pa.Schema,
    partitions: Sequence[str],
    wanted: Mapping[str, LogFile],
    by: str | None = None,
) -> Commit:
    """Let the log of a folder name exactly the `wanted` files, in one commit; a missing log is made.

    `by` is the one column with values in `low` and `high`. The table has to say that: deltalake's own reader would take
    the missing values of the other columns for bounds that no row satisfies.

    Returns without a commit if the log names them already. Raises ConfigError for the log of another program's table,
    LakeError if the log is damaged, cannot be written, or is always written by others first.
    """
    from deltalake import Schema

    columns = Schema.from_arrow(schema)
    for number in range(_TRIES):
        time.sleep(0.05 * number)
        found = _opened(files, folder)
        try:
            if found is None:
                return _create(files, folder, name, columns, partitions, wanted, by)
            _require_ours(files, folder, found)
            if found.schema() != columns or found.metadata().partition_columns != list(partitions):
                return _replace(files, folder, name, found, columns, partitions, wanted, by)
            return _change(files, folder, found, columns, partitions, wanted)
        except _Conflict:
            continue
    raise LakeError(
        "other programs write to the Delta log all the time",
        where=files.url(folder),
        cure="Let only one program write to it, and run the export again",
        code="lost-the-race",
    )


class _Conflict(Exception):
    """Means that another writer was faster, and that the update begins again."""


def _create(
    files: Files,
    folder: str,
    name: str,
    columns: Schema,
    partitions: Sequence[str],
    wanted: Mapping[str, LogFile],
    by: str | None,
) -> Commit:
    with _translated(files, folder):
        _write_table(files, folder, name, columns, partitions, wanted, by, "error", 0)
    return Commit(0, len(wanted), 0)


def _replace(
    files: Files,
    folder: str,
    name: str,
    found: DeltaTable,
    columns: Schema,
    partitions: Sequence[str],
    wanted: Mapping[str, LogFile],
    by: str | None,
) -> Commit:
    """Give a table of another release's columns the present ones."""
    before, version = _paths(found), found.version() + 1
    with _translated(files, folder):
        _write_table(files, folder, name, columns, partitions, wanted, by, "overwrite", version)
    return Commit(version, len(wanted), len(before), frozenset(before))


def _write_table(
    files: Files,
    folder: str,
    name: str,
    columns: Schema,
    partitions: Sequence[str],
    wanted: Mapping[str, LogFile],
    by: str | None,
    mode: Any,
    version: int,
) -> None:
    from deltalake.transaction import create_table_with_add_actions

    if files.is_folder:
        os.makedirs(files.url(folder), exist_ok=True)
    create_table_with_add_actions(
        _place(files, folder),
        columns,
        [_add(one) for one in wanted.values()],
        mode=mode,
        partition_by=list(partitions),
        name=name,
        description=_BY,
        configuration=_CONFIGURATION | ({"delta.dataSkippingStatsColumns": by} if by is not None else {}),
        storage_options=_options(files),
        commit_properties=_properties(version),
    )
    _sync(files, folder, version)


def _change(
    files: Files,
    folder: str,
    found: DeltaTable,
    columns: Schema,
    partitions: Sequence[str],
    wanted: Mapping[str, LogFile],
) -> Commit:
    from deltalake.transaction import RemoveAction

    named, version = _paths(found), found.version() + 1
    added = [_add(one) for path, one in wanted.items() if named.get(path) != one.bytes]
    now_ms = time.time_ns() // 1_000_000
    removed = [
        RemoveAction(path, True, now_ms, size, _partitions(path, partitions))
        for path, size in named.items()
        if path not in wanted
    ]
    if not added and not removed:
        return Commit(found.version(), 0, 0, frozenset(named))
    with _translated(files, folder):
        found.create_write_transaction(
            [*added, *removed],
            mode="append",
            schema=columns,
            partition_by=list(partitions),
            commit_properties=_properties(version),
        )
    _sync(files, folder, version)
    return Commit(version, len(added), len(removed), frozenset(named))


def _add(file: LogFile) -> Any:
    from deltalake.transaction import AddAction

    stats: dict[str, Any] = {"numRecords": file.rows}
    if file.low:
        stats |= {
            "minValues": dict(file.low),
            "maxValues": dict(file.high),
            "nullCount": dict.fromkeys(file.low, 0),
        }
    now_ms = time.time_ns() // 1_000_000
    return AddAction(file.path, file.bytes, dict(file.partitions), now_ms, True, orjson.dumps(stats).decode())


def _partitions(path: str, names: Sequence[str]) -> dict[str, str | None]:
    pairs = dict(part.split("=", 1) for part in path.split("/")[:-1] if "=" in part)
    return {name: pairs.get(name) for name in names}


def _properties(version: int) -> Any:
    from deltalake import CommitProperties, Transaction

    # A second writer that began from the same version is refused, because it names the same application.
    return CommitProperties(app_transactions=[Transaction(_APPLICATION, version)], max_commit_retries=0)


def _opened(files: Files, folder: str) -> DeltaTable | None:
    """Return the table at a folder, None if there is no log."""
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError
    except ImportError as error:
        name = (error.name or "deltalake").partition(".")[0]
        raise MissingExtra(
            f"{name} is not installed", where="export", cure="Run: pip install 'redeliver-mw[delta]'"
        ) from None
    with _translated(files, folder):
        try:
            return DeltaTable(_place(files, folder), storage_options=_options(files))
        except TableNotFoundError:
            return None


def _paths(found: DeltaTable) -> dict[str, int]:
    """Return the files that a log names, and their sizes."""
    actions = pa.table(found.get_add_actions(flatten=True))
    return dict(zip(map(unquote, actions["path"].to_pylist()), actions["size_bytes"].to_pylist(), strict=True))


def _require_ours(files: Files, folder: str, found: DeltaTable) -> None:
    about = found.metadata()
    if about.description != _BY:
        raise ConfigError(
            f"the Delta table {about.name or about.id} of another program is here",
            where=files.url(f"{folder}/{FOLDER}"),
            cure="Move the folder _delta_log away, if that table is not needed here, and export again",
            code="delta-log-foreign",
        )


def _place(files: Files, folder: str) -> str:
    place = files.url(folder)
    if files.is_folder and "%" in place:
        raise ConfigError(
            "the package deltalake cannot use a path with a percent sign",
            where=place,
            cure="Move the lake to a folder without one: all paths in it are relative",
            code="path-not-usable",
        )
    return place


def _options(files: Files) -> dict[str, str] | None:
    return files.delta_options() if isinstance(files, ObjectFiles) else None


def _sync(files: Files, folder: str, version: int) -> None:
    """Let the commit survive a power cut; if that cannot be done, the log is one that is written again."""
    with suppress(OSError):
        files.sync([f"{folder}/{FOLDER}/{version:020d}.json"])


@contextmanager
def _translated(files: Files, folder: str) -> Iterator[None]:
    """Turn errors of deltalake into ours. A store's own text does not get out, since it may contain a key's name."""
    from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError, TableNotFoundError

    place = files.url(f"{folder}/{FOLDER}")
    try:
        yield
    except (CommitFailedError, TableNotFoundError) as error:
        if isinstance(error, CommitFailedError):
            raise _Conflict from None
        raise
    except DeltaProtocolError as error:
        raise ConfigError(
            f"another program has changed this Delta log so that it cannot be kept: {_first_line(error)}",
            where=place,
            cure="Remove the folder _delta_log and export again: nothing is lost, and readers begin at version 0",
            code="delta-log-foreign",
        ) from None
    except (DeltaError, OSError, ValueError) as error:
        if "already exists at that location" in str(error):
            raise _Conflict from None
        if not files.is_folder:
            if isinstance(error, StoreTrouble):
                raise
            what = "the Delta log cannot be read or written"
        else:
            what = f"the Delta log cannot be read or written: {_first_line(error)}"
        raise LakeError(
            what,
            where=place,
            cure="Check that this user may write there. If the log is damaged, remove the folder _delta_log and export "
            "again: nothing is lost",
            code="delta-log-damaged",
        ) from None


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in _MARKS.sub("", str(error)).splitlines() if line.strip()]
    return ": ".join(lines[:3] if isinstance(error, OSError) else lines[:1]) or type(error).__name__
