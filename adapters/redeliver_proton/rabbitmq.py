# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Connects to RabbitMQ through proton, AMQP 1.0: the adapter behind `rabbitmq+proton://`."""

from __future__ import annotations

from redeliver_mw.adapter.kit.ledger_scope import scope_of_cluster
from redeliver_mw.adapter.registry import BrokerUrl
from redeliver_proton.adapter import ProtonAdapter
from redeliver_proton.broker_dialect import BrokerDialect
from redeliver_proton.brokers.rabbitmq.capabilities import capabilities, records, too_old
from redeliver_proton.brokers.rabbitmq.inspection import inspect
from redeliver_proton.brokers.rabbitmq.messages import delivery_of, encoded
from redeliver_proton.brokers.rabbitmq.topology import RabbitTopology

__all__ = ["RABBITMQ", "adapter_from_url", "records"]


def _vhost(url: BrokerUrl) -> str:
    return url.path or "/"


def _where(url: BrokerUrl) -> str:
    """Return the broker's place, as rabbitmq+pika does."""
    host, port = url.hosts[0]
    return f"{host}:{port or 5672}/{_vhost(url).lstrip('/')}"


def _ledger_scope(url: BrokerUrl, cluster_name: str) -> str:
    """Return the same scope as rabbitmq+pika: both share the ledger of a source."""
    return scope_of_cluster(cluster_name, _vhost(url)) if cluster_name else _where(url)


RABBITMQ = BrokerDialect(
    title="RabbitMQ",
    product="RabbitMQ",
    capabilities=capabilities,
    too_old=too_old,
    topology=RabbitTopology,
    hostname=lambda url, _host: f"vhost:{_vhost(url)}",
    delivery=delivery_of,
    encode=encoded,
    keeps_back=False,
    where=_where,
    inspect=inspect,
    ledger_scope=_ledger_scope,
)


def adapter_from_url(url: BrokerUrl) -> ProtonAdapter:
    """Return the adapter for a URL of `rabbitmq+proton`, as its entry point."""
    return ProtonAdapter(url, RABBITMQ)
