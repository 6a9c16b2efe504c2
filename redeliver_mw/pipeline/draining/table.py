# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The table `dead_letters` as it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..errors import LakeError, told
from ..schemas import DEAD_LETTERS
from ..time_range import TimeBound, span
from .manifests import BROKER, read_all
from .staging import TABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..lake.lake import Lake

_DRAIN: Final = "Run `redeliver pipeline drain URL DLQ LAKE`"


def dead_letters(lake: Lake, spark: SparkSession, since: TimeBound | None, until: TimeBound | None) -> DataFrame:
    """What was drained, and of what was only looked at those letters that were not drained later."""
    from pyspark.sql import functions as sf

    wanted = span(since, until)
    with told(lake.root):
        manifests = read_all(lake.files)
    if not manifests:
        raise LakeError("the lake holds no dead letters yet", where=lake.root, cure=_DRAIN)

    def rows(looked: bool) -> DataFrame:
        listed = [file for one in manifests if (one.owner == BROKER) == looked for file in one.files]
        paths = [file.path for file in listed if wanted.touches(file.min_us, file.max_us)]
        frame = lake.read(spark, DEAD_LETTERS, paths, base=TABLE)
        if wanted.since_us is not None:
            frame = frame.where(sf.col("dead_us") >= wanted.since_us)
        return frame if wanted.until_us is None else frame.where(sf.col("dead_us") < wanted.until_us)

    drained = rows(looked=False)
    if not any(one.owner == BROKER for one in manifests):
        return drained
    return drained.unionByName(rows(looked=True).join(drained.select("dl_id"), "dl_id", "left_anti"))
