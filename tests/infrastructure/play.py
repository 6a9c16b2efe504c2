# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Plays a cluster's faults, one after the other, each with all of its consumers."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from tests.brokers import BrokerMissing
from tests.brokers.skips import not_to_be_had
from tests.faults.sites import OLD_ENOUGH
from tests.infrastructure.cluster import Cluster
from tests.infrastructure.faults import Fault
from tests.infrastructure.plan import CLUSTERS
from tests.infrastructure.scene import Lane, Row, Scene, Way
from tests.storage.postgres import Postgres


def play(name: str, wanted: Collection[str] | None, folder: Path) -> Iterator[Row]:
    """Yield each row as soon as it is known. `wanted`: names of faults; None: all.

    A cluster that a fault broke is made anew.
    """
    plan = CLUSTERS[name]
    waiting = [fault for fault in plan.faults if not wanted or fault.name in wanted]
    while waiting:
        with Stage(name, folder) as stage:
            while waiting:
                fault = waiting.pop(0)
                _say(f"{stage.cluster.name}: {fault.name}: {fault.says}")
                try:
                    yield from stage.play(fault)
                except Exception as error:  # it cannot go on with this cluster, but with another one
                    _say(f"{stage.cluster.name}: {fault.name}: {error}")
                    for way in stage.ways:
                        yield Row(
                            stage.cluster.name, fault.name, way.name, way.kind, wrong=[f"not played: {error}"[:300]]
                        )
                    break


class Stage:
    """Holds a cluster that is up, its queues, and a database for the consumers that park."""

    def __init__(self, name: str, folder: Path) -> None:
        plan = CLUSTERS[name]
        self._folder = folder / name
        self._folder.mkdir(exist_ok=True)
        self._postgres: list[Postgres] = []  # the primary and its standby
        self.ways = list(plan.ways)
        if any(way.way == "app-parking" for way in self.ways):
            try:
                self._postgres.append(Postgres())
                self._postgres.append(Postgres(primary=self._postgres[0]))
            except BrokerMissing as missing:
                _say(str(missing))
                self.ways = [way for way in self.ways if way.way != "app-parking"]
        try:
            self.cluster: Cluster = plan.make()
        except BaseException:
            self._stop_postgres()
            raise
        self._lanes = [Lane(self.cluster, way, self._folder, self._limbo(way)) for way in self.ways]
        for lane in self._lanes:
            lane.declare()
        if self.cluster.kind == "rabbitmq":
            time.sleep(OLD_ENOUGH)

    def _limbo(self, way: Way) -> str | None:
        """Return the URL of an empty schema, on whichever of the two servers can be written to."""
        if way.way != "app-parking":
            return None
        schema = self._postgres[0].new_database().partition("?")[2]
        hosts = "&".join(f"host=127.0.0.1:{server.port}" for server in self._postgres)
        return f"postgresql://test@/postgres?{hosts}&target_session_attrs=read-write&{schema}"

    def play(self, fault: Fault, *, only: Collection[str] = ()) -> list[Row]:
        """Play it with all consumers, or with those whose names are in `only`."""
        lanes = [lane for lane in self._lanes if not only or lane.way.name in only]
        return Scene(self.cluster, fault, lanes, self._postgres).play()

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all nodes, and the database."""
        self.cluster.stop()
        self._stop_postgres()

    def _stop_postgres(self) -> None:
        for server in self._postgres:
            server.stop()


def staged(name: str, folder: Path) -> Stage:
    """Return a stage for a test, which is skipped where the brokers cannot be had."""
    try:
        return Stage(name, folder)
    except BrokerMissing as missing:
        not_to_be_had(missing)


def _say(text: str) -> None:
    print(f"infrastructure: {text}", file=sys.stderr, flush=True)
