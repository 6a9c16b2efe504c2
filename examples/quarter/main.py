# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Simulates a quarter of an order service: its journal, and what the pipeline makes of it, to a report for people.

    python main.py [--attempts 1000000] [--seed 1] [--out .quarter] [--processes N] [--journal-only]

The middleware is the real one; its broker is in memory, and its clock moved by hand. What goes wrong, and when, stands
in `trouble.py`. The journal takes a kilobyte for each attempt. Everything is written below `--out`: `journal/`,
`lake/` and `report.html`; what an earlier run left there goes. Needs the extra `spark`, unless `--journal-only`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

import day as simulation
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from shop import POLICIES, QUEUES

MARK = ".a-simulated-quarter"  # a file in every folder that this program has made
DAYS_A_PROCESS = 16  # then a new process takes over, because a process keeps some memory of every broker it had

messages = Console(stderr=True)


class Stop(Exception):
    """Ends this run; `code` is its exit code."""

    def __init__(self, what: str, code: int) -> None:
        self.code = code
        super().__init__(what)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attempts", type=int, default=1_000_000, help="about so many, rather more")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(".quarter"))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--journal-only", action="store_true", help="no Spark")
    asked = parser.parse_args()
    if asked.attempts < 1 or asked.processes < 1:
        parser.error("--attempts and --processes are from 1 on")
    try:
        make_folder(asked.out)
        outcomes = simulate(asked.out / "journal", asked.attempts, asked.seed, asked.processes)
        if not asked.journal_only:
            analyse(asked.out)
    except Stop as stop:
        messages.print(f"error: {stop}", style="red", highlight=False, soft_wrap=True)
        return stop.code
    show(outcomes)
    if not asked.journal_only:
        print(f"\nThe report: {(asked.out / 'report.html').resolve()}")
    return 0


def make_folder(out: Path) -> None:
    """Make an empty folder. A folder of the same name is removed if this program made it, and kept otherwise."""
    if out.exists() and any(out.iterdir()) and not (out / MARK).exists():
        raise Stop(f"{out} holds something else. Give an empty folder: --out", 2)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    (out / MARK).touch()


def simulate(journal: Path, attempts: int, seed: int, processes: int) -> Counter[tuple[str, str]]:
    """Simulate all days, several at a time, into one journal. Return how many attempts had `(queue, outcome)`."""
    days = simulation.days(attempts, seed)
    outcomes: Counter[tuple[str, str]] = Counter()
    share = processes * DAYS_A_PROCESS
    with progress("simulating", len(days)) as advance:
        for at in range(0, len(days), share):
            for counts in several(days[at : at + share], journal, processes):
                outcomes += counts
                advance()
    return outcomes


def several(days: list[simulation.Day], journal: Path, processes: int) -> Iterator[Counter[tuple[str, str]]]:
    """Yield the results of these days, in the order in which they were ready."""
    # Spawned: a forked child would inherit the locks of this process's threads, but none of the threads.
    with ProcessPoolExecutor(min(processes, len(days)), get_context("spawn")) as pool:
        try:
            for done in as_completed([pool.submit(simulation.run, day, journal) for day in days]):
                yield done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[], None]]:
    """Yield a progress function: a bar with the remaining time, or without a terminal a line at each tenth."""
    done = 0

    def line() -> None:
        nonlocal done
        done += 1
        if done * 10 // total > (done - 1) * 10 // total:
            messages.print(f"{what}: {done} of {total} days", highlight=False)

    if not messages.is_terminal:
        yield line
        return
    columns = (TextColumn(what), BarColumn(40), TaskProgressColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=messages) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)


IN_PART = 3  # the back-test gives no advice that the data do not support


def analyse(out: Path) -> None:
    """Run the commands that a user would type."""
    from redeliver_mw.cli.main import run

    journal, lake, report = str(out / "journal"), str(out / "lake"), str(out / "report.html")
    for command in (
        ["compact", journal, lake],
        ["insights", lake],
        ["backtest", lake, "--present", str(POLICIES)],
        ["report", lake, "--policy", str(POLICIES), "--out", report],
    ):
        messages.print(f"redeliver pipeline {' '.join(command)}", style="bold", highlight=False, soft_wrap=True)
        code = run(["pipeline", *command])
        if code and (command[0], code) != ("backtest", IN_PART):
            raise Stop(f"redeliver pipeline {command[0]} ended with {code}", code)


def show(outcomes: Counter[tuple[str, str]]) -> None:
    """Print the journal's contents as a table on stdout."""
    table = Table("queue")
    for heading in ("attempts", "accepted", "redelivered", "dead letters"):
        table.add_column(heading, justify="right")
    kinds = ("accepted", "redelivered", "dead_lettered")
    for queue in (*QUEUES, "all"):
        counts = [sum(n for (q, k), n in outcomes.items() if k == kind and queue in (q, "all")) for kind in kinds]
        table.add_row(queue, *(f"{count:,}" for count in (sum(counts), *counts)), end_section=queue == QUEUES[-1])
    Console(width=80).print(table)


if __name__ == "__main__":
    sys.exit(main())
