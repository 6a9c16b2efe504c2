# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Journals of the gallery's worlds, compacted, made into marts and judged, tell what the arrays tell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from redeliver_mw.pipeline import Lake, compact
from redeliver_mw.pipeline.backtest import OBJECTIVES, Candidate, History, how_wrong
from redeliver_mw.pipeline.backtest.assessment import LakeEvidence, assess
from redeliver_mw.pipeline.backtest.lake_input import LakeHistory, known
from redeliver_mw.pipeline.insights import insights
from redeliver_mw.policy import Backoff, RedeliveryPolicy
from tests.pipeline.backtest.gallery import (
    ARM,
    JITTERED,
    STEADY,
    Attempts,
    GalleryWorld,
    Judged,
    Month,
    deploy,
    judged,
    outage_world,
    play,
    smooth,
    two_failures,
)
from tests.pipeline.journals import SECOND, START_US, line, segment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORLDS = {
    "arm": GalleryWorld("arm", "judged", smooth(2000), arm=ARM),
    "timeouts": GalleryWorld("timeouts", "judged", two_failures, policy=JITTERED),
    "slow": GalleryWorld("slow", "judged", smooth(1500, failing_s=10.0, median=20.0)),
    "changed": GalleryWorld("changed", "not judged", deploy(2.0, 30.0), before=STEADY),
    "outages": GalleryWorld("outages", "not judged", outage_world(4, 600.0, each=200)),
}
BETTER = RedeliveryPolicy(8, Backoff.exponential(2, 2.5, cap=300))


def played(world: GalleryWorld) -> tuple[Judged, list[bytes]]:
    """Return a month of a world as the back-test reads it, made of arrays, and as records."""
    rng = np.random.default_rng(11)
    month = world.make(rng, 0)
    every = np.ones(len(month.arrive), dtype=bool)
    mine, early = month.arm < 0.1, month.arrive < np.median(month.arrive)
    ways = [(world.policy, "v", every)]
    if world.arm is not None:
        ways = [(world.policy, "v main", ~mine), (world.arm, "v other", mine)]
    elif world.before is not None:
        ways = [(world.before, "old", early), (world.policy, "new", ~early)]
    parts, records = [], []
    for policy, version, those in ways:
        attempts: list[Attempts] = []
        parts.append((month, play(month, policy, rng, attempts), version, those))
        records += records_of(world.name, month, attempts, version, those)
    return judged(parts), records


def records_of(name: str, month: Month, attempts: list[Attempts], version: str, mine: Any) -> Iterator[bytes]:
    """Yield a line for each attempt at the messages that had this version."""
    policy, _, arm = version.partition(" ")
    for number in np.flatnonzero(mine):
        first = START_US + round(float(month.arrive[number]) * SECOND)
        ours = [one for one in attempts if one.tried[number]]
        for at, one in enumerate(ours):
            end = first + round(float(one.begin[number] + one.taking[number]) * SECOND)
            failed, last = bool(one.failed[number]), at == len(ours) - 1
            rest = None if last or not failed else round(float(ours[at + 1].delay[number]) * SECOND)
            told: dict[str, Any] = dict.fromkeys(
                ("reason", "error_type", "error_message", "error_fingerprint", "error_frames", "last_failure_us")
            )
            if failed:
                told = {
                    "reason": "exhausted" if last else "handler",
                    "error_type": "TimeoutError",
                    "error_message": "no answer",
                    "error_fingerprint": f"f{month.fingerprint[number]}",
                    "last_failure_us": end,
                }
            yield line(
                3,
                record_id=f"{name}-{version}-{number}-{one.number}",
                ts_us=end,
                destination=name,
                message_id=f"{name}-{number}",
                message_key=f"{name}-{number}",
                delivery_count=one.number,
                attempts_total=one.number,
                broker_redelivered=one.number > 1,
                first_attempt_us=first,
                handler_us=round(float(one.taking[number]) * SECOND),
                outcome="accepted" if not failed else "dead_lettered" if last else "redelivered",
                policy="…",
                policy_version=policy,
                policy_arm=arm or "main",
                propensity=1.0,
                mechanism=None if rest is None else "hold",
                delay_us=rest,
                delay_base_us=rest,
                **told,
            )


@pytest.fixture(scope="module")
def both(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Judged], LakeHistory]:
    folder: Path = tmp_path_factory.mktemp("gallery")
    arrays = {}
    records: list[bytes] = []
    for name, world in WORLDS.items():
        arrays[name], some = played(world)
        records += some
    segment(folder / "journal", records)
    compact(spark, folder / "journal", folder / "lake")
    insights(spark, folder / "lake")
    return arrays, known(spark, Lake(folder / "lake"))


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_a_lake_tells_what_the_arrays_tell(both: tuple[dict[str, Judged], LakeHistory], name: str) -> None:
    arrays, lake = both
    found, world = arrays[name], WORLDS[name]
    objective = OBJECTIVES[world.objective]
    present, better = Candidate("present", world.policy), Candidate("better", BETTER)
    ours = History(
        [row | {"destination": name} for row in found.rows],
        attempt_times=[row | {"destination": name} for row in found.times],
    )
    evidence = LakeEvidence(
        [row | {"destination": name} for row in found.observed],
        tuple(how_wrong([row | {"destination": name} for row in found.rows])),
        outage_share={name: found.outages.get("orders", 0.0)},
    )
    checks = [one for one in how_wrong(lake.apart) if one.destination == name]
    one = assess(ours, present, better, objective, evidence, destination=name)
    other = assess(lake.history, present, better, objective, lake.evidence(checks), destination=name)
    assert (other.withheld, other.confidence, other.messages) == (one.withheld, one.confidence, one.messages)
    assert [bool(reason) for reason in other.reasons] == [bool(reason) for reason in one.reasons]
    for mine, theirs in zip(one.changes, other.changes, strict=True):
        if mine.column.endswith("_s"):
            assert theirs.best == pytest.approx(mine.best, rel=0.05, abs=0.05)
        else:
            assert theirs.best == pytest.approx(mine.best, rel=0.02, abs=0.005)
    if name == "arm":
        assert [result.messages for result in other.results] == [result.messages for result in one.results]
