# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests how a replay may be asked for, and the rate that it holds."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from redeliver_mw.dead_letters.sending.rate_limit import SLACK, RateLimit
from redeliver_mw.errors import ConfigError
from redeliver_mw.pipeline.replaying.options import ReplayOptions
from redeliver_mw.pipeline.replaying.publishers import shares_of


@pytest.mark.parametrize(
    ("canary", "letters", "number"),
    [
        (100, 5000, 100),
        ("100", 5000, 100),
        ("1%", 5000, 50),
        ("1%", 7, 1),
        (100, 7, 7),
        ("0.5%", 1000, 5),
        (None, 9, None),
    ],
)
def test_a_canary_is_a_number_or_a_share(canary: int | str | None, letters: int, number: int | None) -> None:
    assert ReplayOptions(canary=canary).canary_of(letters) == number


@pytest.mark.parametrize(
    "given",
    [
        {"canary": 0},
        {"canary": "0%"},
        {"canary": "101%"},
        {"canary": "many"},
        {"canary": "-3"},
        {"rate": 0},
        {"rate": -1.0},
        {"rate": math.inf},
        {"rate": math.nan},
        {"stop_at": "20"},
        {"stop_at": 1.5},
        {"stop_at": "200%"},
        {"publishers": 0},
        {"wait": -1},
        {"wait": math.nan},
        {"batch": 0},
        {"batch": 10**6},
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        ReplayOptions(**given)
    assert caught.value.where in given
    assert caught.value.cure


@pytest.mark.parametrize(("given", "share"), [("20%", 0.2), (0.2, 0.2), ("0%", 0.0), ("2.5%", 0.025), (1, 1)])
def test_a_share_is_a_fraction_or_percent(given: float | str, share: float) -> None:
    assert ReplayOptions(stop_at=given).share == pytest.approx(share)


@given(st.floats(0.5, 5000), st.lists(st.floats(0, 3), max_size=60))
@example(1.75, [0.0, 0.5, 0.75])
def test_a_rate_is_never_exceeded_and_is_kept_up_after_short_stalls(rate: float, stalls: list[float]) -> None:
    """After t seconds at most rate * t letters have gone, and one more, whatever the time between two asks."""
    now = 100.0
    pace = RateLimit(rate, clock=lambda: now)
    sent, short = 0, True
    for stall in stalls:
        now += stall
        short = short and stall <= SLACK * 0.9
        while not pace.take():
            sent += 1
            if sent == 1:
                began = now
        first = stalls[0]
        assert sent <= rate * (now - 100.0 - first) + 1
        if short and sent:
            assert sent >= rate * (now - 100.0 - first) - 1.001, began
    wait = pace.take()
    now += wait * (1 + 1e-9) + 1e-9
    assert pace.take() == 0.0  # it says when the next may go


def test_without_a_rate_nothing_waits() -> None:
    assert all(RateLimit(None).take() == 0.0 for _ in range(10))


@given(st.dictionaries(st.integers(0, 50), st.integers(1, 1000), min_size=1), st.integers(1, 5))
def test_every_bucket_is_one_publishers_and_none_has_much_more_than_another(
    letters: dict[int, int], publishers: int
) -> None:
    shares = shares_of(letters, publishers)
    assert sorted(bucket for share in shares for bucket in share) == sorted(letters)
    sizes = [sum(letters[bucket] for bucket in share) for share in shares]
    assert max(sizes) - min(sizes) <= max(letters.values())
