# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Measures what plans of many letters cost: `python -m tests.bench.plans`.

    python -m tests.bench.plans [--letters 100000 1000000] [--docs docs/plan.md]

A lake of so many dead letters is written without a broker, as a drain of RabbitMQ leaves them: each of them has its own
key, its own body of 300 bytes, and one of ten fingerprints. Then each size takes the same steps:

- a plan of a tenth of the letters, by their fingerprint, and a plan of all of them;
- to open the plan, which hashes its files, and to sum up how its letters stand: `replay` looks at this first;
- to read all letters bucket by bucket, to make the copies and to keep the ledger, as publishers do it, with the answer
  of a broker that confirms everything. There is no such broker: what is sent over the network is no part of this;
- what comes after a replay: to write the outcomes, to plan once more, which leaves all letters out, and to find out
  that the plan of a tenth was sent by another replay.

Each step has these figures: seconds, processor time of all processes with the JVM, also for one letter, and the peak of
the memory of this process, which is the driver's Python. A step whose processor time grows faster than its letters is
marked. In `local[2]` the JVM is driver and executor in one, so its memory says nothing about the driver. The bench
prints a table in Markdown, and writes it into the page of `--docs` between its markers.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from redeliver_mw.adapter.registry import adapter_for
from redeliver_mw.dead_letters.sending.batch_publisher import BatchAnswer
from redeliver_mw.errors import ConfigError
from redeliver_mw.pipeline import Lake, plan, session
from redeliver_mw.pipeline.draining.manifests import Gathered, current, publish
from redeliver_mw.pipeline.draining.rows import LETTERS, LetterRows
from redeliver_mw.pipeline.draining.staging import TABLE
from redeliver_mw.pipeline.lake.parquet_writer import DayWriter
from redeliver_mw.pipeline.manifests import new_run, run_after
from redeliver_mw.pipeline.plans.plan_file import Plan, read_plan
from redeliver_mw.pipeline.replaying import outcomes
from redeliver_mw.pipeline.replaying.ledger import BucketAttempt
from redeliver_mw.pipeline.replaying.options import BATCH
from redeliver_mw.pipeline.replaying.preflight import refuse_sent_elsewhere
from redeliver_mw.pipeline.replaying.publishers import PublisherTask, _batches, letter_of
from redeliver_mw.pipeline.replaying.registry import register
from tests.bench.page import put_between
from tests.bench.spark.load import Load, processor_s
from tests.pipeline.letters import DIED_US, letter, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

URL: Final = "rabbitmq://guest:guest@127.0.0.1:5672/"  # nobody is asked there
DAYS, DAY_US, PRINTS, BODY = 10, 86_400_000_000, 10, 300
AT_ONCE: Final = 50_000  # letters that are written together
ZERO: Final = "0" * 32  # stands for the id of a letter wherever it is written
MEASURED: Final = 1.0  # seconds of the processor, below which growth is not judged: its clock ticks a hundred times
LINEAR: Final = 1.25  # times the letters' own growth, beyond which a step is marked
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Step:
    """Holds what a step took for a lake of so many letters; `peak_mib` is the peak of the memory of this process."""

    name: str
    letters: int
    wall: float
    worked: float
    peak_mib: float

    @property
    def each_us(self) -> float:
        """Return the processor time of a letter, in microseconds."""
        return self.worked / self.letters * 1e6


class Steps:
    """Measures steps, one after the other, and prints each."""

    def __init__(self, letters: int) -> None:
        self._letters, self.found = letters, list[Step]()

    def take(self, name: str, what: Callable[[], T]) -> T:
        """Do a step, and return its result."""
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        began, worked = time.perf_counter(), processor_s()
        result = what()
        wall, worked = time.perf_counter() - began, processor_s() - worked
        step = Step(name, self._letters, wall, worked, _peak_mib())
        self.found.append(step)
        told = f"{self._letters:,} letters: {name}: {wall:.1f} s, processor {worked:.1f} s, {step.peak_mib:.0f} MiB"
        print(told, file=sys.stderr, flush=True)
        return result


def _peak_mib() -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def write_letters(place: str, letters: int) -> None:
    """Put so many letters into a new lake, as one run of a drain, evenly over the days."""
    lake = Lake(place, create=True)
    base = current(lake.files)
    name = run_after(base.head.generation)
    writer = DayWriter(lake.root, name, 0, LETTERS, table=TABLE, by="dead_us")
    for table in _tables(letters):
        writer.add(table)
    publish(lake.files, base, name, [Gathered(name, DIED_US, "lake", writer.close(), letters=letters)])


def _tables(letters: int) -> Iterator[pa.Table]:
    """Yield rows like that of a letter which a drain has packed; what differs from letter to letter is replaced."""
    made = LetterRows(run())
    made.add(letter(b"", {"tenant": "acme"}, copy_id=ZERO, correlation_id=ZERO))
    (like,) = made.table().select(LETTERS.names).to_pylist()
    like["headers"] = [(name, value) for name, value in like["headers"]]
    rng = random.Random(1)
    for start in range(0, letters, AT_ONCE):
        numbers = range(start, min(letters, start + AT_ONCE))
        columns: dict[str, Any] = {name: [value] * len(numbers) for name, value in like.items()}
        ids = [f"{rng.getrandbits(128):032x}" for _ in numbers]
        bodies = [_body(number, rng) for number in numbers]
        columns |= {
            "dl_id": ids,
            "message_key": ids,
            "dead_us": [DIED_US + number * DAYS // letters * DAY_US + number for number in numbers],
            "error_fingerprint": [f"{number % PRINTS:016x}" for number in numbers],
            "body": bodies,
            "body_sha256": [hashlib.sha256(body).hexdigest() for body in bodies],
            "body_bytes": [BODY] * len(numbers),
            "letter": [like["letter"].replace(ZERO.encode(), id_.encode()) for id_ in ids],
        }
        yield pa.table({name: pa.array(columns[name], LETTERS.field(name).type) for name in LETTERS.names})


def _body(number: int, rng: random.Random) -> bytes:
    start = b'{"order":%d,"token":"' % number
    return start + rng.randbytes(64).hex().encode() + b"x" * (BODY - len(start) - 130) + b'"}'


def publish_nothing(made: Plan) -> int:
    """Read a plan as its publishers do, make each copy, keep the ledger; return the number of copies."""
    adapter, copies = adapter_for(URL), 0
    name = new_run()
    work = PublisherTask(folder=made.folder, plan_id=made.plan_id, run=name, url=URL, shares=[], batch=BATCH)
    for file in made.files:
        ledger = BucketAttempt(made.folder, made.plan_id, file.bucket, name)
        try:
            for rows in _batches(work, file.bucket, ledger.before.confirmed):
                found = [letter_of(row, made.plan_id, made.ordered, adapter) for row in rows]
                positions = {one.position for one in found}
                ledger.intend(positions)
                ledger.answer(BatchAnswer(confirmed=positions))
                copies += len(found)
        finally:
            ledger.close()
    return copies


def measure(spark: SparkSession, letters: int, folder: Path) -> tuple[list[Step], str]:
    """Take all steps with a lake of so many letters; return them, and a line about the size of the plan."""
    with ProcessPoolExecutor(1, get_context("spawn")) as other:  # whose memory is not ours
        other.submit(write_letters, str(folder / "lake"), letters).result()
    lake, steps = Lake(folder / "lake"), Steps(letters)
    in_lake = _bytes(folder / "lake" / TABLE)
    tenth = steps.take(
        "`plan` of a tenth, by its fingerprint", lambda: plan(spark, lake, folder / "tenth", fingerprints=["0" * 16])
    )
    whole = steps.take("`plan` of all letters", lambda: plan(spark, lake, folder / "whole"))
    assert (tenth.letters, whole.letters) == (letters // PRINTS, letters), (tenth, whole)
    size = sum(file.bytes for file in whole.files)
    opened = steps.take("open the plan: hash its files", lambda: read_plan(folder / "whole"))
    assert steps.take("sum up how its letters stand", lambda: outcomes.standing(opened)).words["left"] == letters
    register(opened, DIED_US)
    assert steps.take("publishers: read, make copies, ledger", lambda: publish_nothing(opened)) == letters
    assert steps.take("sum up after the replay", lambda: outcomes.standing(opened)).confirmed == letters
    steps.take("write the outcomes", lambda: outcomes.write(opened, None))
    again = steps.take("`plan` once more: all are left out", lambda: plan(spark, lake, folder / "again"))
    assert again.left_out == {"replayed": letters}, again
    steps.take("find another plan's letters sent", lambda: _refused(tenth))
    return steps.found, (
        f"{letters:,} letters: {in_lake / letters:.0f} bytes of a letter in the lake, {size / letters:.0f} in the plan "
        f"({size / 1e6:.0f} MB in {len(whole.files)} files)."
    )


def _refused(tenth: Plan) -> None:
    code = ""
    try:
        refuse_sent_elsewhere(tenth)
    except ConfigError as error:
        code = error.code
    assert code == "plan-already-sent", code


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.parquet"))


def table(found: Sequence[Sequence[Step]]) -> Iterator[str]:
    """Yield a Markdown table with a row for each step, and the sizes beside each other."""
    sizes = [f"{steps[0].letters:,}" for steps in found]
    yield "| step | " + " | ".join(f"{size}: s | processor s | µs a letter | peak MiB" for size in sizes) + " |"
    yield "|---|" + "---:|---:|---:|---:|" * len(sizes)
    for same in zip(*found, strict=True):
        cells = [same[0].name]
        for step in same:
            faster = step.worked >= MEASURED and step.each_us > LINEAR * same[0].each_us
            each = f"**{step.each_us:.1f}**" if faster else f"{step.each_us:.1f}"
            cells += [f"{step.wall:.1f}", f"{step.worked:.1f}", each, f"{step.peak_mib:.0f}"]
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--letters", type=int, nargs="+", default=(100_000, 1_000_000), help="divisible by ten")
    parser.add_argument("--docs", type=Path, help="a page whose table is replaced")
    asked = parser.parse_args()
    load, found, sizes = Load(), list[list[Step]](), list[str]()
    spark = session("local[2]")
    with tempfile.TemporaryDirectory(prefix="plans-") as folder:
        place = Path(folder, "first")
        write_letters(str(place / "lake"), 1000)
        plan(spark, place / "lake", place / "plan")  # the first one of a session costs what no other does
        print(f"before: {_peak_mib():.0f} MiB", file=sys.stderr, flush=True)
        for letters in sorted(asked.letters):
            place = Path(folder, str(letters))
            place.mkdir()
            steps, size = measure(spark, letters, place)
            found.append(steps)
            sizes.append(size)
    spark.stop()
    busy = f"The load before was {load.before:.1f}; while it ran, other work took {load.others():.1f} of two cores."
    lines = [*table(found), "", *sizes, busy]
    print("\n".join(lines))
    if asked.docs:
        put_between(asked.docs, "plans", lines)


if __name__ == "__main__":
    main()
