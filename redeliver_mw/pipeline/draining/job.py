# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""`drain`: the letters that a dead-letter queue holds now, off it and into a lake, by Spark tasks that compete."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ...adapter.registry import adapter_for, parse_url
from ...dead_letters import BATCH, BrokerClient
from ...errors import ConfigError
from ...message import Destination
from ..lake.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[str, int, int], None]
"""Called with what is being done, and how many of how many letters are in the staging, from a thread of its own."""

TASKS: Final = 2
_LARGEST: Final = 10_000  # letters that are kept at once


@dataclass(frozen=True, slots=True)
class Drained:
    """What a drain did. `run` is None if there was nothing to do.

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
    """A drain that is worth starting Spark for: `found` letters wait."""

    url: str = field(repr=False)  # with its password
    broker: str
    queue: Destination
    lake: Lake
    tasks: int
    batch: int
    found: int


def drain(
    spark: SparkSession,
    url: str,
    dlq: str | Destination,
    lake: str | os.PathLike[str],
    *,
    tasks: int = TASKS,
    peek: bool = False,
    batch: int = BATCH,
    stop: threading.Event | None = None,
    progress: Progress | None = None,
) -> Drained:
    """Takes as many letters off the queue as are in it now, and puts them into the lake, which is made if need be.

    `tasks` consumers compete for them, each a task of Spark's; a consumer that dies costs at most `batch` letters that
    are in the lake twice, and where letters can be told apart, none. `peek` leaves the letters where they are, so
    their broker goes on owning them; it runs here, without tasks. `stop`, once it is set, ends the drain in good order.

    What a run before has taken, and died, is put into the lake first. ConfigError, LakeError, BrokerError before
    anything is taken; after that, what went wrong is in `rest`, unless nothing came of it.
    """
    order = prepare(url, dlq, lake, tasks=tasks, peek=peek, batch=batch)
    return order if isinstance(order, Drained) else carry_out(spark, order, stop=stop, progress=progress)


def prepare(
    url: str,
    dlq: str | Destination,
    lake: str | os.PathLike[str],
    *,
    tasks: int = TASKS,
    peek: bool = False,
    batch: int = BATCH,
) -> Drained | DrainOrder:
    """All of a drain that needs no Spark: what it did if that was all there is to do, else what is left."""
    queue = _checked(url, dlq, tasks, batch)
    if peek:
        from .peek import peek as look

        return look(url, queue, lake, batch)
    with BrokerClient(adapter_for(url)) as asking:
        found, broker = asking.depth(queue), asking.broker
    order = DrainOrder(url, broker, queue, Lake(lake, create=True), tasks, batch, found)
    return order if found else _nothing_there(order)


def carry_out(
    spark: SparkSession, order: DrainOrder, *, stop: threading.Event | None = None, progress: Progress | None = None
) -> Drained:
    """The rest of a drain, as `drain` has it."""
    from .scheduling import Rounds

    _refuse_speculation(spark)
    return Rounds(spark, order, stop or threading.Event(), progress).run()


def _nothing_there(order: DrainOrder) -> Drained:
    """What a run before has taken, and died, is put into the lake all the same."""
    from .scheduling import gather_left

    left = gather_left(order)
    return Drained(left.run, 0, left.letters, left.letters, left.again) if left else Drained(None, 0)


def _checked(url: str, dlq: str | Destination, tasks: int, batch: int) -> Destination:
    """What can be told before anything is connected to. ConfigError."""
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


def _refuse_speculation(spark: SparkSession) -> None:
    """A task that is run twice at a time takes more than its share."""
    if (spark.conf.get("spark.speculation", "false") or "").lower() == "true":
        raise ConfigError(
            "speculative execution runs a task twice",
            where="spark.speculation",
            cure="Set it to false for this session: letters are taken once",
        )
