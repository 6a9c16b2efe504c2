# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Compares the App on RabbitMQ with what one would pick instead, in one process.

Each has its usual settings and prefetch 500. The modules of `tests.bench.frameworks` say what these settings are.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.bench.asked import Asked
from tests.bench.figures import Figure
from tests.bench.rounds import APP, BY_HAND, Case, Program, Turn

SIDES = ("kombu", "aio-pika", "Dramatiq", "Celery", "FastStream")
OWN_ENVELOPE = ("Dramatiq", "Celery")


def measure(asked: Asked) -> Iterator[Figure]:
    case = Case(asked.messages)

    def other(name: str) -> Turn:
        module = f"tests.bench.frameworks.{name.lower().replace('-', '_')}"
        return Turn(name, Program(module, "consume", str(asked.python), name in OWN_ENVELOPE), case)

    with asked.ground("rabbitmq") as at:
        turns = [at.turn(APP, case), at.turn(BY_HAND, case), *map(other, SIDES)]
        yield from at.compare("frameworks", "rabbitmq", turns, asked.rounds)
