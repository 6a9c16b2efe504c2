# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Lists the contents of the table `dead_letters`: a JSON file for each time that rows were added or removed.

`dead_letters/_manifests/RUN.json` is written last: only files that it lists count. Paths are relative to the lake.
A manifest of `optimize` names manifests that do not count any more since it is there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from ..errors import LakeError
from ..files import Files
from ..manifests import DataFile, run_of
from .dedupe import Doubt
from .staging import TABLE

FOLDER: Final = f"{TABLE}/_manifests"
BROKER: Final = "broker"  # the owner of letters that were only looked at


@dataclass(frozen=True, slots=True)
class Gathered:
    """Lists the `files` made of the staging files `staged`; the instants in `files` are those of `dead_us`.

    `letters` are new in the table, `again` were in it already. `doubts` are all doubts after the run, of whatever run.
    `replaces` are runs whose manifests do not count beside this one.
    """

    run: str
    created_us: int
    owner: str
    files: list[DataFile] = field(default_factory=list)
    staged: list[str] = field(default_factory=list)
    letters: int = 0
    again: int = 0
    doubts: list[Doubt] = field(default_factory=list)
    replaces: list[str] = field(default_factory=list)

    @property
    def path(self) -> str:
        return f"{FOLDER}/{self.run}.json"


def to_json(manifest: Gathered) -> bytes:
    return json.dumps(asdict(manifest), separators=(",", ":")).encode()


def read_all(files: Files) -> list[Gathered]:
    """Return all manifests that count, the oldest first.

    Raises LakeError if one cannot be read, because counts would be wrong without it.
    """
    while True:
        listed = [one.name for one in files.entries(FOLDER) if one.name.endswith(".json") and one.name[0] not in "._"]
        try:
            found = [_read(files, f"{FOLDER}/{name}") for name in listed]
        except FileNotFoundError:  # it was replaced, and is removed: another was listed too late
            continue
        replaced = {run for one in found for run in one.replaces}
        return sorted((one for one in found if one.run not in replaced), key=lambda one: (one.created_us, one.run))


def known_runs(manifests: Sequence[Gathered]) -> set[str]:
    """Return the runs whose folders hold files that count, or files that are kept for their readers."""
    runs = {run for one in manifests for run in (one.run, *one.replaces)}
    return runs | {run_of(file.path) for one in manifests for file in one.files}


def doubts_of(manifests: Sequence[Gathered]) -> list[Doubt]:
    """Return the doubts that are open now."""
    return manifests[-1].doubts if manifests else []


def _read(files: Files, path: str) -> Gathered:
    try:
        given: dict[str, Any] = json.loads(files.read(path))
        given["files"] = [DataFile(**one) for one in given["files"]]
        given["doubts"] = [Doubt(**one | {"origin": tuple(one["origin"])}) for one in given["doubts"]]
        return Gathered(**given)
    except (ValueError, KeyError, TypeError) as error:
        cure = "Restore it: without it nobody knows which letters are in the table"
        raise LakeError(
            f"this manifest is damaged: {error}", where=files.url(path), cure=cure, code="lake-damaged"
        ) from None
