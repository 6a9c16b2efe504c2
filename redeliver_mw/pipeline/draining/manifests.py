# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Lists the contents of the table `dead_letters`: a JSON file for each run that has added or rewritten rows.

::

    dead_letters/_head.json                      {"generation": 12, "run": RUN, "manifest": "dead_letters/_snapshots/…"}
    dead_letters/_snapshots/00000012-RUN.json    {"manifests": ["dead_letters/_manifests/….json", …], "before": […]}
    dead_letters/_manifests/RUN.json             which files hold the rows that RUN added
    dead_letters/_manifests/RUN.LATER.json       the same, after the run LATER has removed letters or bodies

Only the head is ever replaced; see `head`. Only files count to which the head leads. A table of an earlier release has
no head: until a run is published there, all manifests count that are there. Paths are relative to the lake.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from ..file_store import for_each
from ..files import DRAFT, Files
from ..head import Head, HeadFile, LostRace, swap_head
from ..manifests import DataFile, base_of, is_dead
from .dedupe import Doubt
from .staging import TABLE

HEAD: Final = f"{TABLE}/_head.json"
SNAPSHOTS: Final = f"{TABLE}/_snapshots"
FOLDER: Final = f"{TABLE}/_manifests"
LAKE: Final = "lake"  # the owner of letters that were drained
BROKER: Final = "broker"  # the owner of letters that were only looked at
_REMEMBERED: Final = 50  # runs that a snapshot names although others have followed
_HEAD: Final = HeadFile(HEAD, "the dead letters", "Restore it: without it nobody knows which letters are in the table")


@dataclass(frozen=True, slots=True)
class ReplacedLetters:
    """Lists the files that a run of `optimize` has replaced, which stay for a time for their readers; and when."""

    at_us: int
    files: list[DataFile] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Gathered:
    """Lists the `files` made of the staging files `staged`; the instants in `files` are those of `dead_us`.

    `letters` are new in the table, `again` were in it already. `doubts` are all doubts after the run, of whatever run.
    `revision` is the run that has removed letters or bodies from these files since, if one has. The manifest of a run
    of `optimize` takes the place of those of many drains: `replaced` are the files that are kept although nothing else
    leads to them, and `headless` names the drains of earlier releases, which published without a head.
    """

    run: str
    created_us: int
    owner: str
    files: list[DataFile] = field(default_factory=list)
    staged: list[str] = field(default_factory=list)
    letters: int = 0
    again: int = 0
    doubts: list[Doubt] = field(default_factory=list)
    revision: str = ""
    replaced: list[ReplacedLetters] = field(default_factory=list)
    headless: list[str] = field(default_factory=list)

    @property
    def path(self) -> str:
        return f"{FOLDER}/{self.run}{self.revision and '.'}{self.revision}.json"


@dataclass(frozen=True, slots=True)
class LetterSnapshot:
    """Holds the head of the table and the manifests that it leads to, the oldest first.

    `before` names the runs that were published last, the newest first.
    """

    head: Head
    manifests: list[Gathered]
    before: list[str] = field(default_factory=list)


def to_json(manifest: Gathered) -> bytes:
    return json.dumps(asdict(manifest), separators=(",", ":")).encode()


def read_all(files: Files) -> list[Gathered]:
    """Return all manifests that count, the oldest first.

    Raises LakeError if one cannot be read, because counts would be wrong without it.
    """
    return current(files).manifests


def doubts_of(manifests: Sequence[Gathered]) -> list[Doubt]:
    """Return the doubts that are open now."""
    return manifests[-1].doubts if manifests else []


def current(files: Files) -> LetterSnapshot:
    """Return the snapshot that was published last. Raises LakeError if a file of it is missing or damaged."""

    def read(head: Head) -> LetterSnapshot:
        if head.version is None:
            return LetterSnapshot(head, _listed(files))
        paths, before = _snapshot(files, head)
        return LetterSnapshot(head, for_each(files, lambda path: _read(files, path), paths), before)

    return _HEAD.follow(files, read)


def publish(files: Files, base: LetterSnapshot, run: str, manifests: Sequence[Gathered]) -> LetterSnapshot:
    """Publish a run that has made `manifests` of those of its base, and return the snapshot.

    A run that has lost the race is removed. After any other error of the last step its files stay, because the head may
    come to lead to them. Raises LostRace and InDoubt.
    """
    known = {one.path for one in base.manifests}
    new = [one for one in manifests if one.path not in known]
    place = f"{SNAPSHOTS}/{base.head.generation + 1:08d}-{run}.json"
    before = [run, *base.before][:_REMEMBERED]
    with unpublished(files, base, run):
        for one in new:
            files.publish(one.path, to_json(one))
        listed = {"manifests": [one.path for one in manifests], "before": before}
        files.publish(place, json.dumps(listed, separators=(",", ":")).encode())
        files.sync([place, *(one.path for one in new)])
    try:
        swap_head(files, HEAD, base.head, run, place, leads_to=lambda head: run in _snapshot(files, head)[1])
    except LostRace:
        with suppress(OSError):
            _remove(files, run)
        raise
    head = Head(base.head.generation + 1, run, place, version="")
    return LetterSnapshot(head, list(manifests), before)


def unpublished(files: Files, base: LetterSnapshot, run: str) -> AbstractContextManager[None]:
    """Remove the files of a run if the block, which writes them and does not publish the run, fails.

    Raises LostRace instead if another run was published since `base`, which may have removed files of this one.
    """
    return _HEAD.unpublished(files, base.head, run, _remove)


def remove_dead(files: Files, now: LetterSnapshot, *, alone: bool = False, thorough: bool = False) -> None:
    """Remove files to which no head can lead any more. `alone`: no other process can write, as with a lock.

    `thorough`: look also into folders in which some files count.
    """
    generation, paths = now.head.generation, {one.path for one in now.manifests}
    listed = {file.path for one in now.manifests for file in one.files}
    listed |= {file.path for one in now.manifests for old in one.replaced for file in old.files}
    named = {run for one in now.manifests for run in (one.run, *one.headless)}
    # A release without a head may have been at work when the table got one: its letters are nowhere else.
    manifests = [entry.name for entry in files.entries(FOLDER)]
    stray = {name.removesuffix(".json") for name in manifests} - named

    def dead(run: str) -> bool:
        return (alone or is_dead(run, generation)) and not (base_of(run) is None and run in stray)

    used = {path.rpartition("/")[0] for path in listed}
    days = [f"{TABLE}/{entry.name}" for entry in files.entries(TABLE) if entry.name.startswith("dt=")]
    for day, entries in zip(days, for_each(files, files.entries, days), strict=True):
        for entry in entries:
            folder = f"{day}/{entry.name}"
            if not entry.name.startswith("run=") or not dead(entry.name.removeprefix("run=")):
                continue
            if folder not in used:
                files.remove(folder)
            elif thorough:
                _remove_unlisted(files, folder, listed)
    for name in manifests:
        if f"{FOLDER}/{name}" not in paths and dead(_writer(name)):
            files.remove(f"{FOLDER}/{name}")
    for name in [entry.name for entry in files.entries(SNAPSHOTS)]:
        base = base_of(name.removeprefix(DRAFT).removesuffix(".json").partition("-")[2])
        if base is not None and base < generation - 2 and f"{SNAPSHOTS}/{name}" != now.head.manifest:
            files.remove(f"{SNAPSHOTS}/{name}")


def _remove_unlisted(files: Files, folder: str, listed: set[str]) -> None:
    for name in [entry.name for entry in files.entries(folder)]:
        if f"{folder}/{name}" not in listed:
            files.remove(f"{folder}/{name}")


def _remove(files: Files, run: str) -> None:
    """Remove all files of a run that cannot be published any more."""
    for day in [entry.name for entry in files.entries(TABLE) if entry.name.startswith("dt=")]:
        files.remove(f"{TABLE}/{day}/run={run}")
    for folder in (FOLDER, SNAPSHOTS):
        for entry in files.entries(folder):
            if entry.name.endswith(f"{run}.json"):
                files.remove(f"{folder}/{entry.name}")


def _writer(name: str) -> str:
    """Return the run that has written the manifest of this name."""
    return name.removeprefix(DRAFT).removesuffix(".json").rpartition(".")[2]


def _listed(files: Files) -> list[Gathered]:
    """Return the manifests of a table without a head. Those of runs with a base count only if a head leads to them."""
    names = [entry.name for entry in files.entries(FOLDER) if entry.name[0] not in "._"]
    old = [f"{FOLDER}/{name}" for name in names if name.endswith(".json") and base_of(_writer(name)) is None]
    found = for_each(files, lambda path: _read(files, path), old)
    return sorted(found, key=lambda one: (one.created_us, one.run))


def _snapshot(files: Files, head: Head) -> tuple[list[str], list[str]]:
    def read(content: bytes) -> tuple[list[str], list[str]]:
        found = json.loads(content)
        return [str(path) for path in found["manifests"]], [str(run) for run in found["before"]]

    return _HEAD.parse(files, head.manifest, read)


def _read(files: Files, path: str) -> Gathered:
    def read(content: bytes) -> Gathered:
        given: dict[str, Any] = json.loads(content)
        given["files"] = [DataFile(**one) for one in given["files"]]
        given["doubts"] = [Doubt(**one | {"origin": tuple(one["origin"])}) for one in given["doubts"]]
        given["replaced"] = [
            ReplacedLetters(one["at_us"], [DataFile(**file) for file in one["files"]])
            for one in given.get("replaced", ())
        ]
        return Gathered(**given)

    return _HEAD.parse(files, path, read)
