# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Read through Spark what the back-test asks of a lake: the mart `messages`, cut down to counts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...policy import RedeliveryPolicy
from ..errors import LakeError, told
from ..lake.lake import Lake
from ..lake.mart_set import MartSet
from ..report.backtest_input import in_use
from ..report.job import whole_days
from ..time_range import DAY_US, TimeBound
from . import History
from .assessment import Evidence
from .calibration import Check
from .outages import longest_outages
from .terminal_errors import ends_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]


@dataclass(frozen=True)
class LakeHistory:
    """Holds what the back-test knows of a lake.

    - `history`: ready to be asked. Its versions are those of the records with the arm behind them.
    - `apart`: its rows, for `how_wrong`.
    - `observed`: what became of the messages of each version at each destination.
    - `hosts`: how many retries each host made at each destination, and how many succeeded.
    - `outage_share`: the longest outage of each destination, as a share of the time that is looked at; `days`: how
      long that is.
    """

    history: History
    apart: list[Row]
    observed: list[Row]
    hosts: list[Row]
    outage_share: Mapping[str, float]
    days: float = 0.0

    def evidence(self, checks: Sequence[Check]) -> Evidence:
        """Return what a recommendation is held against; `checks` are those of `how_wrong`."""
        return Evidence(self.observed, tuple(checks), self.hosts, self.outage_share, self.days)


def known(
    spark: SparkSession,
    lake: Lake | MartSet | str | os.PathLike[str],
    *,
    since: TimeBound | None = None,
    until: TimeBound | None = None,
) -> LakeHistory:
    """Return what the mart `messages` of a lake, or of a set of marts, says of the days from `since` to `until`.

    Raises ConfigError for a lake that is none, for a time that is no day's beginning, and if no message failed;
    LakeError if its marts are not there yet, SparkError if Spark gives up.
    """
    from ..report import aggregate
    from . import lake_rows

    days, place = whole_days(since, until), lake if isinstance(lake, Lake | MartSet) else Lake(lake)
    marts = place if isinstance(place, MartSet) else place.marts()
    with told(marts.root):
        messages = marts.mart(spark, "messages")
        for bound, sign in zip(days, (">=", "<"), strict=True):
            if bound is not None:
                messages = messages.where(f"last_us {sign} {bound}L")
        (ends,) = _collected(lake_rows.span(messages))
        first_us, length_us = ends["first_us"] or 0, max((ends["last_us"] or 0) - (ends["first_us"] or 0), 1) + 1
        width_us = -(-length_us // lake_rows.SLICES)
        rows = _collected(lake_rows.histories(messages, first_us, width_us))
        taking = _collected(lake_rows.attempt_times(messages))
        observed = _collected(lake_rows.observed(messages))
        bucket_us = -(-length_us // lake_rows.BUCKETS)
        failures = _collected(lake_rows.failures_by_bucket(messages, first_us, bucket_us))
        hosts = _hosts(marts, spark, since, until)
        ended = ends_of(_collected(aggregate.reasons(messages)))
    history = History(rows, error_types=ended.error_types, at_once=ended.at_once, attempt_times=taking)
    outages = longest_outages(failures, lake_rows.BUCKETS)
    return LakeHistory(history, rows, observed, hosts, outages, length_us / DAY_US)


def _hosts(marts: MartSet, spark: SparkSession, since: TimeBound | None, until: TimeBound | None) -> list[Row]:
    """Nothing, where the records that the marts were made from are gone."""
    from . import lake_rows

    try:
        events = marts.events(spark, since, until)
    except LakeError:
        return []
    return _collected(lake_rows.hosts(events))


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
