# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Computes the marts of a lake's events, and publishes them in the lake. docs/marts.md describes each mart."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from .errors import readable_errors
from .lake.lake import Lake
from .lake.mart_set import new_marts
from .progress import Progress
from .time_range import TimeBound, span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_OF_MESSAGES: Final = ("recovery", "waste")  # computed from `messages` as written, which comes first
_OF_COUNTS: Final = ("attempt_curve", "storms")  # count healthy messages, too


def insights(
    spark: SparkSession,
    lake: Lake | str | os.PathLike[str],
    *,
    since: TimeBound | None = None,
    until: TimeBound | None = None,
    progress: Progress | None = None,
) -> dict[str, int]:
    """Make all marts anew from the events `since` then and before `until`, by default of all; return the rows of each.

    The marts are published together, when all are done: until then, and after any error, readers see the set before.
    Raises ConfigError if the path is no lake; LakeError if the lake is empty, if another process makes its marts or its
    disk is full; SparkError if Spark gives up.
    """
    from .marts.clocks import corrected

    place = lake if isinstance(lake, Lake) else Lake(lake)
    wanted = span(since, until)
    rows: dict[str, int] = {}
    with new_marts(place, spark) as new:
        manifests, makers = place.manifests(), _makers()
        events = place.events(spark, *wanted, manifests=manifests)
        healthy = place.healthy_counts(spark, *wanted, manifests=manifests).drop("since_us")
        new.made_from([one.run for one in manifests], wanted)
        for done, (name, make) in enumerate(makers.items()):
            if progress is not None:
                progress(name, done, len(makers))
            if name in _OF_COUNTS:
                made = make(events, healthy=healthy)
            else:
                made = make(new.mart("messages") if name in _OF_MESSAGES else events)
            rows[name] = new.write(name, made)
            if name == "clocks":  # made first: all other marts use events with one clock
                events, healthy = corrected(events, made), corrected(healthy, made)
    if progress is not None:
        progress("done", len(rows), len(rows))
    return rows


def clock_warnings(spark: SparkSession, lake: Lake) -> list[str]:
    """Return warnings about the clocks of a lake's hosts, from its marts, with cures; empty if all clocks are in step.

    Raises LakeError if the marts do not exist yet.
    """
    from .marts.recovery import order
    from .report import aggregate, clocks

    marts = lake.marts()
    with readable_errors(marts.root):
        hosts = aggregate.clocks(marts.mart(spark, "clocks")).collect()
        histories = order(marts.mart(spark, "messages")).collect()
    known = clocks.clocks([row.asDict() for row in hosts], [row.asDict() for row in histories])
    return [line for line in (*clocks.sentences(known), clocks.cure(known)) if line]


def _makers() -> dict[str, Callable[..., DataFrame]]:
    """Return the function of each mart; Spark is loaded only here."""
    from .marts.attempt_curve import attempt_curve
    from .marts.clocks import clocks
    from .marts.dead_letter_flow import dead_letter_flow
    from .marts.fingerprints import fingerprints
    from .marts.messages import messages
    from .marts.poison import poison
    from .marts.recovery import recovery
    from .marts.storms import storms
    from .marts.waste import waste

    return {
        "clocks": clocks,
        "messages": messages,
        "attempt_curve": attempt_curve,
        "recovery": recovery,
        "poison": poison,
        "fingerprints": fingerprints,
        "waste": waste,
        "storms": storms,
        "dead_letter_flow": dead_letter_flow,
    }
