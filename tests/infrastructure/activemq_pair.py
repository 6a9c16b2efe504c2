# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs two ActiveMQ Classic on loopback with one store: the one that has the lock on the store's file serves."""

from __future__ import annotations

from tests.brokers._broker import OwnBroker
from tests.brokers._process import BrokerFailed
from tests.brokers.activemq import ActiveMQ
from tests.faults.sites import site_of
from tests.infrastructure.cluster import SECRET, WORKER, Cluster

STORE_LIMIT = "96 mb"  # small, so that it can be filled


class ActiveMQPair(Cluster):
    """Runs two brokers: `nodes[0]` is started first, and serves; the other one waits."""

    kind = "activemq"

    def __init__(self, version: str) -> None:
        super().__init__()
        self.name = f"ActiveMQ {version}, pair"
        self.nodes: list[ActiveMQ] = []
        try:
            for _ in range(2):
                node = ActiveMQ(
                    version, store=self.folder / "store", user=WORKER, password=SECRET, store_limit=STORE_LIMIT
                )
                self.nodes = [*self.nodes, node]
            self.version = self.nodes[0].version
            for one in self.nodes:
                one.start()
        except BaseException:
            self.stop()
            raise

    def active(self) -> OwnBroker:
        for node in self.nodes:
            if node.state == "up" and node._usable():
                return node
        raise BrokerFailed(f"{self.name}: neither is active")

    def restart(self, password: str) -> None:
        """Kill both, and start them with this password of the only user."""
        for node in self.nodes:
            node.kill()
            node.set_password(password)
        for node in self.nodes:
            node.start()

    def declare(self, queue: str, kind: str) -> None:
        site_of(self.active()).drain(queue)  # a subscription makes it

    def delete(self, queue: str) -> None:
        raise BrokerFailed("ActiveMQ deletes queues by JMX only, and none that is consumed")
