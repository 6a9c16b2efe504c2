# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs three RabbitMQ nodes on loopback, as one cluster with its own port mapper."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence

import pika

from tests.brokers._process import BrokerFailed, free_ports, listening, wait_until
from tests.brokers.rabbitmq import Member, RabbitMQ, installed
from tests.faults.load import channel_on
from tests.infrastructure.cluster import SECRET, WORKER, Cluster

NODES = 3


class RabbitMQCluster(Cluster):
    """Runs three nodes. `partitions`: cluster_partition_handling; `advanced`: the text of an advanced.config.

    `mirrored`: every classic queue has a copy on each node, as was done until 3.13.
    """

    kind = "rabbitmq"

    def __init__(self, version: str, *, partitions: str = "", advanced: str = "", mirrored: bool = False) -> None:
        here = installed(version)
        super().__init__(here.prefix)
        self.version, self.name = here.version, f"RabbitMQ {version}, three nodes"
        self.heals_by_restart = partitions == "autoheal"  # the side of a partition that loses forgets its messages
        if partitions:
            self.name += f", {partitions}"
        if mirrored:
            self.name += ", mirrored"
        names = [f"redeliver-{number}@localhost" for number in range(1, NODES + 1)]
        (epmd,) = free_ports(1)
        settings = ["cluster_formation.peer_discovery_backend = classic_config"]
        settings += [f"cluster_formation.classic_config.nodes.{n} = {name}" for n, name in enumerate(names, 1)]
        if partitions:
            settings.append(f"cluster_partition_handling = {partitions}")
        cookie = secrets.token_hex(16)
        self.nodes: Sequence[RabbitMQ] = []
        try:
            self.nodes = [RabbitMQ(here, Member(name, epmd, cookie, settings, advanced)) for name in names]
            argv = here.argv(self.folder, "epmd", "-port", str(epmd), "-address", "127.0.0.1")
            self.leash.run(argv, self.nodes[0]._env, self.folder / "epmd.out")
            wait_until(lambda: listening(epmd), alive=lambda: bool(self.leash.pids()), logs=[], what="epmd")
            self.together(lambda node: node.start())
            self._check_and_add_user()
            if mirrored:
                self.nodes[0].ctl("set_policy", "mirrored", ".*", '{"ha-mode":"all","ha-sync-mode":"automatic"}')
        except BaseException:
            self.stop()
            raise

    def _check_and_add_user(self) -> None:
        first = self.nodes[0]
        running = json.loads(first.ctl("cluster_status", "--formatter", "json"))["running_nodes"]
        if len(running) != NODES:
            raise BrokerFailed(f"{self.name}: only {running} found each other")
        first.ctl("add_user", WORKER, SECRET)
        first.ctl("set_permissions", WORKER, ".*", ".*", ".*")

    def active(self) -> RabbitMQ:
        for node in self.nodes:
            if node.state == "up" and node._usable():
                return node
        raise BrokerFailed(f"{self.name}: no node answers")

    def declare(self, queue: str, kind: str) -> None:
        node = self.active()
        try:
            with channel_on(node) as channel:
                channel.queue_declare(queue, passive=True)
        except (
            pika.exceptions.ChannelClosedByBroker
        ):  # it is not there; of one that an App has made the type is another
            with channel_on(node) as channel:
                channel.queue_declare(queue, durable=True, arguments={"x-queue-type": kind})

    def delete(self, queue: str) -> None:
        with channel_on(self.active()) as channel:
            channel.queue_delete(queue)

    def rungs(self) -> dict[str, int]:
        """Count also what a rung has handed to its dead-lettering: nobody can take it."""
        depths = self.active().depths().items()
        rungs = [(name, count) for name, count in depths if name.startswith("redeliver.retry.")]
        return {name: count for name, count in rungs if not name.endswith(".young")}

    def part(self, node: RabbitMQ) -> None:
        """Cut a node off from the others: it says another cookie to them than they expect."""
        others = self._others(node)
        node.evaluate(f"[begin erlang:set_cookie(N, wrong), erlang:disconnect_node(N) end || N <- {others}].")

    def join(self, node: RabbitMQ) -> None:
        """Let a node that was cut off see the others again."""
        others, right = self._others(node), "erlang:set_cookie(N, erlang:get_cookie())"
        node.evaluate(f"[begin {right}, net_kernel:connect_node(N) end || N <- {others}].")

    def _others(self, node: RabbitMQ) -> str:
        """Return the other nodes as an Erlang list."""
        return "[" + ",".join(f"'{other.node}'" for other in self.nodes if other is not node) + "]"
