# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Artemis behind proton, put together."""

from __future__ import annotations

import math
import time

from redeliver_mw.message import Outgoing
from redeliver_mw.registry import BrokerUrl
from redeliver_proton._dialect import Dialect
from redeliver_proton._dialects import address_and_queue, capabilities
from redeliver_proton._mapping import delivery_of, encode
from redeliver_proton._once import Salts
from redeliver_proton._outlet import seen_as
from redeliver_proton._topology import ArtemisTopology


def encoded(out: Outgoing, after: float, salts: Salts) -> tuple[bytes, str]:
    """The message, and what a filter sees it as."""
    at_ms = math.ceil((time.time() + after) * 1000) if after > 0 else None
    came_from = address_and_queue(out.origin.destination) if out.origin is not None else None
    return encode(out, at_ms=at_ms, source=came_from, duplicate_id=salts.duplicate_id(out)), seen_as(out)


def _where(url: BrokerUrl) -> str:
    host, port = url.hosts[0]
    return f"{host}:{port or 5672}"


ARTEMIS = Dialect(
    title="Artemis",
    product="apache-activemq-artemis",
    capabilities=capabilities,
    too_old=lambda _version: "",
    topology=ArtemisTopology,
    hostname=lambda _url, host: host,
    delivery=delivery_of,
    encode=encoded,
    where=_where,
)
