# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Checks the plan, the broker, the targets and Spark before a letter is sent."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from ...adapter.registry import parse_url
from ...dead_letters.sending.sync_connection import SyncConnection
from ...errors import ConfigError, DestinationMissing
from ...message import Destination
from ..files import files_at
from ..plans.plan_file import Plan, read_plan
from .ledger import tries
from .registry import StartedReplay, all_begun, sent_letters

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .outcomes import ReplayStanding

SENT: Final = "replayed"
_PLANNING_US: Final = 86_400_000_000  # longer than the making of a plan, which does not include what was sent meanwhile
PUBLISHERS: Final = 2  # unless more are requested, or fewer are possible


def plan_for(folder: str | os.PathLike[str], url: str) -> Plan:
    """Return the plan, unchanged since it was frozen, whose letters this broker's driver can send.

    Raises ConfigError, LakeError.
    """
    dialect = parse_url(url).dialect
    if dialect == "memory":
        what = "a memory broker lives in one process, and publishers are others"
        raise ConfigError(
            what, where="memory://", cure="Use TestApp: test.replay(source)", code="memory-broker-elsewhere"
        )
    plan = read_plan(folder)
    if others := sorted(set(plan.dialects) - {dialect}):
        what = f"its letters were read through {', '.join(others)}, and this is {dialect}"
        cure = "Give the URL of a broker of that kind; letters of several kinds are planned apart, with --where"
        raise ConfigError(what, where=plan.folder, cure=cure, code="plan-broker")
    return plan


def missing_targets(line: SyncConnection, found: ReplayStanding) -> dict[str, str]:
    """Return the targets of unsent letters that accept no messages, as far as the broker reports, and why."""
    wanted = sorted({target for target, word in found.targets if word != SENT})
    answers = {target: line.check(Destination.parse(target)) for target in wanted}
    return {target: why for target, why in answers.items() if why}


def refuse_missing(missing: Mapping[str, str], found: ReplayStanding, line: SyncConnection) -> None:
    """Raise DestinationMissing if targets are missing."""
    if not missing:
        return
    target, why = next(iter(missing.items()))
    letters = sum(number for (name, word), number in found.targets.items() if name in missing and word != SENT)
    more = f", and {len(missing) - 1} more targets" if len(missing) > 1 else ""
    raise DestinationMissing(
        f"{Destination.parse(target)} takes nothing: {why}{more}; {letters} letters go there",
        where=line.adapter.broker,
        cure="Make it, or plan again without its letters",
    )


def refuse_sent_elsewhere(plan: Plan) -> None:
    """Raise an error for letters that another replay has sent since this plan was made: they would be sent twice.

    Raises ConfigError, LakeError, OSError.
    """
    others = [one for one in all_begun(files_at(plan.lake)) if one.plan_id != plan.plan_id]
    others = [one for one in others if _wrote_since(one, plan.created_us)]
    if not others:
        return
    import pyarrow.compute as pc

    from .outcomes import unsent

    mine = unsent(plan)
    twice = Counter({one.plan_id: pc.sum(pc.is_in(sent_letters(one), mine)).as_py() or 0 for one in others})
    for plan_id, number in (+twice).most_common(1):
        what = f"{number} of its letters were sent back by the replay {plan_id}, since it was made"
        raise ConfigError(
            what,
            where=plan.folder,
            cure="Make the plan again: what was sent is left out then",
            code="plan-already-sent",
        )


def _wrote_since(begun: StartedReplay, us: int) -> bool:
    paths = [path for found in tries(begun.folder).values() for path in found]
    return any(os.stat(path).st_mtime_ns // 1000 >= us - _PLANNING_US for path in paths)


def refuse_other_broker(line: SyncConnection, plan: Plan, owners: Collection[str]) -> None:
    """Raise ConfigError for another broker than the owner's, as letters only looked at can be removed only there."""
    here = line.adapter.broker
    if "broker" in owners and set(plan.brokers) != {here}:
        what = f"its letters still lie at {', '.join(sorted(plan.brokers))}, and this is {here}"
        raise ConfigError(
            what,
            where=plan.folder,
            cure="Give the URL of that broker, or drain them without --peek",
            code="plan-broker",
        )


def refuse_speculation(spark: SparkSession) -> None:
    """Raise ConfigError if speculation is on: a second copy of a publisher would send its letters a second time."""
    if spark.conf.get("spark.speculation", "false") == "true":
        what = "a replay with speculative execution would send letters twice"
        raise ConfigError(
            what, where="spark.speculation", cure="Say --conf spark.speculation=false", code="spark-settings"
        )


def publishers_for(spark: SparkSession, asked: int | None, buckets: int) -> int:
    """Return the number of publishers, each with a slot of its own, because otherwise the rate would not be kept.

    Raises ConfigError.
    """
    from pyspark.sql import functions as sf

    # How many tasks Spark runs at a time, which a session over Connect does not report by itself.
    slots = spark.range(100_000).select(sf.spark_partition_id()).distinct().count()
    if asked is not None and asked > slots:
        what = f"{asked} publishers, and Spark runs {slots} tasks at a time"
        raise ConfigError(what, where="publishers", cure=f"Take {slots}, or give Spark more cores", code="option-value")
    return max(1, min(asked or PUBLISHERS, slots, buckets))
