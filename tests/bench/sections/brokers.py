# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Compares App and drop-in on each broker with the loop of the driver's own tutorial, which acks each message."""

from __future__ import annotations

from collections.abc import Iterator

from tests.bench.asked import Asked
from tests.bench.figures import Figure
from tests.bench.rounds import APP, BY_HAND, DROP_IN, Case


def measure(asked: Asked) -> Iterator[Figure]:
    for kind in asked.brokers:
        with asked.ground(kind) as at:
            case = Case(asked.messages, at.bench.queues[0])
            turns = [at.turn(side, case) for side in (BY_HAND, DROP_IN, APP)]
            yield from at.compare("brokers", kind, turns, asked.rounds)
