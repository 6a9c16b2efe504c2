# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Puts Artemis behind proton together."""

from __future__ import annotations

import math
import time

from redeliver_mw.adapter.kit.ledger_scope import scope_of_hosts
from redeliver_mw.adapter.registry import BrokerUrl
from redeliver_mw.message import Outgoing
from redeliver_proton.broker_dialect import BrokerDialect
from redeliver_proton.brokers.artemis.capabilities import address_and_queue, capabilities
from redeliver_proton.brokers.artemis.inspection import inspect
from redeliver_proton.brokers.artemis.topology import ArtemisTopology
from redeliver_proton.duplicate_ids import DuplicateIdSalts
from redeliver_proton.messages import delivery_of, encode
from redeliver_proton.sender_link import seen_as


def encoded(out: Outgoing, after: float, salts: DuplicateIdSalts) -> tuple[bytes, str]:
    """Return the encoded message, and what a filter sees it as."""
    at_ms = math.ceil((time.time() + after) * 1000) if after > 0 else None
    came_from = address_and_queue(out.origin.destination) if out.origin is not None else None
    return encode(out, at_ms=at_ms, source=came_from, duplicate_id=salts.duplicate_id(out)), seen_as(out)


def _where(url: BrokerUrl) -> str:
    host, port = url.hosts[0]
    return f"{host}:{port or 5672}"


def _ledger_scope(url: BrokerUrl, _cluster_name: str) -> str:
    return scope_of_hosts((host, port or 5672) for host, port in url.hosts)


ARTEMIS = BrokerDialect(
    title="Artemis",
    product="apache-activemq-artemis",
    capabilities=capabilities,
    too_old=lambda _version: "",
    topology=ArtemisTopology,
    hostname=lambda _url, host: host,
    delivery=delivery_of,
    encode=encoded,
    keeps_back=True,
    where=_where,
    inspect=inspect,
    ledger_scope=_ledger_scope,
)
