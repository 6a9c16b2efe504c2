# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Each candidate of a grid and of a search is a policy that a person would write down."""

from __future__ import annotations

from typing import Any

import pytest

from redeliver_mw.pipeline.backtest.grid import Shape, read_grid
from redeliver_mw.pipeline.backtest.history import History
from redeliver_mw.pipeline.backtest.objective import OBJECTIVES, recommend
from redeliver_mw.pipeline.backtest.rows import Candidate
from redeliver_mw.pipeline.backtest.search import Searched, search
from redeliver_mw.policy import RedeliveryPolicy
from tests.pipeline.test_report_facts import recovered

NOW = "now"


def searched(*rows: dict[str, Any], first: float = 1.0, objective: str = "fewer-attempts") -> Searched:
    like = RedeliveryPolicy(4, first)
    return search(History(rows), Candidate(NOW, like), like, OBJECTIVES[objective], destination="orders")


def delays(found: Searched) -> list[tuple[float, ...]]:
    """Return the first three delays of each candidate that has any, without the present one."""
    policies = [one.policies.resolve("orders") for one in found.candidates if one.name != NOW]
    return [tuple(one.backoff.span(n).base for n in (1, 2, 3)) for one in policies if one.dead_after != 1]


@pytest.mark.parametrize("first", [1.0, 0.0001, 0.0])
@pytest.mark.parametrize("longest", [0.0, 0.0007, 0.3, 31.25, 86_400.0])
def test_no_candidate_of_a_search_has_a_cap_below_its_first_delay_or_less_than_a_millisecond(
    longest: float, first: float
) -> None:
    found = searched(recovered(0, longest / 2 or None, 60), recovered(longest, None, 40), first=first)
    for candidate in found.candidates:
        _, capped, cap = candidate.name.partition(" up to ")
        if capped:
            assert float(candidate.name.split(", ")[1].split(" s ")[0]) < float(cap.split(" s")[0]), candidate.name
    for found_delays in delays(found):
        assert all(delay >= 0.001 for delay in found_delays)
        assert found_delays[0] == pytest.approx(round(found_delays[0], 3), abs=1e-9)


def test_one_attempt_is_among_the_candidates_and_is_taken_where_nothing_ever_heals() -> None:
    found = searched(recovered(7, None, 100))
    chosen = recommend(found.rows, OBJECTIVES["fewer-attempts"], NOW, destination="orders")
    assert chosen.best is not None
    assert chosen.best.candidate == "1 attempt"
    assert (chosen.best.attempts_per_message, chosen.best.dead_letter_share) == (1.0, 1.0)
    (policy,) = (one.policies for one in found.candidates if one.name == "1 attempt")
    assert policy.resolve("orders").dead_after == 1


def test_one_attempt_is_not_taken_where_messages_heal() -> None:
    found = searched(recovered(0, 1, 60), recovered(1, 3, 20), recovered(3, None, 20))
    for objective in OBJECTIVES.values():
        chosen = recommend(found.rows, objective, NOW, destination="orders")
        assert chosen.best is None or chosen.best.candidate != "1 attempt"


@pytest.mark.parametrize(
    ("shape", "plain"),
    [
        (Shape(5, 15.6, 1.5, 7.81), Shape(5, 7.81, 1.0)),
        (Shape(5, 7.81, 1.5, 7.81), Shape(5, 7.81, 1.0)),
        (Shape(5, 1.0, 1.0, 60.0), Shape(5, 1.0, 1.0)),
        (Shape(2, 1.0, 3.0, 60.0), Shape(2, 1.0, 1.0)),
        (Shape(5, 1.0, 2.0, 60.0, 0.2), Shape(5, 1.0, 2.0, 60.0, 0.2)),
    ],
)
def test_a_shape_is_written_in_the_plainest_way_and_does_the_same(shape: Shape, plain: Shape) -> None:
    assert shape.normalised() == plain
    for failures in range(1, shape.attempts):
        assert shape.backoff().span(failures) == plain.backoff().span(failures)


def test_a_grid_whose_cap_is_below_a_first_delay_names_the_constant_delay_once() -> None:
    names = [one.candidate(RedeliveryPolicy()).name for one in read_grid("attempts=3 initial=2,60 multiplier=3 cap=7")]
    assert names == ["3 attempts, 2 s times 3 up to 7 s", "3 attempts, 7 s"]


def test_a_grid_may_have_one_attempt() -> None:
    assert [one.candidate(RedeliveryPolicy()).name for one in read_grid("attempts=1-2 initial=5")] == [
        "1 attempt",
        "2 attempts, 5 s",
    ]
