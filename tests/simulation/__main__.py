# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.simulation SEED` tells a history; `--histories N` runs many, on all cores, to the first bad one."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from .plan import plan_of
from .run import failures_in, tell
from .shrink import smaller

CHUNK = 100
TOLD_EVERY = 60.0  # seconds, where there is no terminal for a bar


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seed", nargs="*", type=int, help="histories to tell, as numbered lines")
    parser.add_argument("--histories", type=int, default=0, metavar="N", help="run N histories")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first of them")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, metavar="N", help="processes")
    parser.add_argument("--whole", action="store_true", help="tell a bad history as it is, not shrunk")
    parser.add_argument("--limbo", action="store_true", help="the history of that seed which has a limbo")
    given = parser.parse_args()
    if given.histories:
        bad = _many(given.first, given.histories, given.workers, limbos=given.limbo)
        if bad is not None:  # bad it was, whatever is told of it
            _one(bad, limbos=given.limbo, whole=given.whole)
        return int(bad is not None)
    if not given.seed:
        parser.error("give a seed, or --histories N")
    return max(_one(seed, limbos=given.limbo, whole=given.whole) for seed in given.seed)


def _one(seed: int, *, limbos: bool, whole: bool) -> int:
    plan = plan_of(seed, limbos=limbos)
    text, bad = tell(plan)
    if bad and not whole:
        text, _ = tell(smaller(plan))
    print(text)
    return int(bad)


def _many(first: int, number: int, workers: int, *, limbos: bool) -> int | None:
    """Run many histories, and return the seed of a bad one."""
    began = told = time.monotonic()
    chunks = [(start, min(start + CHUNK, first + number)) for start in range(first, first + number, CHUNK)]
    columns = ("histories", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.fields[rate]}"))
    with Progress(*columns) as progress, ProcessPoolExecutor(workers, initializer=_collect_rarely) as pool:
        task = progress.add_task("", total=number, rate="")
        for (start, end), bad in zip(chunks, _answers(pool, chunks, limbos), strict=True):
            now = time.monotonic()
            rate = f"{(end - first) / (now - began):.0f}/s"
            progress.update(task, advance=end - start, rate=rate)
            if not progress.console.is_terminal and now - told > TOLD_EVERY:
                told = now
                print(f"{end - first} of {number} histories, {rate}", file=sys.stderr, flush=True)
            if bad:
                progress.stop()
                pool.shutdown(wait=False, cancel_futures=True)
                return bad[0]
    took = time.monotonic() - began
    print(f"{number} histories in {took:.0f} s, {number / took:.0f} a second on {workers} cores: no rule was broken")
    return None


def _collect_rarely() -> None:
    """Collect garbage rarely: what is imported stays, and what a history makes is mostly gone with the history."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def _answers(pool: ProcessPoolExecutor, chunks: list[tuple[int, int]], limbos: bool) -> Iterator[list[int]]:
    """Yield the answers in order; no more chunks wait at once than are worked at soon."""
    waiting = []
    for chunk in chunks:
        waiting.append(pool.submit(failures_in, *chunk, limbos))
        if len(waiting) > 16:
            yield waiting.pop(0).result()
    for one in waiting:
        yield one.result()


if __name__ == "__main__":
    sys.exit(main())
