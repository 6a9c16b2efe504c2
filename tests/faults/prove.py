# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Kills brokers and apps until there were so many kills: `python -m tests.faults.prove --kills 1000 [--seed 1]`.

The program runs rounds of an app that parks, on each broker in turn, with its limbo in an SQLite file or on PostgreSQL;
`chaos` says what is struck, and what must hold. The program prints a row for each round as it ends, and the seed of one
that went wrong: `--seed N --rounds 1` draws the same blows again. What the consumer said and did in such a round is
kept in `.prove/`, with the SQLite file of its limbo. The exit status is 1 if any message was lost, or was where it may
not be.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tests.brokers import broker
from tests.faults.chaos import Blow, Chaos
from tests.faults.sites import site_of
from tests.storage.postgres import Postgres

BLOWS = 50  # in a round
KEPT = Path(".prove")


class Ground(NamedTuple):
    kind: str
    version: str
    queue: str
    database: str


GROUNDS = [
    Ground("rabbitmq", "4.3", "quorum", "SQLite"),
    Ground("activemq", "6.3", "queue", "PostgreSQL"),
    Ground("artemis", "2.44", "queue", "SQLite"),
    Ground("rabbitmq", "3.10", "classic", "PostgreSQL"),
    Ground("activemq", "5.18", "queue", "SQLite"),
    Ground("artemis", "2.44", "queue", "PostgreSQL"),
]


def play(ground: Ground, seed: int, blows: int) -> Chaos:
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(broker(ground.kind, version=ground.version))
        server = None
        if ground.database == "PostgreSQL":
            server = Postgres()
            stack.callback(server.stop)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="redeliver-chaos-"))
        chaos = Chaos(site_of(own, ground.queue), server, Path(folder), seed=seed, blows=blows)
        if chaos.play().wrong:
            shutil.copytree(folder, KEPT / f"round-{seed}", dirs_exist_ok=True)
        return chaos


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000, help="blows in all")
    parser.add_argument("--seed", type=int, default=1, help="of the first round; each has the next one")
    parser.add_argument("--rounds", type=int, help="at most so many rounds")
    asked = parser.parse_args()
    began, blows, wrong = time.monotonic(), Counter[Blow](), 0
    print("| seed | broker | limbo | blows | runs | handled twice | dead twice | left twice | seconds | |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    seed = asked.seed
    while blows.total() < asked.kills and (asked.rounds is None or seed < asked.seed + asked.rounds):
        ground, since = GROUNDS[(seed - 1) % len(GROUNDS)], time.monotonic()
        report = play(ground, seed, min(BLOWS, asked.kills - blows.total())).report
        print(
            f"| {seed} | {ground.kind} {ground.version} {ground.queue} | {ground.database} | {report.blows.total()} "
            f"| {report.runs} | {report.handled_twice} | {report.dead_twice} | {report.left} "
            f"| {time.monotonic() - since:.0f} | {'; '.join(report.wrong) or 'nothing lost'} |",
            flush=True,
        )
        blows += report.blows
        wrong += bool(report.wrong)
        seed += 1
    print(f"\n{blows.total()} blows in {time.monotonic() - began:.0f} s, {wrong} rounds went wrong:", end=" ")
    print(", ".join(f"{times} {blow}" for blow, times in sorted(blows.items())))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
