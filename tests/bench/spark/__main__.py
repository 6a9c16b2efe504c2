# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The pipeline beside DuckDB, on the same two cores and the same Parquet.

    python -m tests.bench.spark [--records 1000000 5000000 20000000] [--data .bench] [--rounds 2] [--only G3 …]
                                [--docs docs/cluster.md]

The data are made by a seed, once, and kept below `--data`: a kilobyte of journal and 70 bytes of Parquet a record. Of
each measurement both sides take turns, and the best round of each counts, so that neither starts cold. Absolute times
are this machine's; the goals are ratios within this run. Printed is a table in Markdown, also into `--docs` between
its markers. Exit code 1 when a goal is missed at the largest size, 2 when there is no room for the data.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Final

from rich.console import Console

from redeliver_mw.segments import read_segments

from . import appending, growth, judged, marts, oracle, whatif
from .made import Made, make
from .sides import CORES, Bench, Figure, open_sides

SIZES: Final = (1_000_000, 5_000_000, 20_000_000)
BYTES_A_RECORD: Final = 1_300  # of journal, Parquet, the lake that is made of it twice, and what spills
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
SMALL: Final = 1_000_000  # records, beyond which what runs in Python on one thread is not measured

EVERY_SIZE: Final[dict[str, Callable[[Bench], None]]] = {
    "G1 G2": whatif.goals, "G3 G5 G6": marts.goals,
}  # fmt: skip
SMALLEST: Final[dict[str, Callable[[Bench], None]]] = {"G10": judged.goals, "G11": oracle.goals}

told = Console(stderr=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, nargs="+", default=SIZES)
    parser.add_argument("--data", type=Path, default=Path(".bench"))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=[], help="goals, as G3")
    parser.add_argument("--docs", type=Path, help="a page whose table is replaced")
    asked = parser.parse_args()
    asked.data.mkdir(parents=True, exist_ok=True)
    missing = [size for size in asked.records if not _is_there(asked.data, size)]
    needed = BYTES_A_RECORD * (sum(missing) + max(asked.records))
    if (free := shutil.disk_usage(asked.data).free) < needed:
        told.print(f"error: {asked.data} has room for {free / 1e9:.0f} GB, and {needed / 1e9:.0f} GB are needed")
        return 2
    sizes = [_made(asked.data, size) for size in sorted(asked.records)]
    figures, seconds = measured(sizes, asked)
    lines = [*table(figures), "", *growth.sizing(sizes[-1], seconds)]
    print("\n".join(lines))
    if asked.docs:
        replace(asked.docs, lines)
    return 1 if any(figure.met is False for figure in figures if figure.records in (max(asked.records), 0)) else 0


def _is_there(data: Path, records: int) -> bool:
    return any(data.glob(f"records-{records}-seed-*"))


def _made(data: Path, records: int) -> Made:
    told.print(f"making {records:,} records, unless they are there", highlight=False)
    return make(data, records)


def measured(sizes: Sequence[Made], asked: argparse.Namespace) -> tuple[list[Figure], dict[str, float]]:
    """All figures, from the smallest size to the largest, and the seconds of the largest."""
    scratch = asked.data / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    spark, duck = open_sides(scratch)
    figures: list[Figure] = []
    seconds: dict[int, dict[str, float]] = {}
    try:
        for made in sizes:
            bench = Bench(spark, duck, made, scratch, asked.rounds)
            for goals, measure in (EVERY_SIZE | (SMALLEST if made is sizes[0] else {})).items():
                if not asked.only or set(goals.split()) & set(asked.only):
                    told.print(f"{made.asked:,} records: {goals}", highlight=False)
                    measure(bench)
            figures += bench.figures
            seconds[made.asked] = bench.seconds
        figures += growth.figures(seconds)
        if not asked.only or "G7" in asked.only:
            records = islice(read_segments(sizes[0].journal), appending.RECORDS)
            figures += appending.goals(list(records), scratch)
    finally:
        spark.stop()
        duck.close()
        shutil.rmtree(scratch, ignore_errors=True)
    return figures, seconds[sizes[-1].asked]


def table(figures: Sequence[Figure]) -> Iterator[str]:
    """Markdown: what was measured on what, and a row a figure."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    yield (
        f"Measured with Spark {version('pyspark')}, DuckDB {version('duckdb')} and Python {platform.python_version()} "
        f"on {CORES} cores and {memory:.0f} GiB of memory; the best of several rounds in which both sides took turns."
    )
    yield ""
    yield "| goal | what | records | here | the other side | ratio | wanted | |"
    yield "|---|---|---:|---:|---:|---:|---|---|"
    for f in figures:
        mark = "" if f.met is None else "met" if f.met else "**missed**"
        size = f"{f.records / 1e6:g} M" if f.records >= SMALL else f"{f.records:,}" if f.records else "all"
        ratio = f"{f.ratio:,.0f}" if f.ratio >= 1000 else f"{f.ratio:.2f}"
        yield f"| {f.goal} | {f.what} | {size} | {f.ours} | {f.other} | {ratio} | {f.aim} | {mark} |"


def replace(page: Path, lines: Sequence[str]) -> None:
    """Puts the table between the markers of a page."""
    before, rest = page.read_text().split(BEGIN)
    _, after = rest.split(END)
    page.write_text("\n".join([before + BEGIN, "", *lines, "", END]) + after)


if __name__ == "__main__":
    sys.exit(main())
