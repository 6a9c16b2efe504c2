# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What has to be right before a letter is sent: the plan, the broker, the targets, Spark."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from ...errors import ConfigError, DestinationMissing
from ...message import Destination
from ...registry import parse_url
from ..planned import Plan, read_plan
from .line import Line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PUBLISHERS = 2  # unless more are asked for, or fewer can be had


def plan_for(folder: str | os.PathLike[str], url: str) -> Plan:
    """The plan, unchanged since it was frozen, whose letters this broker's driver sends. ConfigError, LakeError."""
    dialect = parse_url(url).dialect
    if dialect == "memory":
        what = "a memory broker lives in one process, and publishers are others"
        raise ConfigError(what, where="memory://", cure="Use TestApp: test.replay(source)")
    plan = read_plan(folder)
    if others := sorted(set(plan.dialects) - {dialect}):
        what = f"its letters were read through {', '.join(others)}, and this is {dialect}"
        cure = "Give the URL of a broker of that kind; letters of several kinds are planned apart, with --where"
        raise ConfigError(what, where=plan.folder, cure=cure)
    return plan


def missing_targets(line: Line, plan: Plan) -> dict[str, str]:
    """The targets that take no messages, as far as the broker tells, and why."""
    found = {name: line.check(Destination.parse(name)) for name in sorted(plan.destinations)}
    return {name: why for name, why in found.items() if why}


def refuse_missing(missing: Mapping[str, str], plan: Plan, line: Line) -> None:
    """DestinationMissing if there are any."""
    if not missing:
        return
    name, why = next(iter(missing.items()))
    letters = sum(plan.destinations[target] for target in missing)
    more = f", and {len(missing) - 1} more targets" if len(missing) > 1 else ""
    cure = "Make it, or plan again without its letters"
    raise DestinationMissing(
        f"{name} takes nothing: {why}{more}; {letters} letters go there", where=line.adapter.broker, cure=cure
    )


def refuse_other_broker(line: Line, plan: Plan, owners: Collection[str]) -> None:
    """Letters that were only looked at lie in their broker still: nobody but that one can be told of their end."""
    here = line.adapter.broker
    if "broker" in owners and set(plan.brokers) != {here}:
        what = f"its letters still lie at {', '.join(sorted(plan.brokers))}, and this is {here}"
        raise ConfigError(what, where=plan.folder, cure="Give the URL of that broker, or drain them without --peek")


def refuse_speculation(spark: SparkSession) -> None:
    """A second copy of a publisher would be a second copy of its letters."""
    if spark.conf.get("spark.speculation", "false") == "true":
        what = "a replay with speculative execution would send letters twice"
        raise ConfigError(what, where="spark.speculation", cure="Say --conf spark.speculation=false")


def publishers_for(spark: SparkSession, asked: int | None, buckets: int) -> int:
    """How many there are to be, each with a slot of its own, else the rate were not held. ConfigError."""
    from pyspark.sql import functions as sf

    # How many tasks Spark runs at a time, which a session over Connect does not say of itself.
    slots = spark.range(100_000).select(sf.spark_partition_id()).distinct().count()
    if asked is not None and asked > slots:
        what = f"{asked} publishers, and Spark runs {slots} tasks at a time"
        raise ConfigError(what, where="publishers", cure=f"Take {slots}, or give Spark more cores")
    return max(1, min(asked or PUBLISHERS, slots, buckets))
