# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a primary and a backup of Artemis on loopback, over a shared store or by replication."""

from __future__ import annotations

import secrets
from typing import Literal

from tests.brokers._process import BrokerFailed, free_ports
from tests.brokers.artemis import Artemis
from tests.faults.proxy import Proxy
from tests.infrastructure.cluster import SECRET, WORKER, Cluster

Way = Literal["shared-store", "replication"]
_SHARED = {
    "primary": "<primary><failover-on-shutdown>true</failover-on-shutdown></primary>",
    "backup": "<backup><allow-failback>true</allow-failback><failover-on-shutdown>true</failover-on-shutdown></backup>",
}
_REPLICATED = {
    "primary": "<primary><check-for-active-server>true</check-for-active-server></primary>",
    "backup": "<backup><allow-failback>true</allow-failback></backup>",
}
_CORE = """
    <cluster-user>cluster</cluster-user>
    <cluster-password>{password}</cluster-password>
    <security-invalidation-interval>1000</security-invalidation-interval>
    <ha-policy><{way}>{role}</{way}></ha-policy>
    <connectors>
      <connector name="self">tcp://127.0.0.1:{own}</connector>
      <connector name="other">tcp://127.0.0.1:{other}</connector>
    </connectors>
    <cluster-connections>
      <cluster-connection name="pair">
        <connector-ref>self</connector-ref>
        <retry-interval>500</retry-interval>
        <static-connectors><connector-ref>other</connector-ref></static-connectors>
      </cluster-connection>
    </cluster-connections>
"""


class ArtemisPair(Cluster):
    """Runs a primary and a backup, in `nodes`. They speak to each other through `between`, a proxy for each."""

    kind = "artemis"

    def __init__(self, version: str, way: Way) -> None:
        super().__init__()
        self.name, self.way = f"Artemis {version}, pair, {way}", way
        ports, password = free_ports(2), secrets.token_hex(8)
        self.between = [Proxy("127.0.0.1", port) for port in ports]
        self.nodes: list[Artemis] = []
        try:
            for number, role in enumerate(("primary", "backup")):
                roles = _SHARED if way == "shared-store" else _REPLICATED
                core = _CORE.format(
                    password=password,
                    way=way,
                    role=roles[role],
                    own=self.between[number].port,
                    other=self.between[1 - number].port,
                )
                store = self.folder / "store" if way == "shared-store" else None
                node = Artemis(version, core=core, port=ports[number], password=password, store=store)
                self.nodes = [*self.nodes, node]
            self.version = self.nodes[0].version
            self.set_worker()
            for one in self.nodes:
                one.start()
        except BaseException:
            self.stop()
            raise

    def set_worker(self, *, password: str = SECRET, permitted: bool = True) -> None:
        """Write the worker's password and role; the brokers read the files again by themselves."""
        for node in self.nodes:
            users = f"{node.user}={node.password}\n{WORKER}={password}\n"
            roles = f"all={node.user}{',' + WORKER if permitted else ''}\nnone={WORKER}\n"
            for name, text in (("users.properties", users), ("roles.properties", roles)):
                (node.data / name).write_text(text)

    def active(self) -> Artemis:
        for node in self.nodes:
            if node.state == "up" and node._usable():
                return node
        raise BrokerFailed(f"{self.name}: neither is active")

    def declare(self, queue: str, kind: str) -> None:
        self.active().make_queue(queue)

    def delete(self, queue: str) -> None:
        self.active().ctl("broker", "destroyQueue", queue, "true")

    def stop(self) -> None:
        super().stop()
        for proxy in self.between:
            proxy.close()
