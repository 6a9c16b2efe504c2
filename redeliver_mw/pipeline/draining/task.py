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
from ...errors import RedeliverError
from ...message import Destination
from ...registry import adapter_for
from ...sendback import Share
from ..files import files_at
from ..troubles import LakeError, lake_error
from .rows import run_of
from .staging import Stage, batches_of, is_stopped

REPORT: Final = "report STRING"


@dataclass(frozen=True, slots=True)
class Work:
    """What the tasks of a run have to know: number n takes `quotas[n]` letters, `batch` of them at a time."""

    root: str
    run: str
    url: str = field(repr=False)  # with its password
    dlq: Destination
    quotas: tuple[int, ...]
    batch: int


@dataclass(frozen=True, slots=True)
class Report:
    """What a task did. `stay`: letters that cannot be kept. `rest`: why it ended early. `error`: that of a
    RedeliverError, its name, what, where and cure."""

    kept: int = 0
    stay: int = 0
    rest: str = ""
    error: tuple[str, str, str, str] | None = None


def run_tasks(work: Work, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow` over the tasks' numbers: a report for each."""
    for batch in batches:
        for task in batch.column(0).to_pylist():
            yield pa.record_batch([pa.array([json.dumps(asdict(_report(work, task)))])], names=["report"])


def read_report(text: str) -> Report:
    return Report(**json.loads(text))


def error_of(report: Report) -> RedeliverError | None:
    """The error that ended a task, as it was raised there."""
    if report.error is None:
        return None
    name, what, where, cure = report.error
    kind = LakeError if name == LakeError.__name__ else getattr(errors, name, errors.BrokerError)
    found: RedeliverError = kind(what, where=where, cure=cure)
    return found


def _report(work: Work, task: int) -> Report:
    """What no other try would change is told, anything else is Spark's to try again."""
    try:
        return _share(work, task)
    except RedeliverError as error:
        return _failed(error)
    except OSError as error:
        return _failed(lake_error(error, f"{error.filename or work.root} on {socket.gethostname()}"))


def _failed(error: RedeliverError) -> Report:
    return Report(error=(type(error).__name__, error.what, error.where, error.cure))


def _share(work: Work, task: int) -> Report:
    before = sum(batch.rows for batch in batches_of(files_at(work.root), work.run) if batch.task == task)
    stopped = partial(is_stopped, work.root, work.run)
    quota = work.quotas[task] - before
    if quota < 1 or stopped():
        return Report()
    adapter = adapter_for(work.url)
    stage = Stage(work.root, lambda: run_of(adapter, work.run, work.dlq, "lake"), task)
    taken = Share(adapter, work.dlq, stage, quota=quota, batch=work.batch, stopped=stopped).run()
    return Report(taken.kept, taken.stay, taken.rest)
