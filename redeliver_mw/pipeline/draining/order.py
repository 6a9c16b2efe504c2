# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""A drain as it is ordered, checked before anything is connected to, and what it did."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ...adapter.registry import parse_url
from ...errors import ConfigError
from ...message import Destination
from ..lake.lake import Lake

TASKS: Final = 2
_LARGEST: Final = 10_000  # letters that are kept at once


@dataclass(frozen=True, slots=True)
class Drained:
    """Says what a drain did. `run` is None if there was nothing to do.

    `letters` are new in the lake; of these, `earlier` were taken by a run before that had died. `again` were in it
    already. `found` were in the queue at the start; `stay` cannot be kept outside of it. `rest` says why it ended
    before all were taken; empty if it did not. `stopped`: because it was told to.
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
    """Says what a drain that is worth starting Spark for has to do: `found` letters wait."""

    url: str = field(repr=False)  # with its password
    broker: str
    queue: Destination
    lake: Lake
    tasks: int
    batch: int
    found: int


def queue_of(url: str, dlq: str | Destination, tasks: int, batch: int) -> Destination:
    """Return the queue that is meant. Raises ConfigError for what can be told to be wrong before connecting."""
    if parse_url(url).dialect == "memory":
        raise ConfigError(
            "a memory broker lives in one process, and Spark's tasks are others",
            where="memory://",
            cure="Drain a real one; in tests read TestApp.dead_letters(source)",
        )
    for name, value, most in (("tasks", tasks, None), ("batch", batch, _LARGEST)):
        if value < 1 or (most is not None and value > most):
            span = "from 1 on" if most is None else f"from 1 to {most}"
            raise ConfigError(f"{value} is no number {span}", where=name, cure="Leave it out for what is usual")
    queue = Destination.parse(dlq)
    if queue.kind == "topic" and not queue.subscription:
        raise ConfigError(f"{queue} is no queue", cure="Name the queue, or topic:NAME::SUBSCRIPTION, of the letters")
    return queue
