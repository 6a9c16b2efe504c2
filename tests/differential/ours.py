# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs an App whose handlers fail as often as they are told, with a stop-watch, beside what the brokers' own do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from redeliver_mw import App, Delivery
from redeliver_mw.policy import RedeliveryPolicy
from tests.differential.failing import Life


class Failure(Exception):
    """Stands for the failure of a handler, which raises it."""


class Task(NamedTuple):
    """Says what to do with a queue's messages, whose text is "number failures"."""

    policy: RedeliveryPolicy
    lives: Mapping[str, Life]  # by number


def app_of(url: str, tasks: Mapping[str, Task]) -> App:
    """Return an App that has a handler for each task, and many workers, so that none waits for another.

    The App decides for each delay whether the message is held here or not.
    """
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
