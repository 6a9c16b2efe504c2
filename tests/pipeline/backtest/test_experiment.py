# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""An experiment is proposed where messages still recovered when they were given up, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

from redeliver_mw.pipeline.backtest import History
from redeliver_mw.pipeline.backtest.attempt_times import PATHS, AttemptTimes, TimesByGroup
from redeliver_mw.pipeline.backtest.experiment import experiment
from redeliver_mw.pipeline.backtest.schedule import schedule
from redeliver_mw.pipeline.time_bins import bin_of
from redeliver_mw.policy import Backoff, RedeliveryPolicy, load_policies

from .worlds import World, exponential, history, lognormal, poison

USUAL = RedeliveryPolicy(6, Backoff.exponential(1, 2))  # at 1, 3, 7, 15 and 31 s


def known(world: World) -> History:
    rng = np.random.default_rng(1)
    return History(history(world(4000, rng), USUAL, rng))


def test_where_the_curve_still_rises_an_arm_goes_on_from_there() -> None:
    trial = experiment(known(lognormal(10.0, 2.0)), USUAL)
    assert trial is not None
    [longer] = [arm.policy for arm in trial.policy.apart if arm.name == "longer"]
    spans = [longer.backoff.span(failures).low for failures in range(1, longer.dead_after or 0)]
    assert spans == [1, 2, 4, 8, 16, 31, 62]
    assert trial.until_s == sum(spans) == 124
    assert 0.2 < trial.gain_most < 0.35  # what is given up: lognormal, later than 31 s
    read = load_policies(trial.toml).resolve("orders")
    assert read.version == trial.policy.version


@pytest.mark.parametrize("world", [poison, exponential(0.5)])
def test_where_nothing_recovers_late_there_is_nothing_to_try(world: World) -> None:
    assert experiment(known(world), USUAL) is None


def test_messages_of_outages_make_an_experiment_longer() -> None:
    one, many = (experiment(known(lognormal(10.0, 2.0)), USUAL, design_effect=effect) for effect in (1.0, 10.0))
    assert one is not None
    assert many is not None
    assert many.messages == pytest.approx(10 * one.messages, rel=0.1)


def test_a_policy_without_an_end_needs_no_experiment() -> None:
    endless = RedeliveryPolicy(None, 5.0, None)
    assert experiment(known(lognormal(10.0, 2.0)), endless) is None


# -- the times that attempts take -------------------------------------------------------------------------------------


def rows(destination: str, kind: str, *seconds: float) -> list[dict[str, object]]:
    return [
        {"destination": destination, "fingerprint": "f", "kind": kind, "bin": bin_of(round(one * 1e6)), "n": 10}
        for one in seconds
    ]


def test_the_quantiles_of_attempt_times_have_their_mean() -> None:
    found = TimesByGroup([("slow", "f")], rows("slow", "failing", 0.1, 1.0, 10.0), AttemptTimes.constant()).of[0]
    assert len(found.failing) == PATHS
    assert found.failing.mean() == pytest.approx(3.7, rel=0.01)
    assert (np.diff(found.failing) >= 0).all()
    assert sorted(found.failing_of(3)) == pytest.approx(sorted(found.failing))


def test_failures_with_too_few_attempts_take_the_times_of_their_destination() -> None:
    few = [{"destination": "slow", "fingerprint": "rare", "kind": "failing", "bin": bin_of(1000), "n": 1}]
    groups = [("quick", "f"), ("slow", "f"), ("slow", "rare")]
    told = [*rows("quick", "failing", 0.001), *rows("slow", "failing", 8.0), *few]
    quick, slow, rare = TimesByGroup(groups, told, AttemptTimes.constant()).of
    assert quick.failing.mean() < 0.01
    assert 7.0 < rare.failing.mean() < 8.0
    assert slow is rare  # attempts of both take about as long


def test_a_schedule_counts_to_the_beginning_of_each_retry() -> None:
    """The first failure is time 0; of the attempts only those that failed before a retry delay it."""
    taking = AttemptTimes.constant(late_s=0.5, failing_s=10.0)
    found = schedule(RedeliveryPolicy(4, [1.0, 2.0, 4.0]), 1000.0, taking=taking)
    assert found.times.tolist() == [[1.5, 1.5 + 10 + 2.5, 1.5 + 12.5 + 10 + 4.5]]
