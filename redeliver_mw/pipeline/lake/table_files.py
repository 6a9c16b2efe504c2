# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Lists the Parquet files of each table of a lake, for readers other than `Lake`. No Spark.

The rows of a table are those of its files, with one exception: a letter that was only looked at, and drained later, is
in two files of `dead_letters`. `looked_again` finds such letters.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ...errors import ConfigError
from .. import schemas
from ..draining.manifests import BROKER, read_all
from ..draining.staging import TABLE as LETTERS
from ..errors import LakeError, readable_errors
from ..manifests import HEALTHY, DataFile
from .lake_format import COMPACT
from .mart_set import MAKE_THEM, current, pointer

if TYPE_CHECKING:
    import pyarrow as pa

    from .lake import Lake

DRAIN: Final = "Run `redeliver pipeline drain URL DLQ LAKE`"
BACKTEST: Final = "backtest"
TABLES: Final[Mapping[str, str]] = {name: ddl for name, ddl in schemas.ALL.items() if name != "plan"}
UNKNOWN: Final = -1  # rows of a file that no manifest counts


def files_of(lake: Lake, table: str) -> list[DataFile]:
    """Return the files of a table: with the instants of their rows, those of events, counts and dead letters.

    Raises ConfigError for a name that no table has, and LakeError if the table is not there yet, or cannot be read.
    """
    if table not in TABLES:
        raise ConfigError(
            f"{table!r} is no table of a lake",
            where="table",
            cure=f"Take one of {', '.join(TABLES)}",
            code="option-value",
        )
    with readable_errors(lake.root):
        if table in ("events", HEALTHY, "quarantine"):
            manifests = lake.manifests()
            parts = {
                "events": [file for one in manifests for file in one.files],
                HEALTHY: [file for one in manifests for file in one.healthy],
                "quarantine": [file for one in manifests for file in one.quarantine],
            }
            if table == "events" and not parts["events"] and not parts[HEALTHY]:
                raise _missing(lake, "the lake holds no records yet", COMPACT)
            return parts[table]
        if table == LETTERS:
            drained, looked = letter_files(lake)
            return [*drained, *looked]
        return _mart_files(lake, table)


def letter_files(lake: Lake) -> tuple[list[DataFile], list[DataFile]]:
    """Return the files of letters that were drained or are in a limbo, and of letters that were only looked at.

    Raises LakeError if no letter was ever drained.
    """
    with readable_errors(lake.root):
        manifests = read_all(lake.files)
    if not manifests:
        raise _missing(lake, "the lake holds no dead letters yet", DRAIN)
    drained = [file for one in manifests if one.owner != BROKER for file in one.files]
    looked = [file for one in manifests if one.owner == BROKER for file in one.files]
    return drained, looked


def looked_again(lake: Lake, drained: Sequence[DataFile], looked: Sequence[DataFile]) -> dict[str, set[str]]:
    """Return which letters of the files of letters that were looked at are drained as well, by the path of the file.

    Files without such a letter are not in the result. Reads no file if no letter was ever only looked at.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    ids = {file.path: _ids(lake, file) for file in looked}
    if not ids:
        return {}
    all_looked = pa.concat_arrays(ids.values())
    both: set[str] = set()
    for file in drained:
        found = _ids(lake, file)
        both.update(found.filter(pc.is_in(found, value_set=all_looked)).to_pylist())
    again = {path: both.intersection(found.to_pylist()) for path, found in ids.items()}
    return {path: found for path, found in again.items() if found}


def _ids(lake: Lake, file: DataFile) -> pa.Array:
    import pyarrow.parquet as pq

    with lake.files.open(file.path) as source:
        return pq.read_table(source, columns=["dl_id"])["dl_id"].combine_chunks()


def _mart_files(lake: Lake, table: str) -> list[DataFile]:
    if table == BACKTEST:
        single = pointer(lake.files, table)
        if single is None:
            raise _missing(lake, "the lake has no back-test yet", "Run `redeliver pipeline backtest LAKE`")
        return _sized(lake, single.files)
    found = current(lake.files)
    if found is None or table not in found.marts:
        raise _missing(lake, f"the mart {table!r} is not there yet", MAKE_THEM)
    return _sized(lake, found.marts[table].files)


def _sized(lake: Lake, paths: Sequence[str]) -> list[DataFile]:
    """Return the files with their sizes. Raises LakeError if one is missing, as when two runs have ended meanwhile."""
    sized: list[DataFile] = []
    for folder, group in itertools.groupby(paths, lambda path: path.rpartition("/")[0]):
        sizes = {entry.name: entry.size for entry in lake.files.entries(folder)}
        for path in group:
            name = path.rpartition("/")[2]
            if name not in sizes:
                raise LakeError(
                    f"a file is missing: {path}",
                    where=lake.root,
                    cure=f"Run this again; if that does not help: {MAKE_THEM}",
                    code="lake-damaged",
                )
            sized.append(DataFile(path, UNKNOWN, sizes[name]))
    return sized


def _missing(lake: Lake, what: str, cure: str) -> LakeError:
    return LakeError(what, where=lake.root, cure=cure, code="lake-part-missing")
