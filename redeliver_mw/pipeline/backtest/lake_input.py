# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads through Spark what the back-test asks of a lake: the mart `messages`, cut down to counts."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ...policy import RedeliveryPolicy
from ..errors import LakeError, readable_errors
from ..lake.lake import Lake
from ..lake.mart_set import MartSet
from ..report.backtest_input import in_use
from ..schemas import Row
from ..time_range import DAY_US, TimeBound, whole_days
from . import History
from .assessment import LakeEvidence
from .calibration import Check
from .observations import ObservationRow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TIMES: Final = 5.0  # so many times the usual number of failures make an outage
_LEAST: Final = 5.0  # failures in a bucket: fewer may be chance
_GAP: Final = 2  # buckets without many failures that do not end an outage
_AT_ONCE: Final = frozenset({"rejected", "undecodable"})  # how messages end that no policy tries again


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

    def evidence(self, checks: Sequence[Check]) -> LakeEvidence:
        """Return what a recommendation is held against; `checks` are those of `how_wrong`."""
        return LakeEvidence(self.observed, tuple(checks), self.hosts, self.outage_share, self.days)


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
    with readable_errors(marts.root):
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
    """Return the rows about hosts; none if the records that the marts were made from are gone."""
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
    """Return the policy of each destination where the records spell one whole. Raises the same errors as `known`.

    The records of a set of marts are those that it was made from; the records of a lake are all that it has.
    """
    from ..report import aggregate

    place = lake if isinstance(lake, Lake | MartSet) else Lake(lake)
    with readable_errors(place.root):
        return in_use(_collected(aggregate.policies(place.events(spark, since, until))))


def _collected(frame: DataFrame) -> list[Row]:
    return [row.asDict() for row in frame.collect()]


def longest_outages(rows: Iterable[ObservationRow], buckets: int) -> dict[str, float]:
    """Return the longest outage of each destination as a share of the time, from rows with `bucket` and `n`.

    An outage is a run of buckets with far more failures than the usual one has; 0 if there was none. Messages that fail
    in one outage recover together, so they tell no more than one message would: an estimate of chance has to count
    outages, and therefore has to know how long they are.
    """
    counts: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(buckets))
    for row in rows:
        counts[row["destination"]][min(row["bucket"], buckets - 1)] += row["n"]
    return {destination: longest(found) / buckets for destination, found in counts.items()}


def longest(counts: np.ndarray) -> int:
    """Return how many buckets the longest outage spans; 0 if there was none."""
    many = np.flatnonzero(counts >= max(_TIMES * float(np.median(counts)), _LEAST))
    if not len(many):
        return 0
    breaks = np.flatnonzero(np.diff(many) > 1 + _GAP)
    starts = np.concatenate([[0], breaks + 1])
    ends = np.concatenate([breaks, [len(many) - 1]])
    return int((many[ends] - many[starts]).max()) + 1


class TerminalErrors(NamedTuple):
    """Tells how messages ended, by fingerprint, as `History` takes it: each error's name, and those never retried."""

    error_types: dict[str, str]
    at_once: frozenset[str]


def ends_of(rows: Iterable[ObservationRow]) -> TerminalErrors:
    """Read rows with `fingerprint`, `error_type` and `reason`: of `messages`, each combination once or more.

    An error is tried again by no policy if all its messages ended as rejected or undecodable.
    """
    types: dict[str, str] = {}
    reasons: dict[str, set[str | None]] = defaultdict(set)
    for row in rows:
        fingerprint = row["fingerprint"] or ""
        reasons[fingerprint].add(row["reason"])
        if row["error_type"]:
            types.setdefault(fingerprint, row["error_type"])
    return TerminalErrors(types, frozenset(name for name, found in reasons.items() if found <= _AT_ONCE))
