# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Measures what it costs to append to the journal, beside `orjson.dumps` and a buffered file by hand: goal G7.

There are two costs, in processor time: what the thread pays that handled the message, and that together with what the
journal's own thread pays later. Each stands beside the same line written by hand out of a dictionary that is there
already.
"""

from __future__ import annotations

import gc
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from redeliver_mw.journal import Journal
from redeliver_mw.journal.records import AttemptRecord, to_line

from .sides import Figure

RECORDS, ROUNDS = 20_000, 15


def goals(records: list[AttemptRecord], scratch: Path) -> list[Figure]:
    """Return the figures of goal G7 for `records`, which are real ones.

    All rounds take turns; the medians count.
    """
    sides: dict[str, Callable[[], float]] = {
        "hand": lambda: _by_hand(records, scratch),
        "append": lambda: _append(records, scratch),
        "write": lambda: _write(records, scratch),
    }
    costs: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(-1, ROUNDS):
        for name, run in sides.items():
            gc.collect()
            each = run() / len(records)
            if number >= 0:
                costs[name].append(each)
    hand, append, write = (statistics.median(costs[name]) for name in sides)
    return [
        _figure("G7", "journal.append, on the thread that handled the message", append, hand, 1.5),
        _figure("", "the whole of it: that, and what the journal's own thread does later", append + write, hand, None),
    ]


def _figure(goal: str, what: str, ours: float, hand: float, most: float | None) -> Figure:
    ratio = ours / hand
    times = (f"{ours * 1e6:.2f} µs", f"{hand * 1e6:.2f} µs")
    if most is None:
        return Figure(goal, what, RECORDS, *times, ratio, "", None)
    return Figure(goal, what, RECORDS, *times, ratio, f"at most {most}", ratio <= most)


def _by_hand(records: list[AttemptRecord], scratch: Path) -> float:
    rows: list[dict[str, Any]] = [orjson.loads(to_line(record)) for record in records]
    with (scratch / "by-hand.jsonl").open("wb", buffering=256 * 1024) as file:
        began = time.thread_time()
        for row in rows:
            file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
        return time.thread_time() - began


def _append(records: list[AttemptRecord], scratch: Path) -> float:
    journal = _journal(scratch)
    append = journal.append
    began = time.thread_time()
    for record in records:
        append(record)
    took = time.thread_time() - began
    journal.close(60.0)
    assert not journal.dropped
    return took


def _write(records: list[AttemptRecord], scratch: Path) -> float:
    """Do what the journal's thread does with the records, but on this thread, whose clock measures it."""
    journal = _journal(scratch)
    journal._signalled = True  # so that no thread is started
    for record in records:
        journal.append(record)
    began = time.thread_time()
    journal._run_once()
    took = time.thread_time() - began
    journal._writer.end()
    journal.close()
    return took


def _journal(scratch: Path) -> Journal:
    folder = scratch / "journal"
    shutil.rmtree(folder, ignore_errors=True)
    return Journal(folder, fsync="never", max_waiting=10 * RECORDS)
