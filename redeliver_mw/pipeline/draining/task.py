# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What a Spark task of a drain does: a share of a queue to staging files, and a report.

Rows do not pass through Spark: it says where, and tries again what died. A try takes what the tries before it have
left of the quota.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Final

import pyarrow as pa

from ... import errors
from ...adapter.registry import adapter_for
from ...dead_letters import QueueDrain
from ...errors import RedeliverError
from ...message import Destination
from ..errors import LakeError, lake_error
from ..files import files_at
from .rows import run_of
from .staging import StagingArea, batches_of, is_stopped

REPORT: Final = "report STRING"


@dataclass(frozen=True, slots=True)
class DrainTask:
    """What the tasks of a run have to know: number n takes `quotas[n]` letters, `batch` of them at a time."""

    root: str
    run: str
    url: str = field(repr=False)  # with its password
    dlq: Destination
    quotas: tuple[int, ...]
    batch: int


@dataclass(frozen=True, slots=True)
class DrainReport:
    """What a task did. `stay`: letters that cannot be kept. `rest`: why it ended early. `error`: that of a
    RedeliverError, its name, what, where and cure."""

    kept: int = 0
    stay: int = 0
    rest: str = ""
    error: tuple[str, str, str, str] | None = None


def run_tasks(work: DrainTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow` over the tasks' numbers: a report for each."""
    for batch in batches:
        for task in batch.column(0).to_pylist():
            yield pa.record_batch([pa.array([json.dumps(asdict(_report(work, task)))])], names=["report"])


def read_report(text: str) -> DrainReport:
    return DrainReport(**json.loads(text))


def error_of(report: DrainReport) -> RedeliverError | None:
    """The error that ended a task, as it was raised there."""
    if report.error is None:
        return None
    name, what, where, cure = report.error
    kind = LakeError if name == LakeError.__name__ else getattr(errors, name, errors.BrokerError)
    found: RedeliverError = kind(what, where=where, cure=cure)
    return found


def _report(work: DrainTask, task: int) -> DrainReport:
    """What no other try would change is told, anything else is Spark's to try again."""
    try:
        return _share(work, task)
    except RedeliverError as error:
        return _failed(error)
    except OSError as error:
        return _failed(lake_error(error, f"{error.filename or work.root} on {socket.gethostname()}"))


def _failed(error: RedeliverError) -> DrainReport:
    return DrainReport(error=(type(error).__name__, error.what, error.where, error.cure))


def _share(work: DrainTask, task: int) -> DrainReport:
    before = sum(batch.rows for batch in batches_of(files_at(work.root), work.run) if batch.task == task)
    stopped = partial(is_stopped, work.root, work.run)
    quota = work.quotas[task] - before
    if quota < 1 or stopped():
        return DrainReport()
    adapter = adapter_for(work.url)
    stage = StagingArea(work.root, lambda: run_of(adapter, work.run, work.dlq, "lake"), task)
    taken = QueueDrain(adapter, work.dlq, stage, quota=quota, batch=work.batch, stopped=stopped).run()
    return DrainReport(taken.kept, taken.stay, taken.rest)
