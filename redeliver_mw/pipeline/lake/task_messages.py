# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds the instructions for a compaction's tasks, and the tasks' reports. Imports no pyarrow."""

from __future__ import annotations

import json
import socket
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from ..manifests import DataFile
from ..time_range import TimeRange

REPORT: Final = "report STRING"


@dataclass(frozen=True, slots=True)
class SegmentPiece:
    """Describes the lines of a segment that begin in a range of its bytes; `end` None: up to its end.

    `known_bad`: its bad lines are in the quarantine already, from a run that did not take all of its records.
    """

    segment: int
    path: str
    start: int
    end: int | None
    known_bad: bool = False


@dataclass(frozen=True, slots=True)
class CompactionTask:
    """Holds the instructions for a run's tasks: task n does `tasks[n]`, and leaves a file in `ticks` for each piece."""

    root: str
    run: str
    span: TimeRange
    tasks: list[list[SegmentPiece]]
    ticks: str | None = None


@dataclass(slots=True)
class LineCounts:
    """Counts the lines of one piece. `healthy` are lines that count messages."""

    segment: int
    records: int = 0
    healthy: int = 0
    quarantined: int = 0
    others: int = 0
    outside: int = 0


@dataclass(slots=True)
class CompactionReport:
    """Reports what a task did. With an `error`, `(errno, text, place)`, it did nothing that counts."""

    counts: list[LineCounts] = field(default_factory=list)
    files: list[DataFile] = field(default_factory=list)
    quarantine: list[DataFile] = field(default_factory=list)
    healthy: list[DataFile] = field(default_factory=list)
    error: tuple[int, str, str] | None = None


def to_text(report: CompactionReport) -> str:
    return json.dumps(asdict(report))


def read_report(text: str) -> CompactionReport:
    """Return the report that a task sent as JSON."""
    given: dict[str, Any] = json.loads(text)
    return CompactionReport(
        counts=[LineCounts(**one) for one in given["counts"]],
        files=[DataFile(**one) for one in given["files"]],
        quarantine=[DataFile(**one) for one in given["quarantine"]],
        healthy=[DataFile(**one) for one in given["healthy"]],
        error=tuple(given["error"]) if given["error"] else None,
    )


def failed(error: OSError, root: str) -> CompactionReport:
    place = str(error.filename or root)
    return CompactionReport(
        error=(error.errno or 0, error.strerror or str(error), f"{place} on {socket.gethostname()}")
    )
