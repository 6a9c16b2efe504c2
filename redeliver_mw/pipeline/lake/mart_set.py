# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Publishes the marts of a lake together: a small head names one manifest, and the manifest names the files.

::

    marts/_head.json                 {"generation": 12, "run": RUN, "manifest": "marts/_manifests/RUN.json", …}
    marts/_manifests/RUN.json        the set: the files and rows of each mart, and which events it was made from
    marts/_runs/RUN/NAME/*.parquet   the files
    marts/NAME/*.parquet             the same files under a stable path, for other programs

The head is replaced last, in one step (see `head`): until then readers see the previous set, and a run that dies
changes nothing for them. A reader takes the head once, as a `MartSet`, and reads all its marts from that. Its files
stay until the run after the next one begins, which also removes the files of dead runs.

The folders `marts/NAME` hold hard links. They are removed before the head is replaced and made again after it, so that
a run that dies in between leaves no folder rather than a folder of another run. A file system without hard links has no
such folders.

Releases before this layout gave each mart a pointer of its own, `marts/NAME/_current.json`. Such marts are read until
`insights` runs, unless they are of different runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from ...errors import ConfigError
from .. import schemas
from ..errors import LakeError, readable_errors
from ..files import Files, Versioned
from ..head import Head, HeadFile, LostRace, lost, swap, swap_head
from ..manifests import Manifest, is_dead, now_us, run_after
from ..time_range import TimeBound, TimeRange
from .lake_format import make_writable
from .snapshots import of_runs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HEAD: Final = "marts/_head.json"
MANIFESTS: Final = "marts/_manifests"
RUNS: Final = "marts/_runs"
MAKE_THEM: Final = "Run `redeliver pipeline insights LAKE`"
_HEAD: Final = HeadFile(HEAD, "the marts", MAKE_THEM)
_REMEMBERED: Final = 16  # runs before the current one by whose names a run finds out that it was published
_TABLES: Final = schemas.MARTS | {"backtest": schemas.BACKTEST}
_OLD_ORDER: Final = (  # the order in which releases with a pointer for each mart published them
    "messages",
    "attempt_curve",
    "recovery",
    "poison",
    "fingerprints",
    "waste",
    "storms",
    "dead_letter_flow",
)


@dataclass(frozen=True, slots=True)
class MartFiles:
    """Lists the Parquet files of one mart, by paths relative to the lake's folder, and counts their rows."""

    files: list[str]
    rows: int


@dataclass(frozen=True, slots=True)
class SetManifest:
    """Lists the marts of one run.

    `events` are the runs of the compaction that the marts were made from, None if these are not known; `since_us` and
    `until_us` are the bounds that `insights` was given. `before` are the runs whose sets were published before this
    one, the newest first, and not all of them.
    """

    run: str
    created_us: int
    marts: dict[str, MartFiles] = field(default_factory=dict)
    events: list[str] | None = None
    since_us: int | None = None
    until_us: int | None = None
    before: list[str] = field(default_factory=list)

    @property
    def path(self) -> str:
        return f"{MANIFESTS}/{self.run}.json"


class MartLake(Protocol):
    """Stands for a lake, as its marts see it: `Lake` is one."""

    root: str
    files: Files

    def manifests(self) -> list[Manifest]: ...

    def events(
        self,
        spark: SparkSession,
        since: TimeBound | None = None,
        until: TimeBound | None = None,
        *,
        manifests: Sequence[Manifest] | None = None,
    ) -> DataFrame: ...

    def locked(self, part: str = "events") -> AbstractContextManager[None]: ...

    def read(self, spark: SparkSession, ddl: str, paths: Sequence[str], *, base: str) -> DataFrame: ...


class MartSet:
    """Reads the marts of one run of `insights`, whatever is published after the set was opened.

    `Lake.marts()` opens the set that was published last. Every method may raise LakeError.
    """

    def __init__(self, lake: MartLake, manifest: SetManifest) -> None:
        self.lake, self.manifest, self.root = lake, manifest, lake.root

    def has(self, name: str) -> bool:
        """Return whether a mart is in the set: a set of an earlier release lacks newer marts."""
        return name in self.manifest.marts

    def mart(self, spark: SparkSession, name: str) -> DataFrame:
        """Return a mart of the set. Raises LakeError if the set does not have the mart, or if files of it are gone."""
        ddl = ddl_of(name)
        if (found := self.manifest.marts.get(name)) is None:
            raise LakeError(
                f"the mart {name!r} is not there yet", where=self.root, cure=MAKE_THEM, code="lake-part-missing"
            )
        with readable_errors(self.root):
            _require(self.lake.files, name, found.files)
            return self.lake.read(spark, ddl, found.files, base="marts")

    def events(self, spark: SparkSession, since: TimeBound | None = None, until: TimeBound | None = None) -> DataFrame:
        """Return the records that the marts were made from, as `Lake.events` does.

        These are all records of the lake if the set does not list its runs, or if the lake was rewritten since.
        """
        manifests = self.lake.manifests()
        if self.manifest.events:
            with readable_errors(self.root):
                manifests = of_runs(self.lake.files, manifests, self.manifest.events) or manifests
        frame = self.lake.events(spark, since, until, manifests=manifests)
        if self.manifest.since_us is not None:
            frame = frame.where(f"ts_us >= {self.manifest.since_us}L")
        if self.manifest.until_us is not None:
            frame = frame.where(f"ts_us < {self.manifest.until_us}L")
        return frame


class NewMarts:
    """Writes the marts of a set that is not published yet. Made by `new_marts`."""

    def __init__(
        self,
        lake: MartLake,
        spark: SparkSession,
        head: Head,
        previous: SetManifest | None,
        base: Mapping[str, MartFiles],
    ) -> None:
        self.run = run_after(head.generation)
        self._lake, self._spark, self._head, self._previous, self._base = lake, spark, head, previous, base
        self._sent = False
        self._marts: dict[str, MartFiles] = {}
        self._events: list[str] | None = None
        self._span = TimeRange()

    def made_from(self, events: Sequence[str], span: TimeRange) -> None:
        """Note the runs of the compaction, and the time, whose records the marts are made of."""
        self._events, self._span = list(events), span

    def write(self, name: str, frame: DataFrame) -> int:
        """Write a mart, which no reader sees yet, and return its rows.

        Raises TypeError if the columns are not the mart's own.
        """
        self._marts[name] = write_table(self._lake, self._spark, name, frame, f"{RUNS}/{self.run}/{name}")
        return self._marts[name].rows

    def mart(self, name: str) -> DataFrame:
        """Return a mart that was written before."""
        return self._lake.read(self._spark, ddl_of(name), self._marts[name].files, base="marts")

    def publish(self) -> None:
        """Let readers see the set, in one step."""
        files, previous = self._lake.files, self._previous
        manifest = SetManifest(
            run=self.run,
            created_us=now_us(),
            marts={**self._base, **self._marts},
            events=self._events,
            since_us=self._span.since_us,
            until_us=self._span.until_us,
            before=[previous.run, *previous.before][:_REMEMBERED] if previous is not None else [],
        )
        try:
            files.publish(manifest.path, json.dumps(asdict(manifest)).encode())
            files.sync([manifest.path, *(path for mart in self._marts.values() for path in mart.files)])
        except OSError:
            if (winner := _HEAD.read(files)).version != self._head.version:  # it has removed files of this run
                raise lost(files, self.run, winner.writer) from None
            raise
        for name in schemas.MARTS:
            if not _is_old(files, name):
                files.remove(_folder(name))
        self._sent = True
        swap_head(files, HEAD, self._head, self.run, manifest.path, leads_to=self._is_before)
        with suppress(OSError):  # the set is published, with these folders or without them
            for name, mart in manifest.marts.items():
                _show(files, name, mart)
        with suppress(OSError):
            _clean(files, self._head.generation + 1, [manifest, *([previous] if previous is not None else [])])

    def _is_before(self, head: Head) -> bool:
        return self.run in _manifest(json.loads(self._lake.files.read(head.manifest))).before

    def drop(self, error: BaseException) -> None:
        """Remove the written files, unless the set may have been published: an answer can be lost."""
        if self._sent and not isinstance(error, LostRace):
            return
        with suppress(OSError):
            self._lake.files.remove(f"{RUNS}/{self.run}")
            self._lake.files.remove(f"{MANIFESTS}/{self.run}.json")


@contextmanager
def new_marts(lake: MartLake, spark: SparkSession, *, keep: bool = False) -> Iterator[NewMarts]:
    """Yield the set to write into, and publish the set when the block ends well; otherwise readers see no change.

    With `keep` the marts that are not written are those of the previous set. Raises LakeError if another process makes
    marts.
    """
    with lake.locked("marts"), readable_errors(lake.root):
        base: Mapping[str, MartFiles] = {}
        before: SetManifest | None = None
        make_writable(lake.files)
        head = _for_writing(lake.files)
        try:
            before = current(lake.files)
        except LakeError:
            if keep:
                raise
        else:
            _clean(lake.files, head.generation, [before] if before is not None else [])
            base = before.marts if before is not None and keep else {}
        new = NewMarts(lake, spark, head, before, base)
        try:
            yield new
            new.publish()
        except BaseException as error:
            new.drop(error)
            raise


def current(files: Files) -> SetManifest | None:
    """Return the set that was published last, None if there is none. Raises LakeError if it cannot be read."""

    def read(head: Head) -> SetManifest | None:
        if head.version is None:
            return _old(files)
        return _HEAD.parse(files, head.manifest, lambda content: _manifest(json.loads(content)))

    return _HEAD.follow(files, read)


def write_table(lake: MartLake, spark: SparkSession, name: str, frame: DataFrame, folder: str) -> MartFiles:
    """Write a table into a folder. Raises TypeError if `frame` has other columns or types than the table."""
    import pyarrow.parquet as pq

    wanted, given = spark.createDataFrame([], ddl_of(name)).dtypes, frame.dtypes
    if given != wanted:
        raise TypeError(f"{name} has the columns {wanted}, not {given}")
    frame.write.option("compression", "zstd").parquet(lake.files.spark_url(folder))
    paths = [f"{folder}/{one.name}" for one in lake.files.entries(folder) if one.name.endswith(".parquet")]
    rows = 0
    for path in paths:
        with lake.files.open(path) as file:
            rows += int(pq.read_metadata(file).num_rows)
    return MartFiles(paths, rows)


def ddl_of(name: str) -> str:
    """Return the columns of a mart. Raises ConfigError if there is no mart of this name."""
    if name not in _TABLES:
        raise ConfigError(
            f"{name!r} is no mart", where="lake", cure=f"Take one of {', '.join(_TABLES)}", code="option-value"
        )
    return _TABLES[name]


def _folder(name: str) -> str:
    return f"marts/{name}"


def _for_writing(files: Files) -> Head:
    """Return the head that a new set replaces; the cure of a damaged one is to make the marts again."""
    try:
        return _HEAD.read(files)
    except LakeError:
        found = files.versioned(HEAD)
        return Head(version=found.version if found is not None else None)


def _manifest(given: dict[str, Any]) -> SetManifest:
    return SetManifest(
        run=given["run"],
        created_us=given["created_us"],
        marts={name: MartFiles(list(one["files"]), one["rows"]) for name, one in given["marts"].items()},
        events=given.get("events"),
        since_us=given.get("since_us"),
        until_us=given.get("until_us"),
        before=[str(run) for run in given.get("before", ())],
    )


def _require(files: Files, name: str, paths: Sequence[str]) -> None:
    """Raise LakeError for files that were removed, by hand or because two runs have ended since the set was opened."""
    there: dict[str, set[str]] = {}
    for path in paths:
        folder, _, file = path.rpartition("/")
        if folder not in there:
            there[folder] = {entry.name for entry in files.entries(folder)}
        if file not in there[folder]:
            what = f"the mart {name!r} cannot be read: its file {path} is missing"
            raise LakeError(
                what, where=files.url(), cure=f"Run this again; if that does not help: {MAKE_THEM}", code="lake-damaged"
            )


def _clean(files: Files, generation: int, kept: Sequence[SetManifest]) -> None:
    """Remove all sets that are not kept, and the files of runs that can never be published."""
    marts = [mart for one in kept for mart in one.marts.values()]
    used = {path.removeprefix(f"{RUNS}/").partition("/")[0] for mart in marts for path in mart.files}
    for entry in files.entries(RUNS):
        if entry.name not in used and is_dead(entry.name, generation):
            files.remove(f"{RUNS}/{entry.name}")
    paths = {one.path for one in kept}
    for entry in files.entries(MANIFESTS):
        if f"{MANIFESTS}/{entry.name}" not in paths and is_dead(entry.name.removesuffix(".json"), generation):
            files.remove(f"{MANIFESTS}/{entry.name}")


def _show(files: Files, name: str, mart: MartFiles) -> None:
    """Link the files into the mart's own folder as well."""
    if any(path.startswith(f"{_folder(name)}/") for path in mart.files):
        return  # a release with a pointer for each mart has written them there
    files.remove(_folder(name))
    files.link(mart.files, _folder(name))


# Tables with a pointer of their own


@dataclass(frozen=True, slots=True)
class Pointer:
    """Names the current run of a table that is published by itself, its files and their rows.

    `generation` counts the runs that were published, `before` are some of them, the newest first. `version` is that of
    the file.
    """

    run: str
    files: list[str]
    rows: int
    generation: int = 0
    before: list[str] = field(default_factory=list)
    version: str = ""


def pointer(files: Files, name: str) -> Pointer | None:
    """Return a single table's pointer, None if there is none. Raises LakeError if it is damaged."""
    path = f"{_folder(name)}/_current.json"
    if (found := files.versioned(path)) is None:
        return None
    try:
        return _pointer(found)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _HEAD.damaged(files, path, error) from None


def _pointer(found: Versioned) -> Pointer:
    given = json.loads(found.content)
    return Pointer(
        run=str(given["run"]),
        files=list(given["files"]),
        rows=int(given["rows"]),
        generation=int(given.get("generation", 0)),
        before=[str(run) for run in given.get("before", ())],
        version=found.version,
    )


def publish_table(lake: MartLake, spark: SparkSession, name: str, frame: DataFrame) -> int:
    """Replace a table that has a pointer of its own, in one step, and return its rows."""
    files, folder = lake.files, _folder(name)
    with lake.locked("marts"), readable_errors(lake.root):
        make_writable(files)
        before = pointer(files, name)
        generation = before.generation if before is not None else 0
        run, sent = run_after(generation), False
        try:
            written = write_table(lake, spark, name, frame, f"{folder}/run={run}")
            files.sync(written.files)
            known = [before.run, *before.before][:_REMEMBERED] if before is not None else []
            about = {"run": run, "files": written.files, "rows": written.rows, "generation": generation + 1}
            sent = True
            swap(
                files,
                f"{folder}/_current.json",
                json.dumps({**about, "before": known}).encode(),
                before.version if before is not None else None,
                run,
                is_ours=lambda found: run in (_pointer(found).run, *_pointer(found).before),
                winner=lambda found: f"the run {_pointer(found).run}",
            )
        except BaseException as error:
            if not sent or isinstance(error, LostRace):
                with suppress(OSError):
                    files.remove(f"{folder}/run={run}")
            raise
        with suppress(OSError):
            for entry in files.entries(folder):
                other = entry.name.removeprefix("run=")
                kept = (run, before.run) if before is not None else (run,)
                if entry.name.startswith("run=") and other not in kept and is_dead(other, generation + 1):
                    files.remove(f"{folder}/{entry.name}")
    return written.rows


def _is_old(files: Files, name: str) -> bool:
    return any(entry.name == "_current.json" for entry in files.entries(_folder(name)))


def _old(files: Files) -> SetManifest | None:
    """Return the marts of a release that gave each a pointer. Raises LakeError if they are of different runs.

    A run published its marts in one order. So the times in their names rise in that order, unless a run has died
    between two of them, or is still publishing.
    """
    found = {name: about for name in _OLD_ORDER if (about := pointer(files, name)) is not None}
    if not found:
        return None
    times = [about.run.partition("-")[0] for about in found.values()]
    if times != sorted(times):
        raise LakeError(
            "its marts are of different runs of insights", where=files.url(), cure=MAKE_THEM, code="lake-damaged"
        )
    marts = {name: MartFiles(about.files, about.rows) for name, about in found.items()}
    return SetManifest(run=max(about.run for about in found.values()), created_us=0, marts=marts)
