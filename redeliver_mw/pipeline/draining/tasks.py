# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the tasks of a drain, in rounds, until the queue holds no new letters.

A Spark task takes its share of the queue to staging files, and reports. Rows do not pass through Spark: Spark places
the tasks, and retries those that died. A retry takes what is left of the quota. After each round the driver puts the
staged letters into the table.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ... import errors
from ...adapter.registry import adapter_for
from ...dead_letters import BrokerClient, QueueDrain
from ...errors import RedeliverError
from ...message import Destination
from ..errors import LakeError, lake_error, readable_errors
from ..files import files_at
from ..manifests import new_run
from ..progress import Progress
from .commit import gather, queue_name
from .manifests import Gathered
from .order import Drained, DrainOrder
from .rows import run_of
from .staging import TABLE, DrainStop, StagingArea, batches_of, begin, tell_to_stop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPORT: Final = "report STRING"
_EVERY: Final = 0.5  # seconds between two checks of the tasks' progress


@dataclass(frozen=True, slots=True)
class DrainTask:
    """Holds the instructions for a run's tasks: task n takes `quotas[n]` letters, `batch` of them at a time."""

    root: str
    run: str
    url: str = field(repr=False)  # contains the password
    dlq: Destination
    quotas: tuple[int, ...]
    batch: int


@dataclass(frozen=True, slots=True)
class DrainReport:
    """Reports what a task did.

    `stay`: letters that cannot be stored. `rest`: why the task ended early. `error`: a RedeliverError's name, what,
    where, cure and code.
    """

    kept: int = 0
    stay: int = 0
    rest: str = ""
    error: tuple[str, str, str, str, str] | None = None


def run_tasks(work: DrainTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run the tasks with these numbers and yield a report for each. Called by Spark's `mapInArrow`."""
    for batch in batches:
        for task in batch.column(0).to_pylist():
            yield pa.record_batch([pa.array([json.dumps(asdict(_report(work, task)))])], names=["report"])


def read_report(text: str) -> DrainReport:
    return DrainReport(**json.loads(text))


def error_of(report: DrainReport) -> RedeliverError | None:
    """Return the error that ended a task, as it was raised there."""
    if report.error is None:
        return None
    name, what, where, cure, code = report.error
    kind = LakeError if name == LakeError.__name__ else getattr(errors, name, errors.BrokerError)
    found: RedeliverError = kind(what, where=where, cure=cure, code=code)
    return found


def _report(work: DrainTask, task: int) -> DrainReport:
    """Report errors that another try would not change; raise all others for Spark to try again."""
    try:
        return _share(work, task)
    except RedeliverError as error:
        return _failed(error)
    except OSError as error:
        return _failed(lake_error(error, f"{error.filename or work.root} on {socket.gethostname()}"))


def _failed(error: RedeliverError) -> DrainReport:
    return DrainReport(error=(type(error).__name__, error.what, error.where, error.cure, error.code))


def _share(work: DrainTask, task: int) -> DrainReport:
    files = files_at(work.root)
    before = sum(batch.rows for batch in batches_of(files, work.run) if batch.task == task)
    stopped = DrainStop(files, work.run)
    quota = work.quotas[task] - before
    if quota < 1 or stopped():
        return DrainReport()
    adapter = adapter_for(work.url)
    stage = StagingArea(work.root, lambda: run_of(adapter, work.run, work.dlq, "lake"), task)
    taken = QueueDrain(adapter, work.dlq, stage, quota=quota, batch=work.batch, stopped=stopped).run()
    return DrainReport(taken.kept, taken.stay, taken.rest)


def gather_left(order: DrainOrder) -> Gathered | None:
    """Gather letters that a dead run has staged. Called after the queue was found empty."""
    with order.lake.locked(TABLE):
        return gather(order.lake, seen_empty=queue_name(order.broker, order.queue.short))


class Rounds:
    """Runs one drain: rounds of tasks, until as many letters are new as were found.

    Letters that come a second time, because a consumer that died had taken them, need another round.
    """

    def __init__(
        self, spark: SparkSession, order: DrainOrder, stop: threading.Event, progress: Progress | None
    ) -> None:
        self._spark, self._order, self._lake = spark, order, order.lake
        self._stop, self._progress = stop, progress

    def run(self) -> Drained:
        """Take at most as many letters as were found, after those that a dead run has staged."""
        with self._lake.locked(TABLE):
            return self._run(gather(self._lake))

    def _run(self, before: Gathered | None) -> Drained:
        earlier = before.letters if before else 0
        done = Drained(
            before.run if before else None, self._order.found, earlier, earlier, before.again if before else 0
        )
        left = self._order.found
        while left > 0 and not done.rest:
            reports, trouble = self._round(left)
            gathered = gather(self._lake, seen_empty=self._seen_empty())
            now, twice = (gathered.letters, gathered.again) if gathered else (0, 0)
            if not self._lake.files.is_folder:
                # Another drain into the bucket may have put letters into the table that this one has taken.
                now += max(0, sum(report.kept for report in reports) - now - twice)
            left -= now
            done = replace(
                done,
                run=gathered.run if gathered else done.run,
                letters=done.letters + now,
                again=done.again + twice,
                stay=max((report.stay for report in reports), default=0),
                rest=_why(reports, trouble),
                stopped=self._stop.is_set(),
            )
            if trouble is not None and done.letters == done.earlier:
                raise trouble
            if not twice:
                break
        return done

    def _round(self, letters: int) -> tuple[list[DrainReport], RedeliverError | None]:
        """Run one round. Return the tasks' reports, and Spark's error if Spark gives up."""
        order = self._order
        tasks = min(order.tasks, letters)
        quotas = tuple(letters // tasks + (number < letters % tasks) for number in range(tasks))
        work = DrainTask(self._lake.root, new_run(), order.url, order.queue, quotas, order.batch)
        numbers = self._spark.range(0, tasks, 1, tasks)
        try:
            with readable_errors(self._lake.root):
                begin(self._lake.files, work.run)
                with self._watched(work, letters):
                    sent = numbers.mapInArrow(partial(run_tasks, work), REPORT).collect()
        except RedeliverError as error:
            return [], error
        reports = [read_report(row["report"]) for row in sent]
        return reports, next((found for report in reports if (found := error_of(report))), None)

    @contextmanager
    def _watched(self, work: DrainTask, letters: int) -> Iterator[None]:
        """Report the progress of the tasks while they run, and ask them to stop."""
        over = threading.Event()

        def watch() -> None:
            stopped = False
            while not over.wait(_EVERY):
                if self._stop.is_set() and not stopped:
                    stopped = True
                    tell_to_stop(self._lake.files, work.run)
                if self._progress is not None:
                    done = sum(batch.rows for batch in batches_of(self._lake.files, work.run))
                    self._progress("draining", done, letters)

        watching = threading.Thread(target=watch, name="redeliver-drain", daemon=True)
        watching.start()
        try:
            yield
        finally:
            over.set()
            watching.join()

    def _seen_empty(self) -> str:
        """Return the queue's name if the queue is empty; an empty text otherwise, and if that is not known."""
        try:
            order = self._order
            with BrokerClient(adapter_for(order.url)) as asking:
                return "" if asking.depth(order.queue) else queue_name(order.broker, order.queue.short)
        except RedeliverError:
            return ""


def _why(reports: Sequence[DrainReport], trouble: RedeliverError | None) -> str:
    """Return why a round ended early: the first of all reasons."""
    if trouble is not None:
        return str(trouble)
    return next((report.rest for report in reports if report.rest), "")
