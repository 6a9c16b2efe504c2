# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Describes what the harness sees of several nodes that together are one broker."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self
from urllib.parse import quote

from tests.brokers._broker import OwnBroker
from tests.brokers._process import BrokerFailed, Leash
from tests.faults.sites import Site, site_of

WORKER = "worker"  # the user that consumers and producers are
SECRET = "letmein"  # and its password
HEARTBEAT = 5  # seconds, asked for by every consumer that can


class Cluster(ABC):
    """Holds several nodes on 127.0.0.1; `nodes[0]` is the first in every URL. One thread at a time."""

    kind: ClassVar[str]
    name: str
    version: str
    nodes: Sequence[OwnBroker]

    def __init__(self, prefix: Sequence[str] = ()) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"redeliver-mw-{self.kind}-cluster-"))
        self.leash = Leash(self.folder, prefix)  # it deletes the folder, however this process ends

    def together(self, deed: Callable[[OwnBroker], object], nodes: Sequence[OwnBroker] | None = None) -> None:
        """Do it to several nodes at once: some wait for each other. BrokerFailed if one of them fails."""
        errors: list[BaseException] = []

        def one(node: OwnBroker) -> None:
            try:
                deed(node)
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=one, args=(node,)) for node in nodes or self.nodes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise BrokerFailed(str(errors[0])) from errors[0]

    @property
    def hosts(self) -> list[tuple[str, int]]:
        return [(node.host, node.port) for node in self.nodes]

    def url(self, hosts: Sequence[tuple[str, int]] | None = None, *, scheme: str = "", password: str = SECRET) -> str:
        """Return the URL of consumers, in the form that `App` takes."""
        where = ",".join(f"{host}:{port}" for host, port in hosts or self.hosts)
        login = f"{WORKER}:{quote(password, safe='')}"
        return f"{scheme or self.kind}://{login}@{where}{self.nodes[0].path}?heartbeat={HEARTBEAT}"

    def whole(self) -> None:
        """Put right what a fault, or a test that failed in it, has left behind."""
        for node in self.nodes:
            if node.state == "paused":
                node.resume()
        self.together(lambda node: node.revive())

    @abstractmethod
    def active(self) -> OwnBroker:
        """Return the first node that answers now. BrokerFailed if none does."""

    def wait_active(self, other_than: OwnBroker | None = None, seconds: float = 90.0) -> OwnBroker:
        """Wait until a node, another one if asked, serves clients."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                found = self.active()
                if found is not other_than:
                    return found
            except BrokerFailed:
                pass
            if time.monotonic() > deadline:
                raise BrokerFailed(f"{self.name}: no node is active after {seconds:g} s")
            time.sleep(0.1)  # between two looks at other processes

    def site(self, kind: str = "") -> Site:
        """Return the witness, as the administrator on a node that answers."""
        return site_of(self.active(), kind)

    @abstractmethod
    def declare(self, queue: str, kind: str) -> None:
        """Make a durable queue; nothing if it is there."""

    @abstractmethod
    def delete(self, queue: str) -> None:
        """Delete it with all that is in it, whoever consumes from it."""

    def rungs(self) -> dict[str, int]:
        """Return the retry queues that consumers of ours have made, and how many messages each counts."""
        return {}

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()
        self.leash.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
