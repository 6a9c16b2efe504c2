# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes the report of a lake: reads its marts through Spark, asks the back-test, and writes the page."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import ConfigError
from ...redaction import redact
from ..backtest.calibration import how_wrong
from ..backtest.objective import OBJECTIVES, Objective
from ..errors import readable_errors
from ..lake.lake import Lake
from ..lake.mart_set import MartSet
from ..progress import Progress
from ..schemas import Row
from ..time_range import TimeBound, TimeRange, day_of, whole_days
from . import backtest_input
from .axis_scales import bucket
from .backtest_input import PoliciesInUse, ToldPolicies
from .facts import Facts, MartRows, facts
from .failures import failures
from .page import page
from .storms import BUCKETS, WINDOW_S

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..backtest.lake_input import LakeHistory


def report(
    spark: SparkSession,
    lake: Lake | str | os.PathLike[str],
    *,
    policies: PoliciesInUse | None = None,
    objective: Objective | None = None,
    since: TimeBound | None = None,
    until: TimeBound | None = None,
    progress: Progress | None = None,
) -> Facts:
    """Return the page's facts for a lake, from the days `since` then and before `until`.

    `policies` are those in use; without them they are read from the journal's records where these spell them out.
    `objective` is the aim for which a policy is recommended, by default the first of OBJECTIVES for which there is a
    better one. Raises ConfigError if the path is no lake and for a time that is no day's beginning, LakeError if its
    marts do not exist yet, SparkError if Spark gives up.
    """
    days = whole_days(since, until)
    place = lake if isinstance(lake, Lake) else Lake(lake)
    with readable_errors(place.root):
        marts = _Marts(spark, place.marts(), days, progress or _silent)
        rows = marts.rows()
        if rows.recovery:
            known = marts.known()
            told_of = ToldPolicies({}, {}) if policies is not None else marts.policies()
            places = known.history.destinations
            used: Mapping[str, PoliciesInUse] = told_of.policies if policies is None else _named(policies, places)
            untold = backtest_input.untold_among(places, told_of) if policies is None else []
            wanted = [objective] if objective is not None else [*OBJECTIVES.values()]
            checks = how_wrong(known.apart)
            found = backtest_input.compared(known.history, used, wanted, progress, known.evidence(checks))
            shown = failures(rows.recovery, rows.waste, rows.fingerprints, ()).shown
            curves = backtest_input.estimates(known.history, [(one.destination, one.fingerprint) for one in shown])
            check_rows = [asdict(check) for check in checks]
            rows = replace(
                rows,
                backtest=found.backtest,
                choices=found.choices,
                estimates=curves,
                checks=check_rows,
                untold=untold,
            )
    return facts(rows, lake=redact(place.root), made_s=time.time())


def told_policies(
    spark: SparkSession, lake: Lake | MartSet, *, since: TimeBound | None = None, until: TimeBound | None = None
) -> ToldPolicies:
    """Return the policy of each destination as far as the records spell it out, and the reason where they do not.

    Raises the errors of `report`.
    """
    from . import aggregate

    with readable_errors(lake.root):
        rows = aggregate.policies(lake.events(spark, since, until)).collect()
    return backtest_input.told_in_use([row.asDict(recursive=True) for row in rows])


def write(known: Facts, out: str | os.PathLike[str]) -> int:
    """Write the page atomically, and return its size in bytes.

    After an error an existing page stays unchanged. Raises ConfigError, LakeError.
    """
    path = check_out(out)
    content = page(known).encode()
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    with readable_errors(str(path)):
        try:
            unfinished.write_bytes(content)
            os.replace(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)
    return len(content)


def check_out(out: str | os.PathLike[str]) -> Path:
    """Return the path. Raises ConfigError if no file can be written there."""
    path = Path(out)
    if path.is_dir() or not path.parent.is_dir():
        what = "this is a folder" if path.is_dir() else "there is no such folder"
        raise ConfigError(what, where=str(path), cure="Name a file in a folder that is there", code="path-not-usable")
    return path


class _Marts:
    """Reads the marts of one run within some days, reduced and collected."""

    def __init__(self, spark: SparkSession, marts: MartSet, days: TimeRange, progress: Progress) -> None:
        self._spark, self._marts, self._days, self._progress = spark, marts, days, progress

    def rows(self) -> MartRows:
        from ..marts.recovery import order
        from . import aggregate

        flow, poison, storms = self._daily("dead_letter_flow"), self._timed("poison"), self._timed("storms")
        ((first_us, last_us),) = (row.values() for row in self._read("storms", aggregate.span(storms)))
        width_s = bucket((last_us - first_us) / 1e6 + WINDOW_S, BUCKETS) if first_us is not None else WINDOW_S
        return MartRows(
            outcomes=self._read("messages", aggregate.outcomes(self._timed("messages"))),
            attempt_curve=self._read("attempt_curve", aggregate.attempt_curve(self._daily("attempt_curve"))),
            recovery=self._read("recovery", aggregate.recovery(self._daily("recovery"))),
            fingerprints=self._read(
                "fingerprints", aggregate.fingerprints(self._marts.mart(self._spark, "fingerprints"))
            ),
            waste=self._read("waste", aggregate.waste(self._daily("waste"))),
            poison=self._read("poison", aggregate.retrying_messages(poison)),
            verdicts=self._read("poison", aggregate.verdicts(poison)),
            storms=self._read("storms", aggregate.buckets(storms, width_s)),
            episodes=self._read("storms", aggregate.episodes(storms)),
            flow_by_day=self._read("dead_letter_flow", aggregate.by_day(flow)),
            flow_by_reason=self._read("dead_letter_flow", aggregate.by_reason(flow)),
            clocks=self._read("clocks", aggregate.clocks(self._daily("clocks"))) if self._marts.has("clocks") else [],
            order=self._read("messages", order(self._timed("messages"))),
        )

    def known(self) -> LakeHistory:
        """Return the data for the back-test. Raises ConfigError if nothing failed."""
        from ..backtest import lake_input  # it reads through `aggregate`

        self._progress("reading histories", 0, 0)
        return lake_input.known(self._spark, self._marts, since=self._days.since_us, until=self._days.until_us)

    def policies(self) -> ToldPolicies:
        """Return the policies in use, as far as the records show them."""
        self._progress("reading policies", 0, 0)
        return told_policies(self._spark, self._marts, since=self._days.since_us, until=self._days.until_us)

    def _daily(self, name: str) -> DataFrame:
        frame = self._marts.mart(self._spark, name)
        for bound, sign in zip(self._days, (">=", "<"), strict=True):
            if bound is not None:
                frame = frame.where(f"day {sign} DATE'{day_of(bound)}'")
        return frame

    def _timed(self, name: str) -> DataFrame:
        """Return the mart's rows in the range, by the time of a message's last attempt, or of a window's beginning."""
        frame, column = self._marts.mart(self._spark, name), "window_us" if name == "storms" else "last_us"
        for bound, sign in zip(self._days, (">=", "<"), strict=True):
            if bound is not None:
                frame = frame.where(f"{column} {sign} {bound}L")
        return frame

    def _read(self, name: str, frame: DataFrame) -> list[Row]:
        self._progress(f"reading {name}", 0, 0)
        return [row.asDict() for row in frame.collect()]


def _named(policies: PoliciesInUse, destinations: Collection[str]) -> dict[str, PoliciesInUse]:
    return {name: policies.resolve(name) for name in destinations}


def _silent(now: str, done: int, of: int) -> None:
    pass
