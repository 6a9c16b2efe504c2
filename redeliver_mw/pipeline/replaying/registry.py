# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Lists the replays of a lake's letters: `LAKE/replays/PLAN_ID.json`, written before the first letter is sent.

A plan's folder holds its ledger; this file holds the folder's path, so that letters sent back are not planned again.
"""

from __future__ import annotations

import json
import os
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from ..errors import LakeError
from ..files import Files, files_at
from ..plans.plan_file import Plan, path_of
from . import ledger

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER: Final = "replays"
BODIES: Final = ".bodies"  # ends the name of a folder with the bodies that a replay has copied
LOCK: Final = "_replay.lock"  # in the plan's folder, while a replay is running


@dataclass(frozen=True, slots=True)
class StartedReplay:
    """Describes a replay that was begun: its plan, and the plan's folder, which has to stay where it is."""

    plan_id: str
    folder: str
    letters: int
    begun_us: int


def register(plan: Plan, now_us: int) -> StartedReplay:
    """Write the entry if it does not exist, and return the entry. Raises OSError; LakeError if the entry is damaged."""
    files = files_at(plan.lake)
    path = f"{FOLDER}/{plan.plan_id}.json"
    begun = StartedReplay(plan.plan_id, plan.folder, plan.letters, now_us)
    try:
        begun = StartedReplay(plan.plan_id, plan.folder, plan.letters, _read(files, path).begun_us)
    except FileNotFoundError:
        pass
    else:
        if _read(files, path) == begun:
            return begun
    files.publish(path, json.dumps(asdict(begun)).encode())
    return begun


def all_begun(lake: Files) -> list[StartedReplay]:
    """Return all replays of a lake, by plan id. Raises OSError; LakeError if an entry cannot be read."""
    names = [entry.name for entry in lake.entries(FOLDER) if entry.name.endswith(".json") and entry.name[0] not in "._"]
    return [_read(lake, f"{FOLDER}/{name}") for name in names]


def sent_letters(begun: StartedReplay) -> pa.ChunkedArray:
    """Return the `dl_id`s that the replay has sent back: in Arrow, where a million take some 40 MB.

    Raises OSError; LakeError for a damaged ledger.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    found: list[pa.Array] = []

    for bucket, paths in sorted(ledger.tries(begun.folder).items()):
        confirmed = ledger.read(paths, begun.plan_id).confirmed
        if confirmed:
            table = pq.read_table(files_at(begun.folder, "plan").url(path_of(bucket)), columns=["position", "dl_id"])
            is_sent = [position in confirmed for position in table["position"].to_pylist()]
            found += table["dl_id"].filter(pa.array(is_sent, pa.bool_())).chunks
    return pa.chunked_array(found, pa.string())


def remove_borrowed(lake: Files) -> None:
    """Remove bodies that were copied for replays which were killed. A running replay keeps its own.

    Raises OSError, LakeError.
    """
    for entry in lake.entries(FOLDER):
        if entry.is_folder and entry.name.endswith(BODIES):
            begun = _read(lake, f"{FOLDER}/{entry.name.removesuffix(BODIES)}.json")
            where = files_at(begun.folder, "plan")
            idle = where.locked(LOCK, "replay") if os.path.isdir(where.url()) else nullcontext()
            with suppress(LakeError), idle:
                lake.remove(f"{FOLDER}/{entry.name}")


def _read(files: Files, path: str) -> StartedReplay:
    try:
        return StartedReplay(**json.loads(files.read(path)))
    except (ValueError, TypeError) as error:
        cure = "Restore it: without it letters that were sent back would be planned again"
        raise LakeError(
            f"this is damaged: {error}", where=files.url(path), cure=cure, code="replay-ledger-damaged"
        ) from None
