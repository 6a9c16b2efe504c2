# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The brokers that are measured on."""

from __future__ import annotations

from tests.bench import activemq, artemis, rabbitmq
from tests.bench.rounds import Bench

RABBITMQ = Bench(
    rabbitmq.__name__, "rabbitmq", "4.3", {}, ("classic", "quorum"), rabbitmq.fill, rabbitmq.SIDES
)  # fmt: skip
ACTIVEMQ = Bench(
    activemq.__name__, "activemq", "6.3", {"tiered": True}, ("queue",), activemq.fill, activemq.SIDES
)  # fmt: skip
ARTEMIS = Bench(
    artemis.__name__, "artemis", "2.44", {"tiered": True}, ("queue",), artemis.fill, artemis.SIDES
)  # fmt: skip
BENCHES = {bench.kind: bench for bench in (RABBITMQ, ACTIVEMQ, ARTEMIS)}
