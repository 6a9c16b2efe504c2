# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds what a side is told, and prints the figures of the side.

A side is one consumer program. It runs as a process of its own, `python -m MODULE SIDE TASK`, with its task as JSON,
and prints one line of JSON: its figures. Only the standard library is imported here, since the sides of other
frameworks run where nothing of this project is installed.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Task:
    """Describes one queue to consume; `work` and `rest` are in seconds, `body` in bytes; a None means no such file."""

    url: str
    queue: str
    messages: int
    kind: str = "classic"  # of queue
    body: int = 256
    prefetch: int = 500
    work: float = 0.0  # of the handler, for each message
    journal: str | None = None
    limbo: str | None = None  # with it, counts are crash-safe
    metrics: bool = False
    traces: float | None = None  # the share of an App's runs that have a span; None: no traces
    spans: float | None = None  # the share of the spans that an App's handler makes by hand; None: it makes none
    fail_every: int = 0  # one message in so many always fails; 0: none
    rest: float = 0.0  # after a failure
    tries: int = 4  # before a dead letter
    pace: float = 0.0  # messages per second, while they are consumed; 0: all are there
    lead: float = 0.0  # the side has been up for so long before the first message
    ids: int = 2  # one message in so many has an id of its producer's; 0: none

    @property
    def amqp(self) -> str:
        """Return the URL as AMQP clients spell it."""
        return "amqp" + self.url[self.url.index("://") :]

    @property
    def text(self) -> str:
        """Return a healthy body."""
        return "x" * self.body

    def fails(self, number: int) -> bool:
        return bool(self.fail_every) and number % self.fail_every == 0

    def has_id(self, number: int) -> bool:
        return bool(self.ids) and (number + 1) % self.ids == 0

    @property
    def letters(self) -> int:
        """Return how many messages are failing."""
        return sum(map(self.fails, range(self.messages)))

    @property
    def dead(self) -> str:
        """Return the name of the dead-letter queue."""
        return f"DLQ.{self.queue}"

    def as_json(self) -> str:
        return json.dumps(asdict(self))


Side = Callable[[Task], None]


class Count:
    """Counts messages, and calls `done` with the last one.

    The first and the last tenth are not timed: while the prefetch window is filled or emptied, a side that takes whole
    batches looks faster than it is.
    """

    def __init__(self, task: Task, done: Callable[[], object]) -> None:
        self._wanted, self._work, self._done = task.messages, task.work, done
        self._first, self._last = task.messages // 10, task.messages - task.messages // 10
        self._numbers = itertools.count(1)  # several threads may count
        self._seconds = self._cpu = 0.0

    def one(self) -> None:
        """Count one message, as every handler does, on every side."""
        number = next(self._numbers)
        if self._work:
            time.sleep(self._work)
        if number == self._first:
            self._seconds, self._cpu = -time.perf_counter(), -time.process_time()
        elif number == self._last:
            self._seconds += time.perf_counter()
            self._cpu += time.process_time()
        elif number == self._wanted:
            self._done()

    def report(self) -> None:
        """Print the messages per second, the processor time of this process for each (µs), and its memory (MiB)."""
        timed = self._last - self._first
        tell(rate=timed / self._seconds, cpu=self._cpu / timed * 1e6, rss=memory())


def memory() -> float:
    """Return the MiB of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def tell(**figures: float) -> None:
    """Print the line of a side's figures."""
    print(json.dumps(figures), flush=True)


def play(sides: Mapping[str, Side]) -> None:
    """Run the side that the command line names, with its task: the command line of a module with sides."""
    name, task = sys.argv[1:]
    sides[name](Task(**json.loads(task)))
