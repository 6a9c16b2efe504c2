# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Compares our delays with those of ActiveMQ's own RedeliveryPolicy.

The delays agree to the millisecond, and jitter by its distribution.
"""

from __future__ import annotations

import bisect
import math
import random

import pytest

from redeliver_mw.policy import Redeliver, load_policies
from redeliver_mw.policy.activemq_delays import ActiveMQDelays
from redeliver_mw.policy.backoff import LONGEST, Backoff
from redeliver_mw.policy.formats.activemq.reader import read
from tests.brokers import BrokerMissing
from tests.brokers.activemq import VERSIONS
from tests.brokers.skips import not_to_be_had
from tests.differential.harness import ActiveMQ, Settings

pytestmark = pytest.mark.broker

SETS = 2000
DRAWS = 10_000
# Two samples of one distribution are further apart than this once in a thousand times; both dice are fixed.
FARTHEST_APART = math.sqrt(-math.log(0.001 / 2) / 2) * math.sqrt(2 / DRAWS)


@pytest.fixture(scope="module", params=VERSIONS)
def theirs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ActiveMQ:
    try:
        return ActiveMQ(request.param, tmp_path_factory.mktemp("classes"))
    except BrokerMissing as missing:
        not_to_be_had(missing)


def settings(dice: random.Random, *, collision: bool) -> Settings:
    """Return any settings, with the corners of 64 bits and of growth more often than chance would have them."""

    def delay() -> int:
        corners = (0, 1, 2, 1000, -1, -100, 2**31, 2**62, 2**63 - 1)
        return dice.choice([dice.choice(corners), dice.randint(-50, 50), dice.randint(0, 10**6)])

    multiplier = dice.choice([0.0, 0.5, 1.0, 1.5, 2.0, 5.0, 1e308, -3.0, dice.uniform(0.9, 1.2), dice.uniform(0, 20)])
    maximum = dice.choice([-1, -1, 0, -5, dice.randint(1, 100), dice.randint(1, 10**7), 2**63 - 1])
    percent = dice.choice([0, 1, 15, 50, 99, 100, 250, -15, dice.randint(0, 100)]) if collision else 15
    return Settings(delay(), delay(), dice.random() < 0.75, multiplier, maximum, collision, percent)


def seconds(milliseconds: int) -> float:
    """Return how long ActiveMQ waits for such a delay: not at all below 0; and here never longer than LONGEST."""
    return min(max(milliseconds, 0) / 1000, LONGEST)


def test_two_thousand_random_policies_rest_as_long_as_activemqs_to_the_millisecond(theirs: ActiveMQ) -> None:
    dice = random.Random(1)
    asked = [(settings(dice, collision=False), dice.randint(1, 60)) for _ in range(SETS)]
    chains = theirs.chains((one, failures, 1) for one, failures in asked)
    assert len(chains) == SETS
    for (one, failures), chain in zip(asked, chains, strict=True):
        policy = load_policies(one.url()).default
        ours = [policy.decide(failure) for failure in range(1, failures + 1)]
        assert ours == [Redeliver(*[seconds(delay)] * 3) for delay in chain], one
        assert isinstance(policy.backoff, ActiveMQDelays)
        assert [policy.backoff.following(delay) for delay in chain[:-1]] == chain[1:], one


def test_with_jitter_what_activemq_draws_lies_in_our_span(theirs: ActiveMQ) -> None:
    dice = random.Random(2)
    asked = [(settings(dice, collision=True), 30) for _ in range(SETS)]
    chains = theirs.chains((one, failures, 1) for one, failures in asked)
    for (one, _), chain in zip(asked, chains, strict=True):
        backoff = read(one.url()).default.backoff
        for failure, delay in enumerate(chain, 1):
            _, low, high = backoff.span(failure)
            assert low <= seconds(delay) <= high, (one, failure)


JITTERED = [
    (Settings(collision=True), 2),
    (Settings(collision=True), 6),
    (Settings(100, 1000, collision=True, percent=50), 3),
    (Settings(exponential=True, multiplier=2.0, collision=True), 3),
    (Settings(exponential=True, multiplier=2.0, collision=True, percent=40), 8),
    (Settings(exponential=True, multiplier=1.5, maximum=3000, collision=True, percent=30), 6),
    (Settings(200, 5000, exponential=True, multiplier=3.0, maximum=1000, collision=True, percent=100), 5),
    (Settings(0, 500, exponential=True, multiplier=1.2, collision=True, percent=60), 10),
    (Settings(3, 40, exponential=True, multiplier=1.1, collision=True, percent=90), 12),  # often 0, and anew from 40
]


@pytest.mark.parametrize(("one", "failures"), JITTERED)
def test_jitter_is_drawn_from_the_distribution_of_activemq(theirs: ActiveMQ, one: Settings, failures: int) -> None:
    backoff = read(one.url()).default.backoff
    ours = drawn(backoff, failures)
    assert apart(ours, [seconds(chain[-1]) for chain in theirs.chains([(one, failures, DRAWS)])]) < FARTHEST_APART


def test_the_measure_tells_compounding_jitter_from_jitter_of_the_last_step(theirs: ActiveMQ) -> None:
    one = Settings(exponential=True, multiplier=2.0, collision=True, percent=40)
    chains = theirs.chains([(one, 4, DRAWS)])
    once = drawn(ActiveMQDelays(multiplier=2.0).jittered(0.4), 4)
    assert apart(once, [seconds(chain[-1]) for chain in chains]) > 2 * FARTHEST_APART


def drawn(backoff: Backoff, failures: int) -> list[float]:
    dice = random.Random(failures)
    return [backoff.draw(failures, dice) for _ in range(DRAWS)]


def apart(one: list[float], other: list[float]) -> float:
    """Return Kolmogorov and Smirnov's distance of two samples.

    That is the largest difference of their shares up to any value.
    """
    left, right = sorted(one), sorted(other)
    return max(
        abs(bisect.bisect_right(left, value) / len(left) - bisect.bisect_right(right, value) / len(right))
        for value in {*left, *right}
    )
