# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Measures an App on RabbitMQ from its start to its end: how long it takes for both, and what it costs.

The section also measures what the App takes when there is nothing to do, and how its memory grows from the 10 000th
message to the last. The start includes the import of its modules; the stop is once with nothing in hand, and once in
the midst of messages of 1 ms with the prefetch full.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.bench.asked import Asked
from tests.bench.figures import Figure
from tests.bench.rounds import APP, BY_HAND, Case, Program, Turn


def turn(side: str, program: str, case: Case) -> Turn:
    return Turn(side, Program("tests.bench.living", program), case)


def measure(asked: Asked) -> Iterator[Figure]:
    few = Case(1000)
    cases = {
        "start and stop": [turn(BY_HAND, "by hand begins", few), turn(APP, "App begins", few)],
        "stop at work": [turn(APP, "App ends", Case(2000, work_ms=1))],
        "idle": [turn(APP, "App idles", Case(0))],
    }
    with asked.ground("rabbitmq") as at:
        for name, turns in cases.items():
            yield from at.compare("life", name, turns, asked.rounds)
        grows = [turn(APP, "App grows", Case(max(asked.growth, 10_000)))]
        yield from at.compare("life", "memory", grows, 1, warm=False)
