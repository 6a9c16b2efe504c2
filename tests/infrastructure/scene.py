# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Plays one fault on one cluster for several consumers at once, and gives an account of all their messages.

Each consumer has a queue and a producer of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.brokers._process import BrokerFailed
from tests.faults.load import Line, kill, lines
from tests.faults.proxy import Proxy
from tests.faults.sites import Letter
from tests.infrastructure.cluster import Cluster
from tests.infrastructure.faults import Fault
from tests.infrastructure.producer import Producer
from tests.storage.postgres import Postgres

LAST = 4  # the attempt after which a message is dead
BEFORE = 60  # seconds at most until consuming has begun
RUNS_FIRST = 2.0  # seconds of consuming before the blow, so that it falls on no first prefetch window
WITHIN = 30.0  # seconds within which consuming has to go on after the broker's return
SETTLES = 90.0  # seconds at most until every message has come to its end, once nothing is sent any more
QUIET = 20.0  # seconds after the last handler's call, within which its dead letter is at the broker
GOES_ON = 4.0  # seconds of production after consuming goes on


@dataclass(frozen=True)
class Way:
    """Describes a kind of consumer: how `consumer` calls it, its scheme, and the type of its queues."""

    name: str
    way: str
    scheme: str
    kind: str = ""  # of queues, on RabbitMQ


@dataclass
class Row:
    """Records what became of one consumer under one fault. Seconds are None if it never happened."""

    broker: str
    fault: str
    consumer: str
    kind: str
    confirmed: int = 0
    back: float | None = None  # seconds from the repair until a producer got a confirm
    again: float | None = None  # seconds from that confirm until a message sent since then was handled
    silent: float | None = None  # the longest time without a handler's call, the fault's own included
    lost: int = 0
    left: int = 0  # confirmed messages that are still at the broker, and have not come to their end
    duplicates: int = 0
    dead_twice: int = 0
    dropped: int = 0  # by the broker, of confirmed messages in a queue that nobody consumed, where a fault looks at one
    wrong: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Lane:
    """Runs one consumer with its queue, its producer and its log."""

    def __init__(self, cluster: Cluster, way: Way, folder: Path, limbo: str | None) -> None:
        self.way, self.kind, self._limbo = way, way.kind, limbo
        self.queue = f"infra.{way.way}.{way.scheme.partition('+')[2] or 'usual'}.{way.kind or 'queue'}"
        self._cluster, self._folder = cluster, folder
        self.taken: list[Letter] = []  # dead letters that a fault has taken away
        self.producer: Producer
        self.log: Path
        self.process: subprocess.Popen[bytes]

    def made(self, rung: str) -> bool:
        """Return whether a retry queue is this one's."""
        return rung.startswith(f"redeliver.retry.{self.queue}.")

    def declare(self) -> None:
        for name in (self.queue, f"DLQ.{self.queue}"):
            self._cluster.declare(name, self.kind)

    def begin(self, label: str, hosts: Sequence[tuple[str, int]] | None) -> None:
        self.taken = []
        self.log = self._folder / f"{label}.{self.queue}.log"
        url = self._cluster.url(hosts, scheme=self.way.scheme)
        self.producer = Producer(self._cluster.url(hosts), self.queue, label)
        command = [sys.executable, "-m", "tests.infrastructure.consumer", self.way.way, url, self.queue, str(self.log)]
        if self._limbo:
            command.append(self._limbo)
        with self.log.with_suffix(".err").open("ab") as errors:
            self.process = subprocess.Popen(command, stderr=errors, start_new_session=True)
        self.producer.start()

    def end(self) -> None:
        """End the consumer, in good order where it can; a driver's own loop is killed."""
        self.producer.end()
        if self.process.poll() is None and self.way.way.startswith("app"):
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGUSR1)  # its threads, into its .err
                time.sleep(0.5)
        kill(self.process)

    def settled(self) -> bool:
        """Return whether every confirmed message has come to its end: handled, says the log, or a dead letter.

        RabbitMQ 4.3 may count none in a quorum queue after a partition, although they can be taken: then a log that has
        not grown for a while will do.
        """
        written = lines(self.log)
        tried = {line.body for line in written}
        confirmed = {one.body for one in self.producer.confirmed}
        if self.way.way == "bare":
            return confirmed <= tried
        handled = {line.body for line in written if line.what == "done"}
        poison = {body for body in confirmed if body.startswith("poison")}
        last = {line.body for line in written if line.count >= LAST}
        if not (confirmed - poison <= handled and poison <= last):
            return False
        if time.monotonic() - written[-1].at > QUIET:
            return True
        return self._cluster.site(self.kind).count(f"DLQ.{self.queue}") + len(self.taken) >= len(poison)


class Scene:
    """Plays a fault on a cluster with some consumers."""

    def __init__(
        self, cluster: Cluster, fault: Fault, lanes: Sequence[Lane], databases: Sequence[Postgres] = ()
    ) -> None:
        self.cluster, self.fault, self.lanes, self.databases = cluster, fault, lanes, databases
        self.proxies: list[Proxy] = []
        self._afterwards: list[Callable[[], object]] = []
        self._struck = 0.0
        self.dropped = 0  # confirmed messages that the broker dropped from a queue which nobody consumed

    def afterwards(self, deed: Callable[[], object]) -> None:
        """Let it be done once the consumers consume again: a node that had to stay away for that long."""
        self._afterwards.append(deed)

    def drained(self) -> None:
        """Pause the producers until all that was sent has come to its end, and take the dead letters away."""
        for lane in self.lanes:
            lane.producer.pause()
        _wait(lambda: all(lane.settled() for lane in self.lanes), SETTLES)
        _wait(lambda: all(self.cluster.site(lane.kind).settled(lane.queue) for lane in self.lanes), 10)
        for lane in self.lanes:
            lane.taken += self.cluster.site(lane.kind).drain(f"DLQ.{lane.queue}")

    def play(self) -> list[Row]:
        rows = [Row(self.cluster.name, self.fault.name, lane.way.name, lane.kind) for lane in self.lanes]
        hosts = None
        if self.fault.proxied:
            self.proxies = [Proxy(host, port) for host, port in self.cluster.hosts]
            hosts = [("127.0.0.1", proxy.port) for proxy in self.proxies]
        label = f"{self.fault.name}-{int(time.monotonic())}"
        try:
            for lane in self.lanes:
                lane.begin(label, hosts)
            began = _wait(lambda: all(len(lines(lane.log)) > 40 for lane in self.lanes), BEFORE)
            if not began:
                slow = [lane.way.name for lane in self.lanes if len(lines(lane.log)) <= 40]
                raise BrokerFailed(f"{self.cluster.name}: {', '.join(slow)} did not begin to consume")
            time.sleep(RUNS_FIRST)
            self._struck = time.monotonic()
            moment = self.fault.strike(self)
            self._watch(rows, moment)
            for deed in self._afterwards:
                deed()
            for lane in self.lanes:
                lane.producer.pause()
            _wait(lambda: all(lane.settled() for lane in self.lanes), SETTLES)
        finally:
            for lane in self.lanes:
                lane.end()
            for proxy in self.proxies:
                proxy.close()
            self.cluster.whole()
        self.cluster.wait_active()
        account(self.lanes, rows, self.cluster)
        for row in rows:
            row.dropped = self.dropped
        return rows

    def _watch(self, rows: Sequence[Row], moment: float) -> None:
        """Fill in how long it took, from the repair to a confirm, and from there to a message that was sent since."""

        def seen(lane: Lane, row: Row) -> bool:
            first = lane.producer.confirmed_since(moment)
            if first is None:
                return False
            row.back = first.at - moment
            since = {one.body for one in lane.producer.confirmed if one.sent >= moment}
            handled = [line.at for line in lines(lane.log) if line.body in since]
            if not handled:
                return False
            row.again = max(0.0, min(handled) - first.at)
            return True

        pairs = list(zip(self.lanes, rows, strict=True))

        def all_seen() -> bool:
            found = [seen(lane, row) for lane, row in pairs]  # each row is filled in, whatever the others say
            return all(found)

        _wait(all_seen, 120)
        time.sleep(GOES_ON)
        for lane, row in pairs:
            row.silent = _longest_silence(lines(lane.log), self._struck)


def _longest_silence(written: Sequence[Line], since: float) -> float | None:
    calls = sorted(line.at for line in written if line.what == "begin" and line.at >= since)
    return max((later - earlier for earlier, later in pairwise([since, *calls])), default=None)


def account(lanes: Sequence[Lane], rows: Sequence[Row], cluster: Cluster) -> None:
    """Look where each confirmed message is, and write it into the rows. The queues are empty afterwards."""
    rungs = cluster.rungs()
    found: list[tuple[list[Letter], list[Letter]]] = []
    for lane in lanes:
        site = cluster.site(lane.kind)
        left = site.drain(lane.queue)
        for name in filter(lane.made, rungs):
            left += site.drain(name)
        found.append(([*lane.taken, *site.drain(f"DLQ.{lane.queue}")], left))
    rungs = cluster.rungs()
    for lane, row, (dead, left) in zip(lanes, rows, found, strict=True):
        held = sum(count for name, count in rungs.items() if lane.made(name))
        confirmed = [one.body for one in lane.producer.confirmed]
        tally(row, confirmed, lines(lane.log), dead, left, bare=lane.way.way == "bare", held=held)


def tally(
    row: Row,
    confirmed: Iterable[str],
    written: Sequence[Line],
    dead: Sequence[Letter],
    left: Sequence[Letter],
    *,
    bare: bool,
    held: int = 0,
) -> None:
    """Count what was lost, left, handled twice and dead-lettered twice. A bare consumer has no dead letters.

    `held` messages are in the broker's own hands: it counts them, and gives them to nobody.
    """
    promised = set(confirmed)
    tried = Counter(line.body for line in written if line.what == "begin")
    handled = tried if bare else Counter(line.body for line in written if line.what == "done")
    letters = Counter(letter.body for letter in dead)
    waiting = {letter.body for letter in left}
    ended = handled.keys() | letters.keys()
    missing = sorted(promised - ended - waiting)
    row.confirmed = len(promised)
    row.lost = max(0, len(missing) - held)
    row.left = len((promised & waiting) - ended) + len(missing) - row.lost
    row.duplicates = sum(count - 1 for count in handled.values())
    row.dead_twice = sum(count - 1 for count in letters.values())
    if row.lost:
        some = missing[:3]
        row.wrong.append(f"lost: {', '.join(some)} (tried: {', '.join(str(tried[body]) for body in some)})")
    if row.left:
        row.wrong.append(f"left at the broker: {', '.join([*sorted((promised & waiting) - ended), *missing][:3])}")
    if bare:
        return
    if odd := {body for body in handled if body.startswith("poison")}:
        row.wrong.append(f"handled, and always fails: {', '.join(sorted(odd)[:3])}")
    if odd := {body for body in letters if not body.startswith("poison")}:
        row.wrong.append(f"dead, and could be handled: {', '.join(sorted(odd)[:3])}")
    lineages: dict[str, set[str]] = {}
    for body, headers in dead:
        lineages.setdefault(body, set()).add(str(headers.get("redeliver_copy_id")))
    if odd := {body for body, ids in lineages.items() if len(ids) > 1}:
        row.wrong.append(f"two different dead letters: {', '.join(sorted(odd)[:3])}")


def _wait(true: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while True:
        try:
            if true():
                return True
        except BrokerFailed:
            pass  # no node answers just now
        if time.monotonic() > deadline:
            return False
        time.sleep(0.25)  # between two looks at other processes
