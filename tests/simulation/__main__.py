# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.simulation SEED` tells a history; `--histories N` runs so many, over all cores, and stops at a bad one."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from .run import failures_in, tell
from .shrink import smaller

CHUNK = 250


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seed", nargs="*", type=int, help="histories to tell, as numbered stories")
    parser.add_argument("--histories", type=int, default=0, metavar="N", help="run N histories")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first of them")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, metavar="N", help="processes")
    parser.add_argument("--whole", action="store_true", help="tell a bad history as it is, not shrunk")
    given = parser.parse_args()
    if given.histories:
        return _many(given.first, given.histories, given.workers, whole=given.whole)
    if not given.seed:
        parser.error("give a seed, or --histories N")
    return max(_one(seed, whole=given.whole) for seed in given.seed)


def _one(seed: int, *, whole: bool) -> int:
    story, bad = tell(seed)
    if bad and not whole:
        story, _ = tell(smaller(seed))
    print(story)
    return int(bad)


def _many(first: int, number: int, workers: int, *, whole: bool) -> int:
    began = time.monotonic()
    chunks = [(start, min(start + CHUNK, first + number)) for start in range(first, first + number, CHUNK)]
    columns = ("histories", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.fields[rate]}"))
    with Progress(*columns) as progress, ProcessPoolExecutor(workers) as pool:
        task = progress.add_task("", total=number, rate="")
        for (start, end), bad in zip(chunks, _answers(pool, chunks), strict=True):
            rate = f"{(end - first) / (time.monotonic() - began):.0f}/s"
            progress.update(task, advance=end - start, rate=rate)
            if bad:
                progress.stop()
                pool.shutdown(wait=False, cancel_futures=True)
                return _one(bad[0], whole=whole)
    took = time.monotonic() - began
    print(f"{number} histories in {took:.0f} s, {number / took:.0f} a second on {workers} cores: no rule was broken")
    return 0


def _answers(pool: ProcessPoolExecutor, chunks: list[tuple[int, int]]) -> Iterator[list[int]]:
    """In order; no more at once than are worked at soon."""
    waiting = []
    for chunk in chunks:
        waiting.append(pool.submit(failures_in, *chunk))
        if len(waiting) > 16:
            yield waiting.pop(0).result()
    for one in waiting:
        yield one.result()


if __name__ == "__main__":
    sys.exit(main())
