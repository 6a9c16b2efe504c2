# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds letters from the moment that the lake owns them until they are in its table.

::

    dead_letters/_staging/RUN/BATCH.parquet        a batch, written before it is settled
    dead_letters/_staging/RUN/BATCH.sure.parquet   the same batch, when it is certainly off its queue
    dead_letters/_staging/RUN/BATCH.sure           in a bucket, which cannot rename: says the same of BATCH.parquet
    dead_letters/_staging/RUN/stop                 asks the tasks of RUN to end

`BATCH` is `<staged_us>-<task>-<attempt>-<generation>-<rows>`. No process writes to a file that exists, and `gather`
removes exactly the files that it has gathered: a task whose driver has died may still be at work.
"""

from __future__ import annotations

import os
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from ...dead_letters import ReadLetters
from ...errors import NotCopyable
from ...message import Delivery
from ..files import Files, files_at
from ..lake.parquet_writer import ParquetFile
from ..manifests import is_dead, now_us
from .rows import STAGED, DrainRun, LetterRows

TABLE: Final = "dead_letters"
STAGING: Final = f"{TABLE}/_staging"
LOOKED: Final = f"{TABLE}/_looked"  # the same for letters that were only looked at: losing these files loses no letter
_STOP: Final = "stop"
_END, _SURE = ".parquet", ".sure"
_ASK_AGAIN: Final = 2.0  # seconds between two questions to a bucket whether a run is to end


@dataclass(frozen=True, slots=True, order=True)
class StagedBatch:
    """Identifies a staging file by its name. `attempt`: one process of one task; `generation`: of its subscription."""

    staged_us: int
    task: int
    attempt: str
    generation: int
    rows: int
    run: str
    sure: bool = False
    folder: str = STAGING
    marked: bool = False  # `sure` is said by a file of its own

    @property
    def name(self) -> str:
        return f"{self.staged_us:016d}-{self.task:05d}-{self.attempt}-{self.generation}-{self.rows}"

    @property
    def path(self) -> str:
        """Return the path in the lake."""
        return f"{self.folder}/{self.run}/{self.name}{_SURE if self.sure and not self.marked else ''}{_END}"

    @property
    def paths(self) -> tuple[str, str]:
        """Return the paths that the batch may have in a folder, the likelier first."""
        return self.path, replace(self, sure=not self.sure, marked=False).path

    @property
    def marker(self) -> str:
        """Return the path in a bucket of the empty file that says that the batch is off its queue."""
        return f"{self.folder}/{self.run}/{self.name}{_SURE}"


def batches(files: Files) -> list[StagedBatch]:
    """Return all staged batches, in order of time."""
    runs = [entry.name for entry in files.entries(STAGING) if entry.is_folder]
    return sorted(batch for run in runs for batch in batches_of(files, run))


def batches_of(files: Files, run: str) -> list[StagedBatch]:
    """Return the batches that one run has staged."""
    names = [entry.name for entry in files.entries(f"{STAGING}/{run}")]
    marked = {name.removesuffix(_SURE) for name in names if name.endswith(_SURE)}
    found = [batch for name in names if (batch := _batch(run, name)) is not None]
    return [replace(batch, sure=True, marked=True) if batch.name in marked else batch for batch in found]


def _batch(run: str, name: str) -> StagedBatch | None:
    if name[0] in "._" or not name.endswith(_END):
        return None
    name = name.removesuffix(_END)
    sure = name.endswith(_SURE)
    staged, task, attempt, generation, rows = name.removesuffix(_SURE).split("-")
    return StagedBatch(int(staged), int(task), attempt, int(generation), int(rows), run, sure)


def begin(files: Files, run: str) -> None:
    """Make the folder of a run, for its tasks to write to."""
    files.publish(f"{STAGING}/{run}/_begun", b"")


def tell_to_stop(files: Files, run: str) -> None:
    files.publish(f"{STAGING}/{run}/{_STOP}", b"")


class DrainStop:
    """Knows whether the tasks of a run are asked to end. A bucket is asked every two seconds at most."""

    def __init__(self, files: Files, run: str) -> None:
        self._files, self._path = files, f"{STAGING}/{run}/{_STOP}"
        self._again = 0.0

    def __call__(self) -> bool:
        if self._files.is_folder:
            return os.path.exists(self._files.url(self._path))
        if time.monotonic() < self._again:
            return False
        found = False
        with suppress(OSError):  # a store that does not answer has not asked for anything
            found = self._files.versioned(self._path) is not None
        self._again = time.monotonic() + _ASK_AGAIN
        return found


def remove(files: Files, gathered: Sequence[StagedBatch]) -> None:
    """Remove exactly these batches, under either name, and folders that are empty then."""
    for batch in gathered:
        for path in batch.paths if files.is_folder else (batch.path, batch.marker):
            files.remove(path)
    for run in {entry.name for entry in files.entries(STAGING) if entry.is_folder}:
        if not batches_of(files, run):
            _remove_folder(files, run)


def remove_torn(files: Files, generation: int) -> None:
    """Remove files that a task was writing when it died, and letters that were only looked at by a run that is dead.

    In a folder the caller has the table's lock, so that no other run is alive; in a bucket those are dead that began
    before this generation was published. A batch has its name before it is settled: the letters of a batch without a
    name are still in their queue, and so are all that were looked at. If a task that outlived its driver is writing
    such a file, the task fails when it renames the file, and settles nothing. In a bucket a batch is there as a whole
    or not at all.
    """
    for entry in files.entries(LOOKED):
        if files.is_folder or is_dead(entry.name, generation):
            files.remove(f"{LOOKED}/{entry.name}")
    for run in [entry.name for entry in files.entries(STAGING) if entry.is_folder]:
        for entry in files.entries(f"{STAGING}/{run}"):
            if entry.name.startswith("_") and entry.name.endswith(_END):
                files.remove(f"{STAGING}/{run}/{entry.name}")


def _remove_folder(files: Files, run: str) -> None:
    """Remove a run's folder, unless a task that outlived its driver is writing to it."""
    folder = f"{STAGING}/{run}"
    markers = [entry.name for entry in files.entries(folder) if entry.name.endswith(_SURE)]
    for name in ("_begun", _STOP, *markers):
        files.remove(f"{folder}/{name}")
    if files.is_folder:
        with suppress(OSError):
            os.rmdir(files.url(folder))


class StagingArea:
    """Stores the letters of shares: each batch is a file of its own, which survives a power cut before it is settled.

    `run` is called when the first letters have arrived, because a broker's capabilities are known only after it has
    answered.
    """

    def __init__(self, root: str, run: Callable[[], DrainRun], task: int, folder: str = STAGING) -> None:
        self._ask_run, self._task, self._folder = run, task, folder
        self.written: list[StagedBatch] = []
        self._files = files_at(root)
        self._attempt = secrets.token_hex(4)
        self._unsure: deque[StagedBatch] = deque()

    def read(self, generation: int, letters: Sequence[Delivery], /) -> ReadLetters:
        """Return letters that can be written to a file. The write raises OSError if the disk refuses them."""
        run = self._ask_run()
        rows, kept = LetterRows(run), []
        for letter in letters:
            with suppress(NotCopyable):
                rows.add(letter)
                kept.append(letter)
        return ReadLetters(kept, partial(self._write, run.run, generation, rows, len(kept)))

    def sure(self, batches: int, /) -> None:
        for _ in range(batches):
            batch = self._unsure.popleft()
            if not self._files.is_folder:
                with suppress(OSError):  # without it the batch is in doubt, which costs a comparison
                    self._files.publish(batch.marker, b"")
                continue
            # The driver may have died, and the next driver may have gathered the batch already.
            with suppress(FileNotFoundError):
                os.rename(self._files.url(batch.path), self._files.url(replace(batch, sure=True).path))

    def lost(self) -> None:
        self._unsure.clear()

    def _write(self, run: str, generation: int, rows: LetterRows, number: int) -> None:
        batch = StagedBatch(now_us(), self._task, self._attempt, generation, number, run, folder=self._folder)
        file = ParquetFile(self._files, batch.path, STAGED)
        try:
            file.write(rows.table())
            file.close()
        except BaseException:
            file.drop()
            raise
        self._files.sync([batch.path])
        self._unsure.append(batch)
        self.written.append(batch)
