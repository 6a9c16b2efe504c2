# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What the back-test asks of a lake, read through Spark: the mart `recovery`, and a little of `messages`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...policy import RedeliveryPolicy
from ..errors import told
from ..lake.lake import Lake
from ..lake.mart_set import MartSet
from ..report.backtest_input import in_use
from ..report.job import whole_days
from ..time_range import TimeBound, day_of
from . import History
from .terminal_errors import ends_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]


@dataclass(frozen=True)
class LakeHistory:
    """`history` is made ready to be asked. `apart` are its rows with policies and their arms told apart, for
    `how_wrong`: as of the mart, `policy_version` with the arm behind it."""

    history: History
    apart: list[Row]


def known(
    spark: SparkSession,
    lake: Lake | MartSet | str | os.PathLike[str],
    *,
    since: TimeBound | None = None,
    until: TimeBound | None = None,
) -> LakeHistory:
    """What the marts of a lake, or a set of them, say of the days `since` then and before `until`.

    ConfigError for a lake that is none, for a time that is no day's beginning, and if no message failed; LakeError if
    its marts are not there yet, SparkError if Spark gives up.
    """
    from ..marts.recovery import recovery
    from ..report import aggregate

    days, place = whole_days(since, until), lake if isinstance(lake, Lake | MartSet) else Lake(lake)
    marts = place if isinstance(place, MartSet) else place.marts()
    with told(marts.root):
        recovered, messages = marts.mart(spark, "recovery"), marts.mart(spark, "messages")
        for bound, sign in zip(days, (">=", "<"), strict=True):
            if bound is not None:
                recovered = recovered.where(f"day {sign} DATE'{day_of(bound)}'")
                messages = messages.where(f"last_us {sign} {bound}L")
        rows = _collected(aggregate.recovery(recovered))
        ends = ends_of(_collected(aggregate.reasons(messages)))
        (work,) = _collected(messages.selectExpr("try_sum(handler_us) AS us", "sum(attempts) AS attempts"))
        arms = messages.selectExpr(
            "* EXCEPT (policy_version)", "concat_ws(' ', policy_version, policy_arm) AS policy_version"
        )
        apart = _collected(aggregate.recovery(recovery(arms)))
    attempt_s = (work["us"] or 0) / 1e6 / max(work["attempts"] or 1, 1)
    return LakeHistory(History(rows, error_types=ends.error_types, at_once=ends.at_once, attempt_s=attempt_s), apart)


def policies_in_use(
    spark: SparkSession,
    lake: Lake | MartSet | str | os.PathLike[str],
    *,
    since: TimeBound | None = None,
    until: TimeBound | None = None,
) -> Mapping[str, RedeliveryPolicy]:
    """The policy of each destination, where the records spell one whole. Errors as of `known`.

    Of a set of marts these are the records that it was made from, of a lake all.
    """
    from ..report import aggregate

    place = lake if isinstance(lake, Lake | MartSet) else Lake(lake)
    with told(place.root):
        return in_use(_collected(aggregate.policies(place.events(spark, since, until))))


def _collected(frame: DataFrame) -> list[Row]:
    return [row.asDict() for row in frame.collect()]
