# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes and freezes a plan."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...dead_letters.edits.letter import Redact, Transform
from ..lake.lake import Lake
from ..manifests import now_us
from ..time_range import TimeBound
from .options import MAX_GENERATION, PlanOptions, plan_options
from .plan_dir import check_folder, new_folder
from .plan_file import Plan, freeze
from .selection import blamed_on, check_condition
from .shipping import ship

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .build import BuiltPlan


def plan(
    spark: SparkSession,
    lake: Lake | str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    where: str | None = None,
    since: TimeBound | None = None,
    until: TimeBound | None = None,
    destinations: Sequence[str] = (),
    fingerprints: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
    min_attempts: int | None = None,
    edits: Sequence[str] = (),
    removals: Sequence[str] = (),
    transform: str | Transform | None = None,
    ordered: bool = False,
    max_generation: int = MAX_GENERATION,
    buckets: int | None = None,
    bodies: bool = True,
    redact: str | Redact | None = None,
    progress: Callable[[str], None] | None = None,
) -> Plan:
    """Freeze the choice of the lake's dead letters that go back, in a folder that is empty or missing.

    Chooses letters dead-lettered from `since` on and before `until`, for which `where` and the other conditions hold.
    `edits` and `removals` are written as for `--set` and `--unset`; `transform` is a function over a `Letter`, or names
    one. `ordered` keeps letters of one group id in the order in which they were dead-lettered. A message that was
    replayed `max_generation` times is left out. At most `buckets` files are written, as many as publishers can share
    the work.

    Without `bodies` the plan contains no bodies: a replay takes them from the lake, which must still have them.
    `redact` is a function over a `Letter`, or names one, and returns the text that the plan shows in place of the body,
    which goes back unchanged.

    `progress` is called with the current step.

    Raises ConfigError for invalid options, LakeError, SparkError. After an error there is no plan. An exception of the
    transform is no error of this function: those letters are in `left_out`, and the first exceptions in `errors`.
    """
    from .bucket_files import small_batches
    from .build import PlanBuild

    wish = plan_options(
        where=where,
        since=since,
        until=until,
        destinations=destinations,
        fingerprints=fingerprints,
        headers=headers,
        min_attempts=min_attempts,
        edits=edits,
        removals=removals,
        transform=transform,
        ordered=ordered,
        max_generation=max_generation,
        buckets=buckets,
        bodies=bodies,
        redact=redact,
    )
    place = lake if isinstance(lake, Lake) else Lake(lake)
    check_folder(folder)
    if wish.asked is not None:
        check_condition(spark, wish.asked)
    ship(wish.changes.transform)
    ship(wish.redact)
    letters = place.dead_letters(spark, since, until)
    with new_folder(folder) as files, small_batches(spark), blamed_on(wish.asked):
        made = PlanBuild(spark, files, place, letters, wish, progress or (lambda _: None)).all()
        return freeze(files, _plan(files.url(), place.root, wish, made))


def _plan(folder: str, lake: str, wish: PlanOptions, made: BuiltPlan) -> Plan:
    return Plan(
        folder=folder,
        plan_id=secrets.token_hex(8),
        created_us=now_us(),
        lake=lake,
        since_us=wish.span.since_us,
        until_us=wish.span.until_us,
        where=wish.asked,
        transform=wish.transform,
        edits=wish.edits,
        ordered=wish.ordered,
        bodies=wish.bodies,
        redact=wish.redaction,
        letters=made.letters,
        buckets=made.buckets,
        files=tuple(made.files),
        destinations=made.destinations,
        brokers=made.brokers,
        dialects=made.dialects,
        left_out=made.left_out,
        left_out_file=made.left_out_file,
        errors=made.errors,
    )
