# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Drains a dead-letter queue into a lake: moves the letters that the queue holds now, by competing Spark tasks."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from ...adapter.registry import adapter_for
from ...dead_letters import BATCH, BrokerClient
from ...errors import ConfigError
from ...message import Destination
from ..errors import readable_errors
from ..lake.lake import Lake
from ..lake.lake_format import make_writable
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
    """Move as many letters as are in the queue now into the lake, which is created if necessary.

    `tasks` consumers compete for the letters, each in a Spark task. If a consumer dies, at most `batch` letters are in
    the lake twice, and none if the letters can be distinguished. `peek` leaves the letters in the queue, where their
    broker still owns them; it runs in this process, without tasks. `stop`, once it is set, ends the drain in good
    order.

    Letters that an earlier run took before it died are put into the lake first. Raises ConfigError, LakeError or
    BrokerError before any letter is taken. After that, the error is in `rest`, unless the drain had no result at all.
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
    """Do the part of a drain that needs no Spark. Return the result if that was all, else the order for the rest."""
    queue = queue_of(url, dlq, tasks, batch)
    if peek:
        from .peek import peek as look

        return look(url, queue, lake, batch)
    with BrokerClient(adapter_for(url)) as asking:
        found, broker = asking.depth(queue), asking.broker
    place = Lake(lake, create=True)
    with readable_errors(place.root):
        make_writable(place.files)  # a store that cannot publish is refused before a letter is taken
    order = DrainOrder(url, broker, queue, place, tasks, batch, found)
    return order if found else _nothing_there(order)


def carry_out(
    spark: SparkSession, order: DrainOrder, *, stop: threading.Event | None = None, progress: Progress | None = None
) -> Drained:
    """Do the rest of a drain, as described in `drain`."""
    from .tasks import Rounds

    _refuse_speculation(spark)
    return Rounds(spark, order, stop or threading.Event(), progress).run()


def _nothing_there(order: DrainOrder) -> Drained:
    """Return the result for an empty queue. Letters that an earlier run took before it died are put into the lake."""
    from .tasks import gather_left

    left = gather_left(order)
    return Drained(left.run, 0, left.letters, left.letters, left.again) if left else Drained(None, 0)


def _refuse_speculation(spark: SparkSession) -> None:
    """Raise ConfigError if speculation is on: a task that runs twice at a time takes more than its share."""
    if (spark.conf.get("spark.speculation", "false") or "").lower() == "true":
        raise ConfigError(
            "speculative execution runs a task twice",
            where="spark.speculation",
            cure="Set it to false for this session: letters are taken once",
            code="spark-settings",
        )
