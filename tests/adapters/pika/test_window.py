# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests which tags are acked together (safe-cumulative-ack)."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from redeliver_mw.adapter.capabilities import Settlement
from redeliver_pika.consumer import AckWindow


def test_a_cumulative_ack_reaches_up_to_the_first_that_is_not_accepted() -> None:
    window = AckWindow()
    for tag in (1, 2, 4, 5):
        assert window.decide(tag, "accepted")
    assert window.take() == (2, [4, 5], [])
    window.decide(3, "accepted")
    assert window.take() == (3, [], [])  # 4 and 5 are settled: an ack that named one of them again closes the channel
    window.decide(6, "accepted")
    assert window.take() == (6, [], [])


def test_a_tag_that_goes_back_is_never_covered_by_an_ack() -> None:
    window = AckWindow()
    settlements: list[Settlement] = ["accepted", "released", "accepted"]
    for tag, settlement in enumerate(settlements, 1):
        window.decide(tag, settlement)
    assert window.take() == (1, [3], [2])


def test_a_tag_is_decided_once() -> None:
    window = AckWindow()
    assert window.decide(1, "accepted")
    assert not window.decide(1, "released")
    assert window.take() == (1, [], [])
    assert not window.decide(1, "accepted")


@given(st.integers(1, 60), st.integers(0, 2**32))
def test_in_any_order_and_any_batches_each_tag_is_settled_exactly_once_and_no_undecided_one(
    count: int, seed: int
) -> None:
    rng, window = random.Random(seed), AckWindow()
    tags = list(range(1, count + 1))
    rng.shuffle(tags)
    decided: set[int] = set()
    settled: set[int] = set()
    while tags:
        for tag in [tags.pop() for _ in range(min(len(tags), rng.randint(1, 5)))]:
            window.decide(tag, "accepted")
            decided.add(tag)
        top, single, _ = window.take()
        outstanding = set(range(1, top + 1)) - settled  # what the broker removes on the cumulative ack
        assert not top or top in outstanding
        assert outstanding | set(single) <= decided
        assert not outstanding & set(single)
        settled |= outstanding | set(single)
        assert settled == decided
