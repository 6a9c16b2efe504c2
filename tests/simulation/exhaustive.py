# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Takes the walk of `tests/redelivery/test_interceptor_walk.py` for two messages on one connection, far.

`python -m tests.simulation.exhaustive` tries every order of inputs, with lost generations, refused copies, silent or
late answers, aborted transactions and a stop, until there is no new state or as many as were asked for.

The walk goes breadth first, so that what is found is found by a shortest way, which is told. A state is remembered by
64 bits of hash; the states that are still to be gone on from are kept whole, compressed.
"""

from __future__ import annotations

import argparse
import os
import pickle
import sys
import time
import zlib
from collections import deque
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.redelivery.test_interceptor_walk import PLANS, World, freeze, world_of

FAULTS = (1, 1)  # bad answers and losses that may come, beside a stop
STATES = 1_000_000


class Found(NamedTuple):
    plan: str
    atomic: bool | str
    states: int
    steps: int
    depth: int
    all_there_are: bool
    seconds: float


def walk(name: str, atomic: bool | str, most: int, faults: tuple[int, int] = FAULTS) -> Found:
    """Walk until there is no new state, or `most` of them, and return what was found.

    Raises AssertionError, with the way there as its note, for a state that breaks a rule.
    """
    began = time.monotonic()
    start = world_of(name, 2, *faults, atomic=atomic)
    seen = {hash(start.snapshot())}
    ahead: deque[tuple[bytes, tuple[Any, ...]]] = deque([(_packed(start), ())])
    steps = depth = 0
    while ahead and len(seen) < most:
        packed, path = ahead.popleft()
        depth = len(path)
        frozen = zlib.decompress(packed)
        for offer in list(pickle.loads(frozen).offers()):
            world: World = pickle.loads(frozen)
            try:
                world.take(*offer)
            except Exception as error:
                error.add_note(f"{name}: after " + ", ".join(map(str, (*path, offer))))
                raise
            steps += 1
            if (mark := hash(world.snapshot())) not in seen:
                seen.add(mark)
                ahead.append((_packed(world), (*path, offer)))
    return Found(name, atomic, len(seen), steps, depth, not ahead, time.monotonic() - began)


def _packed(world: World) -> bytes:
    return zlib.compress(freeze(world), 1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.exhaustive")
    parser.add_argument("--states", type=int, default=STATES, metavar="N", help="of all plans together, at most")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, metavar="N", help="processes")
    given = parser.parse_args()
    walks: list[tuple[str, bool | str]] = [(name, False) for name in PLANS]
    walks += [("hold", True), ("schedule", True), ("apart", "tight"), ("letter", "tight")]
    each = given.states // len(walks) + 1
    table = Table("plan", "transactions", "states", "steps", "depth", "", "s", title="two messages on one connection")
    total = 0
    with Progress() as progress, ProcessPoolExecutor(given.workers) as pool:
        task = progress.add_task("walks", total=len(walks))
        for done in as_completed([pool.submit(walk, *one, each) for one in walks]):
            found = done.result()
            total += found.states
            progress.advance(task)
            if not progress.console.is_terminal:
                print(f"{found.plan}: {found.states} states in {found.seconds:.0f} s", file=sys.stderr, flush=True)
            end = "all there are" if found.all_there_are else "there are more"
            table.add_row(
                found.plan,
                "yes" if found.atomic is True else "",
                f"{found.states}",
                f"{found.steps}",
                f"{found.depth}",
                end,
                f"{found.seconds:.0f}",
            )
    Console().print(table)
    print(f"{total} states, and no rule is broken in any of them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
