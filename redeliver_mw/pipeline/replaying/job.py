# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs `replay`: looks at a plan, or sends it back, first a canary, then the remaining letters.

The driver decides and watches; publishers, one Spark task each, send. The state of each letter is in the ledger only,
so after any crash the next run continues from there.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from ...adapter.registry import adapter_for
from ...dead_letters.sending.limits import STOP_AT, ShareOrCount, Size
from ...dead_letters.sending.sync_connection import SyncConnection
from ..errors import readable_errors
from ..files import files_at
from ..progress import Progress
from .options import BATCH, WAIT, ReplayOptions
from .preflight import (
    missing_targets,
    plan_for,
    refuse_missing,
    refuse_other_broker,
    refuse_sent_elsewhere,
    refuse_speculation,
)
from .registry import LOCK
from .report import Replayed, with_standing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def replay(
    spark: SparkSession,
    folder: str | os.PathLike[str],
    url: str,
    *,
    execute: bool = False,
    rate: float | None = None,
    canary: Size | None = None,
    stop_at: ShareOrCount = STOP_AT,
    publishers: int | None = None,
    journal: str | os.PathLike[str] | None = None,
    wait: float = WAIT,
    batch: int = BATCH,
    stop: threading.Event | None = None,
    progress: Progress | None = None,
) -> Replayed:
    """Send the letters of the plan in `folder` that no earlier run has sent; without `execute`, only look.

    `rate`: messages per second of all publishers together. `canary` (a number, or "1%") letters go first, and their end
    is awaited for up to `wait` seconds. `stop_at` (0.2, or "20%"): the replay stops when a larger share is
    dead-lettered again, as seen in `journal`, the folder of the consumers' journal, or in the dead-letter queues. At
    most `batch` letters are in doubt when a publisher dies. `stop`, when set, ends the replay in good order.

    Raises ConfigError for invalid options, LakeError if another replay of this plan is running, its ledger is damaged
    or its disk full, BrokerError, SparkError. Letters sent before an error are in the ledger: run the replay again.
    """
    wanted = ReplayOptions(
        rate=rate,
        canary=canary,
        stop_at=stop_at,
        publishers=publishers,
        journal=None if journal is None else os.fspath(journal),
        wait=wait,
        batch=batch,
    )
    if not execute:
        return look(folder, url)
    from .outcomes import standing
    from .run import ReplayRun

    refuse_speculation(spark)
    where = files_at(folder, "plan")
    plan_for(folder, url)  # gives the best error message for a folder without a plan, before a lock is created there
    with readable_errors(where.url()), where.locked(LOCK, "replay"):
        plan = plan_for(folder, url)
        found = standing(plan)
        refuse_sent_elsewhere(plan)
        with SyncConnection(adapter_for(url)) as line:
            refuse_other_broker(line, plan, found.owners)
            refuse_missing(missing_targets(line, found), found, line)
        return ReplayRun(spark, plan, url, wanted, stop or threading.Event(), progress).run()


def look(folder: str | os.PathLike[str], url: str) -> Replayed:
    """Return what is left to send, and whether its targets exist: connects to the broker, and needs no Spark."""
    from .outcomes import standing

    plan = plan_for(folder, url)
    with readable_errors(plan.folder):
        found = standing(plan)
        with SyncConnection(adapter_for(url)) as line:
            refuse_other_broker(line, plan, found.owners)
            missing = missing_targets(line, found)
        about = Replayed(plan_id=plan.plan_id, executed=False, letters=plan.letters, replayed=0)
        return with_standing(about, found, missing)
