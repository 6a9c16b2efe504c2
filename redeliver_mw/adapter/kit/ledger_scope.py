# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Names what a ledger is kept for: an adapter and the drop-in for the same broker have to say the same."""

from __future__ import annotations

from collections.abc import Iterable


def scope_of_hosts(hosts: Iterable[tuple[object, object]]) -> str:
    """Return the hosts and ports that one connection may go to, in an order of their own: `a:61613,b:61613`."""
    return ",".join(sorted({f"{host}:{port}" for host, port in hosts}))


def scope_of_cluster(cluster_name: str, virtual_host: str) -> str:
    """Return the name that a RabbitMQ cluster gives itself on each of its nodes, with the virtual host.

    The name is `rabbit@` and a host name until an operator sets another, so two clusters may share it.
    """
    return f"{cluster_name} {virtual_host}"
