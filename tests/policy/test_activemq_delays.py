# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests ActiveMQ's recurrence: the numbers of its own RedeliveryPolicyTest, and what follows from its definition."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redeliver_mw.errors import PolicyError
from redeliver_mw.policy.activemq_delays import ActiveMQDelays
from redeliver_mw.policy.backoff import LONGEST, DelaySpan

LARGEST_LONG = 2**63 - 1


def milliseconds(backoff: ActiveMQDelays, count: int) -> list[int]:
    return [round(backoff.span(failures).base * 1000) for failures in range(1, count + 1)]


@pytest.mark.parametrize(
    ("origin", "backoff", "expected"),
    [
        ("A1 all defaults", ActiveMQDelays(), [1000] * 6),
        ("A2 exponential", ActiveMQDelays(multiplier=5.0), [1000, 5000, 25_000, 125_000, 625_000, 3_125_000]),
        ("A3 and a cap", ActiveMQDelays(multiplier=5.0, cap=60_000), [1000, 5000, 25_000, 60_000, 60_000, 60_000]),
        ("A4 fractions are cut off", ActiveMQDelays(3, multiplier=1.5), [3, 4, 6, 9, 13, 19]),
        ("A5 growth freezes", ActiveMQDelays(1, multiplier=1.5), [1, 1, 1, 1]),
        ("A6 a cap below the delay loses", ActiveMQDelays(50, 500, 2.0, 60), [50, 500, 500, 500]),
        ("testExponential..OnRollback", ActiveMQDelays(0, 500, 2.0), [0, 500, 1000]),
        ("testNormal..OnRollback", ActiveMQDelays(0, 500), [0, 500, 500]),
        ("testExponential..NonBlocking", ActiveMQDelays(0, 100, 2.0), [0, 100, 200, 400]),
        ("testRedeliveryDelayOne", ActiveMQDelays(0, 1000), [0, 1000]),
        ("testInitialRedeliveryDelayZero", ActiveMQDelays(0), [0]),
        ("testInitialRedeliveryDelayOne", ActiveMQDelays(1000), [1000]),
        (
            "testMaximumRedeliveryDelay",
            ActiveMQDelays(10, 50, 2.0, 1000),
            [10, 20, 40, 80, 160, 320, 640, 1000, 1000],
        ),
        ("..RedeliveryDelayIsIgnoredIfInitialAboveZero", ActiveMQDelays(42, -100, 2.0), [42, 84, 168]),
        ("a delay below zero is none", ActiveMQDelays(42, -100), [42, 0, 0]),
        ("a multiplier of 1 is no growth", ActiveMQDelays(42, 7, 1.0), [42, 7, 7]),
        ("the first delay is not cut", ActiveMQDelays(5000, 10, 2.0, 100), [5000, 100, 100]),
    ],
)
def test_the_delays_are_those_of_activemq(origin: str, backoff: ActiveMQDelays, expected: list[int]) -> None:
    assert milliseconds(backoff, len(expected)) == expected


@pytest.mark.parametrize(
    ("origin", "backoff", "previous", "expected"),
    [
        ("testGetNextWithExponentialBackoff", ActiveMQDelays(0, 500, 2.0), [0, 500, 1000], [500, 1000, 2000]),
        ("the same, growth off", ActiveMQDelays(0, 500), [1000], [500]),
        ("..IsIgnoredIfInitialAboveZero", ActiveMQDelays(42, -100, 2.0), [0, 123], [-100, 246]),
        ("the same, growth off", ActiveMQDelays(42, -100), [246], [-100]),
        ("testGetNextWithInitialDelay", ActiveMQDelays(500), [500, 1000, 1000], [1000, 1000, 1000]),
        ("testMaximumRedeliveryDelay", ActiveMQDelays(10, 50, 2.0, 1000), [LARGEST_LONG], [1000]),
        ("64 bits are enough", ActiveMQDelays(10, 50, 2.0), [LARGEST_LONG], [LARGEST_LONG]),
    ],
)
def test_each_step_is_that_of_activemq(
    origin: str, backoff: ActiveMQDelays, previous: list[int], expected: list[int]
) -> None:
    assert [backoff.following(delay) for delay in previous] == expected


class Dice(random.Random):
    """Throws what it was told."""

    def __init__(self, *throws: float) -> None:
        super().__init__()
        self.throws = list(throws)

    def random(self) -> float:
        return self.throws.pop(0)


@pytest.mark.parametrize(("coin", "expected"), [(0.0, 1.075), (0.9, 0.925)])
def test_a7_jitter_of_15_per_cent_moves_1000_ms_by_75_at_half_its_strength(coin: float, expected: float) -> None:
    backoff = ActiveMQDelays(100, 1000, factor=0.15)
    assert backoff.draw(1, Dice()) == 0.1  # the first delay is never jittered
    assert backoff.draw(2, Dice(coin, 0.5)) == expected
    assert backoff.span(1) == DelaySpan(0.1, 0.1, 0.1)
    assert backoff.span(2) == DelaySpan(1.0, 0.85, 1.15)


def test_jitter_compounds_from_step_to_step_and_passes_the_cap() -> None:
    backoff = ActiveMQDelays(1000, multiplier=2.0, cap=3000, factor=0.5)
    # 1000; 2000 +- half; then twice that, at most 3000, +- half
    assert backoff.span(2) == DelaySpan(2.0, 1.0, 3.0)
    assert backoff.span(3) == DelaySpan(3.0, 1.0, 4.5)
    assert backoff.draw(3, Dice(0.9, 1.0, 0.9, 1.0)) == 1.0  # 2000 - 1000; 2000 - 1000
    assert backoff.draw(3, Dice(0.0, 1.0, 0.0, 0.2)) == 3.3  # 3000; 3000 + 300


def test_growth_begins_anew_after_jitter_has_made_a_delay_none() -> None:
    # 1 ms less a little is 0.9 ms, which is 0; after 0 comes `delay`
    backoff = ActiveMQDelays(1, 700, 1.5, factor=0.2)
    assert backoff.draw(2, Dice(0.9, 0.5)) == 0.0
    assert backoff.span(2) == DelaySpan(0.001, 0.0, 0.001)
    assert backoff.draw(3, Dice(0.9, 0.5, 0.0, 0.0)) == 0.7
    assert backoff.span(3) == DelaySpan(0.001, 0.0, 0.84)


recurrences = st.builds(
    ActiveMQDelays,
    st.integers(-10, 3000),
    st.integers(-10, 3000),
    st.none() | st.floats(0.5, 9),
    st.none() | st.integers(-2, 100_000),
    st.floats(0, 3),
)


@given(recurrences, st.integers(1, 40), st.integers())
def test_what_is_drawn_lies_in_the_span(backoff: ActiveMQDelays, failures: int, seed: int) -> None:
    base, low, high = backoff.span(failures)
    assert 0 <= low <= base <= high <= LONGEST
    assert low <= backoff.draw(failures, random.Random(seed)) <= high
    assert high <= backoff.longest(failures) <= LONGEST


steady = st.builds(
    ActiveMQDelays,
    st.integers(1, 3000),
    st.integers(1, 3000),
    st.none() | st.floats(0.5, 9),
    st.none() | st.integers(1, 100_000),
    st.floats(0, 0.9),
)


@given(steady, st.integers(2, 6))
def test_the_longest_delay_of_the_span_is_reached(backoff: ActiveMQDelays, failures: int) -> None:
    # every way through the steps, at full strength and at less
    reached = {backoff.initial}
    for _ in range(failures - 1):
        shares = (1.0, 0.5, 0.0, -0.001, -0.5, -1.0)
        reached = {backoff.following(delay, share) for delay in reached for share in shares}
    span = backoff.span(failures)
    assert span.high == max(reached) / 1000
    assert span.low <= min(reached) / 1000


def test_delays_beyond_the_longest_are_the_longest() -> None:
    backoff = ActiveMQDelays(multiplier=1e300)
    assert backoff.span(2) == DelaySpan(LONGEST, LONGEST, LONGEST)
    assert backoff.span(10**18) == DelaySpan(LONGEST, LONGEST, LONGEST)
    assert backoff.longest(None) == LONGEST


def test_growth_that_never_rests_is_answered_in_bounded_time() -> None:
    backoff = ActiveMQDelays(1_000_000, multiplier=1.000_001, factor=0.01)
    assert backoff.span(10**15) == backoff.span(10_000)
    assert backoff.draw(10**15, random.Random(1)) <= backoff.longest(None)


def test_what_behaves_the_same_is_equal() -> None:
    assert ActiveMQDelays(multiplier=0.5, cap=7) == ActiveMQDelays()
    assert ActiveMQDelays(factor=-0.15) == ActiveMQDelays(factor=0.15)


@pytest.mark.parametrize(
    "wrong",
    [
        {"initial": 1.5},
        {"delay": 2**63},
        {"cap": "9"},
        {"multiplier": float("nan")},
        {"factor": float("inf")},
        {"initial": True},
        {"initial": None},
    ],
)
def test_what_is_no_number_of_milliseconds_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(PolicyError):
        ActiveMQDelays(**wrong)  # on purpose


def test_the_text_says_from_where_delays_grow_after_a_first_one_of_nothing() -> None:
    assert str(ActiveMQDelays(0, 20, 2.0, 5000)) == "0 ms, then 20 ms, growing 2 times up to 5000 ms"
    assert str(ActiveMQDelays(1000, 1000, 5.0, 60)) == "1000 ms, growing 5 times up to 1000 ms"
