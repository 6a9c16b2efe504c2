# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds letters from the moment that the lake owns them until they are in its table.

::

    dead_letters/_staging/RUN/BATCH.parquet        a batch, written before it is settled
    dead_letters/_staging/RUN/BATCH.sure.parquet   the same batch, when it is certainly off its queue
    dead_letters/_staging/RUN/stop                 asks the tasks of RUN to end

`BATCH` is `<staged_us>-<task>-<attempt>-<generation>-<rows>`. No process writes to a file that exists, and `gather`
removes exactly the files that it has gathered: a task whose driver has died may still be at work.
"""

from __future__ import annotations

import os
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from ...errors import NotCopyable
from ...message import Delivery
from ..files import Files, PosixFiles
from ..lake.parquet_writer import ParquetFile
from ..manifests import now_us
from .rows import STAGED, DrainRun, LetterRows

TABLE: Final = "dead_letters"
STAGING: Final = f"{TABLE}/_staging"
LOOKED: Final = f"{TABLE}/_looked"  # the same for letters that were only looked at: losing these files loses no letter
_STOP: Final = "stop"
_END, _SURE = ".parquet", ".sure"


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

    @property
    def name(self) -> str:
        return f"{self.staged_us:016d}-{self.task:05d}-{self.attempt}-{self.generation}-{self.rows}"

    @property
    def path(self) -> str:
        """Return the path in the lake."""
        return f"{self.folder}/{self.run}/{self.name}{_SURE if self.sure else ''}{_END}"


def batches(files: Files) -> list[StagedBatch]:
    """Return all staged batches, in order of time."""
    runs = [entry.name for entry in files.entries(STAGING) if entry.is_folder]
    return sorted(batch for run in runs for batch in batches_of(files, run))


def batches_of(files: Files, run: str) -> list[StagedBatch]:
    """Return the batches that one run has staged."""
    found = (_batch(run, entry.name) for entry in files.entries(f"{STAGING}/{run}"))
    return [batch for batch in found if batch is not None]


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


def is_stopped(root: str, run: str) -> bool:
    return os.path.exists(os.path.join(root, STAGING, run, _STOP))


def remove(files: Files, gathered: Sequence[StagedBatch]) -> None:
    """Remove exactly these batches, under either name, and folders that are empty then."""
    for batch in gathered:
        for sure in (False, True):
            files.remove(replace(batch, sure=sure).path)
    for run in {entry.name for entry in files.entries(STAGING) if entry.is_folder}:
        if not batches_of(files, run):
            _remove_folder(files, run)


def remove_torn(files: Files) -> None:
    """Remove files that a task was writing when it died, and all letters that were only looked at.

    The caller has the table's lock. A batch has its name before it is settled: the letters of a batch without a name
    are still in their queue, and so are all that were looked at. If a task that outlived its driver is writing such a
    file, the task fails when it renames the file, and settles nothing.
    """
    files.remove(LOOKED)
    for run in [entry.name for entry in files.entries(STAGING) if entry.is_folder]:
        for entry in files.entries(f"{STAGING}/{run}"):
            if entry.name.startswith("_") and entry.name.endswith(_END):
                files.remove(f"{STAGING}/{run}/{entry.name}")


def _remove_folder(files: Files, run: str) -> None:
    """Remove a run's folder, unless a task that outlived its driver is writing to it."""
    folder = f"{STAGING}/{run}"
    for name in ("_begun", _STOP):
        files.remove(f"{folder}/{name}")
    with suppress(OSError):
        os.rmdir(files.url(folder))


class StagingArea:
    """Stores the letters of shares: each batch is a file of its own, which survives a power cut before it is settled.

    `run` is called when the first letters have arrived, because a broker's capabilities are known only after it has
    answered.
    """

    def __init__(self, root: str, run: Callable[[], DrainRun], task: int, folder: str = STAGING) -> None:
        self._root, self._ask_run, self._task, self._folder = root, run, task, folder
        self.written: list[StagedBatch] = []
        self._files = PosixFiles(root)
        self._attempt = secrets.token_hex(4)
        self._unsure: deque[StagedBatch] = deque()

    def keep(self, generation: int, letters: Sequence[Delivery], /) -> Sequence[Delivery]:
        """Write letters to a file. Raises OSError if the disk refuses them."""
        run = self._ask_run()
        rows, kept = LetterRows(run), []
        for letter in letters:
            with suppress(NotCopyable):
                rows.add(letter)
                kept.append(letter)
        if kept:
            self._write(run.run, generation, rows, len(kept))
        return kept

    def sure(self, batches: int, /) -> None:
        for _ in range(batches):
            batch = self._unsure.popleft()
            # The driver may have died, and the next driver may have gathered the batch already.
            with suppress(FileNotFoundError):
                os.rename(self._files.url(batch.path), self._files.url(replace(batch, sure=True).path))

    def lost(self) -> None:
        self._unsure.clear()

    def _write(self, run: str, generation: int, rows: LetterRows, number: int) -> None:
        batch = StagedBatch(now_us(), self._task, self._attempt, generation, number, run, folder=self._folder)
        file = ParquetFile(self._root, batch.path, STAGED)
        try:
            file.write(rows.table())
            file.close()
        except BaseException:
            file.drop()
            raise
        self._files.sync([batch.path])
        self._unsure.append(batch)
        self.written.append(batch)
