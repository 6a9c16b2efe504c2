# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Strikes an app that parks, under load.

Everything about the app is killed, frozen, cut or locked, in an order from one seed. Consumer, broker, network and
limbo's database are struck, one blow after the other, each as soon as there was some progress. Every message is
accounted for by its body. `killing` says what may happen and what may not; beside that, the limbo has to be empty once,
in the end. A duplicate that was still in a handler then may go to the limbo afterwards.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Literal

from redeliver_mw.adapter.registry import parse_url
from tests.faults.load import bodies, kill, lines, start_at, until
from tests.faults.proxy import Direction, Proxy
from tests.faults.sites import Letter, Site
from tests.limbo.messages import count, parked_bodies
from tests.storage.postgres import Postgres

DIRECTIONS: tuple[Direction, ...] = ("up", "down")
MESSAGES_PER_BLOW = 20
LONGEST = 2.5  # seconds that a blow lasts
IMPATIENCE = 3.0  # seconds without progress after which the next blow falls
AFTERWARDS = 240.0  # seconds: rows of dead consumers wait for their lease, refused copies for their back-off
LAST = 4  # the run after which a message is dead
CRUMB = 5  # bytes at a time, while the network trickles

Blow = Literal[
    "consumer killed",
    "consumer frozen",
    "broker killed",
    "broker frozen",
    "database killed",
    "database frozen",
    "database locked",
    "network cut",
    "network stalled",
    "network trickling",
]
COMMON: list[Blow] = [
    "consumer killed",
    "consumer killed",
    "consumer killed",
    "consumer frozen",
    "broker killed",
    "broker frozen",
    "network cut",
    "network cut",
    "network stalled",
    "network trickling",
]
OF_A_FILE: list[Blow] = ["database locked", "database locked"]
OF_A_SERVER: list[Blow] = ["database killed", "database killed", "database frozen"]


@dataclass(slots=True)
class Report:
    """Tells what became of a run. `str()` of a report is its summary."""

    blows: Counter[Blow] = field(default_factory=Counter)
    restarts: int = 0  # of a consumer that gave up a start
    runs: int = 0
    handled_twice: int = 0
    dead_twice: int = 0
    left: int = 0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        struck = ", ".join(f"{blow} {times}" for blow, times in sorted(self.blows.items()))
        return (
            f"{sum(self.blows.values())} blows ({struck}); {self.runs} runs; handled twice: {self.handled_twice}; "
            f"dead-lettered twice: {self.dead_twice}; left as duplicates: {self.left}"
        )


class Chaos:
    """Plays one run on one broker.

    `server` is where the limbo is; with None the limbo is in an SQLite file in `folder`, which is new.
    """

    def __init__(self, site: Site, server: Postgres | None, folder: Path, *, seed: int, blows: int) -> None:
        self._site, self._server, self._blows = site, server, blows
        self._draw = Random(seed)
        self._log, self._file = folder / "runs.log", folder / "limbo.db"
        self._limbo = server.new_database() if server is not None else f"sqlite:///{self._file}"
        self._queue = f"chaos.{site.kind or 'queue'}.{seed}"
        self._bodies = bodies(max(300, MESSAGES_PER_BLOW * blows))
        self._poison = {body for body in self._bodies if body.startswith("poison")}
        self._proxy: Proxy
        self._consumer: subprocess.Popen[bytes]
        self.report = Report()

    def play(self) -> Report:
        """Play the run to its end, and look at every message."""
        broker = self._site.broker
        self._site.prepare(self._queue, self._bodies, mature=True)
        host, port = parse_url(broker.url).hosts[0]
        assert port is not None
        self._proxy = Proxy(host, port)
        self._url = broker.url.replace(f"{host}:{port}", f"127.0.0.1:{self._proxy.port}")
        self._start()
        try:
            for _ in range(self._blows):
                self._wait_for_progress(self._draw.randint(5, 40))
                blow = self._draw.choice(COMMON + (OF_A_FILE if self._server is None else OF_A_SERVER))
                self._strike(blow)
                self.report.blows[blow] += 1
            self._wait_for_the_end()
        finally:
            kill(self._consumer)
            self._proxy.close()
        self._account()
        return self.report

    def _start(self) -> None:
        self._consumer = start_at(self._url, "app", self._queue, self._log, self._limbo)

    def _alive(self) -> None:
        """Start the consumer again, as somebody does, when it gave up a start in bad weather."""
        if self._consumer.poll() is not None:
            self.report.restarts += 1
            self._start()

    def _wait_for_progress(self, runs: int) -> None:
        before, deadline = len(lines(self._log)), time.monotonic() + IMPATIENCE
        while len(lines(self._log)) < before + runs and time.monotonic() < deadline:
            self._alive()
            time.sleep(0.02)  # between two looks at another process

    # -- blows ------------------------------------------------------------------------------------

    def _strike(self, blow: Blow) -> None:
        broker, server = self._site.broker, self._server
        match blow:
            case "consumer killed":
                kill(self._consumer)
                self._start()
            case "consumer frozen":
                self._between(lambda: self._signal(signal.SIGSTOP), lambda: self._signal(signal.SIGCONT))
            case "broker killed":
                self._between(broker.kill, broker.start)
            case "broker frozen":
                self._between(broker.pause, broker.resume)
            case "network cut":
                self._proxy.cut()
            case "network stalled":
                direction = self._draw.choice(DIRECTIONS)
                self._between(lambda: self._proxy.stall(direction), self._proxy.resume)
            case "network trickling":
                self._between(lambda: self._trickle(CRUMB), lambda: self._trickle(0))
            case "database locked":
                self._lock()
            case "database killed" if server is not None:
                self._between(server.kill, server.start)
            case "database frozen" if server is not None:
                self._between(server.pause, server.resume)

    def _between(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        begin()
        time.sleep(self._draw.uniform(0.1, LONGEST))  # that long it lasts
        end()

    def _signal(self, word: signal.Signals) -> None:
        if self._consumer.poll() is None:
            os.killpg(self._consumer.pid, word)

    def _trickle(self, size: int) -> None:
        self._proxy.crumb = size

    def _lock(self) -> None:
        other = sqlite3.connect(self._file, isolation_level=None, timeout=30.0)
        try:
            self._between(lambda: other.execute("BEGIN IMMEDIATE"), lambda: other.execute("ROLLBACK"))
        finally:
            other.close()

    # -- the end ----------------------------------------------------------------------------------

    def _wait_for_the_end(self) -> None:
        def over() -> bool:
            self._alive()
            written = lines(self._log)
            handled = {line.body for line in written if line.what == "done"}
            tried = {line.body for line in written if line.count == LAST}  # letters alone may be duplicates
            if not (set(self._bodies) - self._poison <= handled and self._poison <= tried):
                return False
            if count(self._limbo) or self._site.count(self._queue):
                return False
            return self._site.count(f"DLQ.{self._queue}") >= len(self._poison)

        try:
            until(over, AFTERWARDS, "")
        except AssertionError:
            self.report.wrong.append("not every message came to its end in time")

    def _account(self) -> None:
        written = lines(self._log)
        handled = Counter(line.body for line in written if line.what == "done")
        letters = self._site.drain(f"DLQ.{self._queue}")
        left = [letter.body for letter in self._site.drain(self._queue)]
        parked = parked_bodies(self._limbo)
        dead = Counter(letter.body for letter in letters)
        found = self.report
        found.runs, found.left = len(written), len(left) + len(parked)
        found.handled_twice = sum(n > 1 for n in handled.values())
        found.dead_twice = sum(n > 1 for n in dead.values())
        ended = handled.keys() | dead.keys()
        self._say("lost", set(self._bodies) - ended - {*left, *parked})
        self._say("still on its queue only", set(left) - ended)
        self._say("still in limbo only", set(parked) - ended)
        self._say("never sent", ended - set(self._bodies))
        self._say("handled, and always fails", handled.keys() & self._poison)
        self._say("dead, and could be handled", dead.keys() - self._poison)
        self._say("not dead", self._poison - dead.keys())
        self._say("dead letters of two lineages", _of_two_lineages(letters))
        self._say(
            "a dead letter with another count",
            {letter.body for letter in letters if letter.headers["redeliver_failures"] != "4"},
        )

    def _say(self, what: str, which: set[str]) -> None:
        if which:
            self.report.wrong.append(f"{what}: {len(which)}, such as {', '.join(sorted(which)[:5])}")


def _of_two_lineages(letters: list[Letter]) -> set[str]:
    """Return the bodies of dead letters of two lineages.

    A copy that was published twice may go two ways: through limbo, or, where the limbo refused the copy, past it.
    """
    lineages: dict[str, set[str]] = {}
    for body, headers in letters:
        lineages.setdefault(body, set()).add(str(headers["redeliver_lineage"]))
    return {body for body, ids in lineages.items() if len(ids) > 1}
