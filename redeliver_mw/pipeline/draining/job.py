# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""`drain`: the letters that a dead-letter queue holds now, off it and into a lake, by Spark tasks that compete."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from ...adapter.registry import adapter_for
from ...dead_letters import BATCH, BrokerClient
from ...errors import ConfigError
from ...message import Destination
from ..lake.lake import Lake
from ..progress import Progress
from .order import TASKS, Drained, DrainOrder, queue_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    queue = queue_of(url, dlq, tasks, batch)
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
    from .tasks import Rounds

    _refuse_speculation(spark)
    return Rounds(spark, order, stop or threading.Event(), progress).run()


def _nothing_there(order: DrainOrder) -> Drained:
    """What a run before has taken, and died, is put into the lake all the same."""
    from .tasks import gather_left

    left = gather_left(order)
    return Drained(left.run, 0, left.letters, left.letters, left.again) if left else Drained(None, 0)


def _refuse_speculation(spark: SparkSession) -> None:
    """A task that is run twice at a time takes more than its share."""
    if (spark.conf.get("spark.speculation", "false") or "").lower() == "true":
        raise ConfigError(
            "speculative execution runs a task twice",
            where="spark.speculation",
            cure="Set it to false for this session: letters are taken once",
        )
