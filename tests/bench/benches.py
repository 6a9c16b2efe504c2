# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Lists the brokers that are measured on."""

from __future__ import annotations

from tests.bench import activemq, artemis, rabbitmq
from tests.bench.rounds import Bench

JVM = {"tiered": True}  # with its optimising compiler
BENCHES = {
    bench.kind: bench
    for bench in (
        Bench(rabbitmq.__name__, "rabbitmq", "4.3", {}, ("classic", "quorum"), rabbitmq.fill, rabbitmq.SIDES),
        Bench(activemq.__name__, "activemq", "6.3", JVM, ("queue",), activemq.fill, activemq.SIDES),
        Bench(artemis.__name__, "artemis", "2.44", JVM, ("queue",), artemis.fill, artemis.SIDES),
    )
}
