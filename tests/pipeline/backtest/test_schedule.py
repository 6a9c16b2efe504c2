# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The times of a schedule are those that its delays come to, in whichever way the delays are computed."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest

from redeliver_mw.errors import RetryAfter
from redeliver_mw.pipeline.backtest.attempt_times import PATHS, AttemptTimes
from redeliver_mw.pipeline.backtest.schedule import schedule
from redeliver_mw.policy import Backoff, RedeliveryPolicy
from redeliver_mw.policy.backoff import DelaySpan, Spread, Uniform


@dataclass(frozen=True)
class OneByOne(Backoff):
    """Does what another back-off does, whose kind cannot be seen, so that each delay is drawn for itself."""

    inner: Backoff

    def span(self, failures: int) -> DelaySpan:
        return self.inner.span(failures)

    def bound(self, last: int | None) -> float:
        return self.inner.bound(last)

    def draw(self, failures: int, rng: random.Random) -> float:
        return self.inner.draw(failures, rng)


@pytest.mark.parametrize(
    "backoff",
    [
        Backoff.exponential(0.7, 1.3, cap=5.0).jittered(0.2),
        Backoff.constant(1.1).jittered(1.0),
        Backoff.constant(0.0).jittered(0.5),
        Backoff.exponential(0.7, 1.3).jittered(0.3, first=False),
        Backoff.exponential(0.7, 1.3).jittered(0.3).capped(2.0),
        Spread(Uniform(0.5, 2.0), 0.2),
        Spread(Uniform(0.5, 2.0).jittered(0.5), 0.2),
    ],
    ids=str,
)
@pytest.mark.parametrize("attempts", [1, 2, 7, 30])
@pytest.mark.parametrize("error", [None, RetryAfter(0.9)], ids=["no wish", "a wish"])
def test_delays_that_are_drawn_together_are_those_that_are_drawn_one_by_one(
    backoff: Backoff, attempts: int, error: BaseException | None
) -> None:
    taking = AttemptTimes(np.linspace(0.1, 3.0, PATHS), np.linspace(0.0, 0.4, PATHS))
    together, apart = (
        schedule(RedeliveryPolicy(attempts, one), 1e6, taking=taking, error=error)
        for one in (backoff, OneByOne(backoff))
    )
    assert together.times.tolist() == apart.times.tolist()


def test_the_times_of_a_shorter_policy_are_the_beginning_of_those_of_a_longer_one() -> None:
    backoff = Backoff.exponential(1, 2).jittered(0.2)
    long, short = (schedule(RedeliveryPolicy(attempts, backoff), 1e6) for attempts in (30, 5))
    assert long.times[:, :4].tolist() == short.times.tolist()
