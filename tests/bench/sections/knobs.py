# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Compares the App on RabbitMQ with the driver's own loop, with one thing changed at a time.

Where each message takes longer there are fewer of them. Every other message has an id, where not said otherwise. With
crash-safe counts, messages with an id and messages without one also run against each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.bench.asked import Asked
from tests.bench.figures import Figure
from tests.bench.rounds import APP, BY_HAND, Case

NO_JOURNAL, CRASH_SAFE, METRICS = "App, no journal", "App, crash-safe counts", "App, metrics on"
WITH_IDS, WITHOUT_IDS = "App, each with an id", "App, none with an id"


def measure(asked: Asked) -> Iterator[Figure]:
    usual = Case(asked.messages)

    def times(factor: float) -> Case:
        return replace(usual, messages=max(200, round(asked.messages * factor)))

    cases = {
        "as usual": usual,
        "four times as many messages": times(4),  # a journal that falls behind has to catch up
        "handler of 1 ms": replace(times(0.2), work_ms=1),
        "handler of 10 ms": replace(times(0.03), work_ms=10),
        "prefetch 1": replace(times(0.2), prefetch=1),
        "prefetch 50": replace(usual, prefetch=50),
        "bodies of 10 kB": replace(times(0.5), body=10_000),
        "bodies of 1 MB": replace(times(0.02), body=1_000_000),
        "quorum queue": replace(usual, queue="quorum"),
        "every message has an id": replace(usual, ids=1),
        "no message has an id": replace(usual, ids=0),
    }
    with asked.ground("rabbitmq") as at:
        for name, case in cases.items():
            turns = [at.turn(BY_HAND, case), at.turn(APP, case)]
            if name in ("as usual", "four times as many messages"):
                turns.append(at.turn(APP, replace(case, journal=False))._replace(side=NO_JOURNAL))
            if name in ("as usual", "handler of 1 ms"):
                turns.append(at.turn(APP, replace(case, metrics=True))._replace(side=METRICS))
            if case.ids != usual.ids or case.work_ms == 1:
                turns.append(at.turn(APP, replace(case, crash_safe=True))._replace(side=CRASH_SAFE))
            yield from at.compare("knobs", name, turns, asked.rounds)
        turns = [
            at.turn(APP, replace(usual, crash_safe=True, ids=ids))._replace(side=side)
            for side, ids in ((WITH_IDS, 1), (WITHOUT_IDS, 0))
        ]
        yield from at.compare("knobs", "crash-safe counts", turns, asked.rounds)
