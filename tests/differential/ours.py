# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""An App whose handlers fail as often as they are told, and a stop-watch: ours, beside what the brokers' own do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from redeliver_mw import App, Delivery
from redeliver_mw.policy import RedeliveryPolicy
from tests.differential.failing import Life


class Failure(Exception):
    """What the handlers fail with."""


class Task(NamedTuple):
    """What to do with a queue's messages, whose text is "number failures"."""

    policy: RedeliveryPolicy
    lives: Mapping[str, Life]  # by number


def app_of(url: str, tasks: Mapping[str, Task]) -> App:
    """Held here or not, as App decides for each rest; many workers, so that none waits for another."""
    app = App(url, app_name="differential", prefetch=500)
    for queue, task in tasks.items():
        app.handler(queue, policy=task.policy, workers=4)(_failing(task.lives))
    return app


def _failing(lives: Mapping[str, Life]) -> Callable[[Delivery], None]:
    def handler(delivery: Delivery) -> None:
        number, failures = delivery.text.split()
        life = lives[number]
        life.arrives(delivery.delivery_count)
        if life.deliveries <= int(failures):
            life.fails()
            raise Failure

    return handler
