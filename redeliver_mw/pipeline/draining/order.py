# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Checks the options of a drain before any connection is made, and holds the order and the result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ...adapter.registry import parse_url
from ...errors import ConfigError
from ...message import Destination
from ..lake.lake import Lake

TASKS: Final = 2
_LARGEST: Final = 10_000  # letters that are stored at once


@dataclass(frozen=True, slots=True)
class Drained:
    """Sums up a drain. `run` is None if there was nothing to do.

    `letters` are new in the lake; of these, `earlier` were taken by an earlier run that had died. `again` were in the
    lake already. `found` were in the queue at the start; `stay` cannot be stored outside of the queue. `rest` gives the
    reason that the drain ended before all were taken; empty if it did not. `stopped`: the drain was asked to stop.
    """

    run: str | None
    found: int
    letters: int = 0
    earlier: int = 0
    again: int = 0
    stay: int = 0
    rest: str = ""
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class DrainOrder:
    """Describes a drain for which Spark has to be started: `found` letters wait."""

    url: str = field(repr=False)  # contains the password
    broker: str
    queue: Destination
    lake: Lake
    tasks: int
    batch: int
    found: int


def queue_of(url: str, dlq: str | Destination, tasks: int, batch: int) -> Destination:
    """Return the queue for a drain's options. Raises ConfigError for errors that can be found before connecting."""
    scheme = url.partition("://")[0].partition("+")[0]
    if scheme in ("sqlite", "postgresql", "postgres"):
        raise ConfigError(
            "this is the URL of a database, and a drain reads a broker's queue",
            where=f"{scheme}://",
            cure="Copy what stays in a limbo with `redeliver pipeline limbo URL LAKE`",
            code="broker-url-syntax",
        )
    if parse_url(url).dialect == "memory":
        raise ConfigError(
            "a memory broker lives in one process, and Spark's tasks are others",
            where="memory://",
            cure="Drain a real one; in tests read TestApp.dead_letters(source)",
            code="memory-broker-elsewhere",
        )
    for name, value, most in (("tasks", tasks, None), ("batch", batch, _LARGEST)):
        if value < 1 or (most is not None and value > most):
            span = "from 1 on" if most is None else f"from 1 to {most}"
            raise ConfigError(
                f"{value} is no number {span}", where=name, cure="Leave it out for what is usual", code="option-value"
            )
    queue = Destination.parse(dlq)
    if queue.kind == "topic" and not queue.subscription:
        raise ConfigError(
            f"{queue} is no queue",
            cure="Name the queue, or topic:NAME::SUBSCRIPTION, of the letters",
            code="destination-kind",
        )
    return queue
