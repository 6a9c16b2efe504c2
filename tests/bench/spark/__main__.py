# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Compares the pipeline with DuckDB, on the same two cores and the same Parquet.

    python -m tests.bench.spark [--records 1000000 5000000 20000000] [--rounds 3 2 2] [--data .bench] [--only G3 …]
                                [--docs docs/cluster.md]

The data are made by a seed, once, and kept below `--data`: a kilobyte of journal and 60 bytes of Parquet a record. In
each measurement both sides take turns, as many rounds as `--rounds` has for that size, and the best of each counts: in
the first one everything is cold. Absolute times are this machine's; the goals are ratios within this run. The bench
prints a table in Markdown, and writes it into the page of `--docs` between its markers. The exit code is 1 when a goal
is missed, and 2 when there is no room for the data.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Final

from rich.console import Console

from redeliver_mw.journal.segments import read_segments
from tests.bench.page import put_between

from . import appending, growth, judged, marts, oracle, whatif
from .load import Load
from .made import Made, is_made, make
from .sides import CORES, Bench, Figure, Took, open_sides

SIZES: Final = (1_000_000, 5_000_000, 20_000_000)
BYTES_A_RECORD: Final = 1_300  # of journal, Parquet, the lake that is made of it twice, the marts, and what spills
SMALL: Final = 1_000_000  # records, beyond which what runs in Python on one thread is not measured

EVERY_SIZE: Final[dict[str, Callable[[Bench], None]]] = {
    "G1 G2": whatif.goals,
    "G3": marts.single_marts,
    "G5 G12": marts.whole_pipeline,
    "G6": marts.stream,
}
SMALLEST: Final[dict[str, Callable[[Bench], None]]] = {"G10": judged.goals, "G11": oracle.goals}

told = Console(stderr=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, nargs="+", default=SIZES)
    parser.add_argument("--data", type=Path, default=Path(".bench"))
    parser.add_argument("--rounds", type=int, nargs="+", default=(3, 2, 2), help="by size; the last for all others")
    parser.add_argument("--only", nargs="*", default=[], help="goals, as G3")
    parser.add_argument("--docs", type=Path, help="a page whose table is replaced")
    asked = parser.parse_args()
    asked.data.mkdir(parents=True, exist_ok=True)
    missing = [size for size in asked.records if not is_made(asked.data, size)]
    needed = BYTES_A_RECORD * (sum(missing) + max(asked.records))
    if (free := shutil.disk_usage(asked.data).free) < needed:
        told.print(f"error: {asked.data} has room for {free / 1e9:.0f} GB, and {needed / 1e9:.0f} GB are needed")
        return 2
    sizes = [_made(asked.data, size) for size in sorted(asked.records)]
    load = Load()
    figures, took = measured(sizes, asked)
    lines = [_on_what(load), "", *table(figures), "", *growth.sizing(sizes[-1], took)]
    print("\n".join(lines))
    if asked.docs:
        put_between(asked.docs, "bench", lines)
    return 1 if any(figure.met is False for figure in figures) else 0


def _made(data: Path, records: int) -> Made:
    told.print(f"making {records:,} records, unless they are there", highlight=False)
    return make(data, records)


def measured(sizes: Sequence[Made], asked: argparse.Namespace) -> tuple[list[Figure], dict[str, Took]]:
    """Return all figures, from the smallest size to the largest, and what our side took at the largest."""
    scratch = asked.data / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    spark, duck = open_sides(scratch)
    figures: list[Figure] = []
    took: dict[int, dict[str, Took]] = {}
    try:
        for made, rounds in zip(sizes, chain(asked.rounds, repeat(asked.rounds[-1])), strict=False):
            bench = Bench(spark, duck, made, scratch, rounds)
            for goals, measure in (EVERY_SIZE | (SMALLEST if made is sizes[0] else {})).items():
                if not asked.only or set(goals.split()) & set(asked.only):
                    told.print(f"{made.asked:,} records: {goals}", highlight=False)
                    done = len(bench.figures)
                    measure(bench)
                    for figure in bench.figures[done:]:
                        told.print("  " + " | ".join(_cells(figure)), highlight=False, soft_wrap=True)
            figures += bench.figures
            took[made.asked] = bench.took
        figures += growth.figures(took)
        if not asked.only or "G7" in asked.only:
            records = islice(read_segments(sizes[0].journal), appending.RECORDS)
            figures += appending.goals(list(records), scratch)
    finally:
        spark.stop()
        duck.close()
        shutil.rmtree(scratch, ignore_errors=True)
    return figures, took[sizes[-1].asked]


def _on_what(load: Load) -> str:
    """Return what was measured on what, and what else the machine did meanwhile."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return (
        f"Measured with Spark {version('pyspark')}, DuckDB {version('duckdb')} and Python {platform.python_version()} "
        f"on {CORES} cores and {memory:.0f} GiB of memory, both sides in turns, the best round of each. The load "
        f"before was {load.before:.1f}; while it ran, other work took {load.others():.1f} of the cores."
    )


def table(figures: Sequence[Figure]) -> Iterator[str]:
    """Yield a Markdown table with a row for each figure."""
    yield "| goal | what | records | here | the other side | ratio | of processor time | wanted | |"
    yield "|---|---|---:|---:|---:|---:|---:|---|---|"
    for figure in figures:
        yield f"| {' | '.join(_cells(figure))} |"


def _cells(f: Figure) -> tuple[str, ...]:
    mark = "" if f.met is None else "met" if f.met else "**missed**"
    size = f"{f.records / 1e6:g} M" if f.records >= SMALL else f"{f.records:,}" if f.records else "all"
    return f.goal, f.what, size, f.ours, f.other, _short(f.ratio), _short(f.worked), f.aim, mark


def _short(ratio: float | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio:,.0f}" if ratio >= 1000 else f"{ratio:.2f}" if ratio >= 0.1 or not ratio else f"{ratio:.4f}"


if __name__ == "__main__":
    sys.exit(main())
