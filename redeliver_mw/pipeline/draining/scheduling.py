# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The tasks of a drain, and what becomes of what they have staged."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from ...adapter.registry import adapter_for
from ...dead_letters import BrokerClient
from ...errors import RedeliverError
from ..errors import told
from ..manifests import new_run
from .commit import gather, queue_name
from .job import Drained, DrainOrder, Progress
from .manifests import Gathered
from .staging import TABLE, batches_of, begin, tell_to_stop
from .task import REPORT, DrainReport, DrainTask, error_of, read_report, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EVERY: Final = 0.5  # seconds between two looks at how far the tasks are


def gather_left(order: DrainOrder) -> Gathered | None:
    """What a run that died has staged; and the queue is seen to be empty."""
    with order.lake.locked(TABLE):
        return gather(order.lake, seen_empty=queue_name(order.broker, order.queue.short))


class Rounds:
    """One drain: rounds of tasks, until as many letters are new as there were. What comes a second time, because it
    was taken by somebody who died, makes another round."""

    def __init__(
        self, spark: SparkSession, order: DrainOrder, stop: threading.Event, progress: Progress | None
    ) -> None:
        self._spark, self._order, self._lake = spark, order, order.lake
        self._stop, self._progress = stop, progress

    def run(self) -> Drained:
        """At most as many letters as were found, and before them what a run that died has staged."""
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
        """What the tasks report, and what Spark says if it gives up."""
        order = self._order
        tasks = min(order.tasks, letters)
        quotas = tuple(letters // tasks + (number < letters % tasks) for number in range(tasks))
        work = DrainTask(self._lake.root, new_run(), order.url, order.queue, quotas, order.batch)
        numbers = self._spark.range(0, tasks, 1, tasks)
        try:
            with told(self._lake.root):
                begin(self._lake.files, work.run)
                with self._watched(work, letters):
                    sent = numbers.mapInArrow(partial(run_tasks, work), REPORT).collect()
        except RedeliverError as error:
            return [], error
        reports = [read_report(row["report"]) for row in sent]
        return reports, next((found for report in reports if (found := error_of(report))), None)

    @contextmanager
    def _watched(self, work: DrainTask, letters: int) -> Iterator[None]:
        """While the tasks are at it: tells how far they are, and tells them to stop."""
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
        """The queue's name if nothing is left in it; empty otherwise, and where nobody knows."""
        try:
            order = self._order
            with BrokerClient(adapter_for(order.url)) as asking:
                return "" if asking.depth(order.queue) else queue_name(order.broker, order.queue.short)
        except RedeliverError:
            return ""


def _why(reports: Sequence[DrainReport], trouble: RedeliverError | None) -> str:
    """Why a round ended early, of all reasons the first."""
    if trouble is not None:
        return str(trouble)
    return next((report.rest for report in reports if report.rest), "")
