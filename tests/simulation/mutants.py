# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the real code with one rule broken, each time; the simulation has to notice.

`python -m tests.simulation.mutants` is the program. Each mutant is made in a copy of the package, by replacing a text
that stands there exactly once. When the code has changed so that it does not, that is an error, and the mutant has to
be written anew. What a real adapter does with its driver cannot be reached from here; where such a rule is broken it is
broken in the memory adapter, which does the same.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]
HISTORIES = 4000  # after which a mutant has got away


@dataclass(frozen=True)
class Mutant:
    name: str
    file: str  # in redeliver_mw
    old: str
    new: str
    stands_for: str = ""  # the adapter's code that it stands for
    besides: tuple[str, str, str] | None = None  # file, old and new, where the rule is kept twice


MUTANTS = (
    Mutant(
        "swap settle and publish",
        "redelivery/effects.py",
        "        for out in missing:\n            if (sender :=",
        '        self.commands.append(Settle(tracked.token, tracked.delivery, "accepted"))\n'
        "        for out in missing:\n            if (sender :=",
    ),
    Mutant(
        "drop the confirm wait",
        "redelivery/effects.py",
        "                self._await(out.copy_id, tracked, sender)\n\n",
        "                self._await(out.copy_id, tracked, sender)\n        self.step(tracked, Signal.COMPLETE)\n\n",
    ),
    Mutant(
        "accept a dead letter that cannot be copied",
        "redelivery/effects.py",
        "            self.step(tracked, Signal.UNCOPYABLE)\n",
        "            tracked.state = State.MOVING\n            self.step(tracked, Signal.COMPLETE)\n",
    ),
    Mutant(
        "settle on timeout",
        "redelivery/effects.py",
        '        if x.verdict == "ok":\n            tracked.confirmed',
        '        if x.verdict in ("ok", "silent"):\n            tracked.confirmed',
    ),
    Mutant(
        "count prefetch as failure",
        "redelivery/interceptor.py",
        "        past = read_history_headers(x.delivery)\n        claimed = ",
        "        past = read_history_headers(x.delivery)\n        past.failures += x.delivery.redelivered\n"
        "        claimed = ",
    ),
    Mutant(
        "reuse an old generation",
        "memory/consumer.py",
        "            if delivery.generation in self._generations:\n"
        "                live.setdefault(delivery.generation, []).append((delivery, settlement))\n",
        "            if self._generations:\n"
        "                live.setdefault(max(self._generations), []).append((delivery, settlement))\n",
        "the check of each adapter's own settle",
        (
            "runtime/runner.py",
            "        running = [d for d in list(self.running) if d.generation == generation and self._claim(d)]\n",
            "        running: list[Delivery] = []\n",
        ),
    ),
    Mutant(
        "a cumulative ack covers a running delivery",
        "memory/generation.py",
        "        while self._first_open <= self._last and self._first_open not in self._unsettled:\n"
        "            self._first_open += 1\n",
        "        self._first_open = max([self._first_open, *(n + 1 for n in accepted if isinstance(n, int))])\n",
        "redeliver_pika",
    ),
    Mutant(
        "try again on a silent live link",
        "memory/publisher.py",
        '        self.lost(f"no answer within {self._timeout:g} s")\n        if link is not None:\n',
        '        self._answer(key, "silent", f"no answer within {self._timeout:g} s")\n        if link is None:\n',
        "each adapter's publishing link",
    ),
    Mutant(
        "send again what an earlier delivery has sent",
        "redelivery/effects.py",
        "            if (sender := self._flying.setdefault(out.copy_id, tracked)) is tracked:\n",
        "            sender = self._flying[out.copy_id] = tracked\n            if sender is tracked:\n",
    ),
    Mutant(
        "take a replayed count for a live one",
        "redelivery/headers.py",
        "    if reason:\n        past.generation += 1\n",
        "    if reason and not counted:\n        past.generation += 1\n",
    ),
    Mutant(
        "reuse a copy id across generations",
        "redelivery/identity.py",
        '    seed = f"{lineage}\\0{generation}\\0{hop}\\0{target}"\n',
        '    seed = f"{lineage}\\0{target}"\n',
    ),
    Mutant(
        "commit before the send's outcome",
        "memory/transactions.py",
        "        if refused:\n            returned",
        '        if refused:\n            memory_generation.settle([(delivery, "accepted")], cumulative=False)\n'
        "            returned",
        "redeliver_proton",
    ),
    Mutant(
        "release a parked row before it is confirmed",
        "limbo/service.py",
        "        self._adapter.publish(self._whole(row), answered)\n",
        "        self._worker.published(row)\n        self._adapter.publish(self._whole(row), lambda *_: None)\n",
    ),
    Mutant(
        "answer a parking before it is committed",
        "limbo/worker.py",
        "        try:\n            if lines:\n                self._limbo.park_lines(lines)\n",
        '        for job in good:\n            _tell(job, "ok", "")\n        try:\n            if lines:\n'
        "                self._limbo.park_lines(lines)\n",
    ),
    Mutant(
        "hand a message over before it is marked",
        "crash_safety/gate.py",
        '            if what == "arrived":\n                self._arrivals += about\n',
        '            if what == "arrived":\n                self._arrivals += about\n'
        "                for one in about:\n                    self._client.hand([one], first=False)\n",
    ),
)

LIMBOS = ("limbo/service.py", "crash_safety/gate.py", "limbo/worker.py")  # of these every history has one


def made(mutant: Mutant, folder: Path) -> None:
    """Copy the package and this simulation into `folder`, changed.

    Raises ValueError when the text to change is not there once.
    """
    for name in ("redeliver_mw", "tests/simulation"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "tests" / "__init__.py").touch()
    for name, old, new in filter(None, ((mutant.file, mutant.old, mutant.new), mutant.besides)):
        file = folder / "redeliver_mw" / name
        text = file.read_text("utf-8")
        if text.count(old) != 1:
            raise ValueError(f"{mutant.name}: {name} has changed; write this mutant anew")
        file.write_text(text.replace(old, new), "utf-8")


def caught(mutant: Mutant, histories: int = HISTORIES) -> tuple[int, int, str] | None:
    """Return how many histories it took, the seed, and what was wrong with it; None for a mutant that got away."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        made(mutant, Path(name))
        limbo = ["--limbo"] if mutant.file in LIMBOS else []
        run = subprocess.run(
            [sys.executable, "-m", "tests.simulation.hunt", str(histories), *limbo],
            cwd=name,
            env=os.environ | {"PYTHONPATH": name},
            capture_output=True,
            text=True,
            check=False,
        )
    if run.returncode == 0:
        return None
    if run.returncode != 1:
        raise RuntimeError(f"{mutant.name}: {run.stderr[-2000:]}")
    number, seed, what = run.stdout.strip().split("\t")
    return int(number), int(seed), what


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__)
    parser.add_argument("--histories", type=int, default=HISTORIES, metavar="N", help="after which one has got away")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, metavar="N", help="processes")
    given = parser.parse_args()
    table = Table("mutant", "in", "stands for", "after", "seed", "what was noticed", title="mutants")
    away = 0
    with Progress() as progress, ThreadPoolExecutor(given.workers) as pool:
        task = progress.add_task("mutants", total=len(MUTANTS))
        found = [pool.submit(caught, mutant, given.histories) for mutant in MUTANTS]
        for mutant, one in zip(MUTANTS, found, strict=True):
            result = one.result()
            after, seed, what = map(str, result) if result is not None else ("-", "-", "NOT CAUGHT")
            away += result is None
            table.add_row(mutant.name, mutant.file, mutant.stands_for, after, seed, what)
            progress.advance(task)
    Console(width=180).print(table)
    return int(away > 0)


if __name__ == "__main__":
    sys.exit(main())
