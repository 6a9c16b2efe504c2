# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""An assumption of the back-test is found broken where it is broken, and seldom where it is not."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from redeliver_mw.pipeline.backtest.assumptions import figures, results
from redeliver_mw.pipeline.backtest.observations import observations_of
from redeliver_mw.pipeline.backtest.sampling import blocks_of
from tests.pipeline.backtest.gallery import SLICES, GalleryWorld, judged, play, smooth, worlds

WORLDS = {world.name: world for world in worlds()}


def broken(rows: list[dict[str, Any]], outage: float = 0.0, hosts: list[dict[str, Any]] | None = None) -> set[str]:
    every = observations_of(rows)
    return {one.subject for one in figures(every, blocks_of(every, outage), hosts or []) if one.broken}


def of_world(world: GalleryWorld, seed: int) -> set[str]:
    rng = np.random.default_rng(seed)
    month = world.make(rng, 0)
    found = judged([(month, play(month, world.policy, rng), "v", np.ones(len(month.arrive), dtype=bool))])
    return broken(found.rows, found.outages.get("orders", 0.0))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("healing slower, 4 times in a month", "healing"),
        ("a deploy in the middle, slower", "healing"),
        ("a slow failure that grows", "failures"),
        ("bursts of poison", "load"),
    ],
)
def test_what_breaks_an_assumption_is_found(name: str, wanted: str) -> None:
    found = [of_world(WORLDS[name], seed) for seed in range(10)]
    assert sum(wanted in one for one in found) >= 8


def test_where_nothing_is_broken_hardly_anything_is_found() -> None:
    steady = GalleryWorld("steady", "judged", smooth())
    found = Counter(one for seed in range(60) for one in of_world(steady, seed))
    assert all(number <= 3 for number in found.values()), found  # each is one in a hundred


def rows(volume: list[int]) -> list[dict[str, Any]]:
    """Return rows with 100 messages for each unit of a slice's volume; nine tenths of them recover."""
    both = ((None, 10), (1000, 90))
    place = {"destination": "orders", "fingerprint": "f", "policy_version": "v", "lo_bin": 900}
    return [{**place, "slice": at, "hi_bin": hi, "n": n * many} for at, many in enumerate(volume) for hi, n in both]


def test_a_change_of_volume_is_found() -> None:
    assert "volume" in broken(rows([1] * (SLICES // 2) + [3] * (SLICES // 2)))
    assert "volume" not in broken(rows([1] * SLICES))
    assert "volume" not in broken(rows([1, 5] * (SLICES // 2)))


def test_one_bad_host_is_found_and_named() -> None:
    def hosts(*recovered: int) -> list[dict[str, Any]]:
        return [{"host": f"h{at}", "retries": 1000, "recovered": one} for at, one in enumerate(recovered)]

    every = observations_of(rows([1] * SLICES))
    [bad] = [one for one in figures(every, blocks_of(every), hosts(600, 610, 450, 590)) if one.subject == "host"]
    assert bad.broken
    assert bad.text.startswith("host h2: 45.0% of 1000 retries succeeded, 60.0% of those of all other hosts")
    assert "host" not in broken(rows([1] * SLICES), hosts=hosts(600, 610, 590, 600))
    assert "host" not in broken(rows([1] * SLICES), hosts=hosts(600))


def test_what_each_policy_came_to_is_reported_where_there_are_several() -> None:
    place = {"destination": "orders", "last_us": 0}
    arm = place | {"policy_version": "v slow", "messages": 200, "recovered": 180, "attempts": 700}
    main = place | {"policy_version": "v main", "messages": 2000, "recovered": 1000, "attempts": 9000}
    few = place | {"policy_version": "old", "messages": 12, "recovered": 12, "attempts": 12}
    assert results([main, few], "orders") == ()
    told_of = results([arm, main, few], "orders")
    assert [(one.policy_version, one.messages, one.recovered, one.attempts) for one in told_of] == [
        ("v main", 2000, 0.5, 4.5),
        ("v slow", 200, 0.9, 3.5),
    ]
    assert 0.83 < told_of[1].recovered_lo < 0.84  # Wilson's interval of 180 in 200, 99 %
    assert 0.94 < told_of[1].recovered_hi < 0.95
