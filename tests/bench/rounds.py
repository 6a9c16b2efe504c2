# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs rounds in which sides take turns on one broker, each as a process of its own.

A round takes each side once, in the other order than the round before, so that a machine whose speed drifts treats them
alike; what counts are ratios within a round. A first round, which warms a JVM and fills caches, does not count. Each
side gets a queue that was filled for it, and has to leave it empty: one that does not, or that takes too long, ends the
bench.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from redeliver_mw.session import connect
from tests.bench.figures import MEASURES, Figure
from tests.bench.side import Side, Task

BY_HAND, DROP_IN, APP = "by hand", "drop-in", "App"
ROOT = Path(__file__).parents[2]
WARM = 10_000  # messages before a JVM is at its speed
PATIENCE = 300.0  # seconds for a side

Fill = Callable[[Task], None]  # the queue is new, or empty
Say = Callable[[str], None]


class SideFailed(Exception):
    """Says that a side did not do what it was told; the text says which one, and what it printed."""


class Bench(NamedTuple):
    """Holds what one broker brings: how it is started, its sides, in which module, and how a queue is filled."""

    module: str
    kind: str
    version: str
    options: Mapping[str, Any]
    queues: tuple[str, ...]  # kinds of queue
    fill: Fill
    sides: Mapping[str, Side]


@dataclass(frozen=True)
class Case:
    """Describes what sides are compared on; `body` is in bytes, `work_ms` is what a handler takes for each message."""

    messages: int = 10_000
    queue: str = "classic"
    body: int = 256
    prefetch: int = 500
    work_ms: float = 0.0
    journal: bool = True  # of App and drop-in
    crash_safe: bool = False  # of App: its counts in SQLite
    metrics: bool = False  # of App
    traces: float | None = None  # of App: the share of its runs that have a span; None: no traces
    spans: float | None = None  # of App: the share of the spans that its handler makes by hand; None: it makes none
    fail_every: int = 0  # one message in so many always fails
    rest: float = 0.0  # seconds after a failure
    tries: int = 4  # before a dead letter
    pace: float = 0.0  # messages per second, published while they are consumed; 0: the queue was filled before
    lead: float = 0.0  # seconds that the side is up before the first message
    ids: int = 2  # one message in so many has an id, on RabbitMQ, where a producer may leave it out; 0: none


class Program(NamedTuple):
    """Names the Python and the module that a side runs; one that `fills` has a queue and an envelope of its own."""

    module: str
    name: str
    python: str = sys.executable
    fills: bool = False

    def run(self, name: str, task: Task) -> dict[str, float]:
        """Return the figures that the side printed, if any. Raises SideFailed."""
        argv = [self.python, "-m", self.module, name, task.as_json()]
        env = dict(os.environ)
        if self.python != sys.executable:  # it has nothing of ours
            env.pop("PYTHONPATH", None)
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, env=env, cwd=ROOT)
        except subprocess.TimeoutExpired as error:
            raise SideFailed(f"{self.module}, {name}: not within {PATIENCE:.0f} s\n{_end(error.stderr)}") from None
        if done.returncode:
            raise SideFailed(f"{self.module}, {name}: exit code {done.returncode}\n{_end(done.stderr)}")
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        return json.loads(lines[-1]) if lines else {}


def _end(text: str | bytes | None) -> str:
    told = text.decode(errors="replace") if isinstance(text, bytes) else text or ""
    return "\n".join(told.splitlines()[-25:])


class Turn(NamedTuple):
    """Says which program runs in a round, as which side, on which case."""

    side: str
    program: Program
    case: Case


@dataclass(frozen=True)
class Ground:
    """Holds a broker that runs, a folder for journals and limbos, and a function to say how far the bench is."""

    bench: Bench
    url: str
    folder: Path
    say: Say

    def turn(self, side: str, case: Case) -> Turn:
        """Return the turn of a side of this broker, under its own name."""
        return Turn(side, Program(self.bench.module, side), case)

    def task(self, case: Case, folder: Path) -> Task:
        return Task(
            self.url,
            f"bench.{case.queue}",
            case.messages,
            kind=case.queue,
            body=case.body,
            prefetch=case.prefetch,
            work=case.work_ms / 1000,
            journal=str(folder / "journal") if case.journal else None,
            limbo=f"sqlite:///{folder}/limbo.db" if case.crash_safe else None,
            metrics=case.metrics,
            traces=case.traces,
            spans=case.spans,
            fail_every=case.fail_every,
            rest=case.rest,
            tries=case.tries,
            pace=case.pace,
            lead=case.lead,
            ids=case.ids,
        )

    def play(self, turn: Turn) -> dict[str, float]:
        """Run one side once, and return what it printed. Raises SideFailed, also if the side leaves messages."""
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            task = self.task(turn.case, Path(scratch))
            if turn.program.fills:
                task = replace(task, queue=f"bench.{turn.side}")
                turn.program.run("fill", task)
            else:
                self.bench.fill(task)
            self.holds(task.queue, 0 if task.pace else task.messages)
            told = turn.program.run(turn.program.name, task)
            if not told:
                raise SideFailed(f"{turn.program.module}, {turn.program.name}: it printed no figures")
            self.holds(task.queue, 0)
            if task.fail_every:
                self.holds(task.dead, 0)  # the side has counted them, and there was none too many
            return told

    def holds(self, queue: str, messages: int) -> None:
        """Wait until the queue holds so many messages: brokers count a little later."""
        deadline = time.monotonic() + 30
        with connect(self.url) as session:
            while (there := session.depth(queue)) != messages:
                if time.monotonic() > deadline:
                    raise SideFailed(f"{queue} holds {there} messages, not {messages}")
                time.sleep(0.02)  # a broker tells nobody when its count is right

    def compare(
        self, section: str, case: str, turns: Sequence[Turn], rounds: int, *, warm: bool = True
    ) -> list[Figure]:
        """Return all that these sides print, in `rounds` rounds after one that does not count."""
        found: dict[tuple[str, str], list[float]] = {}
        for number in range(-1 if warm else 0, rounds):
            for turn in turns if number % 2 == 0 else reversed(turns):
                told = self.play(turn if number >= 0 else self._warming(turn))
                for what, value in told.items() if number >= 0 else ():
                    found.setdefault((turn.side, what), []).append(value)
                words = ", ".join(f"{v:,.{MEASURES[w].digits}f} {MEASURES[w].unit}" for w, v in told.items())
                when = f"round {number + 1} of {rounds}" if number >= 0 else "warming up"
                self.say(f"{section}, {case}, {when}: {turn.side}: {words}")
        return [Figure(section, case, side, what, tuple(values)) for (side, what), values in found.items()]

    def _warming(self, turn: Turn) -> Turn:
        """Return the same turn with many messages for a JVM, which is at its speed only after many."""
        many = max(turn.case.messages, WARM) if self.bench.options.get("tiered") else turn.case.messages
        return turn._replace(case=replace(turn.case, messages=many))
