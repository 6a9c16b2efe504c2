# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Compares a lake in a bucket with the same lake in a folder.

    python -m tests.bench.spark.bucket [--records 1000000 5000000 20000000] [--rounds 2 1 1] [--data .bench]
                                       [--docs docs/lake-storage.md]

The journal is that of `python -m tests.bench.spark`, made by a seed and kept below `--data`. It is compacted into a new
lake in a folder and into one in a bucket, and then all marts of both are made. The sides take turns, and the best round
of each counts, but for the first one of the session, in which everything is cold. The bucket is in moto's S3 server,
which is a Python process on the same cores and takes one put at a time. The processor time of the server is counted by
itself, and that of this process, Spark's workers and the JVM beside it. So the seconds of the bucket are an upper bound
for a store that has a machine of its own, but for the way to that store, which is not here. The bench prints a table in
Markdown, and writes it into the page of `--docs` between its markers. It needs Spark's S3 client, which
`tests/pipeline/hadoop_jars.py` fetches with Maven. The exit code is 2 if there is no room for the data.
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from redeliver_mw.pipeline import Lake, compact, session
from redeliver_mw.pipeline.insights import insights
from tests.bench.load import processes_below
from tests.bench.page import put_between
from tests.pipeline.hadoop_jars import s3_client
from tests.pipeline.s3_server import BUCKET, environment, s3_server

from .load import Load, processor_s
from .made import Made, is_made, make
from .sides import CORES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIZES: Final = (1_000_000, 5_000_000, 20_000_000)
BYTES_A_RECORD: Final = 1_400  # of journal and Parquet, both lakes with their marts, and what spills
SIDES: Final = ("folder", "bucket")
_TICK: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Took:
    """Holds seconds by the clock on the wall, and processor seconds of Spark with this process and of the S3 server."""

    wall: float
    worked: float
    served: float

    def best_with(self, other: Took) -> Took:
        """Return the least of each of both rounds."""
        return Took(min(self.wall, other.wall), min(self.worked, other.worked), min(self.served, other.served))


def served_s() -> float:
    """Return the processor time of the S3 server, in seconds; 0 if there is none."""
    ticks = 0
    for pid, words in processes_below():
        command = Path(f"/proc/{pid}/cmdline")
        if command.exists() and b"s3_server.py" in command.read_bytes():
            ticks += int(words[11]) + int(words[12])
    return ticks / _TICK


def took(what: Callable[[], object]) -> Took:
    """Call `what`, and return the seconds that it took."""
    gc.collect()
    served, worked, began = served_s(), processor_s(), time.perf_counter()
    what()
    wall, worked, served = time.perf_counter() - began, processor_s() - worked, served_s() - served
    return Took(wall, worked - served, served)


def _compact(spark: SparkSession, made: Made, place: str, rows: dict[str, int]) -> None:
    done = compact(spark, made.journal, place)
    assert done.records == made.records, (done, made.records)


def _insights(spark: SparkSession, made: Made, place: str, rows: dict[str, int]) -> None:
    rows |= insights(spark, place)


JOBS: Final = {"`compact`": _compact, "`insights`, all marts": _insights}


def measured(spark: SparkSession, made: Made, scratch: Path, rounds: int, *, cold: bool) -> dict[str, dict[str, Took]]:
    """Return the best round of each job on each side: of the clock, and of the processor.

    If `cold`, there is one more round before, which does not count.
    """
    best: dict[str, dict[str, Took]] = {job: {} for job in JOBS}
    for number in range(-1 if cold else 0, rounds):
        turn = SIDES if number % 2 == 0 else SIDES[::-1]
        name = f"{made.asked}-{number}"
        places = {"folder": str(scratch / name), "bucket": f"s3://{BUCKET}/{name}/lake"}
        rows: dict[str, dict[str, int]] = {}
        for job in JOBS:
            for side in turn:
                found = took(partial(JOBS[job], spark, made, places[side], rows.setdefault(side, {})))
                told = f"{made.asked:,} records, round {number + 1}: {job} in a {side}: {found.wall:.1f} s, processor"
                print(f"{told} {found.worked:.1f} s, the server's {found.served:.1f} s", file=sys.stderr, flush=True)
                if number >= 0:
                    best[job][side] = best[job].get(side, found).best_with(found)
        assert rows["folder"] == rows["bucket"], rows
        for place in places.values():
            files = Lake(place).files
            for entry in list(files.entries("")):
                files.remove(entry.name)
    return best


def table(found: Sequence[tuple[Made, dict[str, dict[str, Took]]]]) -> Iterator[str]:
    """Yield a Markdown table with a row for each size and job."""
    yield "| records | job | folder | bucket | ratio | processor: folder | bucket | ratio | server | ratio with it |"
    yield "|---:|---|" + "---:|" * 8
    for made, jobs in found:
        for job, sides in jobs.items():
            here, there = sides["folder"], sides["bucket"]
            with_server = there.worked + there.served
            cells = [f"{here.wall:.1f} s", f"{there.wall:.1f} s", f"{there.wall / here.wall:.2f}"]
            cells += [f"{here.worked:.1f} s", f"{there.worked:.1f} s", f"{there.worked / here.worked:.2f}"]
            cells += [f"{there.served:.1f} s", f"{with_server / here.worked:.2f}"]
            yield f"| {made.asked / 1e6:g} M | {job} | {' | '.join(cells)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, nargs="+", default=SIZES)
    parser.add_argument("--rounds", type=int, nargs="+", default=(2, 1, 1), help="by size; the last for all others")
    parser.add_argument("--data", type=Path, default=Path(".bench"))
    parser.add_argument("--docs", type=Path, help="a page whose table is replaced")
    asked = parser.parse_args()
    asked.data.mkdir(parents=True, exist_ok=True)
    missing = [size for size in asked.records if not is_made(asked.data, size)]
    needed = BYTES_A_RECORD * (sum(missing) + max(asked.records))
    if (free := shutil.disk_usage(asked.data).free) < needed:
        told = f"error: {asked.data} has room for {free / 1e9:.0f} GB, and {needed / 1e9:.0f} GB are needed"
        print(told, file=sys.stderr)
        return 2
    sizes = [make(asked.data, size) for size in sorted(asked.records)]
    scratch = asked.data / "bucket-scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    load, jars = Load(), ",".join(map(str, s3_client()))
    found: list[tuple[Made, dict[str, dict[str, Took]]]] = []
    try:
        with s3_server() as url:
            os.environ.update(environment(url))
            spark = session(f"local[{CORES}]", {"spark.jars": jars})
            for made, rounds in zip(sizes, chain(asked.rounds, repeat(asked.rounds[-1])), strict=False):
                found.append((made, measured(spark, made, scratch, rounds, cold=not found)))
            busy = load.others()
            spark.stop()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    lines = [
        f"Measured with Spark {version('pyspark')} and moto {version('moto')} on {CORES} cores, both sides in turns; "
        f"rounds by size: {', '.join(map(str, asked.rounds))}, the best counts. The load before was {load.before:.1f}; "
        f"while it ran, other work took {busy:.1f} of the cores.",
        "",
        *table(found),
    ]
    print("\n".join(lines))
    if asked.docs:
        put_between(asked.docs, "bucket", lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
