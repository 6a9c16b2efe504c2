# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Compares a drain with the loop that one would write by hand: `python -m tests.bench.drains [--broker rabbitmq …]`.

Both consume the same number of persistent messages of 256 bytes. The loop throws them away; the drain, of two tasks on
a Spark that is up, writes each batch to a file that lasts before it settles it, and puts all of them into a table. In a
round the sides take turns. The goal is at least half of the loop's rate.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable

from tests.bench.asked import Asked
from tests.bench.benches import BENCHES
from tests.bench.figures import spread
from tests.bench.rounds import BY_HAND, Case, Ground


def compare(at: Ground, case: Case, rounds: int, drained: Callable[[str, str], float]) -> None:
    """Print the figures of each side; the first round does not count."""
    bench, task = at.bench, at.task(case, at.folder)
    rates: dict[str, list[float]] = {BY_HAND: [], "drain": []}
    for number in range(-1, rounds):
        hand = at.play(at.turn(BY_HAND, case))["rate"]
        bench.fill(task)
        at.holds(task.queue, task.messages)  # a drain takes what is there when it begins
        ours = drained(task.url, task.queue)
        if number >= 0:
            rates[BY_HAND].append(hand)
            rates["drain"].append(ours)
    ratios = [mine / bare for mine, bare in zip(rates["drain"], rates[BY_HAND], strict=True)]
    what = f"{bench.kind} {bench.version}, {case.messages} messages"
    for side, found in rates.items():
        print(f"{what}, {side}: {spread(found, 0)} msg/s (min / median / max)")
    print(f"{bench.kind} {bench.version}: ratio {spread(ratios, 2)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--broker", nargs="+", choices=BENCHES, default=list(BENCHES))
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=2)
    asked = parser.parse_args()

    from redeliver_mw.pipeline import drain, session

    spark = session("local[2]")

    def drained(url: str, queue: str) -> float:
        with tempfile.TemporaryDirectory() as lake:
            began = time.perf_counter()
            done = drain(spark, url, queue, lake, tasks=asked.tasks)
            seconds = time.perf_counter() - began
        assert done.letters == asked.messages, done
        return asked.messages / seconds

    for kind in asked.broker:
        with Asked().ground(kind) as at:
            compare(at, Case(asked.messages, at.bench.queues[0]), asked.rounds, drained)
    spark.stop()


if __name__ == "__main__":
    main()
