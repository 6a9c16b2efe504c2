# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""A drain against the loop that one would write by hand: `python -m tests.bench.drains [--broker rabbitmq …]`.

Both consume the same number of persistent messages of 256 bytes. The loop throws them away; the drain, of two tasks on
a Spark that is up, writes each batch to a file that lasts before it settles it, and puts all of them into a table. In a
round the sides take turns. Goal: at least half of the loop's rate.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable

from redeliver_mw.session import connect
from tests.bench import activemq, artemis, rabbitmq
from tests.bench.rounds import BY_HAND, Bench, one, spread
from tests.brokers import broker
from tests.faults.load import until

BENCHES = {bench.kind: bench for bench in (rabbitmq.BENCH, activemq.BENCH, artemis.BENCH)}


def compare(bench: Bench, url: str, messages: int, rounds: int, drained: Callable[[str, str], float]) -> None:
    """Prints what each side made of it; the first round does not count."""
    kind = bench.queues[0]
    rates: dict[str, list[float]] = {"by hand": [], "drain": []}
    for number in range(-1, rounds):
        queue = f"bench.drain.{number + 1}"
        bench.fill(url, queue, messages, kind)
        hand, _ = one(bench, BY_HAND, url, queue, messages, None)
        bench.fill(url, queue, messages, kind)
        with connect(url) as session:  # a drain takes what is there when it begins
            until(lambda queue=queue: session.depth(queue) == messages, 120, "not all of it arrived")
        ours = drained(url, queue)
        if number >= 0:
            rates["by hand"].append(hand)
            rates["drain"].append(ours)
    ratios = [mine / bare for mine, bare in zip(rates["drain"], rates["by hand"], strict=True)]
    for side, found in rates.items():
        print(
            f"{bench.kind} {bench.version}, {messages} messages, {side}: {spread(found, 0)} msg/s (min / median / max)"
        )
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

    for bench in (BENCHES[name] for name in asked.broker):
        with broker(bench.kind, version=bench.version, **bench.options) as own:
            compare(bench, own.url, asked.messages, asked.rounds, drained)
    spark.stop()


if __name__ == "__main__":
    main()
